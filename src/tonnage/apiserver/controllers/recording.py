"""Events, thinned out as client-go does it.

Sources: k8s.io/client-go v0.36 tools/record/events_cache.go: the same event again raises its count; from the tenth
message of one reason on within ten minutes they are one combined event; an object gets at most 25 events from one
source, and another one every five minutes.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from random import Random
from typing import Generic, TypeVar

from tonnage.apiserver.controllers.meta import key_of, stamp, uid_of
from tonnage.kube.resources import EVENTS, Resource
from tonnage.kube.transport import ApiError, ClientError
from tonnage.kube.verbs import Client, JsonObject

_MOST_SIMILAR = 10
_SIMILAR_S = 600.0
_BURST = 25.0
_REFILL_PER_S = 1.0 / 300.0
_KEPT = 4096
_T = TypeVar("_T")


@dataclass(slots=True)
class _Allowance:
    left: float
    since: float


@dataclass(slots=True)
class _Similar:
    messages: set[str] = field(default_factory=set)
    last: float = float("-inf")


@dataclass(slots=True)
class _Written:
    name: str
    count: int


class _Recent(Generic[_T]):
    """A dict that forgets what was not used for longest."""

    def __init__(self) -> None:
        self._entries: OrderedDict[Hashable, _T] = OrderedDict()

    def get(self, key: Hashable) -> _T | None:
        found = self._entries.get(key)
        if found is not None:
            self._entries.move_to_end(key)
        return found

    def put(self, key: Hashable, value: _T) -> _T:
        self._entries[key] = value
        self._entries.move_to_end(key)
        if len(self._entries) > _KEPT:
            self._entries.popitem(last=False)
        return value


class Recorder:
    """Writes events about objects. Losing one is not an error: ``lost`` counts them."""

    def __init__(self, client: Client, clock: Callable[[], float], random: Random) -> None:
        self.count = 0
        self.lost = 0
        self._client, self._clock, self._random = client, clock, random
        self._allowances: _Recent[_Allowance] = _Recent()
        self._similar: _Recent[_Similar] = _Recent()
        self._written: _Recent[_Written] = _Recent()

    def event(
        self, component: str, resource: Resource, obj: JsonObject, reason: str, message: str, kind: str = "Normal"
    ) -> None:
        """Record what happened to an object. ``kind`` is Normal or Warning."""
        now, uid = self._clock(), uid_of(obj)
        about = component, uid, kind, reason
        key: Hashable = (*about, message)
        similar = self._similar.get(about)
        if similar is None or now - similar.last > _SIMILAR_S:
            similar = self._similar.put(about, _Similar())
        similar.messages.add(message)
        similar.last = now
        if len(similar.messages) >= _MOST_SIMILAR:
            similar.messages.discard(message)
            key, message = about, f"(combined from similar events): {message}"
        if not self._allowed((component, uid), now):
            return
        try:
            self._write(key, component, resource, obj, reason, message, kind)
        except ClientError:
            self.lost += 1

    def _allowed(self, key: Hashable, now: float) -> bool:
        allowance = self._allowances.get(key) or self._allowances.put(key, _Allowance(_BURST, now))
        allowance.left = min(_BURST, allowance.left + max(0.0, now - allowance.since) * _REFILL_PER_S)
        allowance.since = now
        if allowance.left < 1.0:
            return False
        allowance.left -= 1.0
        return True

    def _write(
        self, key: Hashable, component: str, resource: Resource, obj: JsonObject, reason: str, message: str, kind: str
    ) -> None:
        namespace, about = key_of(obj)
        when = stamp(self._clock())
        written = self._written.get(key)
        if written is not None:
            patch = {"count": written.count + 1, "lastTimestamp": when, "message": message}
            try:
                self._client.patch(EVENTS, written.name, patch, namespace or "default")
            except ApiError as error:
                if error.code != 404:
                    raise
            else:
                written.count += 1
                self.count += 1
                return
        name = f"{about}.{self._random.getrandbits(64):016x}"
        where = {"namespace": namespace} if namespace else {}
        self._client.create(
            EVENTS,
            {
                "apiVersion": "v1",
                "kind": "Event",
                "metadata": {"name": name, "namespace": namespace or "default"},
                "involvedObject": {
                    "apiVersion": resource.api_version,
                    "kind": resource.kind,
                    "name": about,
                    **where,
                    "uid": uid_of(obj),
                    "resourceVersion": obj["metadata"].get("resourceVersion", ""),
                },
                "reason": reason,
                "message": message,
                "source": {"component": component},
                "reportingComponent": component,
                "reportingInstance": "",
                "type": kind,
                "count": 1,
                "firstTimestamp": when,
                "lastTimestamp": when,
                "eventTime": None,
            },
            namespace or "default",
        )
        self._written.put(key, _Written(name, 1))
        self.count += 1
