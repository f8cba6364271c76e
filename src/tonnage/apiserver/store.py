"""The objects of the embedded API, all versions that may still be asked for, and who wants to hear of changes.

One counter gives every write its resourceVersion, as etcd's revision does. Each version of an object is kept as its
encoded bytes; its dict is made when somebody needs it. The last changes are remembered: a watch may start at any of
their versions, and a list may be read as it was then. Older versions are *compacted*: asking for one is 410 Expired.
"""

from __future__ import annotations

import threading
from bisect import bisect_left, insort
from collections import deque
from collections.abc import Callable, Iterable
from queue import Empty, SimpleQueue
from typing import Any, NamedTuple, TypeAlias

import msgspec

from tonnage.apiserver.status import expired
from tonnage.kube.resources import SERVED, Resource

JsonObject: TypeAlias = dict[str, Any]

ADDED, MODIFIED, DELETED = "ADDED", "MODIFIED", "DELETED"
HISTORY = 10_000
"""Changes remembered unless the caller says otherwise."""
BACKLOG = 100_000
"""Changes that may wait for one subscriber before it is cut off."""
_WARM = 2_000  # superseded versions whose dict is kept for watchers with selectors

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode


class Stored:
    """One version of an object. ``raw`` is its JSON; ``object`` is shared by all readers: do not change it."""

    __slots__ = ("_object", "key", "raw", "version")

    def __init__(self, key: str, version: int, raw: bytes, obj: JsonObject | None = None) -> None:
        self.key, self.version, self.raw, self._object = key, version, raw, obj

    @property
    def object(self) -> JsonObject:
        """The object as a dict, shared: read only."""
        found = self._object
        if found is None:
            found = self._object = _decode(self.raw)
        return found

    def fresh(self) -> JsonObject:
        """The object as a dict of the caller's own."""
        copy: JsonObject = _decode(self.raw)
        return copy

    def apart(self, *fields: str) -> JsonObject:
        """The object as a dict of the caller's own, and the objects in these fields of it; what is below those is
        shared: read only."""
        copy = dict(self.object)
        for field in fields:
            copy[field] = dict(copy.get(field) or {})
        return copy

    def cool(self) -> None:
        """Forget the dict; the bytes stay."""
        self._object = None


class StoreEvent(NamedTuple):
    """One write. ``now`` is the version written (for DELETED the last state, at the deletion's version)."""

    version: int
    type: str
    resource: Resource
    now: Stored
    old: Stored | None

    @property
    def object(self) -> JsonObject:
        """The object as a dict, shared: read only."""
        return self.now.object


class Subscription:
    """Changes in the order of their versions, each once. Made by :meth:`Store.subscribe`; one thread reads it."""

    def __init__(self, store: Store, resource: Resource | None, notify: Callable[[], None] | None) -> None:
        self.resource = resource
        self.version = 0  # the version of the state that the first changes (all ADDED) stand for, or where it began
        self.initial = 0  # how many of the first changes are that state
        self._store = store
        self._queue: SimpleQueue[StoreEvent | None] = SimpleQueue()
        self._notify = notify
        self._closed = self._behind = False

    def get(self, timeout: float | None = None) -> StoreEvent | None:
        """The next change, waiting up to ``timeout`` seconds (None: as long as it takes).

        None when the time is over or the subscription was closed. Raises Refusal (410 Expired) when the reader fell
        too far behind.
        """
        if self._behind and self._queue.empty():
            raise expired("too many changes are waiting for this watch; list again")
        try:
            return self._queue.get_nowait() if timeout == 0 else self._queue.get(timeout=timeout)
        except Empty:
            return None

    def pending(self) -> int:
        """How many changes wait to be read."""
        return self._queue.qsize()

    @property
    def closed(self) -> bool:
        """Whether it ended and nothing more will come."""
        return self._closed

    def close(self) -> None:
        """End it, from any thread; a waiting :meth:`get` returns None."""
        self._store._unsubscribe(self)
        self._closed = True
        self._queue.put(None)
        if self._notify is not None:
            self._notify()

    def _put(self, change: StoreEvent) -> bool:
        if self._queue.qsize() >= BACKLOG:
            self._behind = True
            return False
        self._queue.put(change)
        if self._notify is not None:
            self._notify()
        return True

    def _begin(self, state: Iterable[StoreEvent], version: int) -> None:
        for change in state:
            self._queue.put(change)
        self.initial, self.version = self._queue.qsize(), version


class _Table:
    """The objects of one resource, by key, and the keys in the order of lists (etcd's: by namespace/name)."""

    __slots__ = ("keys", "stored")

    def __init__(self) -> None:
        self.stored: dict[str, Stored] = {}
        self.keys: list[str] = []


def key_of(resource: Resource, namespace: str, name: str) -> str:
    """The key of an object within its resource."""
    return f"{namespace}/{name}" if resource.namespaced else name


class Store:
    """Thread-safe. Hold ``lock`` over a read and the write that depends on it.

    ``history``: how many changes are remembered. ``resources``: what may be stored.
    """

    def __init__(self, resources: Iterable[Resource] = SERVED, history: int = HISTORY) -> None:
        self.lock = threading.RLock()
        self.version = 1
        self.floor = 0  # versions before this one are compacted
        self._tables = {resource: _Table() for resource in resources}
        self._changes: deque[StoreEvent] = deque()
        self._history = history
        self._superseded: deque[Stored] = deque()
        self._subscriptions: dict[Resource | None, list[Subscription]] = {}
        self._closed = False

    def serve(self, resource: Resource) -> None:
        """Objects of this kind may be stored from now on."""
        with self.lock:
            self._tables.setdefault(resource, _Table())

    def drop(self, resource: Resource) -> None:
        """Remove all objects of a kind, end its subscriptions, and store no more of it."""
        with self.lock:
            for stored in self.items(resource)[0]:
                meta = stored.object["metadata"]
                self.remove(resource, meta.get("namespace", ""), meta["name"])
            ended = list(self._subscriptions.get(resource, ()))
            del self._tables[resource]
        for subscription in ended:
            subscription.close()

    # ---- reading ----

    def get(self, resource: Resource, namespace: str, name: str) -> Stored | None:
        """The stored version of an object."""
        return self._tables[resource].stored.get(key_of(resource, namespace, name))

    def items(self, resource: Resource, namespace: str = "", at: int | None = None) -> tuple[list[Stored], int]:
        """The objects of a resource (in a namespace), ordered by key, and the version of that state.

        ``at``: as they were at that version. Raises Refusal (410 Expired) when it is compacted.
        """
        with self.lock:
            table = self._tables[resource]
            keys, stored = table.keys, table.stored
            if namespace:
                first, after = bisect_left(keys, f"{namespace}/"), bisect_left(keys, f"{namespace}0")  # '0' follows '/'
                keys = keys[first:after]
            if at is None or at >= self.version:
                return [stored[key] for key in keys], self.version
            undone = self._undo(resource, at)
            known = set(keys)
            gone = [key for key in undone if key not in known and key.startswith(f"{namespace}/" if namespace else "")]
            if gone:
                keys = sorted([*keys, *gone])
            found = (undone[key] if key in undone else stored[key] for key in keys)
            return [one for one in found if one is not None], at

    def count(self, resource: Resource) -> int:
        """How many objects of a resource there are."""
        return len(self._tables[resource].keys)

    def _undo(self, resource: Resource, at: int) -> dict[str, Stored | None]:
        """What the objects that changed after ``at`` were before."""
        self._check(at)
        before: dict[str, Stored | None] = {}
        for change in reversed(self._changes):
            if change.version <= at:
                break
            if change.resource == resource:
                before[change.now.key] = change.old
        return before

    def _check(self, version: int) -> None:
        if version < self.floor:
            raise expired(f"too old resource version: {version} ({self.floor})")

    # ---- writing ----

    def put(self, resource: Resource, obj: JsonObject) -> Stored:
        """Store an object under a new version (set in its metadata); the caller gives ``obj`` away."""
        with self.lock:
            meta = obj["metadata"]
            key = key_of(resource, meta.get("namespace", ""), meta["name"])
            version = self.version + 1
            meta["resourceVersion"] = str(version)
            now = Stored(key, version, _encode(obj), obj)
            table = self._tables[resource]
            old = table.stored.get(key)
            table.stored[key] = now
            if old is None:
                insort(table.keys, key)
            self._commit(StoreEvent(version, MODIFIED if old else ADDED, resource, now, old))
            return now

    def remove(self, resource: Resource, namespace: str, name: str, last: JsonObject | None = None) -> Stored:
        """Remove an object; the state that watchers see is ``last`` (the caller gives it away) or the stored one.

        Raises KeyError without such an object.
        """
        with self.lock:
            table = self._tables[resource]
            key = key_of(resource, namespace, name)
            old = table.stored.pop(key)
            del table.keys[bisect_left(table.keys, key)]
            obj = old.fresh() if last is None else last
            version = self.version + 1
            obj["metadata"]["resourceVersion"] = str(version)
            now = Stored(key, version, _encode(obj), obj)
            self._commit(StoreEvent(version, DELETED, resource, now, old))
            return now

    def _commit(self, change: StoreEvent) -> None:
        self.version = change.version
        self._changes.append(change)
        if len(self._changes) > self._history:
            self.floor = self._changes.popleft().version
        for stored in (change.old, change.now if change.type == DELETED else None):
            if stored is not None:
                self._superseded.append(stored)
        while len(self._superseded) > _WARM:
            self._superseded.popleft().cool()
        for of in (change.resource, None):
            for subscription in tuple(self._subscriptions.get(of, ())):
                if not subscription._put(change):
                    self._unsubscribe(subscription)

    def compact(self) -> None:
        """Forget all earlier versions: watches and lists from before now are 410 Expired."""
        with self.lock:
            self._changes.clear()
            self.floor = self.version

    # ---- subscribing ----

    def subscribe(
        self,
        resource: Resource | None = None,
        since: int | None = None,
        *,
        namespace: str = "",
        notify: Callable[[], None] | None = None,
    ) -> Subscription:
        """Changes of one resource, or of all, after the version ``since``.

        Without ``since`` (or 0) the present state comes first, as ADDED. ``namespace`` narrows that state only.
        ``notify`` is called, under the lock, whenever something was put in: it must not block.
        Raises Refusal (410 Expired) when ``since`` is compacted.
        """
        with self.lock:
            subscription = Subscription(self, resource, notify)
            if since:
                self._check(since)
                subscription._begin((), since)
                for change in self._since(since):
                    if resource is None or change.resource == resource:
                        subscription._put(change)
            else:
                resources = self._tables if resource is None else (resource,)
                state = (
                    StoreEvent(stored.version, ADDED, one, stored, None)
                    for one in resources
                    for stored in self.items(one, namespace)[0]
                )
                subscription._begin(sorted(state) if resource is None else state, self.version)
            if self._closed:
                subscription.close()
            else:
                self._subscriptions.setdefault(resource, []).append(subscription)
            return subscription

    def _since(self, version: int) -> list[StoreEvent]:
        found = []
        for change in reversed(self._changes):
            if change.version <= version:
                break
            found.append(change)
        return found[::-1]

    def _unsubscribe(self, subscription: Subscription) -> None:
        with self.lock:
            listed = self._subscriptions.get(subscription.resource, [])
            if subscription in listed:
                listed.remove(subscription)

    def close(self) -> None:
        """End all subscriptions."""
        with self.lock:
            self._closed = True
            running = [one for listed in self._subscriptions.values() for one in listed]
        for subscription in running:
            subscription.close()
