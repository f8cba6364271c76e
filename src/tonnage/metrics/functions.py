"""The arithmetic of PromQL's functions, on plain columns of samples. Source: prometheus/prometheus
promql/functions.go and promql/quantile.go. Times are nanoseconds, results are floats, None is "no sample
in the answer".
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from msgspec import Struct

from tonnage.units import NS_PER_S

_BUCKET_TOLERANCE = 1e-12  # smallDeltaTolerance of promql/quantile.go: float noise between buckets


@dataclass(frozen=True, slots=True)
class Dialect:
    """What changed between Prometheus releases (its CHANGELOG.md).

    ``left_open``: windows and the lookback leave their left end out (3.0.0). ``zero_limit_after_threshold``: the
    limit "a counter does not start below zero" is applied after a distant window start has been given up (2.51.0).
    ``filtered_matches_count``: an element that a comparison drops still counts when matches are found to be
    ambiguous (3.9.0). ``infinite_spread``: stddev and stdvar of one infinity or NaN alone are NaN, not 0 (2.54.0).
    ``atan2_is_nameless``: atan2 drops the metric's name as other arithmetic does (3.0.0).
    """

    left_open: bool = True
    zero_limit_after_threshold: bool = True
    filtered_matches_count: bool = True
    infinite_spread: bool = True
    atan2_is_nameless: bool = True

    @classmethod
    def of(cls, major: int, minor: int) -> Dialect:
        """The dialect of a Prometheus release, for example ``Dialect.of(2, 53)``."""
        release = (major, minor)
        three = release >= (3, 0)
        return cls(three, release >= (2, 51), release >= (3, 9), release >= (2, 54), three)


PROMETHEUS_3 = Dialect()
"""3.9 and later."""
PROMETHEUS_2 = Dialect.of(2, 50)
"""2.x up to 2.50."""


class Samples(Struct, frozen=True):
    """The samples of one series in a window: parallel ``times`` (ns, rising) and ``values``; the window's
    two ends.
    """

    times: Sequence[int]
    values: Sequence[float]
    start_ns: int
    end_ns: int


def extrapolated(samples: Samples, dialect: Dialect, *, counter: bool, per_second: bool) -> float | None:
    """``rate`` (counter, per second), ``increase`` (counter) and ``delta``: the change between the first
    and the last sample, with counter resets added back, stretched to the window where its ends are near.
    None below two samples.
    """
    times, values = samples.times, samples.values
    if len(times) < 2:
        return None
    change = values[-1] - values[0]
    if counter:
        for before, after in pairwise(values):
            if after < before:
                change += before
    sampled = _s(times[-1] - times[0])
    spacing = sampled / (len(times) - 1)
    threshold = spacing * 1.1
    to_start = _s(times[0] - samples.start_ns)
    to_end = _s(samples.end_ns - times[-1])
    to_zero = sampled * (values[0] / change) if counter and change > 0 and values[0] >= 0 else math.inf
    if dialect.zero_limit_after_threshold:
        to_start = min(to_start if to_start < threshold else spacing / 2, to_zero)
    else:
        to_start = min(to_start, to_zero)
        to_start = to_start if to_start < threshold else spacing / 2
    to_end = to_end if to_end < threshold else spacing / 2
    result = change * ((sampled + to_start + to_end) / sampled)
    return result / _s(samples.end_ns - samples.start_ns) if per_second else result


def instant_rate(samples: Samples) -> float | None:
    """``irate``: the slope between the last two samples; after a counter reset the last value counts from
    zero.
    """
    if len(samples.times) < 2:
        return None
    before, after = samples.values[-2], samples.values[-1]
    return (after if after < before else after - before) / _s(samples.times[-1] - samples.times[-2])


def instant_delta(samples: Samples) -> float | None:
    """``idelta``: the difference of the last two samples."""
    return samples.values[-1] - samples.values[-2] if len(samples.times) >= 2 else None


def slope(samples: Samples) -> float | None:
    """``deriv``: the slope of the least-squares line, per second. None below two samples."""
    line = _line(samples, samples.times[0]) if len(samples.times) >= 2 else None
    return line[0] if line is not None else None


def predicted(samples: Samples, from_ns: int, ahead_s: float) -> float | None:
    """``predict_linear``: the least-squares line, ``ahead_s`` seconds after ``from_ns``. None below two samples."""
    line = _line(samples, from_ns) if len(samples.times) >= 2 else None
    return line[0] * ahead_s + line[1] if line is not None else None


def _line(samples: Samples, origin_ns: int) -> tuple[float, float]:
    """(slope per second, value at the origin)."""
    values, first = samples.values, samples.values[0]
    if all(value == first for value in values):
        return (math.nan, math.nan) if math.isinf(first) else (0.0, first)
    if not all(map(math.isfinite, values)):
        return math.nan, math.nan
    xs = [_s(time - origin_ns) for time in samples.times]
    count, sum_x, sum_y = len(xs), total(xs), total(values)
    sum_xy = total([x * y for x, y in zip(xs, values, strict=True)])
    sum_xx = total([x * x for x in xs])
    steepness = divide(sum_xy - sum_x * sum_y / count, sum_xx - sum_x * sum_x / count)
    return steepness, sum_y / count - steepness * sum_x / count


def changes(values: Sequence[float]) -> float:
    """How often the value is another one than before; NaN is NaN."""
    return float(sum(a != b and not (math.isnan(a) and math.isnan(b)) for a, b in pairwise(values)))


def resets(values: Sequence[float]) -> float:
    """How often the value is lower than before."""
    return float(sum(b < a for a, b in pairwise(values)))


def variance(values: Sequence[float]) -> float:
    """The population variance; NaN with NaN or an infinity among the values."""
    if not all(map(math.isfinite, values)):
        return math.nan
    middle = mean(values)
    return total([(value - middle) * (value - middle) for value in values]) / len(values)


def deviation(values: Sequence[float]) -> float:
    """The population standard deviation."""
    return math.sqrt(variance(values))


def quantile(share: float, values: Sequence[float]) -> float:
    """The quantile with linear interpolation between neighbours; NaN values are the smallest."""
    if not values or math.isnan(share):
        return math.nan
    if share < 0 or share > 1:
        return math.copysign(math.inf, share)
    ordered = sorted(values, key=lambda value: (not math.isnan(value), 0.0 if math.isnan(value) else value))
    rank = share * (len(ordered) - 1)
    low = max(0, math.floor(rank))
    high, weight = min(len(ordered) - 1, low + 1), rank - math.floor(rank)
    return ordered[low] * (1 - weight) + ordered[high] * weight


def total(values: Sequence[float]) -> float:
    """The sum, correctly rounded where it is finite."""
    try:
        return math.fsum(values)
    except (OverflowError, ValueError):  # beyond the range of floats, or +Inf and -Inf together
        return sum(values)


def mean(values: Sequence[float]) -> float:
    """The arithmetic mean."""
    return total(values) / len(values)


def largest(values: Sequence[float]) -> float:
    """The maximum; NaN only when there is nothing else."""
    return max((value for value in values if not math.isnan(value)), default=math.nan)


def smallest(values: Sequence[float]) -> float:
    """The minimum; NaN only when there is nothing else."""
    return min((value for value in values if not math.isnan(value)), default=math.nan)


OVER_TIME: dict[str, Callable[[Sequence[float]], float]] = {
    "avg_over_time": mean,
    "sum_over_time": total,
    "max_over_time": largest,
    "min_over_time": smallest,
    "count_over_time": lambda values: float(len(values)),
    "last_over_time": lambda values: values[-1],
    "present_over_time": lambda values: 1.0,
    "stddev_over_time": deviation,
    "stdvar_over_time": variance,
    "changes": changes,
    "resets": resets,
}
"""Functions of a window's values alone; they are never called without values."""


def histogram_quantile(quantile: float, buckets: Sequence[tuple[float, float]]) -> float:
    """The quantile of a classic histogram, interpolated linearly in its bucket.

    ``buckets`` are (upper bound, cumulative count) in any order. NaN without a +Inf bucket, with fewer
    than two buckets or without observations.
    """
    if math.isnan(quantile):
        return math.nan
    if quantile < 0 or quantile > 1:
        return math.copysign(math.inf, quantile)
    bounds, counts = _cumulative(buckets)
    if not bounds or bounds[-1] != math.inf or len(bounds) < 2:
        return math.nan
    observations = counts[-1]
    if observations == 0 or math.isnan(observations):
        return math.nan
    rank = quantile * observations
    index = next((i for i, count in enumerate(counts[:-1]) if count >= rank), len(bounds) - 1)
    if index == len(bounds) - 1:
        return bounds[-2]
    if index == 0 and bounds[0] <= 0:
        return bounds[0]
    low, below = (bounds[index - 1], counts[index - 1]) if index else (0.0, 0.0)
    return low + (bounds[index] - low) * divide(rank - below, counts[index] - below)


def _cumulative(buckets: Sequence[tuple[float, float]]) -> tuple[list[float], list[float]]:
    """Bounds in order, equal ones merged; counts made to rise, with float noise smoothed away."""
    merged: dict[float, float] = {}
    for bound, count in sorted(buckets):
        merged[bound] = merged.get(bound, 0.0) + count
    counts = list(merged.values())
    for index in range(1, len(counts)):
        before, count = counts[index - 1], counts[index]
        if count < before or math.isclose(before, count, rel_tol=_BUCKET_TOLERANCE):
            counts[index] = before
    return list(merged), counts


def divide(a: float, b: float) -> float:
    """IEEE division: x/0 is ±Inf, 0/0 is NaN."""
    if b != 0:
        return a / b
    if a == 0 or math.isnan(a):
        return math.nan
    return math.copysign(math.inf, a) * math.copysign(1.0, b)


def modulo(a: float, b: float) -> float:
    """The remainder with the sign of the dividend; NaN for x % 0 and Inf % x."""
    try:
        return math.fmod(a, b)
    except ValueError:
        return math.nan


def power(a: float, b: float) -> float:
    """IEEE power: overflow is ±Inf, a negative base with a fractional exponent is NaN."""
    try:
        return math.pow(a, b)
    except OverflowError:
        return -math.inf if a < 0 and math.fmod(b, 2) == 1 else math.inf
    except ValueError:
        if a == 0:  # 0 to a negative power
            return math.copysign(math.inf, a) if math.fmod(b, 2) == -1 else math.inf
        return math.nan


def clamp(value: float, *, low: float = -math.inf, high: float = math.inf) -> float:
    """``value`` within [low, high]; NaN if any of them is NaN."""
    if math.isnan(value) or math.isnan(low) or math.isnan(high):
        return math.nan
    return min(max(value, low), high)


def _s(nanoseconds: int) -> float:
    return nanoseconds / NS_PER_S
