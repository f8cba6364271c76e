"""Informers: what the API server has, kept up to date here, typed, and applied in the thread that owns it.

A reflector (:mod:`tonnage.kube.reflector`) lists and watches one resource in a thread of its own and puts
what it gets on one queue. Nothing is visible before the owner's thread takes it from there with
:meth:`Informers.pump`: only that thread reads stores and runs handlers, so neither needs a lock.
"""

from __future__ import annotations

import contextlib
import queue
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, ValuesView
from typing import Any, Generic, Literal, TypeAlias, TypeVar

from tonnage.kube.contact import Contact
from tonnage.kube.reflector import Delays, Delta, Entry, Key, Mark, Reflector, Relisted
from tonnage.kube.resources import Resource
from tonnage.kube.verbs import Client
from tonnage.objects.base import KubeObject

T = TypeVar("T", bound=KubeObject)
Kind = Literal["added", "modified", "deleted"]
Handler: TypeAlias = Callable[[Kind, T | None, T | None], None]
"""Told (change, old, new): ``old`` is None for added, ``new`` for deleted."""

_TOMBSTONES = 4096
_QUEUE = 20_000  # entries; a reflector waits when it is full, and the server ends its watch if that takes too long


class Informer(Generic[T]):
    """The objects of one resource (and selector) as of :attr:`resource_version`. Read it in the owner's thread."""

    def __init__(
        self, resource: Resource, namespace: str, field_selector: str, label_selector: str, *, optional: bool = False
    ) -> None:
        self.resource, self.optional = resource, optional
        self.namespace = namespace
        self.field_selector, self.label_selector = field_selector, label_selector
        self.synced = False
        """Whether a whole list has been applied."""
        self.resource_version = 0
        """The newest version seen of the collection, also by bookmarks."""
        self.lag_s = 0.0
        """How long the change applied last had waited for :meth:`Informers.pump`."""
        self.lists = self.relists = 0
        self.histories = 0
        """Lists of another history than the one before: the server was restored from a backup."""
        self._store: dict[Key, T] = {}
        self._gone: dict[Key, int] = {}  # versions of deletions, so that a late event raises nobody from the dead
        self._handlers: list[Handler[T]] = []

    def get(self, namespace: str, name: str) -> T | None:
        """One object; the namespace of a cluster-scoped resource is empty."""
        return self._store.get((namespace, name))

    def selects(self, namespace: str, name: str) -> bool:
        """Whether an object of that name may be among its own, as far as names say it."""
        key, _, value = self.field_selector.partition("=")
        named = value if key == "metadata.name" else ""
        one = not named or named == name
        return one and self.namespace in ("", namespace)

    def items(self) -> ValuesView[T]:
        """All objects, in no particular order. Don't pump while iterating."""
        return self._store.values()

    def __len__(self) -> int:
        return len(self._store)

    def on_change(self, handler: Handler[T]) -> None:
        """Call ``handler`` for every change from now on; it is told of what is here already as added."""
        self._handlers.append(handler)
        for item in list(self._store.values()):
            handler("added", None, item)

    def apply(self, entry: Entry) -> int:
        """Apply what a reflector brought; the number of changes made."""
        if isinstance(entry, Delta):
            made = self._change(entry)
            self.resource_version = max(self.resource_version, entry.version)
            return made
        if isinstance(entry, Mark):
            self.resource_version = max(self.resource_version, entry.version)
            return 0
        return self._relist(entry)

    def _change(self, entry: Delta) -> int:
        key = entry.key
        old = self._store.get(key)
        known = version_of(old) if old is not None else self._gone.get(key, -1)
        if entry.version <= known and not (entry.deleted and old is not None and entry.version == known):
            return 0  # a duplicate, or late
        if entry.deleted:
            self._bury(key, entry.version)
            return self._remove(key)
        return self._put(key, old, entry.item)

    def _put(self, key: Key, old: T | None, new: T) -> int:
        made = 1
        if old is not None and old.metadata.uid != new.metadata.uid:
            made += self._remove(key)  # another object of that name: its predecessor's end was not seen
            old = None
        self._gone.pop(key, None)
        self._store[key] = new
        self._tell("modified" if old is not None else "added", old, new)
        return made

    def _remove(self, key: Key) -> int:
        old = self._store.pop(key, None)
        if old is None:
            return 0
        self._tell("deleted", old, None)
        return 1

    def _relist(self, entry: Relisted) -> int:
        """Make the store what the list says, as changes.

        A version lower than before, of the list or of an object, means that the server's history is another one (it was
        restored from a backup, or another server has the address). Then versions compare no more, and nothing has
        *become* what the list says: an object that differs is gone, and another is there."""
        items: dict[Key, T] = {(i.metadata.namespace, i.metadata.name): i for i in entry.items}
        known = ((version_of(old), items.get(key)) for key, old in self._store.items())
        anew = entry.version < self.resource_version or any(
            new is not None and version_of(new) < version for version, new in known
        )
        self.resource_version = entry.version
        self.histories += anew
        self._gone.clear()
        made = sum(self._remove(key) for key in sorted(self._store.keys() - items.keys() - entry.unreadable))
        for key, new in items.items():
            old = self._store.get(key)
            if old is not None and anew and old != new:
                made += self._remove(key)
                old = None
            if old is None or version_of(new) > version_of(old):
                made += self._put(key, old, new)
        self.relists += self.synced
        self.lists += 1
        self.synced = True
        return made

    def _bury(self, key: Key, version: int) -> None:
        self._gone[key] = version
        if len(self._gone) > _TOMBSTONES:
            self._gone.pop(next(iter(self._gone)))

    def _tell(self, change: Kind, old: T | None, new: T | None) -> None:
        for handler in self._handlers:
            handler(change, old, new)


def _not_applied(informer: Informer[Any], reflector: Reflector[Any]) -> str:
    return "" if reflector.lists == informer.lists else "its list has come and is not applied yet"


def name_of(resource: Resource) -> str:
    """How problems and metrics name a resource."""
    return f"{resource.plural}.{resource.group}" if resource.group else resource.plural


def names_of(resources: Iterable[Resource]) -> list[str]:
    """The names of the informers of these resources, added in this order: versions of one kind are numbered."""
    seen: Counter[str] = Counter()
    names = []
    for name in map(name_of, resources):
        seen[name] += 1
        names.append(_numbered(name, seen[name]))
    return names


def _numbered(name: str, number: int) -> str:
    return f"{name} #{number}" if number > 1 else name


def version_of(item: KubeObject) -> int:
    """An object's resourceVersion as a number; they compare as numbers within a resource (KEP-5504)."""
    return int(item.metadata.resource_version or 0)


class Informers:
    """The informers of one program, and the queue between their threads and the owner's.

    ``clock`` gives seconds since the epoch; ``rng`` spreads pauses and watch times; ``monotonic`` gives the seconds by
    which silence is measured.
    """

    def __init__(
        self,
        client: Client,
        clock: Callable[[], float],
        rng: random.Random,
        *,
        delays: Delays | None = None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._client, self._clock, self._rng, self._monotonic = client, clock, rng, monotonic
        self.on_restored: Callable[[], None] = lambda: None
        """Called, in the owner's thread, when a list was applied that is of another history than the one before."""
        self._delays = delays or Delays()
        self._queue: queue.Queue[tuple[Informer[Any], Entry, float] | None] = queue.Queue(_QUEUE)
        self._contact = Contact()
        self._stop = threading.Event()
        self._reflectors: dict[str, tuple[Informer[Any], Reflector[Any]]] = {}

    def add(
        self,
        resource: Resource,
        type_: type[T],
        *,
        field_selector: str = "",
        label_selector: str = "",
        namespace: str = "",
        optional: bool = False,
    ) -> Informer[T]:
        """Start to list and watch a resource. Its objects must fit ``type_``; those that don't become a problem.

        Another selection of the same resource is another informer. ``optional``: all is well without the resource."""
        informer: Informer[T] = Informer(resource, namespace, field_selector, label_selector, optional=optional)

        def put(entry: Entry) -> None:
            item = informer, entry, time.monotonic()
            while not self._stop.is_set():
                try:
                    return self._queue.put(item, timeout=0.2)
                except queue.Full:
                    continue  # the owner is behind; so that stop() is heard
            return None

        reflector = Reflector(
            self._client,
            resource,
            type_,
            put=put,
            selectors={"fieldSelector": field_selector, "labelSelector": label_selector},
            namespace=namespace,
            rng=random.Random(self._rng.getrandbits(64)),
            clock=self._clock,
            monotonic=self._monotonic,
            delays=self._delays,
            contact=self._contact,
        )
        self._reflectors[self._free_name(informer)] = informer, reflector
        reflector.start()
        return informer

    def pump(self, timeout_s: float) -> int:
        """Apply what has come, waiting up to ``timeout_s`` for the first of it; the number of changes made.

        Handlers run in the calling thread; what one raises comes out here, with its change already applied.
        """
        for _, reflector in self._reflectors.values():
            reflector.refresh()
        changes = 0
        wait = timeout_s > 0
        for _ in range(_QUEUE):
            try:
                got = self._queue.get(wait, timeout_s if wait else None)
            except queue.Empty:
                break
            wait = False
            if got is not None:
                informer, entry, since = got
                informer.lag_s = time.monotonic() - since
                before = informer.histories
                changes += informer.apply(entry)
                if informer.histories > before:
                    self.on_restored()
        return changes

    def wake(self) -> None:
        """Let a waiting :meth:`pump` return; for other threads."""
        with contextlib.suppress(queue.Full):  # then it does not wait
            self._queue.put_nowait(None)

    @property
    def backlog(self) -> int:
        """Entries that wait for :meth:`pump`."""
        return self._queue.qsize()

    def wait_synced(self, timeout_s: float) -> bool:
        """Pump until every informer has applied a list, or knows that the server does not have its optional resource.
        False after ``timeout_s``: see :meth:`problems`."""

        def done() -> bool:
            return all(i.synced or (i.optional and r.absent) for i, r in self._reflectors.values())

        return self._pump_until(done, timeout_s)

    def wait_for(self, resource: Resource, resource_version: str | int, timeout_s: float) -> bool:
        """Pump until the informers of a resource have seen this version or a later one. False after ``timeout_s``.

        Meant for the version of a write to that very resource, within the informers' selection: of writes elsewhere an
        idle informer hears by bookmarks only, once a minute, or never where the server itself has not noticed.
        """
        version = int(resource_version)
        watched = [informer for informer in self if informer.resource == resource]
        return self._pump_until(lambda: all(i.resource_version >= version for i in watched), timeout_s)

    def problems(self) -> dict[str, str]:
        """What keeps informers from being up to date, by resource: a reason for a person. Empty when all is well."""
        return {
            name: problem
            for name, (informer, reflector) in self._reflectors.items()
            if (problem := reflector.problem or _not_applied(informer, reflector))
            and not (informer.optional and reflector.absent)
        }

    def absent(self) -> frozenset[str]:
        """The resources that the server does not know."""
        return frozenset(name for name, (_, reflector) in self._reflectors.items() if reflector.absent)

    def behind(self) -> frozenset[str]:
        """The resources that the server has, as far as is known, and of which nothing is heard at the moment: the watch
        has ended, and the next one is not open yet."""
        watched = ((name, reflector) for name, (_, reflector) in self._reflectors.items())
        return frozenset(name for name, reflector in watched if not (reflector.follows or reflector.absent))

    def restarts(self) -> dict[str, int]:
        """How often each watch was begun again, by resource."""
        return {name: reflector.restarts for name, (_, reflector) in self._reflectors.items()}

    def contact(self) -> dict[str, float]:
        """When the server was last heard of, seconds since the epoch, by resource; 0 for never."""
        return {name: reflector.heard for name, (_, reflector) in self._reflectors.items()}

    def named(self) -> dict[str, Informer[Any]]:
        """The informers by the names used in problems and metrics."""
        return {name: informer for name, (informer, _) in self._reflectors.items()}

    def __iter__(self) -> Iterator[Informer[Any]]:
        return iter([informer for informer, _ in self._reflectors.values()])

    def stop(self, timeout_s: float = 1.0) -> bool:
        """End all threads, also those blocked in a read. True when all have ended within ``timeout_s``.

        The transport is left open for others. A thread in the middle of a list may outlast it; it ends with its answer,
        or with the transport.
        """
        self._stop.set()
        for _, reflector in self._reflectors.values():
            reflector.stop()
        deadline = time.monotonic() + timeout_s
        for _, reflector in self._reflectors.values():
            reflector.join(max(0.0, deadline - time.monotonic()))
        return not any(reflector.is_alive() for _, reflector in self._reflectors.values())

    def _pump_until(self, done: Callable[[], bool], timeout_s: float) -> bool:
        deadline = time.monotonic() + timeout_s
        while not done():
            left = deadline - time.monotonic()
            if left <= 0 or self._stop.is_set():
                return False
            self.pump(min(left, 0.5))
        return True

    def _free_name(self, informer: Informer[Any]) -> str:
        name = name_of(informer.resource)
        parts = (informer.namespace, informer.field_selector, informer.label_selector)
        if name in self._reflectors and any(parts):
            name += f" ({', '.join(part for part in parts if part)})"
        base, number = name, 2
        while name in self._reflectors:
            name, number = _numbered(base, number), number + 1
        return name
