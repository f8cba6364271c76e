"""Writing core/v1 Events: repeats are counted up, look-alikes joined, floods cut, and nobody waits for it.

The same event again raises ``count``, as by client-go's tools/record; which are look-alikes, and how many are a flood,
says :mod:`tonnage.kube.correlation`.
"""

from __future__ import annotations

import contextlib
import queue
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from zlib import crc32

from tonnage.kube.correlation import COMBINED, About, Correlator, Key, Recent
from tonnage.kube.resources import EVENTS
from tonnage.kube.transport import Again, ApiError, ClientError, Unreachable
from tonnage.kube.verbs import Client, JsonObject

QUEUE = 10_000
MESSAGE_LIMIT = 1024
"""Characters; events.k8s.io refuses longer notes."""
_SEND_TRIES = 4
_SEND_PAUSE_S = 1.0
_NAMES = 20
"""Names that are tried for one event."""


@dataclass(frozen=True, slots=True)
class _Said:
    about: About
    type: str
    reason: str
    message: str
    at: float
    done: Callable[[], None] | None = None

    def end(self) -> None:
        """It has been written or given up."""
        if self.done is not None:
            self.done()


@dataclass(slots=True)
class _Written:
    name: str
    count: int


class EventRecorder:
    """Takes events from any thread and writes them from ``writers`` of its own; those about one object are written by
    one of them, in order. ``clock`` gives seconds since the epoch."""

    def __init__(
        self,
        client: Client,
        component: str,
        clock: Callable[[], float],
        *,
        instance: str = "",
        limit: int = QUEUE,
        writers: int = 1,
    ) -> None:
        self._clock = clock
        self._writers = [_Writer(client, component, instance or component, limit, number) for number in range(writers)]

    @property
    def dropped(self) -> int:
        """Events that found the queue full, or that the server did not take."""
        return sum(writer.dropped for writer in self._writers)

    @property
    def suppressed(self) -> int:
        """Events about objects that have had their share."""
        return sum(writer.suppressed for writer in self._writers)

    @property
    def problem(self) -> str:
        """Why the last write failed; empty when it did not."""
        return next((writer.problem for writer in self._writers if writer.problem), "")

    def record(
        self, about: About, type_: str, reason: str, message: str, done: Callable[[], None] | None = None
    ) -> None:
        """Write an event, some time. ``type_`` is Normal or Warning, ``reason`` one CamelCase word. Never waits.
        ``done`` is called when it has been written or given up, in any thread."""
        said = _Said(about, type_, reason, message[: MESSAGE_LIMIT - len(COMBINED)], self._clock(), done)
        self._writers[crc32(f"{about.namespace}/{about.name}".encode()) % len(self._writers)].put(said)

    def flush(self, timeout_s: float = 5.0) -> bool:
        """Wait until what was recorded has been written or given up. False after ``timeout_s``."""
        deadline = time.monotonic() + timeout_s
        left = [writer for writer in self._writers if not writer.flush(deadline)]
        return not left

    def close(self, timeout_s: float = 5.0) -> bool:
        """Write what waits, for ``timeout_s`` at most, and end the threads; what is left is dropped and counted."""
        done = self.flush(timeout_s)
        for writer in self._writers:
            writer.stop()
        for writer in self._writers:
            writer.join(1.0)
        return done


@dataclass(slots=True)
class _Begun:
    """What is to be written of an event: the message, and what was written of it before."""

    message: str
    known: _Written


class _Writer:
    """One thread, and the events about its share of the objects. Everything but what runs in that thread may be called
    in any. The first event about an object is written without the thread where the transport can, as nobody need wait
    for its answer."""

    def __init__(self, client: Client, component: str, instance: str, limit: int, number: int) -> None:
        self._client, self._component, self._instance = client, component, instance
        self._queue: queue.Queue[tuple[_Said, _Begun | None] | None] = queue.Queue()
        self._limit = limit
        self._open: dict[Key, int] = {}  # how many events about each object have not come to an end
        self._behind: dict[Key, list[_Said]] = {}  # those about an object of which one is written without the thread
        self._left = threading.Condition()  # of what is open, and of the memory below
        self._count = 0
        self._correlator = Correlator()
        self._written: Recent[_Written] = Recent()
        self._number = 0
        self._stopped = threading.Event()
        self.dropped = 0
        self.suppressed = 0
        self.problem = ""
        self._thread = threading.Thread(target=self._run, name=f"events-{component}-{number}", daemon=True)
        self._thread.start()

    def put(self, said: _Said) -> None:
        key = said.about.key
        with self._left:
            full = self._stopped.is_set() or self._count >= self._limit
            first = not full and key not in self._open
            if full:
                self.dropped += 1
            else:
                self._count += 1
                self._open[key] = self._open.get(key, 0) + 1
                if first:
                    self._behind[key] = []
                elif key in self._behind:
                    self._behind[key].append(said)
                else:
                    self._queue.put((said, None))
        if full:
            said.end()
        elif first:
            self._submit(said)

    def _to_thread(self, key: Key, *first: tuple[_Said, _Begun | None]) -> None:
        """No event about the object is under way without the thread any more: it sees to these, and those behind."""
        with self._left:
            for one in (*first, *((said, None) for said in self._behind.pop(key))):
                self._queue.put(one)

    def _end(self, said: _Said) -> None:
        """It has been written or given up."""
        key = said.about.key
        with self._left:
            self._count -= 1
            if self._open[key] == 1:
                del self._open[key]
            else:
                self._open[key] -= 1
            if not self._count:
                self._left.notify_all()
        said.end()

    def flush(self, deadline: float) -> bool:
        with self._left:
            while self._count:
                left = deadline - time.monotonic()
                if left <= 0 or not self._thread.is_alive():
                    return False
                self._left.wait(min(left, 0.2))
        return True

    def stop(self) -> None:
        self._stopped.set()
        self._queue.put(None)  # so that it has work to wake up from

    def join(self, timeout_s: float) -> None:
        self._thread.join(timeout_s)

    def _submit(self, said: _Said) -> None:
        """Have it written; by the thread where it is a repetition, or where the transport waits for answers."""
        key, namespace = said.about.key, said.about.namespace or "default"
        with self._left:
            known = self._written.knows(_name_of(said, said.message))
            begun = None if known else self._begin(said)
            body = self._event(said, begun.message, begun.known.count, namespace) if begun is not None else {}

        def ended(error: ClientError | None) -> None:
            if error is None and begun is not None:
                begun.known.name = body["metadata"]["name"]
                self.problem = ""
            elif not self._stopped.is_set() and (isinstance(error, Again | Unreachable) or _is_taken(error)):
                return self._to_thread(key, (said, begun))  # which tries again as after a call of its own
            elif error is not None:
                self.problem = str(error)
                self.dropped += 1
            self._to_thread(key)
            return self._end(said)

        if known:
            self._to_thread(key, (said, None))
        elif begun is None:
            ended(None)
        elif begun.known.name or not self._client.submit_create(EVENTS, body, namespace, ended):
            self._to_thread(key, (said, begun))

    def _run(self) -> None:
        while not self._stopped.is_set():
            one = self._queue.get()
            if one is None:
                continue
            try:
                self._write(*one)
            except Exception as error:  # events are a courtesy: the next one is tried all the same
                self.dropped += 1
                self.problem = f"{type(error).__name__}: {error}"
            finally:
                self._end(one[0])
        with contextlib.suppress(queue.Empty):
            while True:
                if (left := self._queue.get_nowait()) is not None:
                    self.dropped += 1
                    self._end(left[0])

    def _begin(self, said: _Said) -> _Begun | None:
        """Count it; None when the object has had its share of events."""
        message = self._correlator.message(said.about, said.type, said.reason, said.message, said.at)
        if message is None:
            self.suppressed += 1
            return None
        known = self._written.get(_name_of(said, message), lambda: _Written("", 0))
        known.count += 1
        return _Begun(message, known)

    def _write(self, said: _Said, begun: _Begun | None) -> None:
        if begun is None:
            with self._left:
                begun = self._begin(said)
        if begun is None:
            return
        for attempt in range(_SEND_TRIES):
            try:
                self._send(said, begun.message, begun.known)
                self.problem = ""
                return
            except Unreachable as error:  # it did not get there, so it can be sent again
                self.problem = str(error)
                if self._stopped.wait(_SEND_PAUSE_S * 2.0**attempt):
                    break
            except ClientError as error:
                self.problem = str(error)
                break
        self.dropped += 1

    def _send(self, said: _Said, message: str, known: _Written) -> None:
        namespace = said.about.namespace or "default"
        if known.name:
            patch = {"count": known.count, "lastTimestamp": _time(int(said.at)), "message": message}
            try:
                self._client.patch(EVENTS, known.name, patch, namespace)
                return
            except ApiError as error:
                if error.code != 404:  # events live for an hour; then it begins again
                    raise
                known.count = 1
        for _ in range(_NAMES):
            with self._left:
                event = self._event(said, message, known.count, namespace)
            try:
                self._client.create(EVENTS, event, namespace)
            except ApiError as error:
                if not _is_taken(error):
                    raise
            else:
                known.name = event["metadata"]["name"]
                return
        raise ClientError(f"the names of events about {said.about.name} are taken")

    def _event(self, said: _Said, message: str, count: int, namespace: str) -> JsonObject:
        about, at = said.about, _time(int(said.at))
        self._number = max(self._number + 1, round(said.at * 1e9))
        name = f"{about.name[:200]}.{self._number:x}"
        by = self._component, self._instance
        return event_object(name, namespace, about, by, said.type, said.reason, message, at) | {"count": count}


def event_object(
    name: str, namespace: str, about: About, by: tuple[str, str], type_: str, reason: str, message: str, at: str
) -> JsonObject:
    """An Event that is seen for the first time. ``by``: component and instance; ``at``: RFC 3339."""
    involved = {"apiVersion": about.api_version, "kind": about.kind, "name": about.name}
    involved |= {k: v for k, v in (("namespace", about.namespace), ("uid", about.uid)) if v}
    return {
        "apiVersion": EVENTS.api_version,
        "kind": EVENTS.kind,
        "metadata": {"name": name, "namespace": namespace},
        "involvedObject": involved,
        "type": type_,
        "reason": reason,
        "message": message,
        "source": {"component": by[0]},
        "reportingComponent": by[0],
        "reportingInstance": by[1],
        "firstTimestamp": at,
        "lastTimestamp": at,
        "count": 1,
    }


def _name_of(said: _Said, message: str) -> Key:
    """What its repetitions have in common."""
    return Correlator.key(said.about, said.type, said.reason, message)


def _is_taken(error: ClientError | None) -> bool:
    """Whether another recorder wrote an event of that name at the same instant."""
    return isinstance(error, ApiError) and error.reason == "AlreadyExists"


@lru_cache(64)
def _time(at: int) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
