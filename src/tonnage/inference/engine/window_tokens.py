"""How many cached tokens the window layers of a model read while an engine decodes.

A sequence with ``cached`` tokens has min(cached, window) of them inside the window. While it decodes, ``step - cached``
does not change, so the step in which it fills its window is known from the start; between two such steps the sum grows
by the same number each step, which keeps runs of decode steps an arithmetic series.
"""

from __future__ import annotations

from heapq import heappop, heappush


class WindowTokens:
    """The decoding sequences of one engine. ``tokens``: those of all inside the ``window``; ``growing``: sequences that
    have not filled it."""

    __slots__ = ("_full", "_order", "growing", "tokens", "window")

    def __init__(self, window: int) -> None:
        self.window = window
        self.tokens = 0
        self.growing = 0
        self._full: dict[int, int] = {}  # step at which windows are full -> sequences
        self._order: list[int] = []  # heap of its keys

    def add(self, cached: int, step: int) -> None:
        """A sequence with ``cached`` tokens decodes from ``step`` on."""
        if cached >= self.window:
            self.tokens += self.window
            return
        self.tokens += cached
        self.growing += 1
        full = step + self.window - cached
        if full not in self._full:
            self._full[full] = 0
            heappush(self._order, full)
        self._full[full] += 1

    def remove(self, cached: int, step: int) -> None:
        """The sequence that has ``cached`` tokens at ``step`` decodes no more."""
        if cached >= self.window:
            self.tokens -= self.window
            return
        self.tokens -= cached
        self.growing -= 1
        self._full[step + self.window - cached] -= 1

    def steps(self, step: int) -> int | None:
        """Steps from ``step`` on until a sequence has filled its window; None if none will."""
        while self._order and not self._full[self._order[0]]:
            del self._full[heappop(self._order)]
        return self._order[0] - step if self._order else None

    def pass_steps(self, step: int, steps: int) -> None:
        """All have decoded ``steps`` steps from ``step`` on, no more than ``steps`` said."""
        self.tokens += self.growing * steps
        while self._order and self._order[0] <= step + steps:
            self.growing -= self._full.pop(heappop(self._order))

    def after_one(self, step: int) -> tuple[int, int]:
        """(tokens, growing) after the step ``step``."""
        return self.tokens + self.growing, self.growing - self._full.get(step + 1, 0)

    def clear(self) -> None:
        """No sequence is left."""
        self.tokens = self.growing = 0
        self._full.clear()
        self._order.clear()
