"""How many replicas one metric asks for: the HorizontalPodAutoscaler's arithmetic, metric by metric.

Values are integers in thousandths of the metric's unit ("milli"), as the controller holds them, and the
steps are its steps, integer divisions, float roundings and the widths of its integers included. Source:
kubernetes/kubernetes pkg/controller/podautoscaler/replica_calculator.go and metrics/utilization.go, v1.36.3.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from enum import Enum
from typing import TypeAlias

from msgspec import Struct

TOLERANCE = 0.1
"""kube-controller-manager ``--horizontal-pod-autoscaler-tolerance``: how far a ratio may be from 1 and
change nothing.
"""

MAX_REPLICAS = 2**31 - 1  # replica counts are int32

LARGEST_MILLI = 2**63 - 1  # amounts are int64

NO_PODS = "no pods returned by selector while calculating replica count"

_Ratio: TypeAlias = Callable[[Mapping[str, int]], tuple[float, int, int] | None]
"""Values by pod → ratio to the target, what a proposal shows of it, mean over the pods; None: nothing requested."""


class TargetKind(Enum):
    """What the target is compared with."""

    UTILIZATION = "Utilization"  # percent of the pods' requests, averaged over pods
    AVERAGE_VALUE = "AverageValue"  # the metric divided by the number of pods
    VALUE = "Value"  # the metric as it is


class PodState(Enum):
    """How a pod enters an average."""

    COUNTED = "counted"
    UNREADY = "unready"  # pending, or (CPU only) not ready yet: zero on the way up, left out otherwise
    IGNORED = "ignored"  # being deleted, or failed
    UNLISTED = "unlisted"  # no pod of the workload any more, but the metrics API still has its sample


@dataclass(frozen=True, slots=True)
class PodReading:
    """One pod's value of a per-pod metric and its request, in milli-units. ``milli`` None: no sample
    ("missing").
    """

    name: str
    milli: int | None
    request_milli: int = 0
    state: PodState = PodState.COUNTED


@dataclass(frozen=True, slots=True)
class MetricReading:
    """The value of one metric, or why there is none.

    Object and External metrics give ``milli`` (External: the sum over series); per-pod metrics give
    ``pods``.
    """

    milli: int | None = None
    pods: tuple[PodReading, ...] | None = None
    error: str = ""

    @classmethod
    def of(cls, value: float) -> MetricReading:
        """An Object or External metric's value in its own unit."""
        return cls(milli=to_milli(value))


class Scaled(Struct, frozen=True):
    """The scale target: replicas asked for (``spec``), existing (``status``) and ready."""

    spec: int
    status: int
    ready: int


@dataclass(frozen=True, slots=True)
class Tolerance:
    """The band around a ratio of 1 in which nothing happens: [1 − down, 1 + up]."""

    up: float = TOLERANCE
    down: float = TOLERANCE

    def holds(self, ratio: float) -> bool:
        """Whether a ratio is too near 1 to act on."""
        return 1.0 - self.down <= ratio <= 1.0 + self.up


@dataclass(frozen=True, slots=True)
class Proposal:
    """What a metric asks for, with the value and ratio that led there; ``replicas`` None when it could
    not be had.

    ``current_milli`` is what the HPA's status shows as the metric's current value: the mean over the pods of a per-pod
    metric and of an AverageValue, otherwise the value itself.
    """

    replicas: int | None
    ratio: float | None = None
    milli: int | None = None
    error: str = ""
    current_milli: int | None = field(default=None, compare=False)


def to_milli(value: float) -> int:
    """Thousandths, rounded up as Kubernetes' Quantity.MilliValue does. The value's shortest decimal form
    counts.
    """
    return math.ceil(Decimal(repr(float(value))) * 1000)


def propose_value(milli: int, target_milli: int, scaled: Scaled, tolerance: Tolerance) -> Proposal:
    """Object and External metrics with target ``Value``: ceil(ratio × ready pods); at zero replicas
    ceil(ratio).
    """
    ratio = _divide(milli, target_milli)
    if scaled.spec == 0:
        return Proposal(_int32(ratio), ratio, milli, current_milli=milli)
    if tolerance.holds(ratio):
        return Proposal(scaled.spec, ratio, milli, current_milli=milli)
    if scaled.status == 0:
        return Proposal(None, ratio, milli, f"unable to calculate ready pods: {NO_PODS}", milli)
    return Proposal(_capped(ratio * scaled.ready), ratio, milli, current_milli=milli)


def propose_average_value(
    milli: int, target_milli: int, scaled: Scaled, tolerance: Tolerance, *, external: bool = True
) -> Proposal:
    """Object and External metrics with target ``AverageValue``: ceil(sum / target); the present count
    decides only whether the change is within tolerance.

    Counts and means that do not fit are capped for an External metric (``external``), for an Object one they are not.
    """
    ratio = _divide(milli, float(target_milli) * float(scaled.status))
    if tolerance.holds(ratio):
        replicas = scaled.status
    else:
        replicas = (_capped if external else _int32)(_divide(milli, target_milli))
    capped = external and float(milli) >= float(LARGEST_MILLI)
    shown = LARGEST_MILLI if capped else _int64(_divide(milli, scaled.status))
    return Proposal(replicas, ratio, milli, current_milli=shown)


def total(values: Sequence[int], *, average: bool) -> int:
    """The sum over the series of an External metric in milli-units, which stops at the largest int64.

    With an average value any sum below zero counts as one that has overflown.
    """
    found = 0
    for value in values:
        found += value
        if found > LARGEST_MILLI or (average and found < 0):
            return LARGEST_MILLI
        found = _wrapped(found)
    return found


def propose_utilization(
    pods: Sequence[PodReading], target_percent: int, current: int, tolerance: Tolerance, *, unrequested: str = ""
) -> Proposal:
    """Resource metrics in percent of requests, averaged over the pods.

    ``unrequested`` says of the first pod whose requests are not known why: an error then.
    """
    requests = {pod.name: pod.request_milli for pod in pods if pod.state is not PodState.UNLISTED}

    def ratio(values: Mapping[str, int]) -> tuple[float, int, int] | None:
        known = [name for name in values if name in requests]
        asked, used = _wrapped(sum(requests[name] for name in known)), _wrapped(sum(values[name] for name in known))
        if asked == 0:
            return None
        percent = _wrapped(_quotient(_wrapped(used * 100), asked), 32)
        return _divide(percent, target_percent), percent * 1000, _quotient(used, len(known))

    full_percent = max(100, target_percent)
    full = {name: _quotient(_wrapped(request * full_percent), 100) for name, request in requests.items()}
    return _average(pods, full, ratio, current, tolerance, unrequested)


def propose_pod_average(pods: Sequence[PodReading], target_milli: int, current: int, tolerance: Tolerance) -> Proposal:
    """Pods metrics, and Resource metrics with target ``AverageValue``: the mean over the pods."""

    def ratio(values: Mapping[str, int]) -> tuple[float, int, int] | None:
        mean = _quotient(_wrapped(sum(values.values())), len(values))
        return _divide(mean, target_milli), mean, mean

    return _average(pods, {pod.name: target_milli for pod in pods}, ratio, current, tolerance)


def _average(
    pods: Sequence[PodReading],
    full: Mapping[str, int],
    ratio_of: _Ratio,
    current: int,
    tolerance: Tolerance,
    unrequested: str = "",
) -> Proposal:
    """The rules for missing and unready pods. ``full`` is what a missing pod is taken to use on the way
    down.
    """
    if all(pod.state is PodState.UNLISTED for pod in pods):
        return Proposal(None, error=NO_PODS)
    unready = [pod.name for pod in pods if pod.state is PodState.UNREADY]
    counted = [pod for pod in pods if pod.state is PodState.COUNTED]
    missing = [pod.name for pod in counted if pod.milli is None]
    sampled = [pod for pod in pods if pod.state in (PodState.COUNTED, PodState.UNLISTED)]
    values = {pod.name: pod.milli for pod in sampled if pod.milli is not None}
    if not values:
        return Proposal(None, error="did not receive metrics for targeted pods (pods might be unready)")
    first = None if unrequested else ratio_of(values)
    if first is None:
        return Proposal(None, error=unrequested or _NOTHING_REQUESTED)
    ratio, milli, mean = first
    up_with_unready = bool(unready) and ratio > 1.0
    if not up_with_unready and not missing:
        replicas = current if tolerance.holds(ratio) else _int32(ratio * (len(counted) - len(missing)))
        return Proposal(replicas, ratio, milli, current_milli=mean)
    if ratio < 1.0:
        values.update((name, full[name]) for name in missing)
    elif ratio > 1.0:
        values.update((name, 0) for name in missing)
    if up_with_unready:
        values.update((name, 0) for name in unready)
    second = ratio_of(values)
    if second is None:
        return Proposal(None, ratio, milli, _NOTHING_REQUESTED, mean)
    return Proposal(_guarded(ratio, second[0], len(values), current, tolerance), second[0], milli, current_milli=mean)


_NOTHING_REQUESTED = "no metrics returned matched known pods, or they request nothing"


def _guarded(before: float, after: float, pods: int, current: int, tolerance: Tolerance) -> int:
    """The count after assumptions about missing and unready pods: they may damp a change, never turn it
    round.
    """
    if tolerance.holds(after) or (before < 1.0 < after) or (after < 1.0 < before):
        return current
    replicas = _int32(after * pods)
    turned = (after < 1.0 and replicas > current) or (after > 1.0 and replicas < current)
    return current if turned else replicas


def _capped(replicas: float) -> int:
    return MAX_REPLICAS if replicas > MAX_REPLICAS else _int32(replicas)


def _int32(replicas: float) -> int:
    """Rounded up, as an int32: what does not fit is the smallest one, as amd64 converts it."""
    return _converted(replicas, 32)


def _int64(milli: float) -> int:
    return _converted(milli, 64)


def _converted(number: float, bits: int) -> int:
    half = 1 << (bits - 1)
    return math.ceil(number) if math.isfinite(number) and -half <= math.ceil(number) < half else -half


def _wrapped(number: int, bits: int = 64) -> int:
    """What an integer of so many bits holds of it."""
    half = 1 << (bits - 1)
    return (number + half) % (1 << bits) - half


def _divide(a: float, b: float) -> float:
    """Division of floats as IEEE 754 has it: by zero too."""
    if b:
        return float(a) / float(b)
    return math.copysign(math.inf, a) if a else math.nan


def _quotient(a: int, b: int) -> int:
    """Integer division towards zero."""
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)
