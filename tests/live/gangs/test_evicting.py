"""What is refused, as by a PodDisruptionBudget, is asked for again later, each time after a longer while."""

from __future__ import annotations

import pytest

from live.gangs.gang_cluster import START_NS, SteppedClock
from tonnage.decisions import PROTECTED, Applied, Evict, Outcome, Reason, Ref, Refused
from tonnage.live.effects import Observing
from tonnage.live.evicting import Evictor
from tonnage.units import NS_PER_S

EVICT = Evict(Ref("Pod", "p", "ml", "u"), Reason("because of a test"))


class Guarded(Observing):
    """An API whose budgets protect every pod until they do not any more. ``asked``: at which seconds it was asked."""

    def __init__(self, clock: SteppedClock) -> None:
        self.clock, self.asked = clock, list[int]()
        self.answer: Refused | None = Refused("by a budget", PROTECTED)

    def evict(self, decision: Evict) -> Outcome:
        self.asked.append((self.clock.now_ns() - START_NS) // NS_PER_S)
        return self.answer or Applied()


def test_a_protected_pod_is_asked_for_after_1_2_4_8_and_then_10_seconds() -> None:
    clock = SteppedClock()
    api = Guarded(clock)
    evictor = Evictor(api, clock)
    woken = []
    for second in range(40):
        clock.at_ns = START_NS + second * NS_PER_S
        if evictor.due():
            woken.append(second)
        assert evictor.evict(EVICT) == api.answer
    assert api.asked == [0, 1, 3, 7, 15, 25, 35]
    assert woken == api.asked[1:], "the scheduler is called when it may ask again, and not otherwise"


def test_a_pod_that_is_gone_or_evicted_protects_nobody_of_its_name() -> None:
    clock = SteppedClock()
    api = Guarded(clock)
    evictor = Evictor(api, clock)
    evictor.evict(EVICT)
    evictor.evict(Evict(Ref("Pod", "p", "ml", "another"), EVICT.reason))
    assert api.asked == [0, 0]
    for uid in ("u", "another"):
        evictor.forget(uid)
    evictor.evict(EVICT)
    assert api.asked == [0, 0, 0]


@pytest.mark.parametrize("code", ["InternalError", "Forbidden"])
def test_what_an_api_server_in_trouble_refuses_is_asked_for_again_though_nothing_has_changed(code: str) -> None:
    clock = SteppedClock()
    api = Guarded(clock)
    api.answer = Refused("not now", code)
    evictor = Evictor(api, clock)
    assert evictor.evict(EVICT) == evictor.evict(EVICT) == api.answer
    assert api.asked == [0] and not evictor.due()
    clock.at_ns += NS_PER_S
    assert evictor.due(), "no event of the cluster would call the scheduler"
    assert evictor.evict(EVICT) == api.answer
    api.answer = None
    clock.at_ns += 2 * NS_PER_S
    assert evictor.due() and evictor.evict(EVICT) == Applied()
    assert api.asked == [0, 1, 3]
    clock.at_ns += 60 * NS_PER_S
    assert not evictor.due()
