"""How many replicas one metric asks for: the HorizontalPodAutoscaler's arithmetic, metric by metric.

Values are integers in thousandths of the metric's unit ("milli"), as the controller holds them, and the
steps are its steps, integer divisions and float roundings included. Source: kubernetes/kubernetes
pkg/controller/podautoscaler/replica_calculator.go and metrics/utilization.go, v1.37.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from enum import Enum
from typing import TypeAlias

TOLERANCE = 0.1
"""kube-controller-manager ``--horizontal-pod-autoscaler-tolerance``: how far a ratio may be from 1 and
change nothing.
"""

MAX_REPLICAS = 2**31 - 1  # replica counts are int32

_Ratio: TypeAlias = Callable[[Mapping[str, int]], tuple[float, int] | None]


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
class Reading:
    """The value of one metric, or why there is none.

    Object and External metrics give ``milli`` (External: the sum over series); per-pod metrics give
    ``pods``.
    """

    milli: int | None = None
    pods: tuple[PodReading, ...] | None = None
    error: str = ""

    @classmethod
    def of(cls, value: float) -> Reading:
        """An Object or External metric's value in its own unit."""
        return cls(milli=to_milli(value))


@dataclass(frozen=True, slots=True)
class Scaled:
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
    """

    replicas: int | None
    ratio: float | None = None
    milli: int | None = None
    error: str = ""


def to_milli(value: float) -> int:
    """Thousandths, rounded up as Kubernetes' Quantity.MilliValue does. The value's shortest decimal form
    counts.
    """
    return math.ceil(Decimal(repr(float(value))) * 1000)


def propose_value(milli: int, target_milli: int, scaled: Scaled, tolerance: Tolerance) -> Proposal:
    """Object and External metrics with target ``Value``: ceil(ratio × ready pods); at zero replicas
    ceil(ratio).
    """
    ratio = milli / target_milli
    if scaled.spec == 0:
        return Proposal(_count(ratio), ratio, milli)
    if tolerance.holds(ratio):
        return Proposal(scaled.spec, ratio, milli)
    return Proposal(_count(ratio * scaled.ready), ratio, milli)


def propose_average_value(milli: int, target_milli: int, scaled: Scaled, tolerance: Tolerance) -> Proposal:
    """Object and External metrics with target ``AverageValue``: ceil(sum / target); the present count
    decides only whether the change is within tolerance.
    """
    per_target = target_milli * scaled.status
    ratio = milli / per_target if per_target else (math.inf if milli else math.nan)
    if tolerance.holds(ratio):
        return Proposal(scaled.status, ratio, milli)
    return Proposal(_count(milli / target_milli), ratio, milli)


def propose_utilization(
    pods: Sequence[PodReading], target_percent: int, current: int, tolerance: Tolerance
) -> Proposal:
    """Resource metrics in percent of requests, averaged over the pods."""
    requests = {pod.name: pod.request_milli for pod in pods}

    def ratio(values: Mapping[str, int]) -> tuple[float, int] | None:
        asked = sum(requests[name] for name in values)
        if asked == 0:
            return None
        percent = _quotient(sum(values.values()) * 100, asked)
        return percent / target_percent, percent * 1000

    full_percent = max(100, target_percent)
    full = {name: request * full_percent // 100 for name, request in requests.items()}
    return _average(pods, full, ratio, current, tolerance)


def propose_pod_average(pods: Sequence[PodReading], target_milli: int, current: int, tolerance: Tolerance) -> Proposal:
    """Pods metrics, and Resource metrics with target ``AverageValue``: the mean over the pods."""

    def ratio(values: Mapping[str, int]) -> tuple[float, int] | None:
        mean = _quotient(sum(values.values()), len(values))
        return mean / target_milli, mean

    return _average(pods, {pod.name: target_milli for pod in pods}, ratio, current, tolerance)


def _average(
    pods: Sequence[PodReading],
    full: Mapping[str, int],
    ratio_of: _Ratio,
    current: int,
    tolerance: Tolerance,
) -> Proposal:
    """The rules for missing and unready pods. ``full`` is what a missing pod is taken to use on the way
    down.
    """
    if not pods:
        return Proposal(None, error="no pods returned by selector while calculating replica count")
    live = [pod for pod in pods if pod.state is not PodState.IGNORED]
    unready = [pod.name for pod in live if pod.state is PodState.UNREADY]
    counted = [pod for pod in live if pod.state is PodState.COUNTED]
    missing = [pod.name for pod in counted if pod.milli is None]
    values = {pod.name: pod.milli for pod in counted if pod.milli is not None}
    if not values:
        return Proposal(None, error="did not receive metrics for targeted pods (pods might be unready)")
    first = ratio_of(values)
    if first is None:
        return Proposal(None, error="no metrics returned matched known pods, or they request nothing")
    ratio, milli = first
    up_with_unready = bool(unready) and ratio > 1.0
    if not up_with_unready and not missing:
        replicas = current if tolerance.holds(ratio) else _count(ratio * len(values))
        return Proposal(replicas, ratio, milli)
    if ratio < 1.0:
        values.update((name, full[name]) for name in missing)
    elif ratio > 1.0:
        values.update((name, 0) for name in missing)
    if up_with_unready:
        values.update((name, 0) for name in unready)
    second = ratio_of(values)
    if second is None:
        return Proposal(None, error="no metrics returned matched known pods, or they request nothing")
    return Proposal(_guarded(ratio, second[0], len(values), current, tolerance), second[0], milli)


def _guarded(before: float, after: float, pods: int, current: int, tolerance: Tolerance) -> int:
    """The count after assumptions about missing and unready pods: they may damp a change, never turn it
    round.
    """
    if tolerance.holds(after) or (before < 1.0 < after) or (after < 1.0 < before):
        return current
    replicas = _count(after * pods)
    turned = (after < 1.0 and replicas > current) or (after > 1.0 and replicas < current)
    return current if turned else replicas


def _count(replicas: float) -> int:
    return MAX_REPLICAS if replicas > MAX_REPLICAS else math.ceil(replicas)


def _quotient(a: int, b: int) -> int:
    """Integer division towards zero."""
    return a // b if a >= 0 else -(-a // b)
