"""A transport that fails as networks and servers do: before the effect, after it, and in the middle of a watch."""

from __future__ import annotations

import random
import threading
import time
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any

import msgspec

from tonnage.kube.transport import JSON, ApiError, LostReply, Reply, Transport, Unreachable

STATUS = {
    "conflict": (409, "Conflict"),
    "invalid": (422, "Invalid"),
    "error": (500, "InternalError"),
    "unavailable": (503, "ServiceUnavailable"),
    "throttled": (429, "TooManyRequests"),
}
"""Faults that are answers; nothing was done."""
SILENT = ("unreachable", "lost-undone", "lost-done")
CRASHES = ("crash-before", "crash-after")


class Crash(Exception):
    """The process that made the call has died."""


@dataclass(frozen=True, slots=True)
class Rates:
    """Probabilities: of faults of one call (reads have no conflicts and do not crash), and of one event of a watch."""

    write: Mapping[str, float] = field(default_factory=dict)
    read: Mapping[str, float] = field(default_factory=dict)
    duplicate: float = 0.0
    late: float = 0.0  # an event comes again after others
    dropped: float = 0.0
    broken: float = 0.0
    expired: float = 0.0  # 410
    delayed: float = 0.0
    delay_s: float = 0.002
    stale_list: float = 0.0


class Faulty:
    """A Transport. Faults come by chance (``rates``), or by order: :meth:`next_write` names those of the next writes."""

    def __init__(self, inner: Transport, seed: int, rates: Rates | None = None) -> None:
        self.inner = inner
        self.rates = rates or Rates()
        self.made: list[str] = []
        """Every fault, in order."""
        self._rng = random.Random(seed)
        self._lock = threading.Lock()
        self._ordered: deque[str] = deque()
        self._lists: dict[str, Reply] = {}

    def next_write(self, *faults: str) -> None:
        """The next writes meet these faults; ``""``: none."""
        self._ordered.extend(faults)

    def calm(self) -> None:
        """No faults from now on."""
        self.rates = Rates()
        self._ordered.clear()

    def request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: bytes = b"",
        content_type: str = JSON,
        accept: str = JSON,
        timeout_s: float = 30.0,
    ) -> Reply:
        """One request, or a fault instead of it or of its answer."""

        def done() -> Reply:
            return self.inner.request(
                method, path, query=query, body=body, content_type=content_type, accept=accept, timeout_s=timeout_s
            )

        fault = self._fault(method)
        if fault:
            self.made.append(f"{fault} {method} {path}")
        if fault in STATUS:
            return refusal(*STATUS[fault])
        if fault == "unreachable":
            raise Unreachable("the connection was refused")
        if fault == "lost-undone":
            raise LostReply("the connection broke")
        if fault == "crash-before":
            raise Crash(f"before {method} {path}")
        reply = done()
        if fault == "lost-done":
            raise LostReply("the connection broke")
        if fault == "crash-after":
            raise Crash(f"after {method} {path}")
        if method == "GET" and _in_informer() and not (query or {}).get("continue"):
            return self._maybe_stale(path, reply)
        return reply

    def stream(self, path: str, *, query: Mapping[str, str], timeout_s: float) -> Stuttering:
        """A watch that stutters, breaks and expires."""
        return Stuttering(self, path, self.inner.stream(path, query=query, timeout_s=timeout_s))

    def close(self) -> None:
        """Close the inner transport."""
        self.inner.close()

    def begin(self, path: str) -> None:
        """Raises where a watch cannot begin."""
        if self.happens(self.rates.expired):
            self.made.append(f"expired {path}")
            raise ApiError(410, "Expired", "too old resource version")
        if self.happens(self.rates.broken):
            raise Unreachable("the connection was refused")

    def stutter(self, path: str, lines: Iterator[bytes]) -> Iterator[bytes]:
        """The events of a watch, some twice, until it breaks."""
        earlier = b""
        for line in lines:
            rates = self.rates
            if self.happens(rates.delayed):
                time.sleep(self._random() * rates.delay_s)
            if self.happens(rates.dropped):
                self.made.append(f"dropped {path}")
                return
            if self.happens(rates.broken):
                self.made.append(f"broken {path}")
                raise Unreachable("the connection broke")
            if self.happens(rates.expired):
                self.made.append(f"expired {path}")
                status = msgspec.json.encode({"code": 410, "reason": "Expired", "message": "too old resource version"})
                yield b'{"type":"ERROR","object":' + status + b"}"
                return
            yield line
            if self.happens(rates.duplicate):
                self.made.append(f"duplicate {path}")
                yield line
            if earlier and self.happens(rates.late):
                self.made.append(f"late {path}")
                yield earlier
            earlier = line

    def _maybe_stale(self, path: str, reply: Reply) -> Reply:
        before, self._lists[path] = self._lists.get(path), reply
        if before is not None and self.happens(self.rates.stale_list):
            self.made.append(f"stale list {path}")
            return before
        return reply

    def _fault(self, method: str) -> str:
        if method != "GET" and self._ordered:
            return self._ordered.popleft()
        chance = self._random()
        for fault, rate in (self.rates.read if method == "GET" else self.rates.write).items():
            chance -= rate
            if chance < 0:
                return fault
        return ""

    def happens(self, rate: float) -> bool:
        """Whether it happens this time."""
        return rate > 0 and self._random() < rate

    def _random(self) -> float:
        with self._lock:
            return self._rng.random()


class Stuttering:
    """The stream of a watch through a faulty transport."""

    def __init__(self, faulty: Faulty, path: str, inner: AbstractContextManager[Iterator[bytes]]) -> None:
        self._faulty, self._path, self._inner = faulty, path, inner

    def __enter__(self) -> Iterator[bytes]:
        self._faulty.begin(self._path)
        return self._faulty.stutter(self._path, self._inner.__enter__())

    def __exit__(self, *error: Any) -> None:
        self._inner.__exit__(*error)

    def close(self) -> None:
        """End it, from any thread."""
        close = getattr(self._inner, "close", None)
        if close is not None:
            close()


def _in_informer() -> bool:
    return threading.current_thread().name.startswith("informer-")


def refusal(code: int, reason: str) -> Reply:
    status = {"kind": "Status", "code": code, "reason": reason, "message": f"injected: {reason}"}
    return Reply(code, msgspec.json.encode(status))
