"""Events of the embedded API's controllers, written at once. Which are, and as what, :mod:`tonnage.kube.correlation`
says: each component has its own share of events about an object, as in client-go."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from tonnage.apiserver.controllers.meta import key_of, stamp, uid_of
from tonnage.kube.correlation import About, Correlator, Recent
from tonnage.kube.events import event_object
from tonnage.kube.resources import EVENTS, Resource
from tonnage.kube.transport import ApiError, ClientError
from tonnage.kube.verbs import Client, JsonObject


@dataclass(slots=True)
class _Written:
    name: str = ""
    count: int = 0


class ControllerRecorder:
    """Writes events about objects. Losing one is not an error: ``lost`` counts them."""

    def __init__(self, client: Client, clock: Callable[[], float], random: Random) -> None:
        self.count = 0
        self.lost = 0
        self._client, self._clock, self._random = client, clock, random
        self._correlators: defaultdict[str, Correlator] = defaultdict(Correlator)
        self._written: Recent[_Written] = Recent()

    def event(
        self, component: str, resource: Resource, obj: JsonObject, reason: str, message: str, kind: str = "Normal"
    ) -> None:
        """Record what happened to an object. ``kind`` is Normal or Warning."""
        namespace, name = key_of(obj)
        about = About(resource.api_version, resource.kind, name, namespace, uid_of(obj))
        said = self._correlators[component].message(about, kind, reason, message, self._clock())
        if said is None:
            return
        written = self._written.get((component, *Correlator.key(about, kind, reason, said)), _Written)
        version = obj["metadata"].get("resourceVersion", "")
        try:
            self._write(written, component, about, version, reason, said, kind)
        except ClientError:
            self.lost += 1

    def _write(
        self, written: _Written, component: str, about: About, version: str, reason: str, message: str, kind: str
    ) -> None:
        namespace, when = about.namespace or "default", stamp(self._clock())
        if written.name:
            patch = {"count": written.count + 1, "lastTimestamp": when, "message": message}
            try:
                self._client.patch(EVENTS, written.name, patch, namespace)
            except ApiError as error:
                if error.code != 404:
                    raise
            else:
                written.count += 1
                self.count += 1
                return
        name = f"{about.name}.{self._random.getrandbits(64):016x}"
        event = event_object(name, namespace, about, (component, ""), kind, reason, message, when)
        event["involvedObject"]["resourceVersion"] = version
        self._client.create(EVENTS, event | {"eventTime": None}, namespace)
        written.name, written.count = name, 1
        self.count += 1
