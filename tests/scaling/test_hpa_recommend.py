from __future__ import annotations

import pytest
from scaling_builders import Loop, cpu, external, pods, pods_metric, spec

from tonnage.decisions import Ref
from tonnage.scaling import hpa
from tonnage.scaling.behavior import Behavior
from tonnage.scaling.hpa import HpaState, recommend
from tonnage.scaling.replicas import MetricReading, TargetKind
from tonnage.units import NS_PER_S


def active(state: HpaState) -> tuple[bool, str]:
    condition = state.condition("ScalingActive")
    assert condition is not None
    return condition.status, condition.reason


def test_the_metric_that_asks_for_most_wins_and_the_others_are_told() -> None:
    loop = Loop(spec(external(10), pods_metric(5), cpu(50)), 2)
    decision = loop.evaluate(35.0, pods(5, 5), pods(0.5, 0.5))
    assert decision is not None
    assert (decision.current, decision.replicas) == (2, 4)
    assert decision.reason.verdict.startswith("External metric s0-prometheus above target")
    assert [a.name for a in decision.reason.alternatives] == ["Resource metric cpu", "Pods metric requests_running"]


def test_a_failing_metric_does_not_stop_a_scale_up() -> None:
    loop = Loop(spec(external(10), external(10, name="s1-prometheus")), 2)
    assert loop.tick(35.0, None) == 4
    assert active(loop.state) == (True, "ValidMetricFound")


def test_a_failing_metric_stops_a_scale_down() -> None:
    loop = Loop(spec(external(10), external(10, name="s1-prometheus"), behavior=Behavior()), 4)
    assert [loop.tick(10.0, None) for _ in range(30)] == [4] * 30
    assert active(loop.state) == (False, "FailedGetExternalMetric")


def test_a_metric_that_nobody_serves_leaves_only_the_bounds_acting() -> None:
    hpa = spec(external(70, name="gpu_utilization"), low=2, high=10)
    assert Loop(hpa, 5).tick(None) == 5
    assert Loop(hpa, 1).tick(None) == 2
    assert Loop(hpa, 14).tick(None) == 10
    loop = Loop(hpa, 5)
    loop.tick(MetricReading(error="no matching metrics found for gpu_utilization"))
    assert active(loop.state) == (False, "FailedGetExternalMetric")
    assert "no matching metrics found" in loop.state.reason.verdict


def test_no_data_is_not_zero() -> None:
    loop = Loop(spec(external(10), behavior=Behavior()), 4)
    assert [loop.tick(None) for _ in range(40)] == [4] * 40


def test_two_hpas_on_the_same_pods_both_stop() -> None:
    decision, state = recommend(
        spec(external(10)),
        HpaState(),
        [MetricReading.of(1_000)],
        current_replicas=2,
        ready_replicas=2,
        now_ns=NS_PER_S,
        ambiguous_with=("keda-hpa-model-a-gpu-scaler",),
    )
    assert decision is None
    assert active(state) == (False, "AmbiguousSelector")
    assert "keda-hpa-model-a-gpu-scaler, model-a" in state.reason.verdict


def test_an_ambiguous_hpa_still_obeys_its_bounds() -> None:
    decision, _ = recommend(
        spec(external(10), low=2),
        HpaState(),
        [MetricReading.of(1_000)],
        current_replicas=1,
        ready_replicas=1,
        now_ns=NS_PER_S,
        ambiguous_with=("other",),
    )
    assert decision is not None and decision.replicas == 2


def test_a_workload_at_zero_is_left_alone() -> None:
    loop = Loop(spec(external(10), low=1), 0)
    assert loop.tick(1_000.0) == 0
    assert active(loop.state) == (False, "ScalingDisabled")


def test_an_hpa_that_scaled_to_zero_itself_comes_back() -> None:
    loop = Loop(spec(external(10), low=0), 1)
    for _ in range(30):
        loop.tick(0.0)
    assert loop.replicas == 0 and loop.state.scaled_to_zero
    assert loop.tick(25.0) == 3


def test_a_workload_set_to_zero_by_hand_stays_there_even_with_min_zero() -> None:
    loop = Loop(spec(external(10), low=0), 0)
    assert [loop.tick(100.0) for _ in range(5)] == [0] * 5


def test_the_first_pass_remembers_the_present_count_so_that_a_restart_does_not_shrink_at_once() -> None:
    loop = Loop(spec(external(10)), 8)
    assert loop.tick(10.0) == 8


def test_value_uses_ready_pods_and_average_value_does_not() -> None:
    for kind, wanted in ((TargetKind.VALUE, 3), (TargetKind.AVERAGE_VALUE, 2)):
        decision, _ = recommend(
            spec(external(70, kind), low=1, high=10),
            HpaState(),
            [MetricReading.of(100)],
            current_replicas=2,
            ready_replicas=2,
            now_ns=NS_PER_S,
        )
        assert (decision.replicas if decision else 2) == wanted


def test_a_reading_per_metric_is_required() -> None:
    with pytest.raises(ValueError, match="1 readings for 2 metrics"):
        Loop(spec(external(10), cpu(50)), 1).tick(3.0)


@pytest.mark.report(201)
@pytest.mark.parametrize("kind", ["External", "Object"])
@pytest.mark.parametrize(
    ("spec", "pods", "value", "replicas", "verdict"),
    [
        (4, 5, 48, 5, "within tolerance of its target: the 5 current pods stay"),
        (4, 3, 29, None, "within tolerance of its target: the 3 current pods stay"),
        (4, 5, 60, 6, "above target"),
        (4, 4, 41, None, "asks for the current replicas"),
        (4, 5, 45, 5, "within tolerance of its target: the 5 current pods stay"),
        (4, 5, 44, 5, "q asks for 5 replicas"),
        (4, 5, 56, 6, "above target"),
        (1, 2, 20, 2, "within tolerance of its target: the 2 current pods stay"),
        (6, 3, 34, None, "q asks for 4 replicas"),
        (4, 0, 48, 5, "above target"),
    ],
)
def test_within_tolerance_an_external_metric_asks_for_the_pods_that_there_are(
    spec: int, pods: int, value: int, replicas: int | None, verdict: str, kind: str
) -> None:
    """As kube-controller-manager 1.36 does (kubernetes#138505): the count of status, not of spec, is kept."""
    metric = hpa.Metric(kind, "q", TargetKind.AVERAGE_VALUE, 10_000)
    object_ = hpa.HpaSpec(Ref("HorizontalPodAutoscaler", "h"), Ref("Deployment", "d"), 20, (metric,))
    scale, state = hpa.recommend(
        object_,
        hpa.HpaState(),
        [MetricReading(milli=value * 1000)],
        current_replicas=spec,
        ready_replicas=pods,
        status_replicas=pods,
        now_ns=0,
    )
    assert (scale.replicas if scale else None) == replicas
    assert verdict in state.reason.verdict
    assert "above target" not in state.reason.verdict or value > 10 * pods


def test_fewer_replicas_above_the_target_are_not_called_below_it() -> None:
    """Five replicas are wanted and three are there: 34 for three is above the target of 10 each, and four are enough."""
    metric = hpa.Metric("External", "q", TargetKind.AVERAGE_VALUE, 10_000)
    object_ = hpa.HpaSpec(Ref("HorizontalPodAutoscaler", "h"), Ref("Deployment", "d"), 20, (metric,))
    state, readings = hpa.HpaState(), [MetricReading(milli=34_000)]
    for minute in range(7):
        counts = {"current_replicas": 5, "ready_replicas": 3, "status_replicas": 3}
        scale, state = hpa.recommend(object_, state, readings, **counts, now_ns=minute * 60 * NS_PER_S)
    assert scale is not None
    assert (scale.replicas, state.reason.verdict) == (4, "External metric q asks for 4 replicas")
