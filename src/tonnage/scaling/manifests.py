"""From the objects that users write to the specs that decide: HorizontalPodAutoscaler and ScaledObject.

The objects are valid ones, as :mod:`tonnage.objects` reads them; defaults are the API's and KEDA's. What
is valid but not evaluated here is refused by name, with its file, line and field.
"""

from __future__ import annotations

import math

from tonnage.decisions import Ref
from tonnage.errors import InputError, Problem
from tonnage.metrics.promql import Query, parse
from tonnage.objects import autoscaling, quantity
from tonnage.objects import keda as keda_objects
from tonnage.objects.base import DEFAULT_NAMESPACE, KubeObject
from tonnage.objects.load import where
from tonnage.scaling import cron
from tonnage.scaling.behavior import (
    DEFAULT_DOWN,
    DEFAULT_UP,
    Behavior,
    PolicyKind,
    ScalingPolicy,
    ScalingRules,
    SelectPolicy,
)
from tonnage.scaling.formula import FormulaError, compile_formula
from tonnage.scaling.hpa import DEFAULT_CPU_UTILIZATION, DEFAULT_MIN_REPLICAS, HpaSpec, Metric
from tonnage.scaling.replicas import TOLERANCE, TargetKind, Tolerance
from tonnage.scaling.scaled_object import Fallback, FallbackBehavior, KedaSpec, Modifiers, Paused, Trigger
from tonnage.units import NS_PER_S

PAUSED = "autoscaling.keda.sh/paused"
PAUSED_REPLICAS = "autoscaling.keda.sh/paused-replicas"
PAUSED_SCALE_IN = "autoscaling.keda.sh/paused-scale-in"
PAUSED_SCALE_OUT = "autoscaling.keda.sh/paused-scale-out"
FORCE_ACTIVATION = "autoscaling.keda.sh/force-activation"

_FALSE = ("0", "f", "F", "false", "False", "FALSE")


def ref(source: KubeObject) -> Ref:
    """The object's reference, in the namespace in which the API server creates it."""
    return Ref(source.kind, source.name, source.namespace or DEFAULT_NAMESPACE, source.metadata.uid)


def hpa_spec(source: autoscaling.HorizontalPodAutoscaler) -> HpaSpec:
    """What an HPA object says."""
    spec = source.spec
    return HpaSpec(
        hpa=ref(source),
        target=Ref(spec.scale_target_ref.kind, spec.scale_target_ref.name, source.namespace or DEFAULT_NAMESPACE),
        max_replicas=spec.max_replicas,
        metrics=tuple(map(_metric, spec.metrics)) or (_DEFAULT_METRIC,),
        min_replicas=DEFAULT_MIN_REPLICAS if spec.min_replicas is None else spec.min_replicas,
        behavior=behavior(spec.behavior),
    )


def made_by_keda(source: autoscaling.HorizontalPodAutoscaler) -> bool:
    """Whether the HPA is one that KEDA made for a ScaledObject, exported with the rest: KEDA makes it again."""
    return any(owner.kind == "ScaledObject" for owner in source.metadata.owner_references)


def behavior(written: autoscaling.HPABehavior | None) -> Behavior:
    """``spec.behavior`` with the API's defaults; without one, the older code path."""
    if written is None:
        return Behavior()
    tolerance = Tolerance(up=_tolerance(written.scale_up), down=_tolerance(written.scale_down))
    up, down = _rules(written.scale_up, DEFAULT_UP), _rules(written.scale_down, DEFAULT_DOWN)
    return Behavior(up, down, tolerance, explicit=True)


def keda_spec(source: keda_objects.ScaledObject) -> KedaSpec:
    """What a ScaledObject says.

    Raises InputError for an incomplete trigger, a number, schedule or time zone that is none, a query or formula that
    is not evaluated here, and trigger types other than prometheus, cron, cpu and memory.
    """
    spec = source.spec
    advanced = spec.advanced
    config = advanced.horizontal_pod_autoscaler_config if advanced is not None else None
    return KedaSpec(
        scaled_object=ref(source),
        target=Ref(spec.scale_target_ref.kind, spec.scale_target_ref.name, source.namespace or DEFAULT_NAMESPACE),
        triggers=tuple(trigger(source, index) for index in range(len(spec.triggers))),
        min_replicas=spec.min_replica_count,
        max_replicas=spec.max_replica_count,
        idle_replicas=spec.idle_replica_count,
        polling_interval_ns=spec.polling_interval * NS_PER_S,
        cooldown_ns=spec.cooldown_period * NS_PER_S,
        initial_cooldown_ns=spec.initial_cooldown_period * NS_PER_S,
        fallback=_fallback(source),
        behavior=behavior(config.behavior if config is not None else None),
        hpa_name=config.name if config is not None else "",
        paused=paused(source),
        force_activation=_annotated(source, FORCE_ACTIVATION),
        modifiers=_modifiers(source),
    )


def trigger(source: keda_objects.ScaledObject, index: int) -> Trigger:
    """One trigger of a ScaledObject, with KEDA's rules for its metadata."""
    written = source.spec.triggers[index]
    metadata = written.metadata
    if written.type in ("cpu", "memory"):
        kind, container = TargetKind(metadata.get("type", written.metric_type)), metadata.get("containerName", "")
        value = float(quantity.parse(metadata["value"]))
        return Trigger(written.type, value, kind, name=written.name, container=container)
    if written.type == "cron":
        return Trigger("cron", 1.0, TargetKind(written.metric_type), name=written.name, window=_window(source, index))
    if written.type != "prometheus":
        place = where(source, f"spec.triggers[{index}].type")
        message = f"triggers of type {written.type} are not evaluated by Tonnage"
        raise InputError(Problem(place, message, "supported: prometheus, cron, cpu, memory"))
    return Trigger(
        type=written.type,
        threshold=float(metadata.get("threshold") or 0),  # a formula has a target of its own
        target_kind=TargetKind(written.metric_type),
        query=query(source, index),
        activation_threshold=float(metadata.get("activationThreshold") or 0),
        ignore_null_values=metadata.get("ignoreNullValues", "true") not in _FALSE,
        name=written.name,
        use_cached_metrics=written.use_cached_metrics,
    )


def query(source: keda_objects.ScaledObject, index: int) -> Query:
    """The parsed query of a prometheus trigger."""
    text = source.spec.triggers[index].metadata["query"]
    return parse(text, where(source, f"spec.triggers[{index}].metadata.query"))


def _window(source: keda_objects.ScaledObject, index: int) -> cron.CronWindow:
    """A cron trigger's window. Raises InputError with all that KEDA cannot make a scaler of."""
    metadata = source.spec.triggers[index].metadata
    timezone, start, end, replicas = (metadata.get(name, "") for name in cron.FIELDS)
    wrong = {
        "timezone": cron.zone_problem(timezone),
        "start": cron.schedule_problem(start),
        "end": cron.schedule_problem(end) or ("another time than start" if start == end else ""),
        "desiredReplicas": cron.count_problem(replicas),
    }
    problems = []
    for name, expected in wrong.items():
        if expected:
            place = where(source, f"spec.triggers[{index}].metadata.{name}")
            found = f"{metadata[name]!r}" if metadata.get(name) else "the field is missing"
            problems.append(Problem(place, f"{found}: expected {expected}", "correct the cron trigger"))
    if problems:
        raise InputError(*problems)
    return cron.CronWindow(start, end, timezone, int(replicas))


def _modifiers(source: keda_objects.ScaledObject) -> Modifiers | None:
    written = source.spec.advanced.scaling_modifiers if source.spec.advanced is not None else None
    if written is None:
        return None
    names = [one.name for one in source.spec.triggers if one.name and one.type not in ("cpu", "memory")]
    try:
        formula = compile_formula(written.formula, names)
    except FormulaError as error:
        place = where(source, "spec.advanced.scalingModifiers.formula")
        hint = "use numbers, the triggers' names, arithmetic, comparisons, ? : and max, min, sum, count …"
        raise InputError(Problem(place, f"the formula {written.formula!r}: {error}", hint)) from None
    kind, activation = TargetKind(written.metric_type), float(written.activation_target or 0)
    return Modifiers(formula, float(written.target), kind, activation, _is_whole(written.target))


def _is_whole(written: str) -> bool:
    """What Go's strconv.ParseInt takes."""
    return written.removeprefix("+").isascii() and written.removeprefix("+").isdecimal()


_DEFAULT_METRIC = Metric("Resource", "cpu", TargetKind.UTILIZATION, DEFAULT_CPU_UTILIZATION)


def _metric(written: autoscaling.MetricSpec) -> Metric:
    resource = written.resource or written.container_resource
    if resource is not None:
        return Metric(written.type, resource.name, *_target(resource.target))
    other = written.external or written.object or written.pods
    assert other is not None  # a valid metric has the field that its type names
    return Metric(written.type, other.metric.name, *_target(other.target))


def _target(target: autoscaling.MetricTarget) -> tuple[TargetKind, int]:
    """The controller looks at which value is set, not at ``type``; averageValue comes first."""
    if target.average_value is not None:
        return TargetKind.AVERAGE_VALUE, _milli(target.average_value)
    if target.value is not None:
        return TargetKind.VALUE, _milli(target.value)
    assert target.average_utilization is not None  # a valid target has one of the three
    return TargetKind.UTILIZATION, target.average_utilization


def _milli(written: quantity.Written) -> int:
    return math.ceil(quantity.parse(written) * 1000)


def _rules(written: autoscaling.HPAScalingRules | None, default: ScalingRules) -> ScalingRules:
    if written is None:
        return default
    window_s = written.stabilization_window_seconds
    policies = tuple(
        ScalingPolicy(PolicyKind(policy.type), policy.value, policy.period_seconds * NS_PER_S)
        for policy in written.policies
    )
    return ScalingRules(
        default.window_ns if window_s is None else window_s * NS_PER_S,
        policies or default.policies,
        default.select if written.select_policy is None else SelectPolicy(written.select_policy),
    )


def _tolerance(written: autoscaling.HPAScalingRules | None) -> float:
    if written is None or written.tolerance is None:
        return TOLERANCE
    return float(quantity.parse(written.tolerance))


def _fallback(source: keda_objects.ScaledObject) -> Fallback | None:
    written = source.spec.fallback
    if written is None:
        return None
    return Fallback(written.failure_threshold, written.replicas, FallbackBehavior(written.behavior))


def paused(source: KubeObject) -> Paused:
    """What annotations of a ScaledObject pause. Raises InputError for a number of replicas that is none."""
    written = source.metadata.annotations.get(PAUSED_REPLICAS)
    if written is not None and not written.isdecimal():
        place = where(source, f"metadata.annotations.{PAUSED_REPLICAS}")
        raise InputError(Problem(place, f"{written!r} is not a number of replicas"))
    return Paused(
        all=_annotated(source, PAUSED),
        replicas=None if written is None else int(written),
        scale_in=_annotated(source, PAUSED_SCALE_IN),
        scale_out=_annotated(source, PAUSED_SCALE_OUT),
    )


def _annotated(source: KubeObject, name: str) -> bool:
    """A flag: anything that is not plainly false counts as true."""
    value = source.metadata.annotations.get(name)
    return value is not None and value not in _FALSE
