"""scalingModifiers: the formula language, and the composite metric that it makes."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import guide_manifests as guide
import pytest
from scaling_builders import TARGET

from tonnage.decisions import Ref
from tonnage.errors import InputError
from tonnage.metrics.promql import parse
from tonnage.objects.keda import ScaledObject
from tonnage.scaling.formula import FormulaError, compile_formula
from tonnage.scaling.hpa import Metric
from tonnage.scaling.keda import (
    Fallback,
    FallbackBehavior,
    KedaSpec,
    KedaState,
    Modifiers,
    Trigger,
    TriggerValue,
    generated_hpa,
    poll,
    serve,
)
from tonnage.scaling.manifests import keda_spec
from tonnage.scaling.replicas import MetricReading, TargetKind
from tonnage.units import NS_PER_S


@pytest.mark.parametrize(
    ("formula", "answer"),
    [
        ("a + b * 2", 17.0),
        ("(a + b) / 2", 5.0),
        ("2 ** 3 ** 2", 512.0),  # from the right
        ("-2 ** 2", -4.0),
        ("a > b ? a : b", 7.0),
        ("a > b && b > 5 ? 1 : 0", 0.0),
        ("not (a > b) || b == 7 ? 1.5 : 0", 1.5),
        ("max(a, b, 4)", 7.0),
        ("max([a, b], 9)", 9.0),
        ("count([a, b, 10], {# > 5})", 2.0),
        ("count([a, b], # > 5) >= 1 ? 5 : 0", 5.0),
        ("sum([a, b])", 10.0),
        ("sum(filter([a, b, 20], # < 10))", 10.0),
        ("mean([a, b])", 5.0),
        ("median([a, b, 100])", 7.0),
        ("sum(map([a, b], # * 2))", 20.0),
        ("len([a, b])", 2.0),
        ("int(a) % 2", 1.0),
        ("7 % 4", 3.0),
        ("-7 % 4", -3.0),
        ("round(2.5) + floor(-1.5) + ceil(0.2) + abs(-3)", 5.0),
        ("any([a, b], # > 6) and none([a, b], # > 8) ? 2 : 1", 2.0),
        ("let worst = max(a, b); worst * worst", 49.0),
        ("a in [3, 4] ? 1 : 0", 1.0),
        ("len(1..4)", 4.0),
        ("1_000 + 0x10 + 1.5e1 + .5", 1031.5),
        ("a / 0", math.inf),
        ("nil ?? b", 7.0),
    ],
)
def test_what_a_formula_comes_to(formula: str, answer: float) -> None:
    assert compile_formula(formula, ["a", "b"]).evaluate({"a": 3.0, "b": 7.0}) == answer


@pytest.mark.parametrize(
    ("formula", "problem"),
    [
        ("a + c", "no trigger is named c; there are: a, b"),
        ("a +", "expected a value, not the end"),
        ("(a", "expected ), not the end"),
        ("a b", "'b' is not expected there"),
        ("a ? b", "expected :, not the end"),
        ("trim(a)", "the function trim() is not evaluated by Tonnage"),
        ("a @ b", "'@' at character 3 is not evaluated by Tonnage"),
        ("a > b", "the formula needs a number, not False"),
        ("a ? 1 : 2", "expected true or false, not -1.0"),
        ("a % 2", "% is of whole numbers"),
        ("max()", "max() needs at least one number"),
        ("[a, b]", "the formula needs a number"),
        ("nil", "the formula needs a number, not nil"),
        ("", "expected a value, not the end"),
    ],
)
def test_what_is_no_formula_is_told(formula: str, problem: str) -> None:
    with pytest.raises(FormulaError) as caught:
        compile_formula(formula, ["a", "b"])
    assert problem in str(caught.value)


def spec(
    formula: str, fallback: Fallback | None = None, kind: TargetKind = TargetKind.AVERAGE_VALUE, **more
) -> KedaSpec:
    triggers = (
        Trigger("cpu", 60.0, TargetKind.UTILIZATION),
        *(Trigger("prometheus", 1.0, query=parse("sum(up)"), name=name) for name in ("a", "b")),
    )
    made = Modifiers(compile_formula(formula, ["a", "b"]), 5.0, kind, **more)
    return KedaSpec(Ref("ScaledObject", "m", "ns"), TARGET, triggers, fallback=fallback, modifiers=made)


def values(*given: float | str) -> list[TriggerValue]:
    rest = [TriggerValue(error=one) if isinstance(one, str) else TriggerValue(one) for one in given]
    return [TriggerValue(), *rest]


def served(of: KedaSpec, state: KedaState, *given: float | str, ready: int = 2) -> tuple[MetricReading, KedaState]:
    readings, state = serve(of, state, values(*given), current_replicas=4, ready_replicas=ready)
    assert readings[0] == MetricReading()
    return readings[-1], state


def test_one_composite_metric_stands_for_the_external_triggers_and_resources_stay() -> None:
    hpa = generated_hpa(spec("a + b"))
    assert hpa is not None
    assert hpa.metrics == (
        Metric("Resource", "cpu", TargetKind.UTILIZATION, 60),
        Metric("External", "composite-metric", TargetKind.AVERAGE_VALUE, 5_000),
    )
    assert served(spec("a + b"), KedaState(), 3.0, 4.5)[0] == MetricReading(milli=7_500)
    assert served(spec("a - b"), KedaState(), 3.0, 4.5)[0] == MetricReading(milli=-1_500)


def test_one_failing_trigger_fails_the_composite_metric() -> None:
    reading, _ = served(spec("a"), KedaState(), 3.0, "timeout")  # even one that the formula does not use
    assert reading.milli is None and "encountered error: timeout" in reading.error


def test_a_fallback_pretends_the_composite_metric() -> None:
    of = spec("a + b", Fallback(1, 6))
    reading, state = served(of, KedaState(), 3.0, "timeout")
    assert reading.error
    reading, state = served(of, state, 3.0, "timeout")
    assert reading == MetricReading(milli=30_000)  # target × replicas, whatever a says
    by_value = spec("a + b", Fallback(0, 6), TargetKind.VALUE)
    assert served(by_value, KedaState(), 3.0, "timeout", ready=3)[0] == MetricReading(milli=10_000)
    assert served(by_value, KedaState(), 3.0, "timeout", ready=0)[0].error
    fraction = replace(of, modifiers=replace(of.modifiers, whole_target=False))  # type: ignore[type-var]
    assert served(fraction, state, 3.0, "timeout")[0].error  # KEDA falls back with a whole target only


def test_by_scaling_modifiers_a_failed_trigger_is_nil_in_the_formula() -> None:
    of = spec("a ?? b", Fallback(0, 6, FallbackBehavior.SCALING_MODIFIERS))
    assert served(of, KedaState(), "timeout", 4.0)[0] == MetricReading(milli=4_000)
    assert served(of, KedaState(), "timeout", "timeout")[0] == MetricReading(milli=30_000)  # nil: fallback × target
    needs_both = spec("a + b", Fallback(0, 6, FallbackBehavior.SCALING_MODIFIERS))
    assert "needs a number, not nil" in served(needs_both, KedaState(), "timeout", 4.0)[0].error


def test_a_formula_decides_alone_whether_the_workload_is_active() -> None:
    def replicas(of: KedaSpec, *given: float | str) -> int:
        decision, _ = poll(of, KedaState(), values(*given), replicas=0, now_ns=NS_PER_S)
        return decision.replicas if decision is not None else 0

    of = spec("a - b", activation_target=2.0)
    assert replicas(of, 9.0, 7.0) == 0
    assert replicas(of, 9.5, 7.0) == 1
    assert replicas(of, 9.5, "timeout") == 0
    assert replicas(spec("a + b", Fallback(0, 6), activation_target=2.0), 0.0, "timeout") == 1


MODIFIED = """\
apiVersion: keda.sh/v1alpha1
kind: ScaledObject
metadata: {name: m, namespace: inference}
spec:
  scaleTargetRef: {name: d}
  fallback: {failureThreshold: 1, replicas: 4, behavior: scalingModifiers}
  advanced:
    scalingModifiers:
      formula: "max(running, waiting * 2) ?? 3"
      target: "2.5"
      activationTarget: "1"
      metricType: Value
  triggers:
    - {type: prometheus, name: running, metadata: {serverAddress: "http://p", query: "sum(up)"}}
    - {type: prometheus, name: waiting, metadata: {serverAddress: "http://p", query: "sum(up)"}}
"""


def test_modifiers_are_read_from_the_object(tmp_path: Path) -> None:
    [scaled] = guide.read(tmp_path, MODIFIED).of(ScaledObject)
    found = keda_spec(scaled)
    made = found.modifiers
    assert made is not None and made.formula.evaluate({"running": 3.0, "waiting": 4.0}) == 8.0
    assert (made.target, made.target_kind, made.activation_target) == (2.5, TargetKind.VALUE, 1.0)
    assert not made.whole_target and found.valid_fallback is None  # KEDA falls back with a whole target only
    hpa = generated_hpa(found)
    assert hpa is not None
    assert hpa.metrics == (Metric("External", "composite-metric", TargetKind.VALUE, 2_500),)


@pytest.mark.parametrize(
    ("old", "new", "line", "problem"),
    [
        ("waiting * 2", "queued * 2", 9, "no trigger is named queued; there are: running, waiting"),
        ("max(running", "sqrt(running", 9, "the function sqrt() is not evaluated by Tonnage"),
        ('      formula: "max(running, waiting * 2) ?? 3"\n', "", 8, "scalingModifiers needs a formula and a target"),
        ('target: "2.5"', 'target: "0"', 10, "a number above 0"),
        ("metricType: Value", "metricType: Utilization", 12, "AverageValue"),
    ],
)
def test_modifiers_that_keda_refuses_are_told_with_their_line(tmp_path, old, new, line, problem) -> None:
    assert old in MODIFIED
    with pytest.raises(InputError) as caught:
        keda_spec(guide.read(tmp_path, MODIFIED.replace(old, new)).of(ScaledObject)[0])
    assert problem in str(caught.value)
    assert line in {one.where.line for one in caught.value.problems}


def test_a_fallback_by_scaling_modifiers_needs_a_formula(tmp_path: Path) -> None:
    i, j = MODIFIED.index("  advanced:"), MODIFIED.index("  triggers:")
    with pytest.raises(InputError, match=r"spec\.fallback\.behavior"):
        guide.read(tmp_path, MODIFIED[:i] + MODIFIED[j:])
