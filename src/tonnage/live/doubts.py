"""Unconfirmed writes: what was asked of the API and not seen yet. It is taken to be there, and looked for when nothing
shows it."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass

from tonnage.kube.clock import Clock
from tonnage.units import NS_PER_S

SOON_NS = NS_PER_S
"""An answer was lost: look after this long, then after twice as long, …"""
LATE_NS = 30 * NS_PER_S
"""… but at least this often. What was answered is only looked for after this long."""


@dataclass(slots=True)
class _Doubt:
    look: Callable[[], bool | None]
    gone: Callable[[], None]
    due_ns: int
    pause_ns: int


class Doubts:
    """Unconfirmed writes; each is looked for when its time has come, until somebody settles it or it proves not to be
    so."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._open: dict[Hashable, _Doubt] = {}

    def add(
        self, about: Hashable, look: Callable[[], bool | None], gone: Callable[[], None], *, pause_ns: int = SOON_NS
    ) -> None:
        """``look`` says whether it is there (None: that cannot be told now); when it is not, ``gone`` is called."""
        self._open[about] = _Doubt(look, gone, self._clock.now_ns() + pause_ns, pause_ns)

    def settle(self, about: Hashable) -> None:
        """It has been seen, or somebody has said that it is gone."""
        self._open.pop(about, None)

    def look(self) -> None:
        """Look for whatever is due."""
        now = self._clock.now_ns()
        for about, doubt in [one for one in self._open.items() if one[1].due_ns <= now]:
            found = doubt.look()
            if found is False:
                self._open.pop(about, None)
                doubt.gone()
                continue
            doubt.pause_ns = LATE_NS if found else min(2 * doubt.pause_ns, LATE_NS)
            doubt.due_ns = now + doubt.pause_ns

    def hasten(self) -> None:
        """Look for all of it at the next opportunity: the API is not what it was."""
        for doubt in self._open.values():
            doubt.due_ns, doubt.pause_ns = self._clock.now_ns(), SOON_NS

    def __len__(self) -> int:
        return len(self._open)
