"""Writing core/v1 Events: repeats are counted up, look-alikes joined, floods cut, and nobody waits for it.

The rules are those of client-go's tools/record (EventCorrelator): the same event again raises ``count``; after ten
events about one object that differ only in their message within ten minutes, the others become one; an object gets 25
events at once and then one every five minutes.
"""

from __future__ import annotations

import contextlib
import queue
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Generic, TypeAlias, TypeVar
from zlib import crc32

from tonnage.kube.resources import EVENTS
from tonnage.kube.transport import ApiError, ClientError, Unreachable
from tonnage.kube.verbs import Client, JsonObject

SIMILAR = 10
SIMILAR_WITHIN_S = 600.0
BURST = 25
REFILL_S = 300.0
REMEMBERED = 4096
QUEUE = 10_000
MESSAGE_LIMIT = 1024
"""Characters; events.k8s.io refuses longer notes."""
_COMBINED = "(combined from similar events): "
_SEND_TRIES = 4
_SEND_PAUSE_S = 1.0
_NAMES = 20
"""Names that are tried for one event."""

V = TypeVar("V")
Key: TypeAlias = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class About:
    """The object that an event is about."""

    api_version: str
    kind: str
    name: str
    namespace: str = ""
    uid: str = ""

    @property
    def key(self) -> Key:
        return self.api_version, self.kind, self.namespace, self.name, self.uid


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
class _Similar:
    messages: set[str] = field(default_factory=set)
    last: float = 0.0


@dataclass(slots=True)
class _Bucket:
    tokens: float
    at: float


@dataclass(slots=True)
class _Written:
    name: str
    count: int


class _Recent(Generic[V]):
    """A dict that forgets what was not used for longest."""

    def __init__(self) -> None:
        self._kept: OrderedDict[Key, V] = OrderedDict()

    def get(self, key: Key, make: Callable[[], V]) -> V:
        value = self._kept.get(key)
        if value is None:
            value = self._kept[key] = make()
            if len(self._kept) > REMEMBERED:
                self._kept.popitem(last=False)
        else:
            self._kept.move_to_end(key)
        return value


class Correlator:
    """Which events to write, and as what: pure but for its memory. Not for several threads."""

    def __init__(self) -> None:
        self._similar: _Recent[_Similar] = _Recent()
        self._buckets: _Recent[_Bucket] = _Recent()

    def message(self, about: About, type_: str, reason: str, message: str, at: float) -> str | None:
        """The message to write it under; None when the object has had its share of events."""
        similar = self._similar.get((*about.key, type_, reason), _Similar)
        if at - similar.last > SIMILAR_WITHIN_S:
            similar.messages.clear()
        similar.last = at
        if message not in similar.messages and len(similar.messages) >= SIMILAR:
            message = _COMBINED + message
        else:
            similar.messages.add(message)
        bucket = self._buckets.get(about.key, lambda: _Bucket(BURST, at))
        bucket.tokens = min(BURST, bucket.tokens + max(0.0, at - bucket.at) / REFILL_S)
        bucket.at = at
        if bucket.tokens < 1:
            return None
        bucket.tokens -= 1
        return message


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
        said = _Said(about, type_, reason, message[: MESSAGE_LIMIT - len(_COMBINED)], self._clock(), done)
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


class _Writer:
    """One thread, and the events about its share of the objects. Everything but what runs in that thread may be called
    in any."""

    def __init__(self, client: Client, component: str, instance: str, limit: int, number: int) -> None:
        self._client, self._component, self._instance = client, component, instance
        self._queue: queue.Queue[_Said | None] = queue.Queue(limit)
        self._correlator = Correlator()
        self._written: _Recent[_Written] = _Recent()
        self._number = 0
        self._stopped = threading.Event()
        self.dropped = 0
        self.suppressed = 0
        self.problem = ""
        self._thread = threading.Thread(target=self._run, name=f"events-{component}-{number}", daemon=True)
        self._thread.start()

    def put(self, said: _Said) -> None:
        try:
            if self._stopped.is_set():
                raise queue.Full
            self._queue.put_nowait(said)
        except queue.Full:
            self.dropped += 1
            said.end()

    def flush(self, deadline: float) -> bool:
        with self._queue.all_tasks_done:
            while self._queue.unfinished_tasks:
                left = deadline - time.monotonic()
                if left <= 0 or not self._thread.is_alive():
                    return False
                self._queue.all_tasks_done.wait(min(left, 0.2))
        return True

    def stop(self) -> None:
        self._stopped.set()
        with contextlib.suppress(queue.Full):  # then it has work to wake up from
            self._queue.put_nowait(None)

    def join(self, timeout_s: float) -> None:
        self._thread.join(timeout_s)

    def _run(self) -> None:
        while not self._stopped.is_set():
            said = self._queue.get()
            try:
                if said is not None:
                    self._write(said)
            except Exception as error:  # events are a courtesy: the next one is tried all the same
                self.dropped += 1
                self.problem = f"{type(error).__name__}: {error}"
            finally:
                if said is not None:
                    said.end()
                self._queue.task_done()
        with contextlib.suppress(queue.Empty):
            while True:
                left = self._queue.get_nowait()
                if left is not None:
                    self.dropped += 1
                    left.end()

    def _write(self, said: _Said) -> None:
        message = self._correlator.message(said.about, said.type, said.reason, said.message, said.at)
        if message is None:
            self.suppressed += 1
            return
        shown = _COMBINED if message.startswith(_COMBINED) else message
        known = self._written.get((*said.about.key, said.type, said.reason, shown), lambda: _Written("", 0))
        known.count += 1
        for attempt in range(_SEND_TRIES):
            try:
                self._send(said, message, known)
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
            patch = {"count": known.count, "lastTimestamp": _time(said.at), "message": message}
            try:
                self._client.patch(EVENTS, known.name, patch, namespace)
                return
            except ApiError as error:
                if error.code != 404:  # events live for an hour; then it begins again
                    raise
                known.count = 1
        for _ in range(_NAMES):
            event = self._event(said, message, known.count, namespace)
            try:
                self._client.create(EVENTS, event, namespace)
            except ApiError as error:
                if error.reason != "AlreadyExists":  # else another recorder wrote one at the same instant
                    raise
            else:
                known.name = event["metadata"]["name"]
                return
        raise ClientError(f"the names of events about {said.about.name} are taken")

    def _event(self, said: _Said, message: str, count: int, namespace: str) -> JsonObject:
        about, at = said.about, _time(said.at)
        self._number = max(self._number + 1, round(said.at * 1e9))
        involved: dict[str, Any] = {"apiVersion": about.api_version, "kind": about.kind, "name": about.name}
        involved |= {k: v for k, v in (("namespace", about.namespace), ("uid", about.uid)) if v}
        return {
            "apiVersion": EVENTS.api_version,
            "kind": EVENTS.kind,
            "metadata": {"name": f"{about.name[:200]}.{self._number:x}", "namespace": namespace},
            "involvedObject": involved,
            "type": said.type,
            "reason": said.reason,
            "message": message,
            "source": {"component": self._component},
            "reportingComponent": self._component,
            "reportingInstance": self._instance,
            "firstTimestamp": at,
            "lastTimestamp": at,
            "count": count,
        }


def _time(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
