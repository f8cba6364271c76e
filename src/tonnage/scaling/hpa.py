"""The HorizontalPodAutoscaler (autoscaling/v2) as pure functions: a spec, a state and readings in, a
decision out.

One call of :func:`recommend` is one pass of the controller's loop (every 15 s by default). Source:
kubernetes/kubernetes pkg/controller/podautoscaler/horizontal.go, v1.36.3, and what 1.37 changes
of it (:mod:`tonnage.scaling.releases`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from msgspec import Struct

from tonnage.decisions import Alternative, Reason, Ref, Scalar, Scale
from tonnage.scaling import conditions as told
from tonnage.scaling import replicas as counts
from tonnage.scaling.behavior import (
    Behavior,
    History,
    Limited,
    Recommendation,
    limit,
    recommended,
    scaled,
    stabilise,
)
from tonnage.scaling.conditions import Condition
from tonnage.scaling.releases import KUBERNETES_1_37, Release
from tonnage.scaling.replicas import MetricReading, Proposal, Scaled, TargetKind, Tolerance
from tonnage.scaling.words import replicas_text
from tonnage.units import NS_PER_S

SYNC_PERIOD_NS = 15 * NS_PER_S
"""kube-controller-manager ``--horizontal-pod-autoscaler-sync-period``."""
DEFAULT_MIN_REPLICAS = 1
DEFAULT_CPU_UTILIZATION = 80
"""Percent of the request; the metric of an object that names none (pkg/apis/autoscaling/v2/defaults.go)."""

FAILED = {
    "Resource": "FailedGetResourceMetric",
    "ContainerResource": "FailedGetContainerResourceMetric",
    "Pods": "FailedGetPodsMetric",
    "Object": "FailedGetObjectMetric",
    "External": "FailedGetExternalMetric",
}
"""The reason of ScalingActive=False, by the type of the first metric that fails."""


@dataclass(frozen=True, slots=True)
class Metric:
    """One entry of ``spec.metrics``. ``target`` is in milli-units of the metric, or in percent for
    Utilization.
    """

    kind: str  # Resource, ContainerResource, Pods, Object or External
    name: str
    target_kind: TargetKind
    target: int

    def __str__(self) -> str:
        return f"{self.kind} metric {self.name}"


@dataclass(frozen=True, slots=True)
class HpaSpec:
    """What an HPA object says, with the API's defaults filled in."""

    hpa: Ref
    target: Ref
    max_replicas: int
    metrics: tuple[Metric, ...]
    min_replicas: int = DEFAULT_MIN_REPLICAS
    behavior: Behavior = field(default_factory=Behavior)


@dataclass(frozen=True, slots=True)
class HpaState:
    """What the controller carries from one pass to the next. ``reason`` explains the last pass, whatever
    came of it; ``proposals`` are what its metrics asked for, one each, none where it did not ask them.
    """

    history: History = field(default_factory=History)
    scaled_to_zero: bool = False
    conditions: tuple[Condition, ...] = ()
    reason: Reason = field(default_factory=lambda: Reason("not evaluated yet"))
    proposals: tuple[Proposal, ...] = ()

    def condition(self, kind: str) -> Condition | None:
        """The condition of this type, if the last pass set it."""
        return next((condition for condition in self.conditions if condition.type == kind), None)


def recommend(
    spec: HpaSpec,
    state: HpaState,
    readings: Sequence[MetricReading],
    *,
    current_replicas: int,
    ready_replicas: int,
    now_ns: int,
    status_replicas: int | None = None,
    ambiguous_with: Sequence[str] = (),
    release: Release = KUBERNETES_1_37,
) -> tuple[Scale | None, HpaState]:
    """One pass of the controller: the change to make, if any, and the state to pass in next time.

    ``readings`` has one entry per metric of ``spec``. ``current_replicas`` is what the workload asks for,
    ``status_replicas`` how many pods exist (the same unless given), ``ready_replicas`` how many of them
    are ready. ``ambiguous_with`` names other HPAs that select the same pods: all of them then stop
    reading metrics. ``release`` is the controller's. The state takes the change for made; after a refused one, pass the
    old state again.
    """
    if len(readings) != len(spec.metrics):
        raise ValueError(f"{len(readings)} readings for {len(spec.metrics)} metrics of {spec.hpa}")
    history = state.history
    if not history.recommendations:
        history = replace(history, recommendations=(Recommendation(now_ns, current_replicas),))
    state = replace(state, history=history, conditions=told.put(state.conditions, told.GOT_SCALE), proposals=())
    if not release.configurable_tolerance:
        spec = replace(spec, behavior=replace(spec.behavior, tolerance=Tolerance()))
    scaled_now = Scaled(
        current_replicas, current_replicas if status_replicas is None else status_replicas, ready_replicas
    )
    if current_replicas == 0 and not _may_leave_zero(spec, state, release):
        return _disabled(state, release)
    if current_replicas > spec.max_replicas:
        return _clamped(spec, state, scaled_now, spec.max_replicas, now_ns, release)
    if 0 < current_replicas < spec.min_replicas:
        return _clamped(spec, state, scaled_now, spec.min_replicas, now_ns, release)
    if ambiguous_with:
        return None, _inactive(state, "AmbiguousSelector", _ambiguous(spec, ambiguous_with))
    return _by_metrics(spec, state, readings, scaled_now, now_ns, release)


def propose(metric: Metric, reading: MetricReading, target: Scaled, behavior: Behavior) -> Proposal:
    """What one metric asks for."""
    tolerance = behavior.tolerance
    if reading.error:
        return Proposal(None, error=reading.error)
    if metric.kind in ("Object", "External"):
        if reading.milli is None:
            return Proposal(None, error=f"no data for {metric}")
        if metric.target_kind is TargetKind.VALUE:
            return counts.propose_value(reading.milli, metric.target, target, tolerance)
        external = metric.kind == "External"
        return counts.propose_average_value(reading.milli, metric.target, target, tolerance, external=external)
    if reading.pods is None:
        return Proposal(None, error=f"no data for {metric}")
    if metric.target_kind is TargetKind.UTILIZATION:
        return counts.propose_utilization(reading.pods, metric.target, target.spec, tolerance)
    return counts.propose_pod_average(reading.pods, metric.target, target.spec, tolerance)


def _may_leave_zero(spec: HpaSpec, state: HpaState, release: Release) -> bool:
    """At zero replicas the HPA rests, unless it brought the workload there itself (HPAScaleToZero)."""
    return release.scale_to_zero and state.scaled_to_zero and (spec.min_replicas != 0 or _has_own_signal(spec))


def _has_own_signal(spec: HpaSpec) -> bool:
    """Whether a metric is there without pods."""
    return any(metric.kind in ("Object", "External") for metric in spec.metrics)


def _disabled(state: HpaState, release: Release) -> tuple[None, HpaState]:
    if not release.scale_to_zero:
        state = replace(state, scaled_to_zero=False, conditions=told.without(state.conditions, told.TO_ZERO))
    message = "scaling is disabled since the replica count of the target is zero"
    return None, _inactive(state, "ScalingDisabled", message)


def _ambiguous(spec: HpaSpec, others: Sequence[str]) -> str:
    names = ", ".join(sorted({spec.hpa.name, *others}))
    return f"pods of {spec.target} are controlled by more than one HPA: {names}"


def _inactive(state: HpaState, reason: str, message: str, evidence: _Evidence = ()) -> HpaState:
    conditions = told.put(state.conditions, told.inactive(reason, message))
    return replace(state, conditions=conditions, reason=Reason(f"{reason}: {message}", evidence))


def _clamped(
    spec: HpaSpec, state: HpaState, target: Scaled, replicas: int, now_ns: int, release: Release
) -> tuple[Scale, HpaState]:
    """Outside the bounds the metrics are not asked."""
    above = target.spec > replicas
    bound = f"Spec.{'MaxReplicas' if above else 'MinReplicas'}"
    verdict = f"Current number of replicas {'above' if above else 'below'} {bound}"
    reason = Reason(verdict, (("replicas", target.spec), (bound, replicas)))
    return _change(spec, replace(state, reason=reason), target.spec, replicas, now_ns, release)


def _by_metrics(
    spec: HpaSpec, state: HpaState, readings: Sequence[MetricReading], target: Scaled, now_ns: int, release: Release
) -> tuple[Scale | None, HpaState]:
    proposals = [
        propose(metric, reading, target, spec.behavior) for metric, reading in zip(spec.metrics, readings, strict=True)
    ]
    state, evidence = replace(state, proposals=tuple(proposals)), _evidence(spec, proposals)
    failed = [index for index, p in enumerate(proposals) if p.replicas is None]
    winner, asked = _winner(proposals)
    if len(failed) == len(proposals) or (failed and asked < target.spec):
        first = failed[0]
        message = (
            f"invalid metrics ({len(failed)} invalid out of {len(proposals)}), first error is: {proposals[first].error}"
        )
        failure = FAILED.get(spec.metrics[first].kind, "InvalidMetricSourceType")
        return None, _inactive(state, failure, message, evidence)

    behavior, current, raw = spec.behavior, target.spec, max(asked, 0)
    stable = stabilise(behavior, state.history, current=current, desired=raw, now_ns=now_ns)
    bounds = (spec.min_replicas, spec.max_replicas)
    final = limit(behavior, state.history, current=current, desired=stable.replicas, bounds=bounds, now_ns=now_ns)
    replicas = final.replicas
    if current == 0:
        replicas = max(replicas, spec.min_replicas)  # after the minimum was raised from zero
    outcome = _Outcome(winner, current, raw, stable, final, replicas)
    state = replace(
        state,
        history=recommended(state.history, behavior, raw, now_ns),
        conditions=told.put(
            state.conditions,
            told.active(str(spec.metrics[winner])),
            told.stabilised(stable.reason),
            told.limited(final.reason),
        ),
        reason=_reason(spec, proposals, outcome),
    )
    if replicas == current:
        return None, state
    return _change(spec, state, current, replicas, now_ns, release)


def _winner(proposals: Sequence[Proposal]) -> tuple[int, int]:
    """The index of the metric that asks for most, and its count.

    It is the first of equals, but the last of those that ask for none.
    """
    winner, asked = 0, 0
    for index, proposal in enumerate(proposals):
        if proposal.replicas is not None and (asked == 0 or proposal.replicas > asked):
            winner, asked = index, proposal.replicas
    return winner, asked


class _Outcome(Struct, frozen=True):
    """How one pass went: the winning metric's index, the counts before and after each step, and what
    bounded them.
    """

    winner: int
    current: int
    raw: int
    stable: Limited
    final: Limited
    replicas: int

    @property
    def bound(self) -> str:
        return self.final.reason or self.stable.reason


def _change(
    spec: HpaSpec, state: HpaState, current: int, replicas: int, now_ns: int, release: Release
) -> tuple[Scale, HpaState]:
    """The decision, for the reason that the state holds."""
    history = scaled(state.history, spec.behavior, current, replicas, now_ns)
    to_zero = release.scale_to_zero and replicas == 0 < current and spec.min_replicas == 0 and _has_own_signal(spec)
    conditions = told.put(state.conditions, told.rescaled(replicas))
    if release.scale_to_zero:
        conditions = told.put(conditions, told.SCALED_TO_ZERO if to_zero else told.NOT_SCALED_TO_ZERO)
    else:
        conditions = told.without(conditions, told.TO_ZERO)
    state = replace(state, history=history, scaled_to_zero=to_zero, conditions=conditions)
    return Scale(spec.target, current, replicas, state.reason), state


_Evidence = tuple[tuple[str, Scalar], ...]


def _evidence(spec: HpaSpec, proposals: Sequence[Proposal]) -> _Evidence:
    rows: list[tuple[str, Scalar]] = []
    for metric, proposal in zip(spec.metrics, proposals, strict=True):
        if metric.target_kind is TargetKind.UTILIZATION:
            shown: Scalar = None if proposal.milli is None else proposal.milli / 1000
            rows += [(f"{metric.name} %", shown), (f"{metric.name} target %", metric.target)]
        else:
            shown = None if proposal.milli is None else proposal.milli / 1000
            rows += [(metric.name, shown), (f"{metric.name} target", metric.target / 1000)]
        rows += [(f"{metric.name} ratio", proposal.ratio), (f"{metric.name} asks for", proposal.replicas)]
    return tuple(rows)


def _reason(spec: HpaSpec, proposals: Sequence[Proposal], outcome: _Outcome) -> Reason:
    steps: _Evidence = (
        ("current replicas", outcome.current),
        ("recommendation", outcome.raw),
        ("stabilised", outcome.stable.replicas),
        ("allowed", outcome.replicas),
        ("limited by", outcome.bound or None),
    )
    evidence = _evidence(spec, proposals) + steps
    verdict = _verdict(spec.metrics[outcome.winner], proposals[outcome.winner], spec.behavior.tolerance, outcome)
    return Reason(verdict, evidence, _beaten(spec, proposals, outcome))


def _verdict(metric: Metric, proposal: Proposal, tolerance: Tolerance, outcome: _Outcome) -> str:
    """Within tolerance, an external or object metric with an average value asks for the pods that there are
    (status.replicas), be they more or fewer than spec.replicas (kubernetes 1.36 and 1.37, replica_calculator.go). Where
    these differ, more replicas may be asked for below the target, and fewer above it."""
    kept = proposal.ratio is not None and tolerance.holds(proposal.ratio) and outcome.raw != outcome.current
    if outcome.replicas == outcome.current and outcome.raw == outcome.current:
        text = f"{metric} asks for the current replicas"
    elif kept:
        text = f"{metric} within tolerance of its target: the {outcome.raw} current pods stay"
    elif outcome.replicas > outcome.current and not (proposal.ratio is not None and proposal.ratio < 1):
        text = f"{metric} above target"
    elif outcome.replicas < outcome.current and not (proposal.ratio is not None and proposal.ratio > 1):
        text = "All metrics below target"
    else:
        text = f"{metric} asks for {replicas_text(outcome.raw)}"
    return f"{text}, limited by {outcome.bound}" if outcome.bound else text


def _beaten(spec: HpaSpec, proposals: Sequence[Proposal], outcome: _Outcome) -> tuple[Alternative, ...]:
    """The unlimited recommendation, if it was limited, then what the other metrics asked for, highest first."""
    beaten = []
    if outcome.replicas != outcome.raw:
        why = outcome.bound or "the bounds of the object"
        beaten.append(Alternative(replicas_text(outcome.raw), why, float(outcome.raw)))
    pairs = enumerate(zip(proposals, spec.metrics, strict=True))
    others = [pair for index, pair in pairs if index != outcome.winner]
    for proposal, metric in sorted(others, key=lambda pair: (-(pair[0].replicas or 0), pair[1].name)):
        if proposal.replicas is None:
            beaten.append(Alternative(str(metric), proposal.error))
        else:
            why = "the metric that asks for most replicas wins"
            beaten.append(Alternative(str(metric), why, float(proposal.replicas)))
    return tuple(beaten)


Reading = MetricReading
"""Its former name, for callers from outside."""
