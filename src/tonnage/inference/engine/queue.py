"""Requests that wait to be admitted: first come first served, or by priority."""

from __future__ import annotations

from bisect import insort
from collections import deque
from collections.abc import Iterator

from tonnage.inference.engine.requests import Request


class WaitingQueue:
    """The waiting requests of an engine. They may be given before they arrive, in order of arrival.

    With ``by_priority`` the lowest priority value among those that have arrived goes first, then who was submitted
    first; what was preempted takes its place in that order. Else a preempted request goes to the head. Before all go
    those that have their blocks already: whoever waits for those blocks would wait for ever. Source:
    vllm/v1/core/sched/request_queue.py, and scheduler.py for requests whose KV blocks come from elsewhere.
    """

    __slots__ = ("_arrived", "_by_priority", "_ready", "_waiting")

    def __init__(self, *, by_priority: bool) -> None:
        self._by_priority = by_priority
        self._waiting: deque[Request] = deque()
        self._arrived: list[tuple[int, int, Request]] = []  # by priority alone: (priority, order, request)
        self._ready: deque[Request] = deque()

    def __len__(self) -> int:
        return len(self._waiting) + len(self._arrived) + len(self._ready)

    def __iter__(self) -> Iterator[Request]:
        yield from self._ready
        yield from (request for _, _, request in self._arrived)
        yield from self._waiting

    def add(self, request: Request) -> None:
        """A new request, which arrives no earlier than those before it."""
        self._waiting.append(request)

    def add_ready(self, request: Request) -> None:
        """A request that is here now and has its blocks."""
        self._ready.append(request)

    def put_back(self, request: Request) -> None:
        """A request that was preempted."""
        if self._by_priority:
            insort(self._arrived, (request.priority, request.order, request))
        else:
            self._waiting.appendleft(request)

    def head(self, now_ns: int) -> Request | None:
        """Who is next: one that has arrived by ``now_ns``, else the next to arrive."""
        if self._ready:
            return self._ready[0]
        waiting = self._waiting
        if self._by_priority:
            while waiting and waiting[0].arrival_ns <= now_ns:
                request = waiting.popleft()
                insort(self._arrived, (request.priority, request.order, request))
            if self._arrived:
                return self._arrived[0][2]
        return waiting[0] if waiting else None

    def next_arrival_ns(self) -> int | None:
        """When the next request arrives that could overtake the head; None where nobody can."""
        if not self._by_priority or not self._waiting:
            return None
        return self._waiting[0].arrival_ns

    def pop(self) -> None:
        """Take away the head that was just seen."""
        if self._ready:
            self._ready.popleft()
        elif self._arrived:
            self._arrived.pop(0)
        else:
            self._waiting.popleft()

    def remove(self, request: Request) -> None:
        """Take away a request that is here. Raises ValueError if it is not."""
        if request in self._ready:
            self._ready.remove(request)
            return
        entry = (request.priority, request.order, request)
        if entry in self._arrived:
            self._arrived.remove(entry)
        else:
            self._waiting.remove(request)

    def clear(self) -> None:
        """Take away all."""
        self._ready.clear()
        self._waiting.clear()
        self._arrived.clear()
