"""Many requests at once from one thread: for whoever has hundreds to make and need not wait for each.

A thread for each request in flight is woken for each answer, and takes the interpreter from whoever has it. One thread
that polls all connections finds many answers when it wakes. Client CPU per binding in milliseconds, over TLS to a
server that takes 10 ms (Python 3.11, two loaded cores, least of three runs beside each other):

    =========  ====================  ====================
    in flight  a thread for each     this module
    =========  ====================  ====================
    16         0.26                  0.10
    32         0.21                  0.07
    =========  ====================  ====================
"""

from __future__ import annotations

import contextlib
import select
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from tonnage.kube import http1
from tonnage.kube.fence import Fence
from tonnage.kube.transport import ClientError, Done, LostReply, Reply, Unreachable

CONNECTIONS = 64
"""etcd commits together what comes while it is at work: 2,000 bindings with their events cost it 1.6 s of CPU and the
API server 5.4 s with 16 requests under way, 0.95 s and 4.0 s with 64 (Kubernetes 1.36.3, two loaded cores)."""
MANY, GATHER_S = 4, 0.003
"""While this many requests are under way, answers are gathered for so long: a wake costs more than an answer."""
DIALLING = 4
"""Connections that are being made at once."""
_SOON_S, _LOOK_S = 0.02, 1.0
"""What may not be sent yet is asked for again after the first; time-outs are looked for after the second."""
_DIAL_S, _SEND_S = 10.0, 5.0
_IDLE_S = 60.0
_NONE: Mapping[str, str] = MappingProxyType({})


@dataclass(slots=True)
class QueuedRequest:
    """``build``: its bytes, asked for when there is a connection for it; None: it may not be sent yet. ``done`` is told
    the answer (header fields only of a status of 400 or more), or why there is none: Unreachable when it is certain
    that the server did not get it, LostReply when it may have, Withheld where the ``fence`` does not hold any more, and
    what ``build`` raises, a ClientError. Both are called in the thread of the multiplexer, and must not wait."""

    build: Callable[[], bytes | None]
    done: Done
    fence: Fence | None = None
    timeout_s: float = 30.0
    raw: bytes | None = None
    """What ``build`` gave: it is asked once."""


@dataclass(slots=True)
class _Under:
    """A request that is under way."""

    request: QueuedRequest
    until: float


class Multiplexer:
    """Sends requests over ``size`` connections at most. Those of one lane go out in their order, those of several lanes
    in turn. ``where`` puts the server's address before an error."""

    def __init__(
        self, dial: Callable[[float], http1.Wire], where: Callable[[object], str], size: int = CONNECTIONS
    ) -> None:
        self._dial, self._where, self._size = dial, where, size
        self._lanes: dict[str, deque[QueuedRequest]] = {}
        self._lock = threading.Lock()  # of what submitters share: the lanes' names and the thread
        self._dialled: deque[http1.Wire | http1.Broken] = deque()
        self._dialling = 0
        self._dial_at = 0.0  # not before
        self._idle: list[http1.Wire] = []
        self._wires: dict[int, http1.Wire] = {}
        self._under_way: dict[int, _Under] = {}  # by the socket's number, as are the wires
        self._poll = select.poll()
        self._bell, self._ear = socket.socketpair()
        self._bell.setblocking(False)
        self._ear.setblocking(False)
        self._ear_number = self._ear.fileno()
        self._poll.register(self._ear_number, select.POLLIN)
        self._news = self._asleep = False
        self._closed = False
        self._thread: threading.Thread | None = None

    def submit(self, request: QueuedRequest, lane: str) -> None:
        """Send it when there is a connection for it; in any thread, never waits. After :meth:`close` it is told to be
        unreachable."""
        with self._lock:
            if lane not in self._lanes:
                self._lanes = {**self._lanes, lane: deque()}  # who goes through them has the others
            closed = self._closed
            if not closed:
                self._lanes[lane].append(request)
                if self._thread is None:
                    self._thread = threading.Thread(target=self._run, name="multiplexer", daemon=True)
                    self._thread.start()
        if closed:
            request.done(Unreachable("the client is closed"))
        else:
            self._ring()

    def close(self) -> None:
        """End what is under way and what waits: each is told."""
        with self._lock:
            self._closed = True
        self._ring()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(_LOOK_S)

    def _ring(self) -> None:
        self._news = True
        if self._asleep:
            self._asleep = False
            with contextlib.suppress(OSError):  # it has been rung before, or has ended
                self._bell.send(b"!")

    # ---- its thread ----

    def _run(self) -> None:
        while not self._closed:
            try:
                self._turn()
            except Exception as error:  # a fault of this program: nobody waits for ever, and it is told
                self._report(error)
                self._abandon(f"{type(error).__name__}: {error}")
        self._abandon("the client is closed")
        self._bell.close()
        self._ear.close()

    def _turn(self) -> None:
        """Send what can be sent, wait for something to happen, take what has come."""
        self._news = False
        self._settle_dialled()
        later = self._send()
        self._asleep = True
        if self._news:
            self._asleep = False
            return
        later = later or (not (self._under_way or self._dialling) and any(self._lanes.values()))
        wait_s = _SOON_S if later else _LOOK_S if self._under_way else None
        ready = self._poll.poll(None if wait_s is None else wait_s * 1000)
        self._asleep = False
        if ready and len(self._under_way) >= MANY:
            time.sleep(GATHER_S)
            ready = self._poll.poll(0)
        for number, _ in ready:
            if number == self._ear_number:
                with contextlib.suppress(BlockingIOError):
                    self._ear.recv(4096)
            elif number in self._wires:
                self._receive(number)
        self._expire(time.monotonic())

    def _send(self) -> bool:
        """Send what there are connections for; whether some of it is to be asked for again soon."""
        lanes, later = [lane for lane in self._lanes.values() if lane], False
        if not self._connected(sum(map(len, lanes))):
            return False
        while lanes:
            for lane in lanes:
                if not (lane and self._idle):
                    continue
                if (request := self._next(lane)) is None:
                    later = later or bool(lane)
                    lanes = [one for one in lanes if one is not lane]
                else:
                    self._put(request, lane)
            lanes = [lane for lane in lanes if lane]
            if not self._idle:
                break
        return later

    def _next(self, lane: deque[QueuedRequest]) -> QueuedRequest | None:
        """The first of the lane, taken from it, once it may be sent; those before it that are not to be are ended."""
        while lane:
            request = lane[0]
            try:
                if request.fence is not None:
                    request.fence.check()
                if request.raw is None:
                    request.raw = request.build()
            except ClientError as error:
                lane.popleft()
                self._tell(request, error)
                continue
            return lane.popleft() if request.raw is not None else None
        return None

    def _put(self, request: QueuedRequest, lane: deque[QueuedRequest]) -> None:
        """Send the bytes on an idle connection."""
        wire = self._idle.pop()
        number = wire.number()
        try:
            wire.put(request.raw or b"", min(_SEND_S, request.timeout_s), request.fence)
        except http1.Broken as error:
            self._drop(number)
            if wire.used > 1 and not error.timed_out:  # one that was kept was closed meanwhile: the next is fresher
                lane.appendleft(request)
            else:
                self._tell(request, Unreachable(self._where(error)))
        except ClientError as error:  # the fence: part of it may have gone out
            self._drop(number)
            self._tell(request, error)
        else:
            self._under_way[number] = _Under(request, time.monotonic() + request.timeout_s)

    def _receive(self, number: int) -> None:
        """Take what has come on this connection."""
        wire = self._wires[number]
        try:
            found = wire.received()
        except http1.Broken as error:
            under = self._under_way.pop(number, None)
            self._drop(number)
            if under is not None:
                self._tell(under.request, LostReply(self._where(error)))
            return
        if found is None:
            return
        head, body = found
        under = self._under_way.pop(number, None)
        if under is not None and head.keep:
            wire.idle_since = time.monotonic()
            self._idle.append(wire)
        else:  # closed by the server, or it says what nobody asked for
            self._drop(number)
        if under is not None:
            self._tell(under.request, Reply(head.status, body, head.headers if head.status >= 400 else _NONE))

    def _expire(self, now: float) -> None:
        for number in [number for number, under in self._under_way.items() if under.until <= now]:
            under = self._under_way.pop(number)
            self._drop(number)
            self._tell(under.request, LostReply(self._where("no answer in time")))

    def _tell(self, request: QueuedRequest, found: Reply | ClientError) -> None:
        try:
            request.done(found)
        except Exception as error:  # a fault of this program: others are told all the same
            self._report(error)

    def _report(self, error: Exception) -> None:
        """As of a thread that ends by it."""
        threading.excepthook(threading.ExceptHookArgs((type(error), error, error.__traceback__, self._thread)))

    # ---- connections ----

    def _connected(self, wanted: int) -> bool:
        """Whether a connection is idle; else, and where more are wanted, others are made meanwhile."""
        now = time.monotonic()
        while self._idle and now - self._idle[-1].idle_since >= _IDLE_S:
            self._drop(self._idle[-1].number())
        lacking = min(wanted - len(self._idle), self._size - len(self._wires)) - self._dialling
        for _ in range(min(lacking, DIALLING - self._dialling) if now >= self._dial_at else 0):
            self._dialling += 1
            threading.Thread(target=self._connect, name="dial", daemon=True).start()
        return bool(self._idle)

    def _connect(self) -> None:
        """Runs in a thread of its own."""
        try:
            self._dialled.append(self._dial(_DIAL_S))
        except http1.Broken as error:
            self._dialled.append(error)
        except Exception as error:
            self._dialled.append(http1.Broken(f"{type(error).__name__}: {error}", sent=False))
        self._ring()

    def _settle_dialled(self) -> None:
        """Use the connections that were made; where none could be, and there is none, nobody can be reached."""
        while self._dialled:
            found = self._dialled.popleft()
            self._dialling -= 1
            if isinstance(found, http1.Wire):
                found.idle_since = time.monotonic()
                self._wires[found.number()] = found
                self._poll.register(found.number(), select.POLLIN)
                self._idle.append(found)
                continue
            self._dial_at = time.monotonic() + _SOON_S
            if not self._wires and not self._dialling:
                for lane in self._lanes.values():
                    for _ in range(len(lane)):
                        self._tell(lane.popleft(), Unreachable(self._where(found)))

    def _drop(self, number: int) -> None:
        """Close a connection. What is under way on it has been taken from there."""
        wire = self._wires.pop(number, None)
        if wire is not None:
            with contextlib.suppress(KeyError, OSError):
                self._poll.unregister(number)
            wire.close()
            self._idle = [one for one in self._idle if one is not wire]

    def _abandon(self, why: str) -> None:
        """Close all connections and tell everybody."""
        under_way, self._under_way = self._under_way, {}
        for number in list(self._wires):
            self._drop(number)
        for under in under_way.values():
            self._tell(under.request, LostReply(self._where(why)))
        for lane in self._lanes.values():
            while lane:
                self._tell(lane.popleft(), Unreachable(self._where(why)))
