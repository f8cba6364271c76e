"""Control loops. The list of loops is the controller manager, in every world."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tonnage.decisions import Decision, Outcome, Wait
from tonnage.world import World

Taken = list[tuple[Decision, Outcome]]
"""What was decided, in order, and what became of it."""


@dataclass(frozen=True, slots=True)
class Loop:
    """A decision that is taken again and again.

    ``period_ns`` is the time between ticks; 0 means that the loop runs only when woken. ``wakes_on`` names the kinds
    of change that wake it between ticks (``"pod"``, ``"node"``, or ``"NAME/waits"``: the loop of that name lets pods
    wait), at most once per ``settle_ns``. ``learn`` is told what became of the decisions: memory that stands for an
    effect is kept only once the effect is there.
    """

    name: str
    decide: Callable[[World], Sequence[Decision]]
    period_ns: int = 0
    wakes_on: frozenset[str] = frozenset()
    settle_ns: int = 0
    learn: Callable[[Taken], None] | None = None

    @property
    def waits(self) -> str:
        """The kind of change that this loop makes when it lets pods wait."""
        return f"{self.name}/waits"


def tick(loop: Loop, world: World) -> Taken:
    """Decide once and let the world apply the decisions. A stale outcome costs only the next tick."""
    decisions = loop.decide(world)
    if not decisions:
        return []
    taken = list(zip(decisions, world.apply_all(decisions), strict=True))
    if loop.learn is not None:
        loop.learn(taken)
    return taken


def lets_wait(taken: Taken) -> bool:
    """Whether a pod was left pending."""
    return any(isinstance(decision, Wait) for decision, _ in taken)
