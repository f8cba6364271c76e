"""One thread that lists and watches one resource, and goes on through whatever happens to it.

The rules are those of client-go's reflector (tools/cache/reflector.go): list by pages, watch from the list's version
with bookmarks and a random end after 5 to 10 minutes, go on from the last version seen when a watch ends, list again
when that version is gone (410), back off from 0.8 s to 30 s with jitter when things fail.

Two things go beyond them. Before a watch is opened again the collection is asked for its revision: a server whose
etcd was restored from a backup has a lower one than what was seen, and would take the watch and say nothing until it
has caught up. And a watch on which neither an event nor a bookmark comes for two minutes is reopened, as what
stands between may have lost the server.
"""

from __future__ import annotations

import contextlib
import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Generic, TypeAlias, TypeVar

import msgspec

from tonnage.kube.contact import Contact
from tonnage.kube.explain import problem
from tonnage.kube.resources import Resource
from tonnage.kube.transport import ApiError, ClientError, Status, Unreachable
from tonnage.kube.verbs import Client
from tonnage.objects.base import KubeObject

T = TypeVar("T", bound=KubeObject)
Key: TypeAlias = tuple[str, str]
"""Namespace and name."""

PAGE = 500
"""Objects asked for in one page of a list, as client-go does."""


@dataclass(frozen=True, slots=True)
class Delays:
    """Seconds. ``absent`` is how often a resource is looked for that the server does not know or does not show."""

    first: float = 0.8
    most: float = 30.0
    absent: tuple[float, float] = (30.0, 60.0)
    watch: tuple[float, float] = (300.0, 600.0)
    grace: float = 30.0  # how long after its timeoutSeconds a watch is ended from this side
    short: float = 1.0  # a watch that ends sooner, and without an event, has failed
    silence: float = 120.0  # a watch without event or bookmark is reopened after this long; servers send one a minute
    overdue: float = 5.0  # how much longer before that is a problem


@dataclass(frozen=True, slots=True)
class Relisted:
    """Everything there is, at one version."""

    items: list[Any]
    version: int
    unreadable: frozenset[Key] = frozenset()  # there, but in which state cannot be told


@dataclass(frozen=True, slots=True)
class Delta:
    """One event of a watch. ``item`` is None only where something was deleted that could not be read."""

    key: Key
    item: Any
    version: int
    deleted: bool


@dataclass(frozen=True, slots=True)
class Mark:
    """A bookmark: nothing else happened up to here."""

    version: int


Entry: TypeAlias = Relisted | Delta | Mark
RESTORED = "its history is another one, as after etcd was restored from a backup"


class _Event(msgspec.Struct, frozen=True, gc=False):
    type: str
    object: msgspec.Raw


class _Meta(msgspec.Struct, frozen=True, rename="camel", gc=False):
    name: str = ""
    namespace: str = ""
    resource_version: str = ""


class _Named(msgspec.Struct, frozen=True, gc=False):
    metadata: _Meta = _Meta()


class Reflector(Generic[T]):
    """Lists and watches; what it gets goes to ``put``, called in its thread. Everything public may be read anywhere."""

    def __init__(
        self,
        client: Client,
        resource: Resource,
        type_: type[T],
        *,
        put: Callable[[Entry], None],
        selectors: dict[str, str],
        namespace: str,
        rng: random.Random,
        clock: Callable[[], float],
        monotonic: Callable[[], float],
        delays: Delays,
        contact: Contact | None = None,
    ) -> None:
        self._contact = contact or Contact()
        self._client, self._resource, self._namespace = client, resource, namespace
        self._selectors = {name: value for name, value in selectors.items() if value}
        self._decode = msgspec.json.Decoder(type_).decode
        self._event = msgspec.json.Decoder(_Event).decode
        self._named = msgspec.json.Decoder(_Named).decode
        # Items of a list don't say their kind where the list does.
        self._prefix = f'{{"apiVersion":"{resource.api_version}","kind":"{resource.kind}",'.encode()
        self._put, self._rng, self._clock, self._monotonic, self._delays = put, rng, clock, monotonic, delays
        self._stopped = threading.Event()
        self._stream: AbstractContextManager[Iterator[bytes]] | None = None
        self._unreadable: dict[Key, str] = {}
        self._failure = ""
        self.absent = False
        """Whether the server does not know the resource."""
        self.follows = False
        """Whether its watch is open: what happens is heard at once."""
        self._pause = delays.first
        self._version = ""  # where the next watch begins; empty: list first
        self.restarts = 0
        self.heard = 0.0
        self.lists = 0
        """How many lists it has put."""
        self._heard_at: float | None = None  # on the monotonic clock
        self._silent = False  # the watch was ended from this side, as nothing was heard on it
        self._reached = self._away = False  # the server has answered in this round; it could not be reached in the last
        self._thread = threading.Thread(target=self._run, name=f"informer-{resource.plural}", daemon=True)

    @property
    def problem(self) -> str:
        """Why this is not up to date; empty when it is."""
        if self._failure:
            return self._failure
        if self.silence_s > self._delays.silence + self._delays.overdue:
            return f"nothing was heard for {self.silence_s:.0f} s; its watch is reopened"
        if not self._unreadable:
            return ""
        unreadable = dict(self._unreadable)
        (namespace, name), why = next(iter(unreadable.items()))
        more = f", and {len(unreadable) - 1} more" if len(unreadable) > 1 else ""
        return f"{self._resource.singular} {f'{namespace}/' if namespace else ''}{name} cannot be read: {why}{more}"

    @property
    def silence_s(self) -> float:
        """Seconds since anything was heard of the server, bookmarks included; 0 before the first."""
        return 0.0 if self._heard_at is None else max(0.0, self._monotonic() - self._heard_at)

    def refresh(self) -> None:
        """End a watch on which nothing was heard for too long: the next one is opened. Called now and then by the
        owner, as the thread itself waits in a read."""
        if self.follows and not self._silent and self.silence_s >= self._delays.silence:
            self._silent = True
            self._close_stream()

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """Ask the thread to end, and end the read that it may be blocked in."""
        self._stopped.set()
        self._contact.wake()
        self._close_stream()

    def _close_stream(self) -> None:
        close = getattr(self._stream, "close", None)
        if close is not None:
            close()

    def join(self, timeout_s: float) -> None:
        """Wait for the thread to end."""
        self._thread.join(timeout_s)

    def is_alive(self) -> bool:
        """Whether the thread runs."""
        return self._thread.is_alive()

    def _run(self) -> None:
        while not self._stopped.is_set():
            self._reached = False
            try:
                if self._version:
                    self._compare()
                if not self._version:
                    self._list()
                self._watch()
            except ApiError as error:
                self._refused(error)
            except ClientError as error:
                self._lose(problem(error).message)
            except msgspec.DecodeError as error:
                self._fail(f"the server's answer cannot be read: {error}")
            except Exception as error:  # whatever it is, it must be seen, and the others go on
                self._version = ""
                self._fail(f"{type(error).__name__}: {error}")

    def _refused(self, error: ApiError) -> None:
        if error.code == 410:  # the version is gone: history was compacted, or is another one
            self._version = ""
            self._failure = f"lists again: {error.message}"
            self._back_off()
        elif error.code in (401, 403, 404, 405):
            self._version = ""
            self.absent = error.code in (404, 405)
            why = problem(error, "list", self._resource)
            self._failure = f"{why.message} ({why.hint})" if why.hint else why.message
            if error.code in (401, 403):
                self._back_off()
            else:
                self._stopped.wait(self._rng.uniform(*self._delays.absent))
        else:
            self._fail(f"{error}", at_least=error.retry_after_s)

    def _fail(self, why: str, at_least: float = 0.0) -> None:
        self._failure = why
        self._back_off(at_least)

    def _back_off(self, at_least: float = 0.0) -> None:
        self._stopped.wait(max(at_least, self._next_pause()))

    def _next_pause(self) -> float:
        pause, self._pause = self._pause, min(self._pause * 2, self._delays.most)
        return min(self._delays.most, pause * (1 + self._rng.random()))

    def _well(self) -> None:
        self._failure, self.absent = "", False
        self._hear()

    def _hear(self) -> None:
        self.heard, self._heard_at = self._clock(), self._monotonic()
        if self._away:
            self._contact.made()
        self._away, self._reached = False, True

    def _lose(self, why: str) -> None:
        self._failure, self._away = why, not self._reached
        if not self._away:
            self._back_off()
        elif self._contact.wait(self._next_pause(), self._stopped):
            self._pause = self._delays.first

    def _compare(self) -> None:
        """Whether the server's history still reaches what was seen of it; else everything is listed again."""
        page = self._client.page(self._resource, self._namespace, limit=1, **self._selected())
        self._hear()
        there = page.metadata.resource_version
        if int(there or 0) < int(self._version):
            self._failure = f"lists again: the server is at revision {there}, and {self._version} was seen: " + RESTORED
            self._version = ""

    def _selected(self) -> dict[str, str]:
        named = {"label_selector": "labelSelector", "field_selector": "fieldSelector"}
        return {name: self._selectors.get(key, "") for name, key in named.items()}

    def _list(self) -> None:
        """All pages, at one version. The last page must carry the version of the first."""
        items: list[T] = []
        self._unreadable.clear()
        after, version = "", ""
        while not self._stopped.is_set():
            page = self._client.page(
                self._resource,
                self._namespace,
                limit=PAGE,
                continue_=after,
                **self._selected(),
            )
            if version and page.metadata.resource_version != version:
                raise ApiError(410, "Expired", "the pages of a list have different versions")
            version, after = page.metadata.resource_version, page.metadata.continue_
            for raw in page.items or ():
                item = self._read(self._prefix + bytes(raw)[1:])
                if item is not None:
                    items.append(item)
            self._hear()
            if not after:
                self.lists += 1
                self._put(Relisted(items, int(version), frozenset(self._unreadable)))
                self._version = version
                self._well()
                return

    def _watch(self) -> None:
        """Follow the events from the last version seen until the watch ends. ApiError 410 when that is gone."""
        seconds = self._rng.uniform(*self._delays.watch)
        query = {
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": self._version,
            "timeoutSeconds": str(max(1, round(seconds))),
            **self._selectors,
        }
        begun, events, self._silent = time.monotonic(), 0, False
        stream = self._client.transport.stream(
            self._resource.path(self._namespace), query=query, timeout_s=seconds + self._delays.grace
        )
        self._stream = stream
        if self._stopped.is_set():  # stop() may have come too early to see the stream
            return
        try:
            with stream as lines:
                self._well()
                self.follows = True
                for line in lines:
                    if self._stopped.is_set():
                        return
                    self._take(line)
                    events += 1
                    self._pause = self._delays.first
        finally:
            self._stream, self.follows = None, False
            self.restarts += 1
        expected = self._silent or self._stopped.is_set()
        if events == 0 and time.monotonic() - begun < self._delays.short and not expected:
            raise Unreachable("the watch ended at once, without an event")
        self._pause = self._delays.first

    def _take(self, line: bytes) -> None:
        try:
            event = self._event(line)
        except msgspec.DecodeError as error:
            raise Unreachable(f"the watch is broken: {error}") from error
        self._hear()
        if event.type == "ERROR":
            with contextlib.suppress(msgspec.DecodeError):
                status = msgspec.json.decode(event.object, type=Status)
                raise ApiError(status.code, status.reason, status.message, status.details.retry_after_seconds)
            raise Unreachable("the watch ended with an error that cannot be read")
        if event.type == "BOOKMARK":
            version = self._named(event.object).metadata.resource_version
            self._put(Mark(int(version)))
        elif event.type in ("ADDED", "MODIFIED", "DELETED"):
            version = self._changed(event)
        else:
            return  # a type of event that is not known yet
        # An event that comes late or twice must not move the next watch back.
        if int(version) > int(self._version or 0):
            self._version = version

    def _changed(self, event: _Event) -> str:
        deleted = event.type == "DELETED"
        item = self._read(event.object)
        meta = item.metadata if item is not None else self._named(event.object).metadata
        key, version = (meta.namespace, meta.name), meta.resource_version
        if deleted:
            self._unreadable.pop(key, None)
        if item is None and not deleted:
            self._put(Mark(int(version)))  # what was last understood of it stands
        else:
            self._put(Delta(key, item, int(version), deleted))
        return version

    def _read(self, raw: bytes | msgspec.Raw) -> T | None:
        """The object; None, and a problem, when it does not fit."""
        try:
            item = self._decode(raw)
        except msgspec.DecodeError as error:
            meta = self._named(raw).metadata
            self._unreadable[meta.namespace, meta.name] = str(error)
            return None
        if self._unreadable:
            self._unreadable.pop((item.metadata.namespace, item.metadata.name), None)
        return item
