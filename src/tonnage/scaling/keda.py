"""KEDA's ScaledObject as pure functions: the HPA that it makes, the values it serves, and the steps 0↔1.

KEDA itself only takes a workload from zero (or idle) to its minimum and back; between the minimum and the
maximum the generated HorizontalPodAutoscaler decides (:mod:`tonnage.scaling.hpa`). Source: kedacore/keda
v2.21, pkg/scaling/executor/scale_scaledobjects.go, pkg/scaling/scale_handler.go,
pkg/fallback/fallback.go, pkg/scalers/prometheus_scaler.go, controllers/keda/hpa.go.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from enum import Enum

from tonnage.decisions import Reason, Ref, Scalar, Scale
from tonnage.metrics.promql import Query, Vector
from tonnage.metrics.promql import Scalar as Number
from tonnage.scaling.behavior import Behavior, Select
from tonnage.scaling.hpa import HpaSpec, Metric
from tonnage.scaling.replicas import Reading, TargetKind
from tonnage.units import NS_PER_S

POLLING_INTERVAL_NS = 30 * NS_PER_S
COOLDOWN_NS = 300 * NS_PER_S
DEFAULT_MAX_REPLICAS = 100
DEFAULT_HPA_MIN_REPLICAS = 1
"""Defaults of apis/keda/v1alpha1/scaledobject_types.go and the operator."""


class FallbackBehavior(Enum):
    """How many replicas a fallback holds."""

    STATIC = "static"
    CURRENT = "currentReplicas"
    CURRENT_IF_HIGHER = "currentReplicasIfHigher"
    CURRENT_IF_LOWER = "currentReplicasIfLower"


@dataclass(frozen=True, slots=True)
class Fallback:
    """After more than ``failure_threshold`` consecutive failures of a trigger, act as if it asked for
    ``replicas``.
    """

    failure_threshold: int
    replicas: int
    behavior: FallbackBehavior = FallbackBehavior.STATIC

    def held(self, current: int) -> int:
        """The replicas that the fallback asks for."""
        if self.behavior is FallbackBehavior.CURRENT:
            return current
        if self.behavior is FallbackBehavior.CURRENT_IF_HIGHER:
            return max(current, self.replicas)
        if self.behavior is FallbackBehavior.CURRENT_IF_LOWER:
            return min(current, self.replicas)
        return self.replicas


@dataclass(frozen=True, slots=True)
class Trigger:
    """One trigger. ``query`` belongs to the prometheus type; cpu and memory are left to the HPA and have
    none.

    ``threshold`` is in the metric's unit (percent for Utilization).
    """

    type: str
    threshold: float
    target_kind: TargetKind = TargetKind.AVERAGE_VALUE
    query: Query | None = None
    activation_threshold: float = 0.0
    ignore_null_values: bool = True
    name: str = ""

    @property
    def external(self) -> bool:
        """Whether KEDA's metrics server serves it, rather than the resource metrics API."""
        return self.type not in ("cpu", "memory")


@dataclass(frozen=True, slots=True)
class Paused:
    """What the annotations ``autoscaling.keda.sh/paused…`` switch off; ``replicas`` is paused-replicas."""

    all: bool = False
    replicas: int | None = None
    scale_in: bool = False
    scale_out: bool = False


@dataclass(frozen=True, slots=True)
class KedaSpec:
    """What a ScaledObject says, with KEDA's defaults filled in."""

    scaled_object: Ref
    target: Ref
    triggers: tuple[Trigger, ...]
    min_replicas: int = 0
    max_replicas: int = DEFAULT_MAX_REPLICAS
    idle_replicas: int | None = None
    polling_interval_ns: int = POLLING_INTERVAL_NS
    cooldown_ns: int = COOLDOWN_NS
    initial_cooldown_ns: int = 0
    fallback: Fallback | None = None
    behavior: Behavior = field(default_factory=Behavior)
    hpa_name: str = ""
    paused: Paused = field(default_factory=Paused)
    force_activation: bool = False

    @property
    def polls_matter(self) -> bool:
        """Whether KEDA's own loop decides anything: only towards zero or idle."""
        return self.min_replicas == 0 or self.idle_replicas is not None


@dataclass(frozen=True, slots=True)
class TriggerValue:
    """What one observation of a trigger gave: a value, or an error. Resource triggers have neither."""

    value: float | None = None
    error: str = ""


@dataclass(frozen=True, slots=True)
class KedaState:
    """What KEDA carries between observations. ``failures`` counts consecutive errors per trigger."""

    created_ns: int = 0
    last_active_ns: int | None = None
    failures: tuple[int, ...] = ()
    ready: bool = True
    reason: Reason = field(default_factory=lambda: Reason("not evaluated yet"))


def generated_hpa(spec: KedaSpec) -> HpaSpec | None:
    """The HPA that KEDA makes for a ScaledObject; None while it is paused (KEDA deletes it then)."""
    if spec.paused.all or spec.paused.replicas is not None:
        return None
    behavior = spec.behavior
    if spec.paused.scale_in:
        behavior = replace(behavior, down=replace(behavior.down, select=Select.DISABLED), explicit=True)
    if spec.paused.scale_out:
        behavior = replace(behavior, up=replace(behavior.up, select=Select.DISABLED), explicit=True)
    name = spec.hpa_name or f"keda-hpa-{spec.scaled_object.name}"
    return HpaSpec(
        hpa=Ref("HorizontalPodAutoscaler", name, spec.scaled_object.namespace),
        target=spec.target,
        max_replicas=spec.max_replicas,
        metrics=tuple(_metric(index, trigger) for index, trigger in enumerate(spec.triggers)),
        min_replicas=spec.min_replicas or DEFAULT_HPA_MIN_REPLICAS,
        behavior=behavior,
    )


def metric_name(index: int, trigger: Trigger) -> str:
    """The external metric's name: ``s<index>-<type>``; a resource trigger's is its resource."""
    return f"s{index}-{trigger.type}" if trigger.external else trigger.type


def _metric(index: int, trigger: Trigger) -> Metric:
    kind = "External" if trigger.external else "Resource"
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
) -> tuple[tuple[Reading, ...], KedaState]:
    """What the metrics server answers to the HPA for each external trigger, fallback included.

    ``values`` has one entry per trigger. The readings of resource triggers are empty: the caller has the
    pods'.
    """
    state = _observed(spec, state, values)
    readings = []
    for index, (trigger, observed) in enumerate(zip(spec.triggers, values, strict=True)):
        if not trigger.external:
            readings.append(Reading())
        elif not observed.error:
            readings.append(Reading(milli=thousandths(observed.value or 0.0)))
        elif spec.fallback is not None and _falls_back(spec, state, index):
            readings.append(_pretended(trigger, spec.fallback.held(current_replicas), ready_replicas))
        else:
            readings.append(Reading(error=observed.error))
    return tuple(readings), state


def poll(
    spec: KedaSpec, state: KedaState, values: Sequence[TriggerValue], *, replicas: int, now_ns: int
) -> tuple[Scale | None, KedaState]:
    """One turn of KEDA's own loop: activation from zero or idle, and the way back after the cooldown.

    ``values`` has one entry per trigger; ``replicas`` is what the workload asks for. When the loop does
    not decide anything (``polls_matter`` is False) it may still bring the workload up to its minimum.
    """
    if spec.paused.all or spec.paused.replicas is not None:
        return _paused(spec, state, replicas)
    if spec.polls_matter:
        state = _observed(spec, state, values)
    active = _active_triggers(spec, state, values)
    failing = [
        metric_name(i, spec.triggers[i])
        for i, observed in enumerate(values)
        if observed.error and not _falls_back(spec, state, i)
    ]
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


def _active_triggers(spec: KedaSpec, state: KedaState, values: Sequence[TriggerValue]) -> list[str]:
    """Names of the triggers above their activation threshold or in fallback; resource triggers alone are
    active.
    """
    if not any(trigger.external for trigger in spec.triggers):
        return [trigger.type for trigger in spec.triggers]
    active = []
    for index, (trigger, observed) in enumerate(zip(spec.triggers, values, strict=True)):
        if not trigger.external:
            continue
        above = observed.value is not None and observed.value > trigger.activation_threshold
        if above or (observed.error and _falls_back(spec, state, index)):
            active.append(metric_name(index, trigger))
    return active


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
    return spec.fallback is not None and failures > spec.fallback.failure_threshold


def _pretended(trigger: Trigger, replicas: int, ready: int) -> Reading:
    """The made-up metric of a fallback: target × replicas, per ready pod when the target is a Value."""
    share = float(replicas)
    if trigger.target_kind is TargetKind.VALUE:
        if ready == 0:
            return Reading(error="fallback of a Value target needs a ready pod")
        share /= ready
    return Reading(milli=int(trigger.threshold * 1000 * share))


def _told(state: KedaState, verdict: str, **evidence: Scalar) -> KedaState:
    return replace(state, reason=Reason(verdict, tuple(evidence.items())))
