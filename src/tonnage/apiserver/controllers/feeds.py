"""Where the controllers hear of changes: the embedded server's store, or list and watch of any API server."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import Protocol, TypeAlias

import msgspec

from tonnage.apiserver.controllers.meta import key_of
from tonnage.kube.resources import Resource
from tonnage.kube.transport import ApiError, ClientError
from tonnage.kube.verbs import Client, JsonObject

_WATCH_S = 300.0
_RETRY_S = 0.5


class WatchEvent(Protocol):
    """``type`` is ADDED, MODIFIED or DELETED (then ``object`` is the last state). Nobody changes ``object``."""

    @property
    def type(self) -> str: ...

    @property
    def resource(self) -> Resource: ...

    @property
    def object(self) -> JsonObject: ...


class Feed(Protocol):
    """First the present state (``initial`` changes, all ADDED), then every change, in order for each resource."""

    initial: int

    def get(self, timeout: float | None = None) -> WatchEvent | None:
        """The next change, waiting up to ``timeout`` seconds; None when there is none."""
        ...

    def close(self) -> None:
        """End it."""
        ...


Subscribe: TypeAlias = Callable[[Callable[[], None]], Feed]
"""A new feed; the argument is called, on any thread and quickly, whenever a change can be read."""


@dataclass(frozen=True, slots=True)
class FeedChange:
    """A change."""

    type: str
    resource: Resource
    object: JsonObject


class _Event(msgspec.Struct, frozen=True):
    type: str
    object: msgspec.Raw


class WatchFeed:
    """A feed over list and watch, one thread a resource. Custom resources that are not installed are left out.

    Making it lists everything: raises ClientError when that fails.
    """

    def __init__(self, client: Client, resources: Iterable[Resource], notify: Callable[[], None]) -> None:
        self._client, self._notify = client, notify
        self._queue: SimpleQueue[FeedChange] = SimpleQueue()
        self._stop = threading.Event()
        self._known: dict[Resource, dict[tuple[str, str], JsonObject]] = {}
        self.last_error = ""
        versions: list[tuple[Resource, str]] = []
        for resource in resources:
            try:
                versions.append((resource, self._list(resource)))
            except ApiError as error:
                if error.code != 404 or not resource.custom:
                    raise
        self.initial = self._queue.qsize()
        for resource, version in versions:
            threading.Thread(target=self._follow, args=(resource, version), daemon=True).start()

    def get(self, timeout: float | None = None) -> FeedChange | None:
        try:
            return self._queue.get_nowait() if timeout == 0 else self._queue.get(timeout=timeout)
        except Empty:
            return None

    def close(self) -> None:
        """End it; the threads go when their watches end."""
        self._stop.set()

    def _list(self, resource: Resource) -> str:
        """Put in what changed since the last list; the version of the list."""
        page = self._client.page(resource)
        objects = [_with_kind(resource, msgspec.json.decode(raw)) for raw in page.items or ()]
        before = self._known.get(resource, {})
        now = {key_of(obj): obj for obj in objects}
        for key, obj in before.items():
            if key not in now or now[key]["metadata"]["uid"] != obj["metadata"]["uid"]:
                self._put(FeedChange("DELETED", resource, obj))
        for obj in objects:
            self._put(FeedChange("ADDED", resource, obj))
        self._known[resource] = now
        return page.metadata.resource_version

    def _follow(self, resource: Resource, version: str) -> None:
        while not self._stop.is_set():
            try:
                version = self._watch(resource, version)
            except ClientError as error:
                self.last_error = f"{resource.plural}: {error}"
                self._stop.wait(_RETRY_S)
                version = self._relist(resource, version)

    def _relist(self, resource: Resource, version: str) -> str:
        try:
            return self._list(resource)
        except ClientError as error:
            self.last_error = f"{resource.plural}: {error}"
            return version

    def _watch(self, resource: Resource, version: str) -> str:
        query = {"watch": "1", "resourceVersion": version, "allowWatchBookmarks": "true"}
        known = self._known[resource]
        with self._client.transport.stream(resource.path(), query=query, timeout_s=_WATCH_S) as lines:
            for line in lines:
                event = msgspec.json.decode(line, type=_Event)
                obj: JsonObject = msgspec.json.decode(event.object)
                if event.type == "ERROR":
                    raise ApiError(obj.get("code", 500), obj.get("reason", ""), obj.get("message", ""))
                version = obj["metadata"]["resourceVersion"]
                if self._stop.is_set():
                    break
                if event.type == "BOOKMARK":
                    continue
                if event.type == "DELETED":
                    known.pop(key_of(obj), None)
                else:
                    known[key_of(obj)] = obj
                self._put(FeedChange(event.type, resource, obj))
        return version

    def _put(self, change: FeedChange) -> None:
        self._queue.put(change)
        self._notify()


def _with_kind(resource: Resource, obj: JsonObject) -> JsonObject:
    """Items of lists carry neither apiVersion nor kind."""
    return {"apiVersion": resource.api_version, "kind": resource.kind, **obj}
