"""KEDA's ScaledObject as pure functions: the HPA that it makes, the values it serves, and the steps 0↔1.

KEDA itself only takes a workload from zero (or idle) to its minimum and back; between the minimum and the
maximum the generated HorizontalPodAutoscaler decides (:mod:`tonnage.scaling.hpa`). Source: kedacore/keda
v2.21, pkg/scaling/executor/scale_scaledobjects.go, pkg/scaling/scale_handler.go, pkg/scaling/modifiers/formula.go,
pkg/fallback/fallback.go, pkg/scalers/prometheus_scaler.go, controllers/keda/hpa.go.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal

from msgspec import Struct

from tonnage.decisions import Reason, Ref, Scalar, Scale
from tonnage.metrics.promql import Scalar as Number
from tonnage.metrics.promql import Vector
from tonnage.scaling.behavior import SelectPolicy
from tonnage.scaling.formula import FormulaError
from tonnage.scaling.hpa import HpaSpec, Metric
from tonnage.scaling.replicas import MetricReading, TargetKind
from tonnage.scaling.scaled_object import (
    COOLDOWN_NS,
    DEFAULT_HPA_MIN_REPLICAS,
    DEFAULT_MAX_REPLICAS,
    POLLING_INTERVAL_NS,
    Fallback,
    FallbackBehavior,
    KedaSpec,
    Modifiers,
    Paused,
    Trigger,
)
from tonnage.units import NS_PER_S

__all__ = [
    "COMPOSITE",
    "COOLDOWN_NS",
    "DEFAULT_HPA_MIN_REPLICAS",
    "DEFAULT_MAX_REPLICAS",
    "POLLING_INTERVAL_NS",
    "Fallback",
    "FallbackBehavior",
    "KedaSpec",
    "KedaState",
    "Modifiers",
    "Paused",
    "Trigger",
    "TriggerValue",
    "generated_hpa",
    "metric_name",
    "poll",
    "serve",
    "thousandths",
    "trigger_value",
]

COMPOSITE = "composite-metric"
"""The name of the one external metric of a ScaledObject with a formula."""
_KINDS = ("ContainerResource", "External", "Resource")
"""The order in which KEDA lists an HPA's metrics."""


@dataclass(frozen=True, slots=True)
class TriggerValue:
    """What one observation of a trigger gave: a value, or an error. Resource triggers have neither."""

    value: float | None = None
    error: str = ""


@dataclass(frozen=True, slots=True)
class KedaState:
    """What KEDA carries between observations. ``failures`` counts consecutive errors per trigger, ``cached`` has what
    the last poll found for those with useCachedMetrics.
    """

    created_ns: int = 0
    last_active_ns: int | None = None
    failures: tuple[int, ...] = ()
    ready: bool = True
    reason: Reason = field(default_factory=lambda: Reason("not evaluated yet"))
    cached: tuple[MetricReading | None, ...] = ()


def generated_hpa(spec: KedaSpec) -> HpaSpec | None:
    """The HPA that KEDA makes for a ScaledObject; None while it is paused (KEDA deletes it then)."""
    if spec.paused.all or spec.paused.replicas is not None:
        return None
    behavior = spec.behavior
    if spec.paused.scale_in:
        behavior = replace(behavior, down=replace(behavior.down, select=SelectPolicy.DISABLED), explicit=True)
    if spec.paused.scale_out:
        behavior = replace(behavior, up=replace(behavior.up, select=SelectPolicy.DISABLED), explicit=True)
    name = spec.hpa_name or f"keda-hpa-{spec.scaled_object.name}"
    return HpaSpec(
        hpa=Ref("HorizontalPodAutoscaler", name, spec.scaled_object.namespace),
        target=spec.target,
        max_replicas=spec.max_replicas,
        metrics=tuple(metric for metric, _ in _listed(spec)),
        min_replicas=spec.min_replicas or DEFAULT_HPA_MIN_REPLICAS,
        behavior=behavior,
    )


def metric_name(index: int, trigger: Trigger) -> str:
    """The external metric's name: ``s<index>-<type>``, of a cron trigger with its times; a resource trigger's is its
    resource.
    """
    if not trigger.external:
        return trigger.type
    return f"s{index}-{trigger.window.metric if trigger.window is not None else trigger.type}"


def _listed(spec: KedaSpec) -> list[tuple[Metric, int | None]]:
    """The HPA's metrics in their order, each with the index of its trigger; None is the formula's."""
    found: list[tuple[Metric, int | None]] = []
    for index, trigger in enumerate(spec.triggers):
        if spec.modifiers is None or not trigger.external:
            found.append((_metric(index, trigger), index))
    if spec.modifiers is None:
        return sorted(found, key=lambda pair: _KINDS.index(pair[0].kind))
    made = spec.modifiers
    return [*found, (Metric("External", COMPOSITE, made.target_kind, int(made.target * 1000)), None)]


def _metric(index: int, trigger: Trigger) -> Metric:
    kind = "External" if trigger.external else "ContainerResource" if trigger.container else "Resource"
    percent = trigger.target_kind is TargetKind.UTILIZATION
    target = round(trigger.threshold) if percent else thousandths(trigger.threshold)
    return Metric(kind, metric_name(index, trigger), trigger.target_kind, target)


def thousandths(value: float) -> int:
    """KEDA's quantities have three decimals; negative, NaN and infinite values become 0."""
    if not math.isfinite(value) or value < 0:
        return 0
    return int(Decimal(f"{value:.3f}") * 1000)


def trigger_value(trigger: Trigger, answer: Vector | Number) -> TriggerValue:
    """The one number in a query's answer.

    No series, NaN and infinities are 0 while ``ignoreNullValues`` is true (the default), so that a dead
    exporter looks like no load, and an error when it is false. Several series, and an answer without
    labels, are always errors.
    """
    if isinstance(answer, Number):
        return TriggerValue(error="the query gives a scalar, KEDA reads a vector with one element")
    if len(answer) > 1:
        return TriggerValue(error=f"prometheus query returned multiple elements ({len(answer)} series)")
    value = answer.value()
    if value is None:
        if trigger.ignore_null_values:
            return TriggerValue(0.0)
        return TriggerValue(error="prometheus metrics target may be lost, the result is empty")
    if not math.isfinite(value):
        return TriggerValue(0.0) if trigger.ignore_null_values else TriggerValue(error=f"prometheus gives {value}")
    return TriggerValue(value)


def serve(
    spec: KedaSpec,
    state: KedaState,
    values: Sequence[TriggerValue],
    *,
    current_replicas: int,
    ready_replicas: int,
) -> tuple[tuple[MetricReading, ...], KedaState]:
    """What the metrics server answers to the HPA for each of its metrics, fallback included.

    ``values`` has one entry per trigger; of triggers with cached metrics what the last poll found counts. The answers
    are in the order of the generated HPA's metrics. Those of resource triggers are empty: the caller has the pods'.
    """
    used = list(values)
    if state.cached:
        for index, reading in enumerate(state.cached):
            if reading is not None:
                value = None if reading.milli is None else reading.milli / 1000
                used[index] = TriggerValue(value, reading.error)
    state = _observed(spec, state, used)
    answers = _answers(spec, state, used, current_replicas, ready_replicas)
    composite = _composite(spec, state, answers)
    return tuple(composite if index is None else answers[index].reading for _, index in _listed(spec)), state


class _Answer(Struct, frozen=True):
    """What one trigger gives after its fallback; ``fallback``: the value is a pretended one."""

    reading: MetricReading
    fallback: bool = False


def _answers(
    spec: KedaSpec, state: KedaState, values: Sequence[TriggerValue], current: int, ready: int
) -> list[_Answer]:
    found = []
    for index, (trigger, observed) in enumerate(zip(spec.triggers, values, strict=True)):
        fallback = spec.valid_fallback
        if not trigger.external:
            found.append(_Answer(MetricReading()))
        elif not observed.error:
            found.append(_Answer(MetricReading(milli=thousandths(observed.value or 0.0))))
        elif fallback is None or not _falls_back(spec, state, index):
            found.append(_Answer(MetricReading(error=observed.error)))
        elif fallback.behavior is FallbackBehavior.SCALING_MODIFIERS:
            found.append(_Answer(MetricReading(milli=-1000)))  # nil to the formula
        else:
            pretended = _pretended(spec, trigger, fallback.held(current), ready)
            found.append(_Answer(pretended, not pretended.error))
    return found


def _composite(spec: KedaSpec, state: KedaState, answers: Sequence[_Answer]) -> MetricReading:
    """What the formula makes of the external triggers; a pretended value of a fallback stands for all of it."""
    if spec.modifiers is None:
        return MetricReading()
    pretended = next((answer.reading for answer in answers if answer.fallback), None)
    if pretended is not None:
        return pretended
    failed = next((answer.reading for answer in answers if answer.reading.error), None)
    if failed is not None:
        return MetricReading(error=f"metric:{COMPOSITE} encountered error: {failed.error}")
    by_name: dict[str, float | None] = {}
    for index, (trigger, answer) in enumerate(zip(spec.triggers, answers, strict=True)):
        if trigger.external and answer.reading.milli is not None:
            nil = _nil_in_formula(spec, state, index)
            by_name[trigger.name] = None if nil else answer.reading.milli / 1000
    try:
        made = spec.modifiers.formula.evaluate(by_name)
    except FormulaError as error:
        return MetricReading(error=f"error applying custom scalingModifiers.Formula: {error}")
    if made is None:
        if spec.fallback is None:
            return MetricReading(error="the formula comes to nil and there is no fallback")
        made = spec.fallback.replicas * spec.modifiers.target
    if not math.isfinite(made):
        return MetricReading(error=f"the formula comes to {made}")
    return MetricReading(milli=int(made * 1000))


def _nil_in_formula(spec: KedaSpec, state: KedaState, index: int) -> bool:
    by_formula = spec.fallback is not None and spec.fallback.behavior is FallbackBehavior.SCALING_MODIFIERS
    return by_formula and _falls_back(spec, state, index)


def poll(
    spec: KedaSpec,
    state: KedaState,
    values: Sequence[TriggerValue],
    *,
    replicas: int,
    now_ns: int,
    ready_replicas: int | None = None,
    hpa_active: bool = True,
) -> tuple[Scale | None, KedaState]:
    """One turn of KEDA's own loop: activation from zero or idle, and the way back after the cooldown.

    ``values`` has one entry per trigger; ``replicas`` is what the workload asks for, ``ready_replicas`` how many of
    them are ready (all unless given). ``hpa_active``: the generated HPA is ScalingActive. While it is, and the loop
    decides nothing (``polls_matter`` is False), the values are those that the HPA has asked for, and their failures
    are counted there; the loop may still bring the workload up to its minimum.
    """
    if spec.paused.all or spec.paused.replicas is not None:
        return _paused(spec, state, replicas)
    if spec.polls_matter or not hpa_active:
        state = _observed(spec, state, values)
    answers = _answers(spec, state, values, replicas, replicas if ready_replicas is None else ready_replicas)
    state = replace(state, cached=_cached(spec, answers))
    failing = [metric_name(i, spec.triggers[i]) for i, answer in enumerate(answers) if answer.reading.error]
    active = _active(spec, state, values, answers, failing)
    state = replace(state, ready=not failing)
    if active or spec.force_activation:
        return _activate(spec, state, active, replicas, now_ns)
    if failing and spec.fallback is not None and spec.fallback.replicas != 0:
        return None, _told(state, "a trigger fails: waiting for the fallback", failing=", ".join(failing))
    if failing and spec.fallback is None:
        return None, _told(state, "triggers do not work: nothing is scaled", failing=", ".join(failing))
    rest = spec.idle_replicas if spec.idle_replicas is not None else spec.min_replicas
    if (spec.idle_replicas is not None or spec.min_replicas == 0) and replicas > rest:
        return _deactivate(spec, state, replicas, rest, now_ns)
    if spec.idle_replicas is None and replicas < spec.min_replicas:
        state = _told(state, "below minReplicaCount", replicas=replicas, minReplicaCount=spec.min_replicas)
        return Scale(spec.target, replicas, spec.min_replicas, state.reason), state
    return None, _told(state, "no trigger is active and nothing is to be done", replicas=replicas)


def _paused(spec: KedaSpec, state: KedaState, replicas: int) -> tuple[Scale | None, KedaState]:
    wanted = spec.paused.replicas
    state = _told(state, "paused by annotation", **{"paused-replicas": wanted})
    if wanted is None or wanted == replicas:
        return None, state
    return Scale(spec.target, replicas, wanted, state.reason), state


def _active(
    spec: KedaSpec,
    state: KedaState,
    values: Sequence[TriggerValue],
    answers: Sequence[_Answer],
    failing: Sequence[str],
) -> list[str]:
    """Names of the triggers above their activation threshold or in fallback; of a formula only its result counts.

    Resource triggers alone are always active.
    """
    if not any(trigger.external for trigger in spec.triggers):
        return [] if failing else [trigger.type for trigger in spec.triggers]
    if spec.modifiers is not None:
        composite = MetricReading(error="a trigger fails") if failing else _composite(spec, state, answers)
        above = composite.milli is not None and composite.milli / 1000 > spec.modifiers.activation_target
        return [COMPOSITE] if above else []
    active = []
    for index, (trigger, observed) in enumerate(zip(spec.triggers, values, strict=True)):
        above = observed.value is not None and observed.value > trigger.activation_threshold
        if trigger.external and (answers[index].fallback or (above and not observed.error)):
            active.append(metric_name(index, trigger))
    return active


def _cached(spec: KedaSpec, answers: Sequence[_Answer]) -> tuple[MetricReading | None, ...]:
    """What triggers with useCachedMetrics have for the HPA until the next poll; () when there is none."""
    if not any(trigger.use_cached_metrics for trigger in spec.triggers):
        return ()
    return tuple(
        answer.reading if trigger.use_cached_metrics else None
        for trigger, answer in zip(spec.triggers, answers, strict=True)
    )


def _activate(
    spec: KedaSpec, state: KedaState, active: Sequence[str], replicas: int, now_ns: int
) -> tuple[Scale | None, KedaState]:
    by = ", ".join(active) if active else "annotation force-activation"
    idle = spec.idle_replicas is not None and replicas < spec.min_replicas
    if replicas != 0 and not idle:
        kept = replace(state, last_active_ns=now_ns) if state.ready else state
        return None, _told(kept, "active", triggers=by)
    if spec.paused.scale_out:
        return None, _told(state, "active, but scaling out is paused by annotation", triggers=by)
    wanted = max(1, spec.min_replicas)
    state = _told(replace(state, last_active_ns=now_ns), "activated", triggers=by, replicas=wanted)
    return Scale(spec.target, replicas, wanted, state.reason), state


def _deactivate(
    spec: KedaSpec, state: KedaState, replicas: int, rest: int, now_ns: int
) -> tuple[Scale | None, KedaState]:
    if spec.paused.scale_in:
        return None, _told(state, "inactive, but scaling in is paused by annotation")
    if state.last_active_ns is None:
        until_ns = state.created_ns + spec.initial_cooldown_ns
    else:
        until_ns = state.last_active_ns + spec.cooldown_ns
    if now_ns <= until_ns:
        return None, _told(state, "cooling down", **{"seconds left": (until_ns - now_ns) / NS_PER_S})
    state = _told(state, "no trigger is active and the cooldown is over", replicas=rest)
    return Scale(spec.target, replicas, rest, state.reason), state


def _observed(spec: KedaSpec, state: KedaState, values: Sequence[TriggerValue]) -> KedaState:
    """Count failures in a row; they matter only where a fallback is configured."""
    before = state.failures or (0,) * len(spec.triggers)
    counts = tuple(n + 1 if v.error else 0 for n, v in zip(before, values, strict=True))
    return replace(state, failures=counts)


def _falls_back(spec: KedaSpec, state: KedaState, index: int) -> bool:
    failures = state.failures[index] if state.failures else 0
    return spec.valid_fallback is not None and failures > spec.valid_fallback.failure_threshold


def _pretended(spec: KedaSpec, trigger: Trigger, replicas: int, ready: int) -> MetricReading:
    """The made-up metric of a fallback: target × replicas, per ready pod when the target is a Value."""
    target, kind = trigger.threshold, trigger.target_kind
    if spec.modifiers is not None:
        target, kind = spec.modifiers.target, spec.modifiers.target_kind
    share = float(replicas)
    if kind is TargetKind.VALUE:
        if ready == 0:
            return MetricReading(error="fallback of a Value target needs a ready pod")
        share /= ready
    return MetricReading(milli=int(target * 1000 * share))


def _told(state: KedaState, verdict: str, **evidence: Scalar) -> KedaState:
    return replace(state, reason=Reason(verdict, tuple(evidence.items())))
