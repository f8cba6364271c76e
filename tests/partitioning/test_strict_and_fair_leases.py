"""The lease model: shares, waits, what idle processes leave, and what kernels that run on cost."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lease_runs import longest_wait_s, run

from tonnage.partitioning.leases import (
    GRANULARITY,
    IDLE,
    LEASE_S,
    SharingProcess,
    fair,
    plan,
    strict,
)


@st.composite
def claims(draw: st.DrawFn) -> list[SharingProcess]:
    """Processes whose shares are promised at once, some of them strict, some idle for part of the time."""
    left, found = 1.0, []
    for _ in range(draw(st.integers(1, 12))):
        if left < GRANULARITY:
            break
        share = draw(st.floats(GRANULARITY, left))
        left -= share
        limit = draw(st.sampled_from([share, 1.0, min(1.0, 1.5 * share)]))
        found.append(SharingProcess(share, limit, draw(st.sampled_from([0.0, 0.3, 1.0]))))
    return found


def test_a_plan_has_20_leases_and_takes_5_seconds() -> None:
    made = plan([strict(0.5)])
    assert (len(made.holders), made.lease_s, made.plan_s) == (20, 0.25, 5.0)


@given(st.floats(0.05, 0.95), st.floats(0.05, 0.95))
def test_a_strict_share_receives_its_part_of_every_5_seconds_to_within_one_lease(share: float, other: float) -> None:
    shares = [share, min(other, 1 - share)] if share <= 0.95 else [share]
    got = run(plan([strict(one) for one in shares if one >= GRANULARITY]))
    for row in got.by_plan:
        for seconds, asked in zip(row, shares, strict=False):
            assert abs(seconds - 5 * asked) <= LEASE_S


def test_a_strict_half_receives_two_and_a_half_seconds() -> None:
    got = run(plan([strict(0.5), strict(0.5)]), switch_s=0.0)
    assert set(got.by_plan) == {(2.5, 2.5)}


def test_what_a_strict_process_does_not_have_stays_idle() -> None:
    made = plan([strict(0.25), strict(0.5)])
    assert made.counts == (5, 10)
    assert made.holders.count(IDLE) == 5


def test_fair_processes_share_what_is_left_in_proportion_to_their_shares() -> None:
    assert plan([fair(0.2), fair(0.1)]).ideal == pytest.approx([2 / 3, 1 / 3])
    assert plan([fair(0.25), fair(0.25), fair(0.5, wants=0.0)]).counts == (10, 10, 0)
    assert plan([fair(0.25), strict(0.25), fair(0.5, wants=0.0)]).counts == (15, 5, 0)


def test_a_limit_holds_and_what_it_leaves_goes_to_the_others() -> None:
    assert plan([SharingProcess(0.2, 0.3), fair(0.2)]).counts == (6, 14)


@given(claims())
def test_every_process_has_its_ideal_to_within_one_lease(of: list[SharingProcess]) -> None:
    made = plan(of)
    for i, one in enumerate(of):
        assert abs(made.counts[i] - made.ideal[i] * len(made.holders)) < 1
        assert made.counts[i] >= (one.wants > 0)
        assert made.ideal[i] <= max(one.limit, GRANULARITY) + 1e-9
        if one.wants == 1:
            assert made.ideal[i] >= one.share - 1e-9


@given(claims())
def test_nothing_is_left_idle_while_a_process_could_have_it(of: list[SharingProcess]) -> None:
    made = plan(of)
    free = made.holders.count(IDLE)
    able = [i for i, one in enumerate(of) if one.wants and min(one.limit, one.wants) * 20 >= made.counts[i] + 1]
    assert not free or not able


@given(claims())
def test_at_every_lease_a_process_is_within_one_of_its_part_so_far(of: list[SharingProcess]) -> None:
    made = plan(of)
    for i, leases in enumerate(made.counts):
        for upto in range(len(made.holders) + 1):
            so_far = made.holders[:upto].count(i)
            assert abs(so_far - leases * upto / len(made.holders)) < 1
        if leases:
            assert longest_wait_s(made, i) < 2 * made.plan_s / leases


def test_the_longest_wait_goes_round_the_end_of_the_plan() -> None:
    made = plan([strict(0.5), strict(0.5)])
    assert longest_wait_s(made, 0) == LEASE_S
    assert longest_wait_s(plan([strict(0.05)]), 0) == 19 * LEASE_S
    assert longest_wait_s(plan([strict(0.5, wants=0.0)]), 0) == math.inf


def test_a_short_step_at_the_worst_moment_waits_for_a_lease() -> None:
    made = plan([strict(0.5), strict(0.5)])
    assert made.worst_latency_s(0, 0.010, switch_s=0.0) == pytest.approx(0.260)
    assert made.worst_latency_s(0, 0.010, switch_s=0.001) == pytest.approx(0.261)
    assert plan([fair(1.0)]).worst_latency_s(0, 7.0) == pytest.approx(7.0)


@given(claims(), st.floats(0.001, 20.0))
def test_the_worst_latency_is_that_of_dealing_out_the_plan_by_hand(of: list[SharingProcess], work: float) -> None:
    made = plan(of)
    for i, leases in enumerate(made.counts):
        if leases:
            starts = range(len(made.holders))
            slow = max(
                by_hand(made.holders, i, work, start) for start in starts if made.holders[start] != i or leases == 20
            )
            assert made.worst_latency_s(i, work, switch_s=0.0) == pytest.approx(slow, abs=1e-6)


def by_hand(holders: Sequence[int], claim: int, work: float, start: int) -> float:
    at = start
    while True:
        if holders[at % len(holders)] == claim:
            if work <= LEASE_S + 1e-9:
                return (at - start) * LEASE_S + work
            work -= LEASE_S
        at += 1


def test_switches_and_kernels_that_run_on_cost_the_next_holder() -> None:
    made = plan([strict(0.5), strict(0.5)])
    short, long = run(made, kernels_s=[0.0, 0.1], switch_s=0.0, plans=1).by_plan[0]
    assert long == pytest.approx(3.0)  # three kernels in each of ten leases
    assert short == pytest.approx(5.0 - 3.0, abs=0.06)  # the last one runs on in the next plan
    switched = run(made, switch_s=0.001, plans=1)
    assert switched.switching_s == pytest.approx(0.019)
    assert sum(switched.by_plan[0]) == pytest.approx(5.0 - 0.019)


@given(claims(), st.floats(0.0, 0.12), st.floats(0.0, 0.12), st.floats(0.0, 0.01))
def test_the_gpu_is_never_given_away_twice(of: list[SharingProcess], one: float, two: float, switch_s: float) -> None:
    kernels = [one if i % 2 else two for i in range(len(of))]
    got = run(plan(of), kernels_s=kernels, switch_s=switch_s, plans=3)
    assert sum(map(sum, got.by_plan)) + got.switching_s <= 3 * 5.0 + max(kernels) + 1e-6


@pytest.mark.parametrize(
    ("of", "options", "message"),
    [
        ([strict(0.0)], {}, "share"),
        ([strict(1.1)], {}, "share"),
        ([strict(0.04)], {}, r"0.05 <= share"),
        ([SharingProcess(0.5, 0.4)], {}, "limit"),
        ([fair(0.5, wants=-0.1)], {}, "wants"),
        ([fair(0.6), fair(0.6)], {}, "more than the GPU"),
        ([fair(0.5)], {"granularity": 0.3}, "does not divide"),
        ([fair(0.5)], {"granularity": 0.0}, "granularity"),
        ([fair(0.5)], {"lease_s": 0.0}, "lease"),
    ],
)
def test_what_cannot_be_promised_is_refused(of: list[SharingProcess], options: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        plan(of, **options)


def test_kernel_times_are_one_for_each_process_and_not_negative() -> None:
    for kernels in ([0.1], [-0.1, 0.1]):
        with pytest.raises(ValueError, match="kernel time"):
            run(plan([fair(0.5), fair(0.5)]), kernels_s=kernels)
