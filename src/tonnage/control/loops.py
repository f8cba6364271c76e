"""Control loops. The list of loops is the controller manager, in every world."""

from __future__ import annotations

from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass, replace

from tonnage.control.world import World
from tonnage.decisions import Decision, Outcome, Wait

Taken = list[tuple[Decision, Outcome]]
"""What was decided, in order, and what became of it."""


def waits_of(loop: str) -> str:
    """The kind of change that the loop of this name makes when it lets pods wait."""
    return f"{loop}/waits"


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
        return waits_of(self.name)


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


@dataclass(frozen=True, slots=True)
class Appointment:
    """A tick that is to come. ``regular``: it comes again a period later; else a change has asked for it."""

    loop: Loop
    at_ns: int
    regular: bool


class Timetable:
    """When which loop runs, in every world, on a clock that its owner reads.

    A loop with a period runs each period after the beginning, whatever comes between. A change that a loop waits for
    gives it one more tick, once it has let the change settle; of such ticks a loop has one at a time. The owner keeps
    the appointments that it is given, those of one time in the order in which they were made.
    """

    def __init__(self, loops: Sequence[Loop]) -> None:
        self.loops = tuple(loops)
        self._called: set[str] = set()  # loops for whom a change has asked for a tick that has not come
        self._waits: set[str] = set()  # the kinds of change that loops have made since loops were last called

    def begin(self, now_ns: int) -> list[Appointment]:
        """The first of the regular ticks."""
        return [Appointment(loop, now_ns + loop.period_ns, True) for loop in self.loops if loop.period_ns]

    def call(self, kinds: Set[str], now_ns: int) -> list[Appointment]:
        """Ticks for the loops that wait for what has changed, or for what loops have just let wait."""
        kinds, self._waits = self._waits | kinds, set()
        made = [
            self._calling(loop, now_ns + loop.settle_ns) for loop in self.loops if not loop.wakes_on.isdisjoint(kinds)
        ]
        return [one for one in made if one is not None]

    def call_at(self, loop: Loop, at_ns: int) -> list[Appointment]:
        """A tick for this loop, unless it has one coming that a change has asked for."""
        made = self._calling(loop, at_ns)
        return [made] if made is not None else []

    def _calling(self, loop: Loop, at_ns: int) -> Appointment | None:
        if loop.name in self._called:
            return None
        self._called.add(loop.name)
        return Appointment(loop, at_ns, False)

    def keep(self, appointment: Appointment, now_ns: int) -> Appointment | None:
        """The tick begins: when the next regular one is. Those that were missed are passed over."""
        if not appointment.regular:
            self._called.discard(appointment.loop.name)
            return None
        period = appointment.loop.period_ns
        missed = max(0, now_ns - appointment.at_ns) // period
        return replace(appointment, at_ns=appointment.at_ns + (missed + 1) * period)

    def ticked(self, loop: Loop, taken: Taken) -> None:
        """What a tick has decided: whoever waits for pending pods is called next."""
        if lets_wait(taken):
            self._waits.add(loop.waits)

    @property
    def calls(self) -> bool:
        """Whether a tick has changed something for which loops are still to be called."""
        return bool(self._waits)
