"""How far a bounded metric can ever move a workload: what the HPA's arithmetic makes of an interval of
values.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from tonnage.scaling.bounds import Interval
from tonnage.scaling.replicas import TargetKind, Tolerance


@dataclass(frozen=True, slots=True)
class ReplicaRange:
    """The replica counts between which one metric alone moves a workload, in the long run, within its bounds.

    ``lowest`` is where any value within the interval leads at least, ``highest`` where it leads at most."""

    lowest: int
    highest: int


def reach(
    values: Interval,
    target_kind: TargetKind,
    target: float,
    *,
    min_replicas: int,
    max_replicas: int,
    tolerance: Tolerance | None = None,
) -> ReplicaRange:
    """The counts that a metric with these values can lead to, starting from the minimum.

    ``target`` is in the metric's unit and above 0. With ``AverageValue`` a value v asks for ceil(v /
    target), whatever runs now; with ``Value`` (and Utilization) for the ready pods times v / target, so
    that any ratio above the tolerance ends at the maximum and any below it at the minimum.
    """
    band = tolerance or Tolerance()
    low, high = max(values.low, 0.0), max(values.high, 0.0)
    if target_kind is not TargetKind.AVERAGE_VALUE:
        grows, shrinks = high / target > 1 + band.up, low / target < 1 - band.down
        always = low / target > 1 + band.up
        lowest = max_replicas if always else min_replicas
        return ReplicaRange(lowest if not shrinks else min_replicas, max_replicas if grows else min_replicas)
    highest = _asked(high, target, min_replicas, max_replicas, band)
    lowest = _asked(low, target, min_replicas, max_replicas, band)
    return ReplicaRange(min(lowest, highest), highest)


def _asked(value: float, target: float, low: int, high: int, band: Tolerance) -> int:
    """Where a constant value leads from the minimum: nowhere while it is within tolerance there."""
    if math.isinf(value):
        return high
    start = max(low, 1)
    if value / (target * start) <= 1 + band.up:
        return low
    return min(max(math.ceil(value / target), low), high)
