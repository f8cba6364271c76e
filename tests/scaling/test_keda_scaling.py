from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import guide_manifests as guide
import pytest
from scaling_builders import TARGET

from tonnage.control.replicas import Autoscalers
from tonnage.decisions import Ref
from tonnage.errors import InputError
from tonnage.fleet.snapshot import Snapshot, WorkloadView
from tonnage.fleet.state import Fleet
from tonnage.metrics.promql import Result, Sample, Scalar, Vector, evaluate, parse
from tonnage.metrics.store import SeriesStore
from tonnage.objects.autoscaling import HorizontalPodAutoscaler
from tonnage.objects.keda import ScaledObject
from tonnage.scaling.behavior import Behavior, PolicyKind, ScalingPolicy, ScalingRules
from tonnage.scaling.hpa import HpaState, Metric, recommend
from tonnage.scaling.keda import (
    Fallback,
    FallbackBehavior,
    KedaSpec,
    KedaState,
    Paused,
    Trigger,
    TriggerValue,
    generated_hpa,
    poll,
    serve,
    thousandths,
    trigger_value,
)
from tonnage.scaling.manifests import hpa_spec, keda_spec
from tonnage.scaling.replicas import TargetKind
from tonnage.units import NS_PER_S

ONE = Vector((Sample({}, 7.0),))
TWO = Vector((Sample({"pod": "a"}, 7.0), Sample({"pod": "b"}, 1.0)))
NAN = Vector((Sample({}, float("nan")),))


def trigger(threshold: float = 10.0, **kwargs) -> Trigger:
    return Trigger("prometheus", threshold, query=parse("sum(vllm:num_requests_waiting)"), **kwargs)


def keda(*triggers: Trigger, **kwargs) -> KedaSpec:
    return KedaSpec(Ref("ScaledObject", "model-a", "inference"), TARGET, triggers or (trigger(),), **kwargs)


class Operator:
    """KEDA's loop on a clock in seconds."""

    def __init__(self, spec: KedaSpec, replicas: int) -> None:
        self.spec, self.replicas, self.state = spec, replicas, KedaState(created_ns=0)

    def poll(self, at_s: int, *values: float | str) -> int:
        observed = [TriggerValue(error=v) if isinstance(v, str) else TriggerValue(v) for v in values]
        decision, self.state = poll(self.spec, self.state, observed, replicas=self.replicas, now_ns=at_s * NS_PER_S)
        if decision is not None:
            self.replicas = decision.replicas
        return self.replicas


def test_the_published_scaled_object_becomes_this_hpa(tmp_path: Path) -> None:
    [scaled] = guide.read(tmp_path, guide.SCALED_OBJECT).of(ScaledObject)
    hpa = generated_hpa(keda_spec(scaled))
    assert hpa is not None
    assert (hpa.hpa.name, hpa.target.name) == ("keda-hpa-model-a-gpu-scaler", "model-a-serving")
    assert (hpa.min_replicas, hpa.max_replicas) == (2, 10)
    assert hpa.metrics == (Metric("External", "s0-prometheus", TargetKind.AVERAGE_VALUE, 70_000),)
    percent, pods = PolicyKind.PERCENT, PolicyKind.PODS
    assert hpa.behavior == Behavior(
        up=ScalingRules(0, (ScalingPolicy(percent, 100, 15 * NS_PER_S), ScalingPolicy(pods, 4, 15 * NS_PER_S))),
        down=ScalingRules(300 * NS_PER_S, (ScalingPolicy(percent, 25, 60 * NS_PER_S),)),
        explicit=True,
    )


def test_fully_busy_gpus_never_take_the_published_scaled_object_beyond_two_replicas(tmp_path: Path) -> None:
    [scaled] = guide.read(tmp_path, guide.SCALED_OBJECT).of(ScaledObject)
    spec = keda_spec(scaled)
    hpa, state, memory, replicas = generated_hpa(spec), HpaState(), KedaState(), 2
    assert hpa is not None
    for tick in range(100):
        readings, memory = serve(
            spec, memory, [TriggerValue(100.0)], current_replicas=replicas, ready_replicas=replicas
        )
        decision, state = recommend(
            hpa, state, readings, current_replicas=replicas, ready_replicas=replicas, now_ns=tick * 15 * NS_PER_S
        )
        replicas = decision.replicas if decision else replicas
    assert replicas == 2


def test_defaults_are_keda_s(tmp_path: Path) -> None:
    text = """\
apiVersion: keda.sh/v1alpha1
kind: ScaledObject
metadata: {name: short, namespace: inference}
spec:
  scaleTargetRef: {name: d}
  triggers:
    - {type: prometheus, metadata: {serverAddress: "http://p", query: "sum(up)", threshold: "2.5"}}
    - {type: cpu, metricType: Utilization, metadata: {value: "60"}}
"""
    [scaled] = guide.read(tmp_path, text).of(ScaledObject)
    hpa = generated_hpa(keda_spec(scaled))
    assert hpa is not None
    assert (hpa.min_replicas, hpa.max_replicas) == (1, 100)
    assert [str(m) for m in hpa.metrics] == ["External metric s0-prometheus", "Resource metric cpu"]
    assert [m.target for m in hpa.metrics] == [2_500, 60]
    assert not hpa.behavior.explicit


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("avg(DCGM", "limitk(1, DCGM", "limitk() is not evaluated"),
        ("type: prometheus", "type: kafka", "triggers of type kafka are not evaluated"),
    ],
)
def test_a_trigger_that_is_not_evaluated_is_told_with_its_line(
    tmp_path: Path, old: str, new: str, message: str
) -> None:
    [scaled] = guide.read(tmp_path, guide.SCALED_OBJECT.replace(old, new)).of(ScaledObject)
    with pytest.raises(InputError) as caught:
        keda_spec(scaled)
    problem = caught.value.problems[0]
    assert message in problem.message
    assert problem.where.line > 35 and problem.where.field.startswith("spec.triggers[0]")


def test_the_published_plain_hpa_asks_for_a_metric_that_keda_does_not_serve(tmp_path: Path) -> None:
    manifest = guide.read(tmp_path, guide.HPA, guide.SCALED_OBJECT)
    plain = hpa_spec(manifest.of(HorizontalPodAutoscaler)[0])
    generated = generated_hpa(keda_spec(manifest.of(ScaledObject)[0]))
    assert generated is not None
    assert plain.metrics[0].name == "gpu_utilization"
    assert plain.metrics[0].name not in {metric.name for metric in generated.metrics}


@pytest.mark.parametrize(
    ("answer", "ignore_null", "value", "error"),
    [
        (ONE, True, 7.0, False),
        (Vector(), True, 0.0, False),  # a dead exporter looks like no load
        (Vector(), False, None, True),
        (NAN, True, 0.0, False),
        (NAN, False, None, True),
        (Vector((Sample({}, float("inf")),)), True, 0.0, False),
        (TWO, True, None, True),  # several series, whatever the setting
        (Scalar(3.0), True, None, True),
        (Vector((Sample({}, -2.0),)), True, -2.0, False),
    ],
)
def test_the_number_that_keda_takes_from_an_answer(answer, ignore_null, value, error) -> None:
    got = trigger_value(trigger(ignore_null_values=ignore_null), answer)
    assert (got.value, bool(got.error)) == (value, error)


def test_a_query_error_is_a_trigger_error() -> None:
    store = SeriesStore()
    for pod in ("a", "b"):
        store.append("x", {"pod": pod}, NS_PER_S, 1.0)
        store.append("y", {"pod": pod}, NS_PER_S, 1.0)
    workload = Ref("Deployment", "model-a", "inference")
    seen = WorkloadView(workload.kind, workload.namespace, workload.name, 0, ())

    class World:
        def snapshot(self) -> Snapshot:
            return Snapshot(2 * NS_PER_S, Fleet(), {workload.workload: seen})

        def measure(self, query: str, at_ns: int) -> Result:
            return evaluate(parse(query), store, at_ns)

    def polled(query: str) -> tuple[list[int], KedaState]:
        spec = KedaSpec(Ref("ScaledObject", "m", "ns"), workload, (Trigger("prometheus", 1.0, query=parse(query)),))
        autoscalers = Autoscalers([], [spec], {})
        decisions = autoscalers.poll(spec, World())  # type: ignore[arg-type]
        return [one.replicas for one in decisions], autoscalers.keda_states["ns/m"]  # type: ignore[union-attr]

    assert polled("sum(x)")[0] == [1]
    replicas, state = polled("x / on () y")
    assert replicas == [] and not state.ready


def test_values_have_three_decimals_and_no_sign() -> None:
    values = [1.2345, 0.0004, -3.0, float("nan"), float("inf"), 70.0]
    assert [thousandths(v) for v in values] == [1_234, 0, 0, 0, 0, 70_000]


def test_from_zero_to_the_minimum_at_once_when_a_trigger_is_above_its_activation_threshold() -> None:
    operator = Operator(keda(trigger(activation_threshold=5.0)), 0)
    assert [operator.poll(30 * i, v) for i, v in enumerate((0.0, 5.0, 5.1))] == [0, 0, 1]
    assert Operator(keda(min_replicas=3), 0).poll(0, 1.0) == 3


def test_to_zero_only_after_the_cooldown_since_the_last_activity() -> None:
    operator = Operator(keda(cooldown_ns=300 * NS_PER_S), 2)
    assert operator.poll(0, 4.0) == 2
    seen = {at: operator.poll(at, 0.0) for at in range(30, 361, 30)}
    assert next(at for at, replicas in seen.items() if replicas == 0) == 330


def test_never_active_waits_for_the_initial_cooldown_only() -> None:
    operator = Operator(keda(initial_cooldown_ns=120 * NS_PER_S), 2)
    assert [operator.poll(at, 0.0) for at in (60, 120, 121)] == [2, 2, 0]


def test_idle_replicas_stand_between_zero_load_and_the_minimum() -> None:
    operator = Operator(keda(min_replicas=4, idle_replicas=0, cooldown_ns=60 * NS_PER_S), 4)
    assert [operator.poll(at, value) for at, value in ((0, 1.0), (30, 0.0), (90, 0.0), (120, 1.0))] == [4, 4, 0, 4]


def test_one_active_trigger_is_enough() -> None:
    assert Operator(keda(trigger(), trigger()), 0).poll(0, 0.0, 1.0) == 1


def test_without_fallback_failing_triggers_freeze_the_workload() -> None:
    operator = Operator(keda(), 2)
    assert [operator.poll(600 + 30 * i, "no answer") for i in range(20)] == [2] * 20
    assert not operator.state.ready


def test_a_fallback_wakes_a_workload_at_zero_after_more_failures_than_the_threshold() -> None:
    operator = Operator(keda(fallback=Fallback(3, 3)), 0)
    assert [operator.poll(30 * i, "no answer") for i in range(5)] == [0, 0, 0, 1, 1]


@pytest.mark.parametrize(
    ("behavior", "current", "held"),
    [
        (FallbackBehavior.STATIC, 5, 3),
        (FallbackBehavior.CURRENT, 5, 5),
        (FallbackBehavior.CURRENT_IF_HIGHER, 5, 5),
        (FallbackBehavior.CURRENT_IF_HIGHER, 2, 3),
        (FallbackBehavior.CURRENT_IF_LOWER, 5, 3),
        (FallbackBehavior.CURRENT_IF_LOWER, 2, 2),
    ],
)
def test_a_fallback_pretends_a_metric_of_target_times_replicas(behavior, current, held) -> None:
    spec = keda(trigger(70.0), fallback=Fallback(3, 3, behavior))
    state, errors = KedaState(), [TriggerValue(error="down")]
    answers = []
    for _ in range(4):
        readings, state = serve(spec, state, errors, current_replicas=current, ready_replicas=current)
        answers.append(readings[0].milli)
    assert answers == [None, None, None, 70_000 * held]
    readings, state = serve(spec, state, [TriggerValue(1.0)], current_replicas=current, ready_replicas=current)
    assert readings[0].milli == 1_000 and state.failures == (0,)


def test_a_fallback_of_a_value_target_divides_by_the_ready_pods() -> None:
    spec = keda(trigger(70.0, target_kind=TargetKind.VALUE), fallback=Fallback(0, 6))
    readings, _ = serve(spec, KedaState(), [TriggerValue(error="x")], current_replicas=4, ready_replicas=3)
    assert readings[0].milli == 140_000
    readings, _ = serve(spec, KedaState(), [TriggerValue(error="x")], current_replicas=4, ready_replicas=0)
    assert readings[0].milli is None


def test_pausing_by_annotation() -> None:
    spec = keda(paused=Paused(replicas=4))
    assert generated_hpa(spec) is None
    assert Operator(spec, 1).poll(0, 100.0) == 4
    assert Operator(keda(paused=Paused(all=True)), 1).poll(0, 0.0) == 1
    held = generated_hpa(keda(paused=Paused(scale_in=True)))
    assert held is not None and held.behavior.explicit and held.behavior.down.select.value == "Disabled"
    assert Operator(keda(paused=Paused(scale_in=True)), 2).poll(9_000, 0.0) == 2
    assert Operator(keda(paused=Paused(scale_out=True)), 0).poll(0, 5.0) == 0


def test_forced_activation_needs_no_active_trigger() -> None:
    assert Operator(keda(force_activation=True), 0).poll(0, 0.0) == 1


def test_a_workload_below_its_minimum_is_brought_up() -> None:
    assert Operator(keda(min_replicas=2), 1).poll(0, 0.0) == 2


def test_annotations_switch_flags_and_anything_not_plainly_false_is_true(tmp_path: Path) -> None:
    for value, paused in (("true", True), ("false", False), ("0", False), ("maybe", True)):
        line = f"metadata:\n  annotations: {{autoscaling.keda.sh/paused: '{value}'}}\n"
        text = guide.SCALED_OBJECT.replace("metadata:\n", line, 1)
        [scaled] = guide.read(tmp_path, text).of(ScaledObject)
        assert keda_spec(scaled).paused.all is paused


def test_only_scaling_to_zero_or_idle_makes_polling_matter() -> None:
    assert keda().polls_matter
    assert not keda(min_replicas=2).polls_matter
    assert replace(keda(min_replicas=2), idle_replicas=0).polls_matter
