"""The requests of one service in one run: a profile or a trace, scaled, sped up and with its surges.

What a surge adds comes from random streams of its own, on top of the traffic without it; so two runs of one
seed that differ in a surge share all the other requests.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from tonnage.errors import InputError, Problem, Where
from tonnage.inference.prompts import BlockNames, Path
from tonnage.rng import Streams
from tonnage.traffic.profile import TrafficProfile, sample
from tonnage.traffic.sessions import Prefixes, converse
from tonnage.traffic.surges import Surge, bound_between, factor_at
from tonnage.traffic.traces import Trace
from tonnage.units import NS_PER_S

# Copies of a trace's requests stay within the second of the original, so the trace's own bursts remain.
_COPY_BUCKET_NS = NS_PER_S
# Fixed, so that a longer run adds up the same floating-point numbers in the same order as a shorter one.
_CHUNK = 4096


class Content(Struct, frozen=True):
    """What prompts and, where known, outputs have in common: a path of KV blocks of ``block_size`` tokens and the
    number of its session for each request, in order of arrival. Without ``sessions`` nobody knows of any."""

    block_size: int
    paths: Sequence[Path]
    sessions: Sequence[int] = ()

    def session(self, number: int) -> str | None:
        """The session of a request, as a router is told."""
        return f"session-{self.sessions[number]}" if self.sessions else None


MOST_REQUESTS = 100_000_000
"""Of a service in one run: some GB of memory."""

Times = NDArray[np.float64]
Tokens = NDArray[np.int32]


@dataclass(frozen=True, eq=False, slots=True)
class Arrivals:
    """Requests in order of arrival; each of the three arrays has one element a request.

    Times count from the start of the run. ``surges`` are those that touch the run, as (start_ns, end_ns,
    factor). ``content`` is None where prompts have nothing in common; ``zones`` are the clients', None where unknown.
    """

    arrival_ns: NDArray[np.int64]
    prompt: Tokens
    output: Tokens
    surges: tuple[tuple[int, int, float], ...]
    content: Content | None = None
    zones: Sequence[str] | None = None

    def __len__(self) -> int:
        return len(self.arrival_ns)


def build(
    source: TrafficProfile | Trace,
    *,
    service: str,
    seed: int,
    duration_ns: int,
    rate: float = 1.0,
    speed: float = 1.0,
    surges: Sequence[Surge] = (),
    prefixes: Prefixes | None = None,
    block_size: int = 16,
) -> Arrivals:
    """The arrivals of ``service`` in [0, duration_ns).

    ``rate`` multiplies the number of requests; ``speed`` plays the source faster (2: its hour in half an
    hour, with twice the rate). A source that is shorter than the run starts again from its beginning.

    From a profile, arrivals are a Poisson process whose rate is constant in each interval. From a trace,
    they are the trace's own; where ``rate`` or a surge is below 1 some are left out, where it is above 1
    copies are added at random times within the original's second.

    What prompts have in common comes from ``prefixes``, for a profile (prompts then grow by what comes before them), or
    is the profile's shared prefix, or comes from the trace's hashes, in KV blocks of ``block_size`` tokens. Copies of a
    request, and those of a trace that starts again, share with each other what the originals share, and nothing with
    the originals.

    The result depends on the arguments alone. Another ``service`` gives independent numbers, a longer
    duration the same requests and more.

    Raises:
        TooManyRequests: more than :data:`MOST_REQUESTS` are to be expected.
        InputError: duration, rate or speed is not above 0, or a hash of the trace does not stand for whole blocks.
    """
    _check(duration_ns=duration_ns, rate=rate, speed=speed)
    run = _Run(service, Streams(seed), duration_ns, rate, speed, tuple(surges))
    if isinstance(source, TrafficProfile):
        times, prompt, output = _from_profile(source, run)
    else:
        times, request, copy = _from_trace(source, run)
        prompt, output = source.prompt[request], source.output[request]
    order = np.argsort(times, kind="stable")
    order = order[times[order] < duration_ns]
    arrival_ns = np.floor(times[order]).astype(np.int64)
    prompt, output = prompt[order], output[order]
    content = None
    if isinstance(source, TrafficProfile):
        if prefixes is not None:
            rng = run.streams.python(f"sessions/{service}")
            turns = converse(prefixes, arrival_ns.tolist(), prompt.tolist(), output.tolist(), block_size, rng)
            prompt = np.array(turns.prompt, np.int32)
            content = Content(block_size, turns.paths, turns.sessions)
        elif source.shared_prefix:
            ends = prompt + output - 1
            shared = np.minimum(source.shared_prefix, prompt) // block_size
            content = Content(block_size, _after_shared(shared.tolist(), (ends // block_size).tolist()))
    elif source.hashes is not None:
        content = _content(source, request[order].tolist(), copy[order].tolist(), block_size)
    return Arrivals(
        arrival_ns=arrival_ns,
        prompt=prompt,
        output=output,
        surges=tuple((s.start_ns, s.end_ns, s.factor) for s in surges if s.start_ns < duration_ns),
        content=content,
    )


def _after_shared(shared: Sequence[int], blocks: Sequence[int]) -> list[Path]:
    """The content of requests of so many ``blocks``, the first ``shared`` of which are those of all, the rest their
    own."""
    paths: list[Path] = []
    free = max(shared, default=0) + 1  # a number stays free, so that ranges never touch
    for common, whole in zip(shared, blocks, strict=True):
        path: Path = ((0, common),) if common else ()
        own = max(0, whole - common)
        paths.append((*path, (free, free + own)) if own else path)
        free += own + 1
    return paths


def _content(trace: Trace, requests: Sequence[int], copies: Sequence[int], block_size: int) -> Content:
    """The content of a trace's requests; ``copies`` tells apart what shares nothing."""
    assert trace.hashes is not None
    if trace.hash_block % block_size:
        raise InputError.at(
            f"a hash of the trace stands for {trace.hash_block} tokens, which are not whole KV blocks of {block_size}",
            file=trace.source,
            field="--block-size",
            hint=f"use a block size that divides {trace.hash_block}",
        )
    names = BlockNames(block_size, trace.hash_block)
    prompt = trace.prompt.tolist()
    return Content(
        block_size,
        [names.path(trace.hashes[r], prompt[r], copy) for r, copy in zip(requests, copies, strict=True)],
    )


class _Run(Struct, frozen=True):
    service: str
    streams: Streams
    duration_ns: int
    rate: float
    speed: float
    surges: tuple[Surge, ...]

    def rng(self, what: str) -> np.random.Generator:
        return self.streams.get(f"{what}/{self.service}")


def _from_profile(profile: TrafficProfile, run: _Run) -> tuple[Times, Tokens, Tokens]:
    """The profile's own Poisson process, thinned where a surge is below 1, and the process of its surplus.

    A Poisson process of rate r·f with f > 1 is the sum of independent ones of rates r and r·(f − 1).
    """
    width_ns = profile.interval_s * NS_PER_S / run.speed
    intervals = math.ceil(run.duration_ns / width_ns)
    edges: Times = np.arange(intervals + 1, dtype=np.float64) * width_ns
    expected: Times = np.resize(np.array(profile.arrivals, dtype=np.float64), intervals) * run.rate

    surplus = bound_between(run.surges, edges[:-1], edges[1:]) - 1.0
    _check_number(run, float((expected * np.maximum(surplus + 1.0, 1.0)).sum()))
    times, _ = _poisson(run.rng("arrivals"), edges, expected)
    prompt, output = sample(profile, run.rng("lengths"), len(times))
    kept = run.rng("thinning").random(len(times)) < factor_at(run.surges, times)

    more_times, interval = _poisson(run.rng("surge-arrivals"), edges, expected * surplus)
    more_prompt, more_output = sample(profile, run.rng("surge-lengths"), len(more_times))
    wanted = (factor_at(run.surges, more_times) - 1.0) / surplus[interval]
    added = run.rng("surge-thinning").random(len(more_times)) < wanted
    return (
        np.concatenate((times[kept], more_times[added])),
        np.concatenate((prompt[kept], more_prompt[added])),
        np.concatenate((output[kept], more_output[added])),
    )


def _from_trace(trace: Trace, run: _Run) -> tuple[Times, NDArray[np.intp], NDArray[np.intp]]:
    """The trace, round after round, first scaled by the rate and then by the surges.

    For each arrival its time, its number in the trace, and which copy of that it is (0: the trace's own).
    """
    bucket_ns = _COPY_BUCKET_NS / run.speed
    # A mean gap between the last request and the first of the next round; a round lasts a second at least.
    mean_gap_ns = trace.span_ns // max(len(trace) - 1, 1)
    period_ns = max(trace.span_ns + mean_gap_ns, NS_PER_S)
    horizon_ns = run.duration_ns + bucket_ns  # copies of requests after the end may fall before it
    rounds = math.ceil(horizon_ns * run.speed / period_ns)
    highest = float(bound_between(run.surges, np.zeros(1), np.full(1, float(horizon_ns)))[0])
    _check_number(run, rounds * len(trace) * max(1.0, run.rate) * max(1.0, highest), ", speed")
    times = (np.arange(rounds)[:, np.newaxis] * period_ns + trace.arrivals_ns).ravel() / run.speed
    times = times[times < horizon_ns]
    request = np.arange(len(times)) % len(trace)
    copy = np.arange(len(times)) // len(trace)  # each round is a copy

    kept = run.rng("thinning").random(len(times)) < run.rate
    copy_times, origin, nth = _copies(run.rng("copies"), times, bucket_ns, run.rate, ())
    times = np.concatenate((times[kept], copy_times))
    order = np.argsort(times, kind="stable")
    times, request = times[order], np.concatenate((request[kept], request[origin]))[order]
    copy = np.concatenate((copy[kept], copy[origin] + rounds * nth))[order]
    most = int(copy.max(initial=0)) + 1

    kept = run.rng("surge-thinning").random(len(times)) < factor_at(run.surges, times)
    copy_times, origin, nth = _copies(run.rng("surge-copies"), times, bucket_ns, 1.0, run.surges)
    times = np.concatenate((times[kept], copy_times))
    request = np.concatenate((request[kept], request[origin]))
    return times, request, np.concatenate((copy[kept], copy[origin] + most * nth))


def _copies(
    rng: np.random.Generator, times: Times, bucket_ns: float, rate: float, surges: Sequence[Surge]
) -> tuple[Times, NDArray[np.intp], NDArray[np.intp]]:
    """Copies that raise the number of requests to ``rate`` × factor times itself: when, of which request, and which
    of its copies, from 1 on.

    Each request has as many candidates as its bucket may need at most, at random times within it; each is
    taken with the probability that its own time asks for.
    """
    starts = np.floor(times / bucket_ns) * bucket_ns
    bound = rate * bound_between(surges, starts, starts + bucket_ns)
    candidates = np.ceil(np.maximum(bound - 1.0, 0.0)).astype(np.intp)
    origin = np.repeat(np.arange(len(times)), candidates)
    uniform = rng.random((len(origin), 2))
    copy_times = starts[origin] + uniform[:, 0] * bucket_ns
    taken = uniform[:, 1] * candidates[origin] < rate * factor_at(surges, copy_times) - 1.0
    nth = np.arange(len(origin)) - (np.cumsum(candidates) - candidates)[origin] + 1
    return copy_times[taken], origin[taken], nth[taken]


def _poisson(rng: np.random.Generator, edges: Times, expected: Times) -> tuple[Times, NDArray[np.intp]]:
    """A Poisson process with ``expected[i]`` arrivals, on average, between ``edges[i]`` and ``edges[i + 1]``.

    Arrivals of a unit-rate process, taken through the inverse of the integrated rate (time-change theorem).
    Returns the times and the interval i of each.
    """
    integrated = np.concatenate(([0.0], np.cumsum(expected)))
    chunks = [np.empty(0)]
    reached = 0.0
    while reached < integrated[-1]:
        chunks.append(reached + np.cumsum(rng.standard_exponential(_CHUNK)))
        reached = float(chunks[-1][-1])
    unit = np.concatenate(chunks)
    unit = unit[unit < integrated[-1]]
    interval = np.searchsorted(integrated, unit, side="right") - 1
    times: Times = np.interp(unit, integrated, edges)
    return times, interval


class TooManyRequests(InputError):
    """More requests than the memory holds."""


def _check_number(run: _Run, requests: float, more: str = "") -> None:
    """Refuse more requests than the memory holds, before there is any."""
    if requests > MOST_REQUESTS:
        message = f"{requests:.3g} requests, expected at most {MOST_REQUESTS:,}"
        raise TooManyRequests.at(message, field="rate", hint=f"give a lower rate{more} or a shorter duration")


def _check(**values: float) -> None:
    problems = [
        Problem(Where(field=name), f"{value}, expected a finite number above 0")
        for name, value in values.items()
        if not 0 < value < math.inf
    ]
    if problems:
        raise InputError(*problems)
