"""What is told of pending pods: once for each kind of reason, in their status and as events."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from tonnage.decisions import BINDING, Applied, Outcome, Wait
from tonnage.kube.clock import Clock
from tonnage.live.aside import Aside
from tonnage.live.effects import Effects
from tonnage.live.recording import EventSink
from tonnage.units import NS_PER_S

IN_STATUS = frozenset({"scheduler", BINDING})
"""Whose reasons stand in a pod's status; those of others are events alone."""
KNOWN_NS = 600 * NS_PER_S
"""A kind of reason that was told is not told again for this long, though there were others meanwhile."""
SETTLE_S = 5.0
"""Another kind of reason than the first is told once it has stood for this long: a node that joins is not ready at
first, and pods need not be told of that."""


@dataclass(slots=True)
class _Told:
    """``last``: the kind of reason told last; ``nominated``: where room is made; ``kinds``: when each was told."""

    last: str
    nominated: str
    kinds: dict[str, int] = field(default_factory=dict)


class Waits:
    """Of one world; its owner's thread calls it. ``there``: whether a pod of that name and uid is still pending."""

    def __init__(
        self, effects: Effects, clock: Clock, recorder: EventSink, aside: Aside, there: Callable[[Wait], bool]
    ) -> None:
        self._effects, self._clock, self._recorder, self._aside = effects, clock, recorder, aside
        self._there = there
        self._told: dict[str, dict[str, _Told]] = {}  # by the pod's uid, then by who could not help it

    def __len__(self) -> int:
        """Pods that were told why they wait."""
        return len(self._told)

    def tell(self, decision: Wait) -> Outcome:
        """Write it, now or soon, unless the pod knows."""
        uid, kind, now = decision.pod.uid, decision.reason.kind, self._clock.now_ns()
        key, known = (uid, decision.by), self._told.get(uid, {}).get(decision.by)
        moved = known is not None and known.nominated != decision.nominated
        if known is not None and not moved:
            if known.last == kind:
                return Applied()
            if now - known.kinds.get(kind, -KNOWN_NS) < KNOWN_NS:
                if self._aside.drop(key):  # what would have been told in between has passed
                    known.kinds.pop(known.last, None)
                    known.last = kind
                return Applied()
        news = known is None or now - known.kinds.get(kind, -KNOWN_NS) >= KNOWN_NS
        outcome = self._aside.put(
            key, lambda: self._write(decision, news=news), SETTLE_S if known is not None and not moved else 0.0
        )
        if isinstance(outcome, Applied) and self._there(decision):
            kinds = known.kinds if known is not None else {}
            kinds = {one: at for one, at in kinds.items() if now - at < KNOWN_NS} | {kind: now}
            self._told.setdefault(uid, {})[decision.by] = _Told(kind, decision.nominated, kinds)
        return outcome

    def forget(self, uid: str) -> None:
        """The pod is bound or gone."""
        for by in self._told.pop(uid, ()):
            self._aside.drop((uid, by))

    def settle(self, uid: str) -> None:
        """The pod is about to be bound: nothing is written of why it waits, or has been when this returns. In any
        thread."""
        for by in IN_STATUS:
            self._aside.settle((uid, by))

    def settled(self, uid: str) -> bool:
        """As :meth:`settle`, without waiting: False where something is being written."""
        return all(self._aside.settled((uid, by)) for by in IN_STATUS)

    def _write(self, decision: Wait, *, news: bool) -> Outcome:
        """Runs in any thread."""
        outcome: Outcome = Applied()
        if decision.by in IN_STATUS:
            outcome = self._effects.unschedulable(decision)
        if news and isinstance(outcome, Applied):
            self._recorder.event(decision.pod, "Warning", "FailedScheduling", decision.reason.verdict)
        return outcome
