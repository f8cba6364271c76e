"""Plays a log of requests on engines behind a router, in virtual time: what `tonnage route replay` shows.

Requests arrive as they did, whatever becomes of them (open loop). Before each decision every engine is brought to the
time of the arrival, so the router knows which requests have their first token or ended, as it would from the streams.
What the caches hold it learns from their events, ``event_lag_ns`` late; without lag it sees the caches themselves.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random

import msgspec
import numpy as np
from numpy.typing import NDArray

from tonnage.inference.engine import Engine, EngineConfig, Tiers
from tonnage.inference.prefix_cache import PrefixCache
from tonnage.inference.prompts import BlockNames, Path, length
from tonnage.inference.requests import Finished
from tonnage.inference.routing.policies import Policy
from tonnage.inference.routing.router import Router
from tonnage.inference.routing.types import Overlap, Receipt, RouteRequest, Worker
from tonnage.inference.timing import PS_PER_NS, BatchTiming, StepTiming
from tonnage.units import NS_PER_MS


@dataclass(frozen=True, slots=True)
class Log:
    """Requests in order of arrival, one element of each sequence a request; ``paths`` is empty without content.

    Times in ns; ``prompt`` and ``output`` in tokens; ``sessions`` may be empty.
    """

    arrival_ns: Sequence[int]
    prompt: Sequence[int]
    output: Sequence[int]
    paths: Sequence[Path] = ()
    sessions: Sequence[str | None] = ()

    def __len__(self) -> int:
        return len(self.arrival_ns)


def log_of(
    arrival_ns: Sequence[int],
    prompt: Sequence[int],
    output: Sequence[int],
    hashes: Sequence[Sequence[int]] | None,
    *,
    block_size: int,
    hash_block: int,
) -> Log:
    """A log whose prompts are known by hashes of ``hash_block`` tokens (None: not at all).

    Raises ValueError where a hash does not stand for whole blocks.
    """
    paths: list[Path] = []
    if hashes is not None:
        names = BlockNames(block_size, hash_block)
        paths = [names.path(one, tokens) for one, tokens in zip(hashes, prompt, strict=True)]
    return Log(arrival_ns, prompt, output, paths)


class Cluster(msgspec.Struct, frozen=True):
    """The engines of a replay: ``workers`` of them, all alike. ``tiers`` makes what each of them has below the GPU."""

    workers: int
    config: EngineConfig
    timing: StepTiming | BatchTiming
    prefix_caching: bool = True
    tiers: Callable[[int], Tiers] | None = None


@dataclass(slots=True)
class Replay:
    """What became of each request, in order of arrival, and of the engines."""

    policy: str
    finished: list[Finished | None]
    worker: list[int]
    busy_ns: list[int]
    receipts: list[Receipt] = field(default_factory=list)

    @property
    def refused(self) -> int:
        """Requests that were not served: refused by the router or by an engine that could never hold them."""
        return sum(one is None or one.state != "finished" for one in self.finished)

    @property
    def served(self) -> list[Finished]:
        """The requests that were served."""
        return [one for one in self.finished if one is not None and one.state == "finished"]

    @property
    def reuse(self) -> float:
        """Share of the prompt tokens served that were found in a cache."""
        served = self.served
        return sum(one.cached_tokens for one in served) / max(1, sum(one.prompt_tokens for one in served))

    @property
    def ttft_ms(self) -> NDArray[np.float64]:
        """Times to first token of the requests served."""
        return np.array([one.ttft_ns or 0 for one in self.served], dtype=np.float64) / NS_PER_MS

    @property
    def tpot_ms(self) -> NDArray[np.float64]:
        """Mean times per output token of the requests served with more than one."""
        return np.array([one.tpot_ns for one in self.served if one.output_tokens > 1], dtype=np.float64) / NS_PER_MS

    @property
    def imbalance(self) -> float:
        """Busy time of the busiest engine over the mean; 1 is even."""
        return max(self.busy_ns) * len(self.busy_ns) / max(1, sum(self.busy_ns))


def replay(
    log: Log,
    cluster: Cluster,
    policy: Policy,
    *,
    event_lag_ns: int = 0,
    seed: int = 0,
    keep_receipts: bool = False,
    observe: Callable[[int], None] | None = None,
) -> Replay:
    """Play ``log`` on ``cluster`` under ``policy``. ``observe`` is called with the number of each request sent."""
    return _Player(log, cluster, policy, event_lag_ns, seed).play(keep_receipts, observe)


class _LateView:
    """What an engine's cache held some time ago."""

    def __init__(self, cache: PrefixCache, lag_ps: int) -> None:
        self._cache = cache
        self._lag_ps = lag_ps
        self._held = bytearray()
        self._pending: deque[tuple[bool, int, int, int]] = deque()

    def blocks(self, path: Path, now_ps: int) -> int:
        """Leading blocks of ``path`` that the events known at ``now_ps`` say are held."""
        self._pending.extend(self._cache.take_events())
        pending, known = self._pending, now_ps - self._lag_ps
        while pending and pending[0][3] <= known:
            stored, low, high, _ = pending.popleft()
            if high > len(self._held):
                self._held.extend(bytes(high + 65_536 - len(self._held)))
            self._held[low:high] = (b"\1" if stored else b"\0") * (high - low)
        found = 0
        for low, high in path:
            end = self._held.find(0, low, high)
            if end >= 0 or high > len(self._held):
                return found + max(0, min(high, len(self._held)) - low if end < 0 else end - low)
            found += high - low
        return found


class _Player:
    def __init__(self, log: Log, cluster: Cluster, policy: Policy, event_lag_ns: int, seed: int) -> None:
        self._log = log
        self._cluster = cluster
        self._policy = policy
        config = cluster.config
        self._engines = [
            Engine(
                config,
                cluster.timing,
                prefix_caching=cluster.prefix_caching,
                record_events=event_lag_ns > 0,
                tiers=cluster.tiers(index) if cluster.tiers is not None else None,
            )
            for index in range(cluster.workers)
        ]
        workers = [
            Worker(
                index,
                str(index),
                total_blocks=config.kv_blocks,
                block_size=config.block_size,
                max_num_batched_tokens=config.max_num_batched_tokens,
                max_num_seqs=config.max_num_seqs,
            )
            for index in range(cluster.workers)
        ]
        self._router = Router(policy, workers, rng=Random(seed))
        self._views: list[_LateView] = []
        if event_lag_ns > 0 and cluster.prefix_caching:
            caches = [engine.cache for engine in self._engines]
            self._views = [_LateView(cache, event_lag_ns * PS_PER_NS) for cache in caches if cache is not None]
        self._changes: list[int | None] = [None] * cluster.workers
        self._finished: list[Finished | None] = [None] * len(log)

    def play(self, keep_receipts: bool, observe: Callable[[int], None] | None) -> Replay:
        log, engines, router = self._log, self._engines, self._router
        paths = log.paths or [()] * len(log)
        sessions = log.sessions or [None] * len(log)
        chosen: list[int] = []
        receipts: list[Receipt] = []
        for number, (at, prompt, output) in enumerate(zip(log.arrival_ns, log.prompt, log.output, strict=True)):
            self._advance(at)
            path = paths[number]
            request = RouteRequest(number, at, prompt, length(path), path, output, sessions[number])
            receipt = router.route(request, self._overlap(path, at), at)
            chosen.append(receipt.worker)
            if keep_receipts:
                receipts.append(receipt)
            if not receipt.refused:
                engine = engines[receipt.worker]
                engine.submit(number, at, prompt, output, path=path)
                self._changes[receipt.worker] = engine.next_change_ns()
                self._collect(receipt.worker)
            if observe is not None:
                observe(number)
        while any(change is not None for change in self._changes):
            self._advance(min(change for change in self._changes if change is not None))
        busy = [engine.busy_ns for engine in engines]
        return Replay(self._policy.name, self._finished, chosen, busy, receipts)

    def _overlap(self, path: Path, now_ns: int) -> Overlap:
        if not path or not self._cluster.prefix_caching:
            return Overlap()
        if self._views:
            held = [view.blocks(path, now_ns * PS_PER_NS) for view in self._views]
        else:
            most = length(path)
            held = [e.cache.match(path, most)[0] for e in self._engines if e.cache is not None]
        return Overlap({index: blocks for index, blocks in enumerate(held) if blocks})

    def _advance(self, now_ns: int) -> None:
        """Bring every engine that has work to ``now_ns`` and tell the router what happened, in order of time."""
        news: list[tuple[int, int, bool]] = []  # (when, request, ended)
        for index, change in enumerate(self._changes):
            if change is None:
                continue
            engine = self._engines[index]
            engine.advance(now_ns)
            if change <= now_ns:
                self._changes[index] = engine.next_change_ns()
                self._gather(engine, news)
        news.sort()
        for at, number, ended in news:
            if ended:
                self._router.ended(number, at)
            else:
                self._router.first_token(number, at)

    def _collect(self, index: int) -> None:
        """A request that can never fit ends at once."""
        news: list[tuple[int, int, bool]] = []
        self._gather(self._engines[index], news)
        for at, number, _ in news:
            self._router.ended(number, at)

    def _gather(self, engine: Engine, news: list[tuple[int, int, bool]]) -> None:
        news.extend((at, number, False) for number, _, at in engine.take_first_tokens())
        for done in engine.take_finished():
            self._finished[done.request_id] = done
            news.append((done.finish_ns, done.request_id, True))
