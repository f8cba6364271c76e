"""A traffic profile from what engines counted while they served: of Prometheus, and not of a request log.

Arrivals are what a gateway has sent; without one, the requests that have ended and the change of those in flight.
Lengths are those of the engines' histograms. What neither says is assumed, and the profile names it.
"""

from __future__ import annotations

import datetime
import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tonnage.errors import InputError
from tonnage.metrics.promql import Vector
from tonnage.metrics.store import LOOKBACK_NS, Series
from tonnage.traffic import counted
from tonnage.traffic.buckets import Buckets, of_cumulative
from tonnage.traffic.profile import (
    OUTPUT_LEVELS,
    PROMPT_LEVELS,
    LengthDistribution,
    MeasuredService,
    ProfileSource,
    TrafficProfile,
)
from tonnage.traffic.readings import GATEWAY, Readings, ScrapedService, span_text, value
from tonnage.units import NS_PER_HOUR, NS_PER_S, seconds

DEFAULT_INTERVAL_S = 60
"""Several scrapes: a count within one is mostly chance."""

_PREFIX_STEP = 16
"""Tokens of a KV block, in which a prefix is found again."""


@dataclass(frozen=True, slots=True)
class MeasuredPeriod:
    """What to look at: from ``start_ns`` to ``end_ns``, in the readings' own time, of which ``epoch_ns`` is the Unix
    time of 0. ``context``: tokens that the engines allow a request, 0 where that is to be guessed. ``ttft_s``,
    ``tpot_s``: targets, 0 for none."""

    start_ns: int
    end_ns: int
    interval_s: int = DEFAULT_INTERVAL_S
    context: int = 0
    ttft_s: float = 0.0
    tpot_s: float = 0.0
    epoch_ns: int = 0


def fit_measured(
    readings: Readings, served: ScrapedService, source: ProfileSource, wanted: MeasuredPeriod
) -> TrafficProfile:
    """Fit a profile to what was counted of ``served``.

    Raises:
        InputError: nothing was counted in this time, or less than one interval of it.
    """
    assumed: list[str] = []
    start_ns, arrivals = _arrivals(readings, served, wanted, assumed)
    prompts = _lengths(readings, served, wanted, "prompt", assumed)
    outputs = _lengths(readings, served, wanted, "output", assumed)
    assumed.append("prompt and output lengths are independent of each other: their histograms are apart")
    found = _found_in_cache(readings, served, wanted)
    prompt_tokens = _whole(prompts.quantiles(PROMPT_LEVELS))
    shared = _shared_prefix(found, prompts) if found else 0
    if shared:
        assumed.append(
            f"the {100 * (found or 0):.1f}% of prompt tokens found in prefix caches are one prefix of all prompts, of "
            f"{shared} tokens"
        )
    output_row = _whole(outputs.quantiles(OUTPUT_LEVELS))
    return TrafficProfile(
        source=ProfileSource(
            source.name, source.url, source.licence, source.citation, source.fitted, (*source.assumed, *assumed)
        ),
        requests=max(1, round(prompts.number)),
        interval_s=wanted.interval_s,
        arrivals=arrivals,
        lengths=LengthDistribution(
            PROMPT_LEVELS, prompt_tokens, OUTPUT_LEVELS, (output_row,) * (len(PROMPT_LEVELS) - 1)
        ),
        shared_prefix=shared,
        measured=_measured(readings, served, wanted, start_ns, found),
    )


def _arrivals(
    readings: Readings, served: ScrapedService, wanted: MeasuredPeriod, assumed: list[str]
) -> tuple[int, tuple[int, ...]]:
    """When samples begin, and how many requests came in each interval from then on."""
    engine = served.engine
    if served.gateway:
        counters = _samples(readings, f"{served.counter}{{{served.gateway}}}", wanted)
        gauges: list[Series] = []
        assumed.append(
            "arrivals are what the gateway sent: a request that it sent again counts again"
            if served.counter == GATEWAY
            else "arrivals are what the Endpoint Picker took, for all the pools of its models"
        )
    else:
        counters = _samples(readings, served.of(engine.finished), wanted)
        gauges = [
            one for name in (engine.running, engine.waiting) for one in _samples(readings, served.of(name), wanted)
        ]
        assumed.append(
            "arrivals are the requests that engines have ended and the change of those running and waiting: requests "
            "that no engine took are not among them"
        )
    if not counters:
        raise InputError.at(f"{served.name}: no requests were counted in this time", field="--start")
    first_ns = min(one.times[0] for one in counters)
    start_ns = max(wanted.start_ns, first_ns)
    end_ns = min(wanted.end_ns, max(one.times[-1] for one in counters))
    interval_ns = wanted.interval_s * NS_PER_S
    intervals = (end_ns - start_ns + interval_ns // 2) // interval_ns  # of the last one half is enough to know its rate
    if end_ns - start_ns < interval_ns:
        raise InputError.at(
            f"{served.name}: there are {seconds(max(0, end_ns - start_ns)):g} s of samples in this time, expected at "
            f"least {wanted.interval_s} s",
            field="--start",
            hint="give an earlier --start, or a shorter --interval",
        )
    edges = [min(start_ns + n * interval_ns, end_ns) for n in range(intervals + 1)]
    reached = counted.growth(counters, edges, first_ns) + counted.change(gauges, edges, first_ns)
    reached = np.rint(np.maximum.accumulate(np.maximum(reached, 0.0)))
    if not reached[-1]:
        raise InputError.at(f"{served.name}: no request came in this time", field="--start")
    counts = np.diff(reached)
    counts[-1] = round(counts[-1] * interval_ns / (edges[-1] - edges[-2]))
    return start_ns, tuple(int(count) for count in counts)


def _samples(readings: Readings, selector: str, wanted: MeasuredPeriod) -> list[Series]:
    """Raw samples, asked for an hour at a time, from a little before the start."""
    merged: dict[tuple[tuple[str, str], ...], Series] = {}
    at_ns = wanted.start_ns - LOOKBACK_NS
    while at_ns < wanted.end_ns:
        until_ns = min(at_ns + NS_PER_HOUR, wanted.end_ns)
        for one in readings.window(selector, at_ns, until_ns):
            kept = merged.setdefault(tuple(sorted(one.labels.items())), Series(one.labels))
            for t_ns, number in zip(one.times, one.values, strict=True):
                if t_ns > kept.last_ns and not math.isnan(number):
                    kept.append(t_ns, number)
        at_ns = until_ns
    return [one for one in merged.values() if one.times]


def _lengths(
    readings: Readings, served: ScrapedService, wanted: MeasuredPeriod, what: str, assumed: list[str]
) -> Buckets:
    engine = served.engine
    histogram = engine.prompt_lengths if what == "prompt" else engine.output_lengths
    found = _buckets(readings, served, wanted, histogram, 1.0, wanted.context) if histogram else None
    if found is not None:
        last = found.edges[-1]
        if not wanted.context and last == _context_above(found.edges[-2]):
            assumed.append(
                f"no {what} is longer than {last:,.0f} tokens: the histogram does not say how long; --context"
            )
        return found
    tokens = engine.prompt_tokens if what == "prompt" else engine.generation_tokens
    span = span_text(wanted.start_ns, wanted.end_ns)
    total = value(readings, f"sum(increase({served.of(tokens)}[{span}]))", wanted.end_ns)
    number = value(readings, f"sum(increase({served.of(engine.finished)}[{span}]))", wanted.end_ns)
    if not total or not number:
        raise InputError.at(f"{served.name}: no {what} tokens were counted in this time", field="--start")
    mean = max(1.0, total / number)
    assumed.append(
        f"{what} lengths are distributed exponentially about their mean of {mean:,.0f} tokens: {served.engine.engine} "
        + (f"has no {histogram} there" if histogram else "has no histogram of them")
    )
    levels = np.linspace(0.0, 0.999, 60)
    edges = np.concatenate((1 - mean * np.log1p(-levels), [10 * mean + 1]))
    return Buckets(tuple(edges.tolist()), (*np.diff(levels).tolist(), 0.001), None)


def _buckets(
    readings: Readings, served: ScrapedService, wanted: MeasuredPeriod, metric: str, lowest: float, most: float = 0.0
) -> Buckets | None:
    """A histogram's growth over the time, all engines together; None without observations."""
    span = span_text(wanted.start_ns, wanted.end_ns)
    found = readings.measure(f"sum by (le) (increase({served.of(metric + '_bucket')}[{span}]))", wanted.end_ns)
    bounds = {float(one.labels["le"]): one.value for one in (found if isinstance(found, Vector) else ()) if one.labels}
    bounds = {edge: count for edge, count in bounds.items() if not math.isnan(count)}
    total = value(readings, f"sum(increase({served.of(metric + '_sum')}[{span}]))", wanted.end_ns)
    finite = [edge for edge in bounds if math.isfinite(edge)]
    if not finite:
        return None
    return of_cumulative(bounds, total, lowest=lowest, beyond=most or _context_above(max(finite)))


def _context_above(edge: float) -> float:
    """The context of which this is the last edge below, as contexts are powers of two and edges 1, 2, 5, 10…"""
    return float(2 ** math.floor(math.log2(2.5 * edge)))


def _found_in_cache(readings: Readings, served: ScrapedService, wanted: MeasuredPeriod) -> float | None:
    """The share of prompt tokens that engines found in their prefix caches; None where none says."""
    span = span_text(wanted.start_ns, wanted.end_ns)
    hits, asked = (
        value(readings, f"sum(increase({served.of(name)}[{span}]))", wanted.end_ns)
        for name in (served.engine.cached_tokens, served.engine.queried_tokens)
    )
    return None if hits is None or not asked else round(min(1.0, hits / asked), 4)


def _shared_prefix(found: float, prompts: Buckets) -> int:
    """Tokens of the prefix of all prompts that makes up this share of their tokens, in whole blocks."""
    drawn = prompts.quantiles([(n + 0.5) / 1000 for n in range(1000)])
    low, high = 0.0, float(drawn[-1])
    for _ in range(40):
        middle = (low + high) / 2
        if float(np.minimum(drawn, middle).sum()) < found * float(drawn.sum()):
            low = middle
        else:
            high = middle
    return round(low / _PREFIX_STEP) * _PREFIX_STEP


def _measured(
    readings: Readings, served: ScrapedService, wanted: MeasuredPeriod, start_ns: int, found: float | None
) -> MeasuredService:
    began = datetime.datetime.fromtimestamp(seconds(wanted.epoch_ns + start_ns) // 1, datetime.UTC)
    met: dict[str, tuple[float, float] | None] = {"ttft": None, "tpot": None}
    for name, target in (("ttft", wanted.ttft_s), ("tpot", wanted.tpot_s)):
        metric = getattr(served.engine, name)
        histogram = _buckets(readings, served, wanted, metric, 0.0, math.inf) if target and metric else None
        if histogram is not None:
            least, most = histogram.share_within(target)
            met[name] = (round(least, 4), round(most, 4))
    one, other = met["ttft"], met["tpot"]
    both = None
    if one is not None and other is not None:
        both = (round(max(0.0, one[0] + other[0] - 1), 4), min(one[1], other[1]))
    return MeasuredService(
        began.isoformat().replace("+00:00", "Z"), found, wanted.ttft_s or None, one, wanted.tpot_s or None, other, both
    )


def _whole(values: NDArray[np.float64]) -> tuple[int, ...]:
    return tuple(max(1, round(one)) for one in values.tolist())
