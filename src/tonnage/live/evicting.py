"""Evicting pods. What is refused now, as by a PodDisruptionBudget or an API server in trouble, is asked for again
later, each time after a longer while."""

from __future__ import annotations

from dataclasses import dataclass

from tonnage.decisions import OBSERVING, Evict, Outcome, Refused
from tonnage.kube.clock import Clock
from tonnage.live.binding_calls import FIRST_RETRY_NS, LONGEST_RETRY_NS
from tonnage.live.effects import Effects


@dataclass(frozen=True, slots=True)
class _NotEvicted:
    """A pod that could not be evicted: the answer, how often it came, and until when nobody asks again."""

    answer: Refused
    tries: int
    until_ns: int


class Evictor:
    """The evictions of a world, by the Eviction API."""

    def __init__(self, effects: Effects, clock: Clock) -> None:
        self._effects, self._clock = effects, clock
        self._refused: dict[str, _NotEvicted] = {}  # by the pod's uid
        self._looked_ns = clock.now_ns()

    def evict(self, decision: Evict) -> Outcome:
        """Ask for the eviction; what was answered last where it is too early to ask again."""
        uid, now = decision.pod.uid, self._clock.now_ns()
        known = self._refused.get(uid)
        if known is not None and now < known.until_ns:
            return known.answer
        outcome = self._effects.evict(decision)
        if isinstance(outcome, Refused) and outcome.code != OBSERVING:
            tries = known.tries + 1 if known is not None else 1
            until = now + min(FIRST_RETRY_NS << min(tries - 1, 10), LONGEST_RETRY_NS)
            self._refused[uid] = _NotEvicted(outcome, tries, until)
        else:
            self._refused.pop(uid, None)
        return outcome

    def due(self) -> bool:
        """Whether a pod may be asked for again since this was last called."""
        before, self._looked_ns = self._looked_ns, self._clock.now_ns()
        return any(before < one.until_ns <= self._looked_ns for one in self._refused.values())

    def forget(self, uid: str) -> None:
        """The pod is gone."""
        self._refused.pop(uid, None)
