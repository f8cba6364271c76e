"""The slo policy's decisions: how many replicas, when fewer, and which pods go."""

from __future__ import annotations

from itertools import pairwise
from math import ceil
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from slo_builders import TICK_S, A, B, Cluster, Loop, target

from deep_seeds import examples
from tonnage.decisions import Scale
from tonnage.scaling import slo
from tonnage.scheduling.seats import SchedulerSeats
from tonnage.units import NS_PER_S

KEPT8 = ["kept-1"] * 8
TEN_MINUTES = 600 // TICK_S


def _to(decisions: dict[str, Scale], workload: str = A) -> int | None:
    """The replicas decided; None for no decision."""
    decision = decisions.get(workload)
    return None if decision is None else decision.replicas


def _four(*, kept: int = 1, gpus: int = 4) -> Cluster:
    """Four ready pods of A on the first kept node, which has no other GPU."""
    return Cluster(kept=kept, gpus=gpus).pods(A, *KEPT8[:4])


# ---- how many ----


@pytest.mark.parametrize(("rate", "replicas"), [(0.1, None), (3.0, None), (3.8, 5), (6.0, 7), (9.0, 10), (50.0, 10)])
def test_replicas_follow_the_upper_estimate_of_demand(rate: float, replicas: int | None) -> None:
    loop = Loop(_four())
    assert _to(loop.tick(rate, ticks=9)) == replicas
    if replicas not in (None, 10):
        assert replicas == ceil(rate + 1.64 * (rate * 120) ** 0.5 / 120)


def test_the_reason_carries_the_numbers_and_the_alternatives() -> None:
    decision = Loop(_four()).tick(6.0, 45, ticks=9)[A]
    evidence = dict(decision.reason.evidence)
    assert evidence["arrivals_per_s"] == 6.0 and evidence["capacity_per_replica"] == 1.0
    assert evidence["backlog"] == 5.0 and evidence["horizon_s"] == 60.0
    assert evidence["needed"] == decision.replicas == 8, "6.37 for the demand, 5 + (6 - 4) * 60 requests / 180 s more"
    assert evidence["others_pending"] is False, "the four find no free GPU, but they are its own"
    assert [a.name for a in decision.reason.alternatives] == ["hold", "the need of this tick alone"]
    assert decision.current == 4 and decision.remove == ()


def test_a_backlog_asks_for_more() -> None:
    needs = [_to(Loop(_four()).tick(3.8, in_flight, ticks=9)) for in_flight in (0, 40, 400, 700)]
    assert needs == [5, 5, 7, 8], "4.09 for the demand, and (in flight - 40) / 180 more"


def test_a_backlog_that_nothing_follows_is_still_worked_off() -> None:
    assert _to(Loop(_four()).tick(0.0, 2000, ticks=9)) == 10


def test_what_arrives_until_help_comes_is_part_of_the_backlog() -> None:
    quick = Loop(_four()).tick(6.0, 41, cold_starts_s=[10], ticks=9)
    slow = Loop(_four()).tick(6.0, 41, cold_starts_s=[400], ticks=9)
    assert (_to(slow) or 0) > (_to(quick) or 0)


@pytest.mark.parametrize(
    ("cold_starts_s", "horizon_s"),
    [
        pytest.param([], 60, id="none was measured: the prior"),
        pytest.param([100], 100, id="one"),
        pytest.param([100, 200, 300, 400], 300, id="three quarters"),
        pytest.param([900] * 8 + [100] * 8, 100, id="the last eight count"),
    ],
)
def test_the_horizon_is_the_measured_cold_start(cold_starts_s: list[float], horizon_s: float) -> None:
    decision = Loop(_four()).tick(9.0, cold_starts_s=cold_starts_s, ticks=9)[A]
    assert dict(decision.reason.evidence)["horizon_s"] == horizon_s


def test_pods_that_are_not_ready_are_ordered_but_no_capacity() -> None:
    loop = Loop(_four(gpus=8).pods(A, *KEPT8[:4], ready=False))
    assert loop.tick(7.0, ticks=9) == {}, "the four that start are enough: no more are ordered"
    assert _to(loop.tick(7.0, 60)) == 9, "they hold none of the requests in flight"


FAR = target(new_node_ns=700 * NS_PER_S)
"""Where every replica more needs a new node."""


def test_where_every_replica_needs_a_new_node_the_horizon_is_at_least_that() -> None:
    for cold_s, horizon_s in (([], 700.0), ([100], 700.0), ([900], 900.0)):
        decision = Loop(_four(), FAR).tick(9.0, cold_starts_s=cold_s, ticks=9)[A]
        assert dict(decision.reason.evidence)["horizon_s"] == horizon_s


def test_far_a_backlog_asks_for_no_more_than_as_many_again_as_are_behind() -> None:
    """A request stays with the replica that got it: more replicas only take what the ones behind cannot."""
    assert _to(Loop(_four(), FAR).tick(0.0, 2000, ticks=9)) == 5, "a fraction for what may come, and the four"


@pytest.mark.parametrize(("in_flight", "backlog"), [(58, 0.0), (60, 20.0)])
def test_far_what_chance_adds_to_the_requests_in_flight_is_no_backlog(in_flight: float, backlog: float) -> None:
    """Forty are usual: three standard deviations of it are 19."""
    decision = Loop(_four(), FAR).tick(6.0, in_flight, ticks=9)[A]
    assert dict(decision.reason.evidence)["backlog"] == backlog


def test_far_what_has_not_started_is_given_up_when_its_need_has_passed() -> None:
    loop = Loop(Cluster(gpus=4).pods(A, *KEPT8[:4], "", ""), FAR)
    loop.tick(5.5, ticks=9)
    quiet = [loop.tick(0.1) for _ in range(2 * TEN_MINUTES)]
    first = next(i for i, decisions in enumerate(quiet) if decisions)
    assert first * TICK_S >= 300 and _to(quiet[-1]) == 4, "those that serve stay on their free GPUs"
    assert {ref.name for ref in quiet[-1][A].remove} == {"a-04", "a-05"}


def test_far_the_last_replica_above_the_need_stays_for_a_cold_start_and_a_half() -> None:
    loop = Loop(Cluster(kept=0, bought=6, gpus=1).pods(A, *(f"bought-{i}" for i in range(1, 7))), FAR)
    loop.tick(4.0, ticks=40)
    quiet = [_to(loop.tick(0.1)) for _ in range(3000 // TICK_S)]
    assert quiet.index(3) * TICK_S < 1050 <= quiet.index(2) * TICK_S, "one more than the need of two, which is allowed"


def test_far_more_are_ordered_when_they_were_needed_most_of_a_tenth_of_a_cold_start() -> None:
    """Of 700 s that is 70 s, so three of five ticks."""
    loop = Loop(_four(), FAR)
    loop.tick(3.0, ticks=TEN_MINUTES)
    decided, reasons = [], []
    for _ in range(2 * TEN_MINUTES):
        decided.append(loop.tick(9.0))
        reasons.append(loop.memory[A].reason)
    needed = [dict(one.evidence)["needed"] for one in reasons]
    first = next(i for i, count in enumerate(needed) if count > 4)
    ordered = next(i for i, decisions in enumerate(decided) if decisions)
    assert (ordered - first) * TICK_S == 30, "the need of the first of the three ticks is 30 s old"
    assert {one.verdict for one in reasons[first:ordered]} == {"held: more are needed, but not for long enough yet"}
    assert _to(decided[ordered]) == min(needed[first : ordered + 1]), "as many as were needed in all three"


@pytest.mark.parametrize(
    ("in_flight", "ordered"),
    [((400.0, 400.0, 30.0, 30.0, 30.0), False), ((400.0, 30.0, 400.0, 30.0, 30.0), False), ((400.0, 400.0, 30.0, 400.0, 30.0), True)],
    ids=["a burst", "two bursts", "a need that flickers"],
)  # fmt: skip
def test_far_a_need_that_passes_orders_nothing_and_one_that_flickers_does(
    in_flight: tuple[float, ...], ordered: bool
) -> None:
    loop = Loop(_four(), FAR)
    loop.tick(3.0, ticks=TEN_MINUTES)
    assert any(loop.tick(3.0, held) for held in in_flight * 4) is ordered


def test_far_twenty_minutes_of_counts_are_remembered() -> None:
    loop = Loop(_four(), FAR)
    loop.tick(3.0, ticks=200)
    assert len(loop.memory[A].counts) == 1230 // TICK_S + 1


@pytest.mark.parametrize(
    ("rate", "needed"), [(0.0, 0), (1.0, 2), (1.4, 2), (1.42, 3), (6.0, 7), (8.0, 8), (9.5, 10), (50.0, 50)]
)
def test_few_replicas_carry_less_each(rate: float, needed: int) -> None:
    """1 request/s each where eight share the arrivals, 0.7 where two do, and in between by the root of their number."""
    one = target(maximum=100, pair_capacity=0.7)
    assert one.needed(rate) == needed
    assert [round(one.capacity_of(n), 3) for n in (2, 4, 8, 20)] == [0.7, 0.876, 1.0, 1.0]


# ---- no data ----


def test_no_data_holds() -> None:
    loop = Loop(_four())
    assert loop.tick(None, ticks=20) == {}


def test_data_that_stops_holds_what_there_is() -> None:
    loop = Loop(Cluster().pods(A, *KEPT8))
    loop.tick(7.0, ticks=9)
    assert loop.tick(None, ticks=TEN_MINUTES) == {}


@pytest.mark.parametrize("reading", [slo.TrafficReading(None, 5.0), slo.TrafficReading(5.0, None)])
def test_half_a_reading_is_none(reading: slo.TrafficReading) -> None:
    decisions, memory = slo.decide(_four().snapshot(1), [target()], {A: reading}, {}, SchedulerSeats())
    assert decisions == [] and (memory[A].counts, memory[A].needs) == ((), ())
    assert memory[A].reason.verdict.startswith("held: no data")


def test_a_workload_that_is_not_there_is_left_alone() -> None:
    decisions, _ = slo.decide(_four().snapshot(1), [target(B)], {B: slo.TrafficReading(5.0, 5.0)}, {}, SchedulerSeats())
    assert decisions == []


def test_a_counter_that_begins_again_starts_a_new_history() -> None:
    loop = Loop(_four())
    loop.tick(3.0, ticks=9)
    loop.received[A] = 0.0
    assert loop.tick(3.0, ticks=2) == {}
    assert len(loop.memory[A].counts) == 2


# ---- fewer ----


def test_replicas_go_down_only_after_the_hold() -> None:
    loop = Loop(Cluster(bought=1, gpus=4).pods(A, *KEPT8[:4], *["bought-1"] * 4))
    loop.tick(7.0, ticks=9)
    quiet = [_to(loop.tick(0.1)) for _ in range(TEN_MINUTES)]
    first = next(i for i, replicas in enumerate(quiet) if replicas is not None)
    assert first * TICK_S >= 300, "the highest need of the last five minutes"
    assert quiet[-1] == 4, "those on launched nodes"


def test_the_hold_keeps_but_does_not_bring_back() -> None:
    """Replicas given up because others waited are not ordered again for a need that has passed."""
    cluster = Cluster(gpus=6).pods(A, *KEPT8[:6], replicas=6)
    loop = Loop(cluster)
    loop.tick(5.0, ticks=9)
    cluster.views[A] = cluster.views[A][:2]
    cluster.replicas[A] = 2
    loop.tick(0.1, ticks=9)
    assert loop.tick(0.1) == {}


def test_replicas_on_kept_nodes_stay_warm_when_nobody_needs_them() -> None:
    loop = Loop(_four())
    assert loop.tick(0.1, ticks=2 * TEN_MINUTES) == {}


def test_a_surplus_is_given_up_at_once_when_pods_of_another_wait() -> None:
    cluster = _four(gpus=4).pods(B, "", "")
    loop = Loop(cluster, target(A), target(B))
    decisions = loop.tick({A: 0.1, B: 1.0}, ticks=9)
    assert _to(decisions, A) == 2, "down to the minimum, warm or not"
    assert B not in decisions


def test_a_surplus_is_given_up_when_the_needs_of_this_tick_find_no_device() -> None:
    cluster = _four(gpus=8).pods(B, *KEPT8[:4])
    loop = Loop(cluster, target(A), target(B))
    decisions = loop.tick({A: 0.1, B: 6.0}, ticks=9)
    assert (_to(decisions, A), _to(decisions, B)) == (2, 7)


def test_what_another_needs_and_finds_free_costs_nobody_anything() -> None:
    cluster = _four(kept=2, gpus=8).pods(B, *KEPT8[:4])
    decisions = Loop(cluster, target(A), target(B)).tick({A: 0.1, B: 6.0}, ticks=9)
    assert (_to(decisions, A), _to(decisions, B)) == (6, 7), "B may grow to 10, two of the eight free GPUs are left"


def test_a_pod_that_waits_for_no_device_takes_nothing_from_anybody() -> None:
    loop = Loop(_four(gpus=4).pods("inference/cpu-only", "", gpus=0))
    assert loop.tick(0.1, ticks=9) == {}


@pytest.mark.parametrize(
    "more",
    [{"nodeSelector": {"no": "such"}}, {"schedulingGates": [{"name": "later"}]}],
    ids=["no node has the label", "held back by a gate"],
)
def test_a_pod_that_no_freed_gpu_would_help_takes_nothing_from_anybody(more: dict[str, object]) -> None:
    loop = Loop(_four().pods("inference/stuck", "", more=more))
    assert loop.tick(0.1, ticks=9) == {}


def test_what_was_needed_in_the_last_minute_is_not_given_up() -> None:
    cluster = Cluster(gpus=6).pods(A, *KEPT8[:6]).pods(B, "")
    loop = Loop(cluster, target(A))
    loop.tick(5.0, ticks=9)
    given_up = [_to(loop.tick(0.0)) for _ in range(12)]
    assert given_up[0] is None or given_up[0] >= 5
    assert given_up[-1] == 2


@pytest.mark.parametrize("own", [1, 3])
def test_pods_of_its_own_that_wait_make_no_workload_give_up_anything(own: int) -> None:
    loop = Loop(Cluster(gpus=4).pods(A, *KEPT8[:4], *[""] * own))
    assert loop.tick(0.1, ticks=20) == {}, "they have not started yet, and nobody else waits"


SPOT = {"karpenter.sh/capacity-type": "spot"}


@pytest.mark.parametrize(
    "stuck",
    [
        {"more": {"nodeSelector": SPOT}},
        {"gpus": 5},
        {"more": {"initContainers": [{"name": "i", "resources": {"requests": {"cpu": "2000"}}}]}},
    ],
    ids=["it goes on spot nodes alone", "more GPUs than would be free", "more cores than any node has"],
)
def test_a_pod_that_the_freed_room_would_not_seat_takes_nothing_from_anybody(stuck: dict[str, Any]) -> None:
    cluster = Cluster(gpus=4).pods(A, *KEPT8[:4]).pods("batch/job", "", **stuck)
    assert Loop(cluster, target(minimum=1)).tick(0.1, ticks=9) == {}
    fits = Cluster(gpus=4).pods(A, *KEPT8[:4]).pods("batch/job", "")
    assert _to(Loop(fits, target(minimum=1)).tick(0.1, ticks=9)) == 1, "one that it would place"


def test_a_gang_that_the_freed_room_seats_in_part_takes_nothing_from_anybody() -> None:
    for size, replicas in ((4, None), (2, 2)):
        cluster = Cluster(gpus=4).pods(A, *KEPT8[:4]).gang("batch/train", size)
        assert _to(Loop(cluster, target(minimum=2)).tick(0.1, ticks=9)) == replicas


def test_what_two_workloads_give_up_together_seats_a_pod_that_neither_could() -> None:
    cluster = Cluster(gpus=8).pods(A, *KEPT8[:4]).pods(B, *KEPT8[:4]).pods("batch/job", "", gpus=4)
    decisions = Loop(cluster, target(A), target(B)).tick(0.1, ticks=9)
    assert (_to(decisions, A), _to(decisions, B)) == (2, 2)


# ---- warm ----


def test_free_gpus_of_kept_nodes_are_filled() -> None:
    decision = Loop(_four(gpus=8)).tick(0.1, ticks=9)[A]
    assert (decision.current, decision.replicas) == (4, 8)
    assert "warm" in decision.reason.verdict


def test_free_gpus_of_bought_nodes_are_not_filled() -> None:
    assert Loop(Cluster(bought=1, gpus=4).pods(A, *KEPT8[:4])).tick(0.1, ticks=9) == {}


def test_free_gpus_are_shared_out_in_proportion_to_need() -> None:
    even = Cluster(gpus=6).pods(A, *KEPT8[:2]).pods(B, *KEPT8[:2])
    decisions = Loop(even, target(A), target(B)).tick(0.1, ticks=9)
    assert (_to(decisions, A), _to(decisions, B)) == (3, 3)
    uneven = Cluster(gpus=8).pods(A, *KEPT8[:2]).pods(B, *KEPT8[:2])
    decisions = Loop(uneven, target(A), target(B)).tick({A: 1.5, B: 0.1}, ticks=9)
    assert (_to(decisions, A), _to(decisions, B)) == (6, None)


def test_a_workload_at_its_maximum_leaves_free_gpus_to_others() -> None:
    cluster = Cluster(gpus=8).pods(A, *KEPT8[:4]).pods(B, *KEPT8[:2])
    decisions = Loop(cluster, target(A, maximum=4), target(B)).tick({A: 3.0, B: 0.1}, ticks=9)
    assert (_to(decisions, A), _to(decisions, B)) == (None, 4)


def test_a_replica_of_two_gpus_needs_two_of_them() -> None:
    cluster = Cluster(gpus=7).pods(A, "kept-1", "kept-1", gpus=2)
    assert _to(Loop(cluster, target(A, gpus=2)).tick(0.1, ticks=9)) == 3, "three GPUs are free: room for one replica"
    crowded = Cluster(gpus=7).pods(A, "kept-1", "kept-1", gpus=2).pods(B, "kept-1", "kept-1")
    decisions = Loop(crowded, target(A, gpus=2, minimum=1), target(B)).tick({A: 2.3, B: 0.1}, ticks=9)
    assert (_to(decisions, A), _to(decisions, B)) == (3, 3), "one GPU is free, the third replica of A needs two"


def test_gpus_that_are_free_on_different_nodes_are_no_room_for_a_replica_of_two() -> None:
    apart = Cluster(kept=2, gpus=3).pods(A, "kept-1", "kept-2", gpus=2)
    assert Loop(apart, target(A, gpus=2)).tick(0.1, ticks=9) == {}
    shared = Cluster(kept=3, gpus=3).pods(A, "kept-1", "kept-2", gpus=2).pods(B, *["kept-3"] * 3)
    decisions = Loop(shared, target(A, gpus=2), target(B)).tick(0.1, ticks=9)
    assert (_to(decisions, A), _to(decisions, B)) == (None, 5), "each GPU is room for a replica of one"


@pytest.mark.parametrize(
    "more",
    [
        pytest.param({"nodeSelector": {"no": "such"}}, id="no kept node has the label"),
        pytest.param({"initContainers": [{"name": "i", "resources": {"requests": {"cpu": "600"}}}]}, id="no CPU left"),
    ],
)
def test_a_free_gpu_that_the_pods_cannot_use_is_not_filled(more: dict[str, object]) -> None:
    assert Loop(Cluster(kept=2).pods(A, "kept-1", "kept-2", more=more)).tick(0.1, ticks=9) == {}


def test_warm_replicas_are_given_only_once_all_pods_serve() -> None:
    starting = _four(gpus=8).pods(A, "kept-1", ready=False)
    assert Loop(starting).tick(0.1, ticks=9) == {}
    assert _to(Loop(_four(gpus=8).pods(A, "kept-1")).tick(0.1, ticks=9)) == 8


def test_a_gpu_that_is_ordered_already_is_not_given_twice() -> None:
    cluster = _four(gpus=8).pods(B, "kept-1", replicas=3)
    decisions = Loop(cluster, target(A), target(B, maximum=3)).tick({A: 0.1, B: 0.1}, ticks=9)
    assert (_to(decisions, A), _to(decisions, B)) == (5, None), "two of the three free GPUs are for pods of B to come"


def test_filling_kept_nodes_comes_to_rest() -> None:
    cluster = Cluster(kept=2, gpus=4).pods(A, *KEPT8[:2])
    loop = Loop(cluster, target(A, maximum=20))
    added = (_to(loop.tick(0.1, ticks=9)) or 0) - 2
    cluster.pods(A, "kept-1", "kept-1", *["kept-2"] * (added - 2))
    assert added == 6 and loop.tick(0.1, ticks=2 * TEN_MINUTES) == {}


@settings(max_examples=examples(50), deadline=None)
@given(held=st.lists(st.integers(0, 4), min_size=1, max_size=4), gpus=st.sampled_from([1, 2, 4]))
def test_as_many_warm_replicas_are_given_as_kept_nodes_have_room_for(held: list[int], gpus: int) -> None:
    cluster = Cluster(kept=len(held), bought=1, gpus=4).pods(A, "bought-1", gpus=gpus)
    for number, used in enumerate(held, 1):
        cluster.pods(B, *[f"kept-{number}"] * used, gpus=1)
    room = sum((4 - used) // gpus for used in held)
    loop = Loop(cluster, target(minimum=1, maximum=100, gpus=gpus))
    assert _to(loop.tick(0.1, ticks=9)) == (1 + room if room else None)


# ---- where ----


def test_replicas_start_on_kept_nodes_before_those_on_bought_nodes_go() -> None:
    cluster = Cluster(bought=1, gpus=4).pods(A, "kept-1", "kept-1", "bought-1", "bought-1")
    decision = Loop(cluster).tick(2.5, ticks=9)[A]
    assert (decision.current, decision.replicas, decision.remove) == (4, 6, ())


def test_while_pods_start_nothing_moves_and_nothing_is_removed() -> None:
    cluster = Cluster(bought=1, gpus=4).pods(A, "kept-1", "bought-1").pods(A, "kept-1", "kept-1", ready=False)
    assert Loop(cluster).tick(0.1, ticks=2 * TEN_MINUTES) == {}


def test_once_moved_the_pods_on_bought_nodes_go() -> None:
    cluster = Cluster(bought=1, gpus=4).pods(A, *["kept-1"] * 4, "bought-1", "bought-1")
    loop = Loop(cluster)
    decision = loop.tick(2.0, ticks=TEN_MINUTES)[A]
    assert (decision.current, decision.replicas) == (6, 4)
    assert [ref.name for ref in decision.remove] == ["a-04", "a-05"]


# ---- who goes ----


def test_the_first_to_go_are_those_without_a_node_then_the_unready_then_those_that_empty_a_bought_node() -> None:
    cluster = (
        Cluster(kept=1, bought=2, gpus=8)
        .pods(A, "kept-1", "bought-1", "bought-1", "bought-2", "kept-1")
        .pods(A, "kept-1", ready=False)
        .pods(A, "")
    )
    snapshot = cluster.snapshot(0)
    order = [ref.name for ref in slo.first_to_go(snapshot, snapshot.workloads[A], 7)]
    assert order == ["a-06", "a-05", "a-03", "a-01", "a-02", "a-00", "a-04"]


def test_as_many_go_as_are_too_many() -> None:
    cluster = Cluster(bought=1, gpus=4).pods(A, *KEPT8[:4], *["bought-1"] * 4)
    decision = Loop(cluster).tick(0.1, ticks=TEN_MINUTES)[A]
    assert len(decision.remove) == decision.current - decision.replicas


# ---- always ----

RATES = st.lists(st.one_of(st.none(), st.floats(0, 40)), min_size=1, max_size=40)


@settings(max_examples=examples(50), deadline=None)
@given(rates=RATES, in_flight=st.floats(0, 500), minimum=st.integers(0, 3), more=st.integers(0, 8))
def test_replicas_stay_within_their_bounds_whatever_arrives(
    rates: list[float | None], in_flight: float, minimum: int, more: int
) -> None:
    cluster = Cluster(kept=2, bought=1).pods(A, "kept-1", "bought-1", "")
    one = target(minimum=minimum, maximum=minimum + more)
    loop = Loop(cluster, one)
    for rate in rates:
        for decision in loop.tick(rate, in_flight).values():
            assert one.minimum <= decision.replicas <= one.maximum
            assert decision.replicas != decision.current == cluster.replicas[A]
            cluster.replicas[A] = decision.replicas


@settings(max_examples=examples(50), deadline=None)
@given(rates=RATES, in_flight=st.floats(0, 500))
def test_equal_readings_give_equal_decisions(rates: list[float | None], in_flight: float) -> None:
    def play() -> list[dict[str, Scale]]:
        cluster = Cluster(kept=1, bought=1).pods(A, "kept-1", "bought-1").pods(B, "kept-1", "")
        loop = Loop(cluster, target(A), target(B))
        return [loop.tick(rate, in_flight) for rate in rates]

    assert play() == play()


@settings(max_examples=examples(50), deadline=None)
@given(rate=st.floats(0.5, 20), backlogs=st.lists(st.floats(0, 3000), min_size=2, max_size=5))
def test_more_in_flight_never_asks_for_fewer_replicas(rate: float, backlogs: list[float]) -> None:
    wanted = [_to(Loop(_four(), target(maximum=60)).tick(rate, held, ticks=9)) or 4 for held in sorted(backlogs)]
    assert all(low <= high for low, high in pairwise(wanted))


def test_a_memory_forgets_what_no_window_reaches() -> None:
    loop = Loop(_four())
    loop.tick(3.0, ticks=1000)
    assert len(loop.memory[A].counts) <= 240 // TICK_S + 1
    assert len(loop.memory[A].needs) <= 300 // TICK_S + 1


# ---- what caches hold ----


def _sized(reuse: float) -> tuple[float, float]:
    """Twice the requests at a reuse of a half, and so on."""
    return 1 / (1 - reuse), 10.0


@given(found=st.floats(0, 2000), asked=st.floats(0, 1000))
def test_the_share_found_in_caches_is_rounded_down_and_never_all_of_a_prompt(found: float, asked: float) -> None:
    planned = slo.at_reuse(target(sized=_sized), slo.TrafficReading(1.0, 1.0, (), asked, found))
    assert 0 <= planned.reuse <= 1 - slo.REUSE_STEP
    if asked:
        assert planned.reuse <= found / asked + 1e-6 or found < 1e-6
        assert planned.reuse + slo.REUSE_STEP > min(found / asked, 1 - slo.REUSE_STEP) - 1e-6
    assert planned.capacity == _sized(planned.reuse)[0]


@pytest.mark.parametrize(("asked", "found"), [(None, 5.0), (0.0, 0.0), (10.0, None), (10.0, 0.0)])
def test_without_a_reading_no_cache_is_counted_on(asked: float | None, found: float | None) -> None:
    one = target(sized=_sized)
    assert slo.at_reuse(one, slo.TrafficReading(1.0, 1.0, (), asked, found)) == one
    assert slo.at_reuse(target(), slo.TrafficReading(1.0, 1.0, (), 10.0, 9.0)) == target(), (
        "nor where nobody knows its worth"
    )


def test_warm_caches_need_fewer_replicas() -> None:
    def needed(found: float) -> tuple[int, object]:
        cluster, one = _four(), target(sized=_sized)
        memory: dict[str, slo.Memory] = {}
        for tick in range(10):
            reading = slo.TrafficReading(8.0 * tick * TICK_S, 0.0, (), 100.0, found)
            decisions, memory = slo.decide(
                cluster.snapshot(tick * TICK_S), [one], {A: reading}, memory, SchedulerSeats()
            )
        return decisions[0].replicas if decisions else 4, dict(decisions[0].reason.evidence).get("reuse")

    assert needed(0.0) == (9, None)
    assert needed(50.0) == (5, 0.5)
