"""Conditions of an HPA's status, and what differs between Kubernetes 1.36 and 1.37."""

from __future__ import annotations

from dataclasses import replace

import pytest
from scaling_builders import cpu, external, pods, rules, spec

from tonnage.scaling.behavior import Behavior, ScaleEvent, scaled
from tonnage.scaling.hpa import HpaSpec, HpaState, recommend
from tonnage.scaling.releases import KUBERNETES_1_36, KUBERNETES_1_37, Release
from tonnage.scaling.replicas import MetricReading, TargetKind, Tolerance
from tonnage.units import NS_PER_S

AT_ONCE = Behavior(down=rules(("Percent", 100, 15)), explicit=True)


def told(state: HpaState) -> dict[str, tuple[bool, str]]:
    return {one.type: (one.status, one.reason) for one in state.conditions}


def once(hpa: HpaSpec, state: HpaState, value: float | None, replicas: int, release: Release = KUBERNETES_1_37):
    reading = MetricReading(error="nobody serves it") if value is None else MetricReading.of(value)
    return recommend(
        hpa,
        state,
        [reading],
        current_replicas=replicas,
        ready_replicas=replicas,
        now_ns=NS_PER_S,
        release=release,
    )


@pytest.mark.parametrize(
    ("value", "replicas", "able", "limited"),
    [
        (20, 2, (True, "ReadyForNewScale"), (False, "DesiredWithinRange")),
        (35, 2, (True, "SucceededRescale"), (False, "DesiredWithinRange")),
        (1000, 2, (True, "SucceededRescale"), (True, "ScaleUpLimit")),
        (1000, 8, (True, "SucceededRescale"), (True, "TooManyReplicas")),
        (5, 5, (True, "ScaleDownStabilized"), (False, "DesiredWithinRange")),
    ],
)
def test_conditions_after_a_pass(value, replicas, able, limited) -> None:
    _, state = once(spec(external(10)), HpaState(), value, replicas)
    assert told(state)["AbleToScale"] == able
    assert told(state)["ScalingActive"] == (True, "ValidMetricFound")
    assert told(state)["ScalingLimited"] == limited


def test_below_the_minimum_the_limit_is_told() -> None:
    behavior = AT_ONCE
    _, state = once(spec(external(10), low=2, behavior=behavior), HpaState(), 0, 3)
    assert told(state)["ScalingLimited"] == (True, "TooFewReplicas")


def test_conditions_stay_until_they_are_set_again() -> None:
    hpa = spec(external(10))
    _, state = once(hpa, HpaState(), 1000, 2)
    _, state = once(hpa, state, None, 4)
    assert told(state) == {
        "AbleToScale": (True, "SucceededGetScale"),
        "ScalingActive": (False, "FailedGetExternalMetric"),
        "ScalingLimited": (True, "ScaleUpLimit"),
        "ScaledToZero": (False, "NotScaledToZero"),
    }
    _, state = once(hpa, state, None, 30)  # above the maximum: the metrics are not asked
    assert told(state)["ScalingActive"] == (False, "FailedGetExternalMetric")
    assert told(state)["AbleToScale"] == (True, "SucceededRescale")


@pytest.mark.parametrize(("release", "back"), [(KUBERNETES_1_36, 0), (KUBERNETES_1_37, 3)])
def test_an_hpa_leaves_zero_by_itself_from_1_37_on(release: Release, back: int) -> None:
    hpa = spec(external(10), low=0, behavior=AT_ONCE)
    decision, state = once(hpa, HpaState(), 0, 1, release)
    assert decision is not None and decision.replicas == 0
    assert state.scaled_to_zero == (release is KUBERNETES_1_37)
    assert ("ScaledToZero" in told(state)) == (release is KUBERNETES_1_37)
    decision, state = once(hpa, state, 25, 0, release)
    assert (decision.replicas if decision else 0) == back
    if release is KUBERNETES_1_36:
        assert told(state)["ScalingActive"] == (False, "ScalingDisabled")


def test_an_hpa_without_external_metrics_that_reached_zero_does_not_come_back() -> None:
    hpa = spec(cpu(50), low=0, behavior=AT_ONCE)
    decision, state = recommend(hpa, HpaState(), [pods(0.0)], current_replicas=1, ready_replicas=1, now_ns=NS_PER_S)
    assert decision is not None and decision.replicas == 0
    assert not state.scaled_to_zero and told(state)["ScaledToZero"] == (False, "NotScaledToZero")


def test_after_the_minimum_was_raised_from_zero_the_workload_gets_it() -> None:
    state = replace(HpaState(), scaled_to_zero=True)
    decision, _ = once(spec(external(10), low=3), state, 0, 0)
    assert decision is not None and decision.replicas == 3


def test_a_release_without_configurable_tolerance_takes_its_own() -> None:
    hpa = spec(external(10), behavior=Behavior(tolerance=Tolerance(up=0.0, down=0.0), explicit=True))
    ask = {"current_replicas": 4, "ready_replicas": 4, "now_ns": NS_PER_S}
    decision, _ = recommend(hpa, HpaState(), [MetricReading.of(43)], **ask)
    assert decision is not None and decision.replicas == 5
    older = Release("1.34", configurable_tolerance=False)
    assert recommend(hpa, HpaState(), [MetricReading.of(43)], **ask, release=older)[0] is None


def test_of_metrics_that_ask_for_nothing_the_last_is_named() -> None:
    hpa = spec(external(10, name="a"), external(10, name="b"), low=0, behavior=AT_ONCE)
    _, state = recommend(
        hpa, HpaState(), [MetricReading.of(0)] * 2, current_replicas=1, ready_replicas=1, now_ns=NS_PER_S
    )
    active = state.condition("ScalingActive")
    assert active is not None and active.message.endswith("from External metric b")


def test_a_value_target_without_pods_is_no_reason_to_scale() -> None:
    decision, state = recommend(
        spec(external(10, TargetKind.VALUE)),
        HpaState(),
        [MetricReading.of(100)],
        current_replicas=4,
        ready_replicas=0,
        status_replicas=0,
        now_ns=NS_PER_S,
    )
    assert decision is None and told(state)["ScalingActive"] == (False, "FailedGetExternalMetric")


def test_a_change_takes_the_place_of_one_that_no_policy_of_its_direction_reaches() -> None:
    behavior = Behavior(up=rules(("Pods", 4, 600)), down=rules(("Pods", 4, 15)), explicit=True)
    history = HpaState().history
    for at_s, before, after in ((0, 8, 6), (100, 6, 5), (110, 5, 4), (120, 4, 3)):
        history = scaled(history, behavior, before, after, at_s * NS_PER_S)
    assert [(event.at_ns // NS_PER_S, event.pods) for event in history.downs] == [(120, 1), (110, 1)]
    assert scaled(history, Behavior(), 3, 9, 0) == history  # without a behavior nothing is remembered
    history = scaled(history, behavior, 3, 5, 130 * NS_PER_S)
    assert history.ups == (ScaleEvent(130 * NS_PER_S, 2),)
