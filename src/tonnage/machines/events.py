"""The event loop of the simulated world: a heap of (time, sequence, event).

Events that fall together run in the order in which they were made.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from typing import Any, Protocol


class Clocked(Protocol):
    """What the loop moves through time."""

    def advance_to(self, at_ns: int) -> None:
        """Let everything happen that happens before ``at_ns``, and set the clock to it."""
        ...


class Event(Protocol):
    """Something that happens at one instant."""

    def handle(self, state: Any, /) -> Iterable[tuple[int, Event]]:
        """Change the state; returns what follows from it, with its time."""
        ...


Later = Iterable[tuple[int, Event]]
"""What follows from an event: (time in ns, event)."""


class EventQueue:
    """Events to come. Deterministic: equal times keep their order of insertion."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, Event]] = []
        self._sequence = 0

    def push(self, at_ns: int, event: Event) -> None:
        """Let ``event`` happen at ``at_ns``."""
        heapq.heappush(self._heap, (at_ns, self._sequence, event))
        self._sequence += 1

    def next_ns(self) -> int | None:
        """The time of the next event; None when there is none."""
        return self._heap[0][0] if self._heap else None

    def step(self, state: Clocked) -> None:
        """Move the clock to the next event and handle it."""
        at_ns, _, event = heapq.heappop(self._heap)
        state.advance_to(at_ns)
        for later_ns, later in event.handle(state):
            self.push(later_ns, later)
