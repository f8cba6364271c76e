"""Control loops. The list of loops is the controller manager, in both worlds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tonnage.decisions import Decision, Outcome
from tonnage.fleet.snapshot import Snapshot
from tonnage.world import World


@dataclass(frozen=True, slots=True)
class Loop:
    """A decision that is taken again and again.

    ``period_ns`` is the time between ticks; 0 means that the loop runs only when woken. ``wakes_on`` names the kinds
    of change that wake it between ticks (``"pod"``, ``"node"``), at most once per ``settle_ns``.
    """

    name: str
    decide: Callable[[Snapshot], Sequence[Decision]]
    period_ns: int = 0
    wakes_on: frozenset[str] = frozenset()
    settle_ns: int = 0


def tick(loop: Loop, world: World) -> list[tuple[Decision, Outcome]]:
    """Decide once and let the world apply each decision in order. A stale outcome costs only the next tick."""
    return [(decision, world.apply(decision)) for decision in loop.decide(world.snapshot())]
