"""Traffic profiles: what is kept of a trace so that its like can be shipped and drawn again.

A profile holds the arrivals of every interval and the joint distribution of request lengths: requests are
sorted by prompt length and cut at fixed quantile levels into bins; each bin has the quantiles of its own
output lengths.
"""

from __future__ import annotations

import datetime
import itertools
from typing import Annotated

import msgspec
import numpy as np
from numpy.typing import NDArray

from tonnage.errors import InputError
from tonnage.traffic.traces import MAX_TOKENS, Trace
from tonnage.units import NS_PER_S

DEFAULT_INTERVAL_S = 10

# Even steps through the body and narrow bins at the top: a few long requests carry much of the tokens, and
# linear interpolation over a wide last bin would overstate p99 and the mean.
PROMPT_LEVELS = (0.0, *(step / 20 for step in range(1, 20)), 0.98, 0.99, 0.996, 0.999, 1.0)
OUTPUT_LEVELS = (0.0, 0.01, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.98, 0.99, 1.0)

Count = Annotated[int, msgspec.Meta(ge=0, le=MAX_TOKENS)]
Positive = Annotated[int, msgspec.Meta(ge=1, le=MAX_TOKENS)]
Level = Annotated[float, msgspec.Meta(ge=0, le=1)]


class ProfileSource(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where a profile comes from, for whoever has to cite it. Empty means not given."""

    name: str
    url: str = ""
    licence: str = ""
    citation: str = ""
    fitted: datetime.date | None = None
    assumed: tuple[str, ...] = ()
    """What the source does not say and the fit has taken to be so."""


class LengthDistribution(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The joint distribution of prompt and output tokens.

    ``prompt_tokens[i]`` is the quantile at ``prompt_levels[i]`` (n + 1 edges make n bins);
    ``output_tokens[b][k]`` is the quantile at ``output_levels[k]`` among the requests of bin ``b``. Levels
    ascend from 0 to 1.
    """

    prompt_levels: Annotated[tuple[Level, ...], msgspec.Meta(min_length=2, max_length=25)]
    prompt_tokens: tuple[Positive, ...]
    output_levels: Annotated[tuple[Level, ...], msgspec.Meta(min_length=2, max_length=16)]
    output_tokens: tuple[tuple[Positive, ...], ...]


class MeasuredService(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """What engines' metrics said of the requests of a profile; shares from 0 to 1, None where nothing was said.

    ``start``: RFC 3339. ``found_in_cache``: of the prompt tokens. ``ttft_met`` and ``tpot_met``: of the requests,
    within ``ttft_s`` and ``tpot_s``; least and most by the edges of the histogram. ``both_met``: least and most, where
    it is not known which requests met one and not the other.
    """

    start: str
    found_in_cache: float | None = None
    ttft_s: float | None = None
    ttft_met: tuple[float, float] | None = None
    tpot_s: float | None = None
    tpot_met: tuple[float, float] | None = None
    both_met: tuple[float, float] | None = None


class TrafficProfile(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="kind"):
    """Arrivals in each interval of ``interval_s`` seconds, and the lengths of the requests.

    ``requests`` is the number that the lengths were fitted to. ``shared_prefix``: tokens with which every prompt
    begins, as one system prompt does; a shorter prompt is all of it. ``measured``: how its requests did where the
    profile is of engines that served.
    """

    source: ProfileSource
    requests: Positive
    interval_s: Positive
    arrivals: Annotated[tuple[Count, ...], msgspec.Meta(min_length=1)]
    lengths: LengthDistribution
    shared_prefix: Count = 0
    measured: MeasuredService | None = None

    @property
    def span_ns(self) -> int:
        """The time that the intervals cover."""
        return len(self.arrivals) * self.interval_s * NS_PER_S

    @property
    def mean_rate(self) -> float:
        """Requests per second, over the whole profile."""
        return sum(self.arrivals) / (len(self.arrivals) * self.interval_s)


def fit(trace: Trace, source: ProfileSource, interval_s: int = DEFAULT_INTERVAL_S) -> TrafficProfile:
    """Fit a profile to ``trace``.

    Arrivals are counted in whole intervals, so the rest of an interval at the trace's end is left out of
    them (its requests count for the lengths). Requests of equal prompt length stay in order of arrival when
    the bins are cut.

    Raises:
        InputError: the trace is shorter than one interval.
    """
    interval_ns = interval_s * NS_PER_S
    intervals = trace.span_ns // interval_ns
    if intervals == 0:
        raise InputError.at(
            f"the trace spans {trace.span_ns / NS_PER_S:g} s, expected at least {interval_s} s",
            file=trace.source,
            hint="use a longer trace",
        )
    counts = np.bincount(trace.arrivals_ns // interval_ns, minlength=intervals)[:intervals]
    order = np.argsort(trace.prompt, kind="stable")
    prompts, outputs = trace.prompt[order], trace.output[order]
    cuts = [round(level * len(trace)) for level in PROMPT_LEVELS]
    rows = []
    for start, stop in itertools.pairwise(cuts):
        start = min(start, len(trace) - 1)  # a bin without requests of its own borrows its neighbour's
        rows.append(_quantiles(outputs[start : max(stop, start + 1)], OUTPUT_LEVELS))
    return TrafficProfile(
        source=source,
        requests=len(trace),
        interval_s=interval_s,
        arrivals=tuple(int(count) for count in counts),
        lengths=LengthDistribution(
            prompt_levels=PROMPT_LEVELS,
            prompt_tokens=_quantiles(prompts, PROMPT_LEVELS),
            output_levels=OUTPUT_LEVELS,
            output_tokens=tuple(rows),
        ),
    )


def sample(
    profile: TrafficProfile, rng: np.random.Generator, count: int
) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Draw the prompt and output tokens of ``count`` requests.

    By inverse transform with linear interpolation between the quantiles. Two uniform numbers a request, in
    order, so a longer draw starts with a shorter one's requests.
    """
    uniform = rng.random((count, 2))
    lengths = profile.lengths
    prompt_levels = np.array(lengths.prompt_levels)
    prompt = np.interp(uniform[:, 0], prompt_levels, lengths.prompt_tokens)
    bins = np.searchsorted(prompt_levels, uniform[:, 0], side="right") - 1

    levels = np.array(lengths.output_levels)
    table = np.array(lengths.output_tokens, dtype=np.float64)
    left = np.searchsorted(levels, uniform[:, 1], side="right") - 1
    fraction = (uniform[:, 1] - levels[left]) / (levels[left + 1] - levels[left])
    output = table[bins, left] * (1 - fraction) + table[bins, left + 1] * fraction
    return np.rint(prompt).astype(np.int32), np.rint(output).astype(np.int32)


def _quantiles(tokens: NDArray[np.int32], levels: tuple[float, ...]) -> tuple[int, ...]:
    return tuple(round(float(value)) for value in np.quantile(tokens, levels))
