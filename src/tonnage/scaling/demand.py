"""What cumulative counts of arrivals say of the rate to come: the level, its rise, and how sure that is.

Three looks, the first that is not contradicted by what came last:

1. *A sudden rise*: the last 30 s exceed what the 90 s before lead one to expect by more than chance allows. Then the
   rate of these 30 s is the level, and the rise from the 30 s before is extended by as long again.
2. *Steady*: the longest of some windows, up to 20 minutes, along which a line fits: its residuals are no larger than
   the counts' own scatter, and the last two minutes are where the line says. A slope that is not clearly one is none.
   A rising line is extended to the horizon; a falling one is not: until replicas could be had again, what there is now
   may be needed.
3. Else the rate of the last two minutes.

*Scatter*: the variance of counts over their mean. It is 1 for a Poisson process, and more for requests in bursts. It is
estimated from the differences of neighbouring counts (von Neumann 1941), which a slow change hardly touches.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from math import sqrt

from tonnage.units import NS_PER_S

SHORT_NS, LONG_NS = 30 * NS_PER_S, 120 * NS_PER_S
SURPRISE = 3.0
"""Standard deviations by which a count must differ from what was expected to be believed."""

WINDOWS_NS = tuple(seconds * NS_PER_S for seconds in (1200, 600, 300))
LATELY_NS = WINDOWS_NS[-1]
"""A longer window may lag behind a rise that is not clear yet: what came lately is served in any case."""

MEMORY_NS = WINDOWS_NS[0] + SHORT_NS
"""How far back counts are looked at."""

CLEAR = 2.0
"""Standard errors that a slope must have to count as one."""

DAMPED = 0.5
"""How much of a rise is taken to go on until the horizon: most do not (Gardner and McKenzie 1985, damped trends)."""

MISFIT = 3.0
"""Standard deviations by which the residuals of a line may exceed their expectation."""

JUMP_LEAST = 2
"""Counts on each side of a change."""

JUMP_CLEAR = 4.0
"""Standard errors that a change must have: it is the largest of many that could have been."""

JUMP_SHARE = 0.05
"""Of the residuals: by how much a change must leave less than a line to be believed instead."""

MOST_SCATTER = 8.0


@dataclass(frozen=True, slots=True)
class Forecast:
    """Demand in requests/s: the level now, the rise per second, and the upper estimate at the horizon.

    ``scatter``: variance of counts over their mean; ``window_ns``: of the counts that the level comes from."""

    level: float
    slope: float
    upper: float
    scatter: float = 1.0
    window_ns: int = LONG_NS


def forecast(counts: Sequence[tuple[int, float]], horizon_ns: int, z: float, *, far: bool = False) -> Forecast | None:
    """Demand from cumulative counts (time in ns, requests received), oldest first; ``z`` standard deviations of what is
    uncertain are added to it. ``far``: help takes long to come, so that a long look is worth more than a quick one;
    without it, steps 1 and 3 alone, and arrivals are taken for Poisson. None with less than 30 s of history, and where
    no reading but the last is near the last two minutes."""
    now = counts[-1][0]
    if now - counts[0][0] < SHORT_NS or _nearest(counts, now - LONG_NS) == counts[-1]:
        return None
    recent = _recent(counts, horizon_ns, z, far)
    if recent.slope > 0 or not far:
        return recent
    found = recent
    for width in WINDOWS_NS:
        if now - counts[0][0] >= width:
            changed = _change(counts, width)
            line = _since(counts, width, changed, z) if changed else _line(counts, width, horizon_ns, z)
            if line is not None:
                found = line
                break
            if changed:
                break  # a line through what came since would take the change itself for a rise
    if found.window_ns > LATELY_NS:
        lately = _mean(counts, LATELY_NS, found.scatter, z)
        if lately > found.upper:
            return replace(found, upper=lately)
    return found


def _recent(counts: Sequence[tuple[int, float]], horizon_ns: int, z: float, far: bool) -> Forecast:
    """By the last two minutes, or the last 30 s when these are a surprise; ``far``: a tenth of the horizon, at most two
    minutes, as nothing is won by believing a burst sooner."""
    now = counts[-1][0]
    brief_ns = min(max(SHORT_NS, horizon_ns // 10), LONG_NS) if far else SHORT_NS
    wide_ns = brief_ns * LONG_NS // SHORT_NS

    def window(start_ns: int, end_ns: int) -> tuple[float, float]:
        """(requests, seconds) between the readings nearest to the two times."""
        first, last = _nearest(counts, start_ns), _nearest(counts, end_ns)
        return last[1] - first[1], (last[0] - first[0]) / NS_PER_S

    short, short_s = window(now - brief_ns, now)
    long, long_s = window(now - LONG_NS, now)
    before, before_s = window(now - wide_ns, now - brief_ns)
    width = min(now - counts[0][0], WINDOWS_NS[0])
    scatter = _scatter([n for n, _ in _buckets(counts, width)]) if far else 1.0
    expected = (before / before_s if before_s > 0 else long / long_s) * short_s
    variance = scatter * expected * (1 + short_s / before_s if before_s > 0 else 1)  # it is a count itself
    surprised = short - expected > SURPRISE * sqrt(max(variance, 1.0))
    requests, span = (short, short_s) if surprised else (long, long_s)
    level = requests / span
    slope = 0.0
    if surprised:
        earlier, earlier_s = window(now - 2 * brief_ns, now - brief_ns)
        if earlier_s > 0:
            slope = max(0.0, (short / short_s - earlier / earlier_s) / short_s)
    ahead = min(horizon_ns, SHORT_NS) / NS_PER_S
    upper = level + slope * ahead + z * sqrt(max(requests, 1.0)) / span
    return Forecast(level, slope, upper, scatter, round(span * NS_PER_S))


def _line(counts: Sequence[tuple[int, float]], width: int, horizon_ns: int, z: float) -> Forecast | None:
    """By a line through the rates of the last ``width`` ns. None where it does not fit."""
    buckets = _buckets(counts, width)
    n, seconds = len(buckets), SHORT_NS / NS_PER_S
    numbers = [count for count, _ in buckets]
    mean = sum(numbers) / n
    scatter = _scatter(numbers)
    noise = scatter * max(mean, 1.0)  # variance of one bucket
    middle = (n - 1) / 2
    spread = n * (n * n - 1) / 12
    slope = sum((i - middle) * count for i, count in enumerate(numbers)) / spread
    error = sqrt(noise / spread)
    if abs(slope) < CLEAR * error:
        slope = error = 0.0
    left = [count - mean - slope * (i - middle) for i, count in enumerate(numbers)]
    freedom = n - (2 if slope else 1)
    if sum(one * one for one in left) / noise > freedom + MISFIT * sqrt(2 * freedom):
        return None
    last = LONG_NS // SHORT_NS
    if abs(sum(left[-last:])) > SURPRISE * sqrt(noise * last * (1 + last / n)):
        return None
    at_end = middle + 0.5
    level = max(0.0, mean + slope * at_end)
    ahead = DAMPED * min(horizon_ns, width) / SHORT_NS if slope > 0 else 0.0
    unsure = sqrt(noise / n + (error * at_end) ** 2)
    upper = max(0.0, level + max(slope, 0.0) * ahead) + z * unsure
    return Forecast(level / seconds, max(slope, 0.0) / seconds**2, upper / seconds, scatter, width)


def _change(counts: Sequence[tuple[int, float]], width: int) -> int:
    """How many of the last 30 s came since a sudden rise from one steady rate to another, where that says more of the
    last ``width`` ns than a line does; 0 where it does not. A line would see a rise that is over go on.

    Both by least squares; the change has the time at which it comes as one more parameter, for which it must be better
    by a share of what it leaves."""
    numbers = [count for count, _ in _buckets(counts, width)]
    n = len(numbers)
    mean, middle = sum(numbers) / n, (n - 1) / 2
    spread = n * (n * n - 1) / 12
    slope = sum((i - middle) * count for i, count in enumerate(numbers)) / spread
    by_line = sum((count - mean - slope * (i - middle)) ** 2 for i, count in enumerate(numbers))
    total, before = sum(numbers), 0.0
    squares = sum(count * count for count in numbers)
    noise = _scatter(numbers) * max(mean, 1.0)
    best, since = by_line / (1 + JUMP_SHARE), 0
    for k in range(1, n - JUMP_LEAST + 1):
        before += numbers[k - 1]
        after = total - before
        left = squares - before * before / k - after * after / (n - k)
        clear = JUMP_CLEAR * sqrt(noise * (1 / k + 1 / (n - k)))
        if k >= JUMP_LEAST and left < best and after / (n - k) - before / k > clear:
            best, since = left, n - k
    return since


def _since(counts: Sequence[tuple[int, float]], width: int, buckets: int, z: float) -> Forecast | None:
    """By the mean since a change. None where too little came since, or what came last contradicts it."""
    numbers = [count for count, _ in _buckets(counts, width)]
    lately = numbers[-buckets:]
    last = LONG_NS // SHORT_NS
    if buckets < last:
        return None
    scatter = _scatter(numbers)
    mean = sum(lately) / buckets
    if abs(sum(lately[-last:]) - last * mean) > SURPRISE * sqrt(scatter * max(mean, 1.0) * last * (1 + last / buckets)):
        return None
    seconds = SHORT_NS / NS_PER_S
    upper = mean + z * sqrt(scatter * max(mean, 1.0) / buckets)
    return Forecast(mean / seconds, 0.0, upper / seconds, scatter, buckets * SHORT_NS)


def _mean(counts: Sequence[tuple[int, float]], width: int, scatter: float, z: float) -> float:
    """The upper estimate of a steady rate, by the last ``width`` ns alone."""
    requests = counts[-1][1] - _count_at(counts, counts[-1][0] - width)
    return (requests + z * sqrt(scatter * max(requests, 1.0))) / (width / NS_PER_S)


def _nearest(counts: Sequence[tuple[int, float]], at_ns: int) -> tuple[int, float]:
    """The reading nearest to the time; of two, the earlier."""
    after = bisect_right(counts, (at_ns, -1.0))
    around = counts[max(0, after - 1) : after + 1]
    return min(around, key=lambda c: (abs(c[0] - at_ns), c[0]))


def _buckets(counts: Sequence[tuple[int, float]], width: int) -> list[tuple[float, int]]:
    """(requests, end in ns) of each whole 30 s of the last ``width`` ns; counts between readings by interpolation."""
    now = counts[-1][0]
    number = width // SHORT_NS
    edges = [now - SHORT_NS * back for back in range(number, -1, -1)]
    at = [_count_at(counts, edge) for edge in edges]
    return [(after - before, end) for before, after, end in zip(at, at[1:], edges[1:], strict=False)]


def _count_at(counts: Sequence[tuple[int, float]], at_ns: int) -> float:
    after = bisect_right(counts, (at_ns, float("inf")))
    if after == len(counts):
        return counts[-1][1]
    if after == 0:
        return counts[0][1]
    (t0, n0), (t1, n1) = counts[after - 1], counts[after]
    return n0 + (n1 - n0) * (at_ns - t0) / (t1 - t0)


def _scatter(numbers: Sequence[float]) -> float:
    """Variance over mean of the counts of a minute, from the differences of neighbours without the largest, which may
    be a change; at least 1: no count is steadier than chance. ``numbers``: of 30 s each."""
    minutes = [a + b for a, b in zip(numbers[-2::-2], numbers[-1::-2], strict=False)]
    if len(minutes) < 8 or not any(minutes):
        return 1.0
    steps = sorted((b - a) ** 2 for a, b in pairwise(minutes))[:-1]
    return min(max(1.0, sum(steps) / (2 * len(steps)) / (sum(minutes) / len(minutes))), MOST_SCATTER)
