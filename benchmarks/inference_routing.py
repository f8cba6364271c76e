"""The routing policies on equal engines with equal caches, beside Dynamo's policy and least-loaded.

*dynamo policy*: Dynamo's rule played here against Dynamo's own replay. It draws ties at random there and cannot be
given a seed, so that one replay differs from the next by half a point of reuse or more: means over many are compared.
Ratios against the `dynamo` policy count only where the two agree.

*routing*: seeds draw the ties; means over the seeds. *uniform load*: equal prompts that share nothing, arriving at
random at a share of what the engines can do; there is nothing to find in a cache, so least-loaded is hard to beat.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from statistics import fmean, stdev
from typing import NamedTuple

import numpy as np

from benchmarks import inference_peer
from benchmarks.common import Report
from benchmarks.inference_schedule import BLOCK, CHUNK, CONFIG, TIMING, cluster, log_from
from tonnage.inference.replay import Log, Replay, ReplayWorkers, log_of, replay
from tonnage.inference.replay.reuse import reuse_bound
from tonnage.inference.routing import EngineCosts, make_policy
from tonnage.traffic.traces import Trace, load_trace
from tonnage.units import NS_PER_MS, NS_PER_S

SEEDS = tuple(range(5))
WORKERS = (4, 16)
LAGS_MS = (0, 50, 200)
CLOSE = 0.5
PROMPT, OUTPUT, HASH_BLOCK = 2_048, 128, 512
LOADS = (0.80, 0.90, 0.95)
ARRIVALS = 8_000
REPLAYS = {4: 24, 16: 16}
"""Replays on each side, by workers: with 16 they differ by a tenth of a point only."""
GAIN = 2.0
PEER = "dynamo's own replay"
SHOWN = {"reuse": "reuse", "mean": "TTFT mean", "p99": "TTFT p99", "tpot": "TPOT mean"}


class Outcome(NamedTuple):
    """One replay: reuse in percent, times in ms."""

    reuse: float
    mean: float
    p99: float
    tpot: float


@dataclass(frozen=True)
class Means:
    """Means over runs, and the standard error of the reuse."""

    reuse: float
    mean: float
    p99: float
    tpot: float
    reuse_error: float

    @classmethod
    def of(cls, outcomes: Sequence[Outcome]) -> Means:
        reuse = [one.reuse for one in outcomes]
        error = stdev(reuse) / len(reuse) ** 0.5 if len(reuse) > 1 else 0.0
        means = Outcome(*(fmean(column) for column in zip(*outcomes, strict=True)))
        return cls(*means, error)


STUDENT = {1: 12.71, 2: 4.30, 3: 3.18, 4: 2.78}
"""Standard errors either side that hold 95 % of chance, by degrees of freedom: two runs say little of how far runs are
apart. Source: Student's distribution; 2 from more on."""
Outcomes = Callable[[], list[Outcome]]
Ask = Callable[["Run", Sequence[int]], Outcomes]


def _ask(pool: Executor, begun: dict[tuple[Run, int], Future[Outcome]], run: Run, seeds: Sequence[int]) -> Outcomes:
    """Begin ``run`` with each of the seeds unless it was ``begun``; what is returned waits for the outcomes."""
    for seed in seeds:
        if (run, seed) not in begun:
            begun[run, seed] = pool.submit(run, seed)
    return lambda: [begun[run, seed].result() for seed in seeds]


# ---- one run each, in whichever process ----


@functools.lru_cache(maxsize=2)
def _log(trace: str) -> Log:
    return log_from(load_trace(Path(trace)))


@dataclass(frozen=True)
class Played:
    """A trace under one of our policies, or under PEER: the peer's own router, whose draws no seed decides."""

    policy: str
    trace: str
    workers: int
    lag_ms: int

    def __call__(self, seed: int) -> Outcome:
        if self.policy == PEER:
            run = inference_peer.replay(self.trace, "kv_router", self.workers, self.lag_ms)
            return Outcome(100 * run.reuse, run.ttft_ms, run.ttft_p99_ms, run.tpot_ms)
        made = make_policy(self.policy, EngineCosts(TIMING, CHUNK))
        lag_ns = self.lag_ms * NS_PER_MS
        return _outcome(replay(_log(self.trace), cluster(self.workers), made, event_lag_ns=lag_ns, seed=seed))


@dataclass(frozen=True)
class Uniform:
    """Equal prompts at ``load`` of the capacity: the seed draws the arrivals, with ``shift`` added to it the ties."""

    policy: str
    workers: int
    load: float
    arrivals: int
    shift: int

    def __call__(self, seed: int) -> Outcome:
        made = make_policy(self.policy, EngineCosts(TIMING, CHUNK))
        log = _uniform_log(self.workers, self.load, self.arrivals, seed)
        return _outcome(replay(log, cluster(self.workers), made, seed=seed + self.shift))


Run = Played | Uniform


def _outcome(result: Replay) -> Outcome:
    if result.refused:
        raise AssertionError(f"{result.refused} requests were not served")
    ttft = result.ttft_ms
    return Outcome(100 * result.reuse, float(ttft.mean()), float(np.percentile(ttft, 99)), float(result.tpot_ms.mean()))


@functools.lru_cache(maxsize=4)
def _uniform_log(workers: int, load: float, arrivals: int, seed: int) -> Log:
    gaps = np.random.default_rng(seed).exponential(NS_PER_S / (capacity() * workers * load), arrivals)
    return _equal_prompts(gaps.cumsum().astype(np.int64).tolist())


@functools.cache
def capacity() -> float:
    """Requests per second of one engine that always has requests waiting."""
    many = 1_000
    result = replay(_equal_prompts([0] * many), ReplayWorkers(1, CONFIG, TIMING), make_policy("round-robin"))
    return many * NS_PER_S / max(one.finish_ns for one in result.served)


def _equal_prompts(arrivals: list[int]) -> Log:
    """Prompts of one length, each with content of its own."""
    hashes = -(-PROMPT // HASH_BLOCK)
    content = tuple(tuple(range(first * hashes, (first + 1) * hashes)) for first in range(len(arrivals)))
    prompts, outputs = (np.full(len(arrivals), tokens, np.int32) for tokens in (PROMPT, OUTPUT))
    at = np.array(arrivals, np.int64)
    return log_of(Trace("equal prompts", at, prompts, outputs, content, HASH_BLOCK), BLOCK)


# ---- what is asked: each part hands in its runs and returns what is to be done with the outcomes ----


def measure(report: Report, trace: Path | None, conversation: Path, quick: bool) -> None:
    """Rows and bars; a trace that is None is left out. ``quick``: one seed, fewer replays, lags, loads, requests."""
    seeds = SEEDS[:1] if quick else SEEDS
    with ProcessPoolExecutor(os.cpu_count(), get_context("spawn")) as pool:  # the peer's threads bear no fork
        ask = partial(_ask, pool, {})
        same = [_same_as_peer(ask, str(trace), workers, lag, quick) for workers, lag in _checked(trace, quick)]
        later: list[Callable[[Report, bool], None]] = []
        for workers in WORKERS if trace is not None else ():
            later += [_against_dynamo(ask, str(trace), workers, lag, seeds) for lag in _lags(workers, quick)]
        later.append(_conversation(ask, conversation, seeds))
        arrivals = ARRIVALS // 2 if quick else ARRIVALS
        for workers in WORKERS:
            later += [_uniform(ask, workers, load, arrivals, seeds, quick) for load in _loads(quick)]
        if trace is not None and not same:
            report.notes.append("the `dynamo` policy was not checked, no peer: the ratios against it do not count")
        apart = [finish(report) for finish in same]
        counts = bool(apart) and all(apart)
        if apart:
            report.notes.append(
                "the `dynamo` policy reuses what Dynamo's own replay does: the ratios against it count"
                if counts
                else "the `dynamo` policy does NOT reuse what Dynamo's own replay does: ratios against it do not count"
            )
        for finish in later:
            finish(report, counts)


def _lags(workers: int, quick: bool) -> tuple[int, ...]:
    if not quick:
        return LAGS_MS
    return LAGS_MS[::2] if workers == min(WORKERS) else LAGS_MS[:1]


def _checked(trace: Path | None, quick: bool) -> list[tuple[int, int]]:
    """The (workers, lag) at which the `dynamo` policy is held against the peer."""
    if trace is None or inference_peer.python() is None:
        return []
    return [(workers, lag) for workers in WORKERS for lag in (LAGS_MS[:1] if quick else LAGS_MS)]


def _same_as_peer(ask: Ask, trace: str, workers: int, lag: int, quick: bool) -> Callable[[Report], bool]:
    """Whether the `dynamo` policy reuses as much as the peer's own replay does; a bar where there is no lag."""
    many = range(REPLAYS[workers] // (8 if quick else 1 if lag == 0 else 3))
    asked = [ask(Played(name, trace, workers, lag), many) for name in ("dynamo", PEER)]

    def finish(report: Report) -> bool:
        ours, theirs = (Means.of(outcomes()) for outcomes in asked)
        apart = abs(ours.reuse - theirs.reuse)
        chance = 2 * (ours.reuse_error**2 + theirs.reuse_error**2) ** 0.5
        report.row(
            what="dynamo policy: reuse",
            amount=_setting(workers, lag),
            ours=ours.reuse,
            peer=theirs.reuse,
            ratio=ours.reuse / theirs.reuse,
            detail=f"{len(many)} runs each, apart {apart:.2f} ± {chance:.2f} (2 standard errors); "
            f"TTFT {ours.mean:.1f} and {theirs.mean:.1f} ms, p99 {ours.p99:.0f} and {theirs.p99:.0f} ms",
        )
        if lag:
            return True
        limit = CLOSE + (chance / 2 * STUDENT.get(len(many) - 1, 2.0) if quick else 0.0)
        report.bar(f"dynamo-policy-reuse-apart-{workers}-workers", apart, "<=", limit, "points", "result")
        return report.bars[-1].holds

    return finish


def _against_dynamo(
    ask: Ask, trace: str, workers: int, lag: int, seeds: Sequence[int]
) -> Callable[[Report, bool], None]:
    """`tonnage` beside `dynamo`; bars only if these count."""
    asked = [ask(Played(name, trace, workers, lag), seeds) for name in ("tonnage", "dynamo")]

    def finish(report: Report, counts: bool) -> None:
        mine, theirs = (outcomes() for outcomes in asked)
        ours, peers = Means.of(mine), Means.of(theirs)
        least = min(a.reuse - b.reuse for a, b in zip(mine, theirs, strict=True))
        _compare(
            report, "tonnage : dynamo", "reuse", _setting(workers, lag), mine, theirs, f"; gain {least:+.2f} points"
        )
        for name in ("mean", "p99", "tpot"):
            _compare(report, "tonnage : dynamo", name, _setting(workers, lag, "ms"), mine, theirs)
        if counts:
            at = f"{workers}-workers-lag-{lag}"
            gain = GAIN if workers == min(WORKERS) else 0.0
            report.bar(f"tonnage-reuse-over-dynamo-{at}", ours.reuse - peers.reuse, ">=", gain, "points", "result")
            report.bar(f"tonnage-ttft-mean-over-dynamo-{at}", ours.mean / peers.mean, "<=", 1.0, "ratio", "result")
            report.bar(f"tonnage-ttft-p99-over-dynamo-{at}", ours.p99 / peers.p99, "<=", 1.0, "ratio", "result")

    return finish


def _compare(
    report: Report, who: str, name: str, amount: str, ours: list[Outcome], peers: list[Outcome], more: str = ""
) -> float:
    """A row of means; returns their ratio. The worst seed is the highest ratio, of reuse the lowest."""
    mine, theirs = ([float(getattr(one, name)) for one in outcomes] for outcomes in (ours, peers))
    worst = (min if name == "reuse" else max)(a / b for a, b in zip(mine, theirs, strict=True))
    ratio = fmean(mine) / fmean(theirs)
    report.row(
        what=f"{who}, {SHOWN[name]}",
        amount=amount,
        ours=fmean(mine),
        peer=fmean(theirs),
        ratio=ratio,
        detail=f"worst seed {worst:.3f}{more}",
    )
    return ratio


def _conversation(ask: Ask, file: Path, seeds: Sequence[int]) -> Callable[[Report, bool], None]:
    """The reuse of the policies on the conversation trace, and what one unlimited cache for all would reuse."""
    trace, workers = str(file), max(WORKERS)
    names = ["round-robin", "dynamo", "tonnage"] + [PEER] * (inference_peer.python() is not None)
    asked = {name: ask(Played(name, trace, workers, 0), seeds) for name in names}

    def finish(report: Report, _: bool) -> None:
        bound = 100 * reuse_bound(_log(trace), BLOCK).token_share
        for name, outcomes in asked.items():
            one = Means.of(outcomes())
            report.row(
                what=f"conversation, {name}: reuse",
                amount=_setting(workers, 0),
                ours=one.reuse,
                peer=bound,
                ratio=one.reuse / bound,
                detail=f"peer: the unbounded shared cache; TTFT {one.mean:.1f} ms, p99 {one.p99:.0f} ms",
            )
        short = bound - Means.of(asked["tonnage"]()).reuse
        report.bar(f"tonnage-reuse-below-bound-conversation-{workers}-workers", short, "<=", 3.0, "points", "result")

    return finish


def _loads(quick: bool) -> tuple[float, ...]:
    return LOADS[-1:] if quick else LOADS


def _uniform(
    ask: Ask, workers: int, load: float, arrivals: int, seeds: Sequence[int], quick: bool
) -> Callable[[Report, bool], None]:
    """`tonnage` beside `least-loaded`, and least-loaded beside itself with other draws: what chance alone does.

    ``quick``: one seed tells no ratio apart from chance, so that much is allowed beside the limit."""
    asked = [
        ask(Uniform(name, workers, load, arrivals, shift), seeds)
        for name, shift in (("tonnage", 0), ("least-loaded", 0), ("least-loaded", 100))
    ]

    def finish(report: Report, _: bool) -> None:
        ours, least, again = (outcomes() for outcomes in asked)
        for name in ("mean", "p99", "tpot"):
            pairs = [(getattr(a, name), getattr(b, name)) for a, b in zip(least, again, strict=True)]
            chance = max(max(a / b, b / a) for a, b in pairs)
            amount = f"{workers} workers, load {load:.2f}, ms"
            more = f"; least-loaded against itself up to {chance:.3f}"
            ratio = _compare(report, "uniform load, tonnage : least-loaded", name, amount, ours, least, more)
            if name != "tpot":
                at = f"{workers}-workers-load-{round(100 * load)}"
                limit = 1.02 * (chance if quick else 1.0)
                report.bar(f"uniform-ttft-{name}-over-least-loaded-{at}", ratio, "<=", limit, "ratio", "result")

    return finish


def _setting(workers: int, lag_ms: int, unit: str = "%") -> str:
    return f"{workers} workers, lag {lag_ms} ms, {unit}"
