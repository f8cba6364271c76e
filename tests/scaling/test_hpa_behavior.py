from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scaling_builders import Loop, external, rules, spec

from deep_seeds import examples
from tonnage.scaling.behavior import Behavior, History, ScaleEvent, ScalingRules, down_limit, up_limit
from tonnage.units import NS_PER_S

NOW = 1_000 * NS_PER_S
EMPTY = History()


@pytest.mark.parametrize(
    ("policies", "select", "current", "limit"),
    [
        ([("Percent", 10, 60)], "Max", 5, 6),  # 5.5 rounds up
        ([("Percent", 100, 15), ("Pods", 4, 15)], "Max", 1, 5),
        ([("Percent", 100, 15), ("Pods", 4, 15)], "Max", 10, 20),
        ([("Percent", 100, 15), ("Pods", 4, 15)], "Min", 10, 14),
        ([("Pods", 4, 15)], "Disabled", 10, 10),
    ],
)
def test_the_highest_count_after_a_scale_up(policies, select, current, limit) -> None:
    assert up_limit(rules(*policies, select=select), EMPTY, current, NOW) == limit


@pytest.mark.parametrize(
    ("policies", "select", "current", "limit"),
    [
        ([("Percent", 25, 60)], "Max", 10, 7),  # 7.5 truncates: not 8
        ([("Percent", 100, 15)], "Max", 10, 0),
        ([("Percent", 10, 60), ("Pods", 5, 60)], "Max", 20, 15),
        ([("Percent", 10, 60), ("Pods", 5, 60)], "Min", 20, 18),
        ([("Pods", 5, 60)], "Disabled", 20, 20),
    ],
)
def test_the_lowest_count_after_a_scale_down(policies, select, current, limit) -> None:
    assert down_limit(rules(*policies, select=select), EMPTY, current, NOW) == limit


def test_a_policy_counts_from_the_replicas_at_the_start_of_its_period() -> None:
    history = History(ups=(ScaleEvent(NOW - 30 * NS_PER_S, 4),), downs=(ScaleEvent(NOW - 10 * NS_PER_S, 1),))
    assert up_limit(rules(("Pods", 4, 60)), history, 13, NOW) == 13 - 4 + 1 + 4
    assert up_limit(rules(("Pods", 4, 20)), history, 13, NOW) == 13 + 1 + 4
    exactly = History(ups=(ScaleEvent(NOW - 60 * NS_PER_S, 4),))
    assert up_limit(rules(("Pods", 4, 60)), exactly, 13, NOW) == 17  # a change exactly one period ago is over


def test_ten_pods_with_25_percent_down_per_minute_go_7_5_3() -> None:
    down = rules(("Percent", 25, 60), window_s=0)
    loop = Loop(spec(external(10), low=1, high=20, behavior=Behavior(down=down, explicit=True)), 10)
    seen = [loop.tick(0.0) for _ in range(12)]
    assert seen == [7, 7, 7, 7, 5, 5, 5, 5, 3, 3, 3, 3]


def test_by_default_scale_up_takes_the_larger_of_double_and_four_pods_each_15_s() -> None:
    loop = Loop(spec(external(10), high=100, behavior=Behavior(explicit=True)), 1)
    assert [loop.tick(1_000.0) for _ in range(6)] == [5, 10, 20, 40, 80, 100]


def test_without_a_behavior_scale_up_is_limited_to_double_or_four() -> None:
    loop = Loop(spec(external(10), high=100), 1)
    assert [loop.tick(1_000.0) for _ in range(6)] == [4, 8, 16, 32, 64, 100]


@pytest.mark.parametrize("explicit", [True, False])
def test_scale_down_waits_for_the_highest_recommendation_of_five_minutes(explicit: bool) -> None:
    loop = Loop(spec(external(10), behavior=Behavior(explicit=explicit)), 5)
    assert loop.tick(50.0) == 5
    seen = [loop.tick(10.0) for _ in range(21)]
    kept = 19 if explicit else 20  # the window leaves its end out, or not
    assert seen[:kept] == [5] * kept
    assert seen[20] == 1


def test_scale_up_with_a_window_takes_the_lowest_recent_recommendation() -> None:
    up = rules(("Pods", 100, 15), window_s=60)
    loop = Loop(spec(external(10), behavior=Behavior(up=up, explicit=True)), 2)
    assert [loop.tick(value) for value in (20.0, 80.0, 60.0, 80.0)] == [2, 2, 2, 2]
    condition = loop.state.condition("AbleToScale")
    assert condition is not None and condition.reason == "ScaleUpStabilized"
    assert loop.tick(80.0) == 6
    condition = loop.state.condition("AbleToScale")
    assert condition is not None and condition.reason == "SucceededRescale"


def test_what_limited_a_change_is_told_by_a_condition_and_by_the_reason() -> None:
    loop = Loop(spec(external(10), high=20, behavior=Behavior(explicit=True)), 2)
    decision = loop.evaluate(900.0)
    assert decision is not None and decision.replicas == 6
    assert decision.reason.verdict == "External metric s0-prometheus above target, limited by ScaleUpLimit"
    assert ("recommendation", 90) in decision.reason.evidence
    assert decision.reason.alternatives[0].name == "90 replicas"
    condition = loop.state.condition("ScalingLimited")
    assert condition is not None and condition.status and condition.reason == "ScaleUpLimit"


policy_lists = st.lists(
    st.tuples(st.sampled_from(["Pods", "Percent"]), st.integers(1, 60), st.sampled_from([15, 30, 60, 90])),
    min_size=1,
    max_size=3,
)
behaviors = st.builds(
    lambda up, down, up_window, down_window, select: Behavior(
        up=rules(*up, window_s=up_window, select=select),
        down=rules(*down, window_s=down_window, select=select),
        explicit=True,
    ),
    policy_lists,
    policy_lists,
    st.sampled_from([0, 30, 120]),
    st.sampled_from([0, 60, 300]),
    st.sampled_from(["Max", "Min", "Disabled"]),
)


def allowed(direction: ScalingRules, sign: int, start_of) -> int:
    """The bound from the definition: each policy applied to the replica count at the start of its period."""
    ends = []
    for policy in direction.policies:
        start = start_of(policy.period_ns)
        if policy.kind.value == "Pods":
            ends.append(start + sign * policy.value)
        else:
            exact = start * (100 + sign * policy.value) / 100
            ends.append(-int(-exact // 1) if sign > 0 else int(exact))
    pick = max if (direction.select.value == "Max") == (sign > 0) else min
    return pick(ends)


@settings(max_examples=examples(150), deadline=None)
@given(behaviors, st.lists(st.integers(0, 400), min_size=1, max_size=40), st.integers(1, 12))
def test_bounds_hold_and_rates_are_never_exceeded(behavior: Behavior, loads: list[int], start: int) -> None:
    loop = Loop(spec(external(10), low=1, high=12, behavior=behavior), start)
    trace = [(0, start)]
    for load in loads:
        before = loop.replicas
        after = loop.tick(float(load))
        now = loop.now_s * NS_PER_S
        assert 1 <= after <= 12

        def start_of(period_ns: int, now: int = now) -> int:
            return [count for at, count in trace if at <= now - period_ns][-1]

        if after != before:
            direction, sign = (behavior.up, 1) if after > before else (behavior.down, -1)
            assert direction.select.value != "Disabled"
            bound = allowed(direction, sign, start_of)
            slack = 1  # the controller's float percentages may round to the next pod
            assert after <= bound + slack if sign > 0 else after >= bound - slack
        trace.append((now, after))


@settings(max_examples=examples(100), deadline=None)
@given(st.lists(st.integers(0, 400), min_size=1, max_size=40), st.integers(0, 30), st.booleans())
def test_whatever_the_start_one_tick_brings_the_count_within_bounds(
    loads: list[int], start: int, explicit: bool
) -> None:
    loop = Loop(spec(external(10), low=2, high=9, behavior=Behavior(explicit=explicit)), start)
    for load in loads:
        after = loop.tick(float(load))
        assert after == 0 if start == 0 else 2 <= after <= 9  # zero means: disabled by hand
