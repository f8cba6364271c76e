"""Plays a log of requests on engines behind a router, in virtual time: what `tonnage route replay` shows.

Requests arrive as they did, whatever becomes of them (open loop). At each decision the router knows which requests have
their first token or ended by then, as it would from the streams. What the caches hold it learns from their events,
``event_lag_ns`` late; without lag it sees the caches themselves, and the tiers below the GPUs always. How many tokens a
request will generate it does not know, unless told to.

Engines are brought to the time of an arrival as far as the policy looks (``Policy.looks``): all of them where it looks
at caches; where it looks at load, those of which there is news, and the one that is chosen; where it looks at neither,
none before the end.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Protocol, TypeAlias

import msgspec
import numpy as np
from numpy.typing import NDArray

from tonnage.errors import InputError
from tonnage.inference.engine import Engine, EngineConfig
from tonnage.inference.engine.prefix_cache import PrefixCache
from tonnage.inference.engine.requests import Finished
from tonnage.inference.prompts import BlockNames, Path, length
from tonnage.inference.routing.overlap import overlap_of
from tonnage.inference.routing.policies import RoutingPolicy
from tonnage.inference.routing.router import Router
from tonnage.inference.routing.types import NOTHING_CACHED, Overlap, Receipt, RouteRequest, Worker
from tonnage.inference.tiers import Tiers
from tonnage.inference.timing import PS_PER_NS, BatchTiming, StepTiming
from tonnage.units import NS_PER_MS

_FOREVER_NS = 1 << 60  # some 36 years


@dataclass(frozen=True, slots=True)
class Log:
    """Requests in order of arrival, one element of each sequence a request; ``paths`` is empty without content.

    Times in ns; ``prompt`` and ``output`` in tokens; ``sessions`` and ``priorities`` (higher first) may be empty.
    """

    arrival_ns: Sequence[int]
    prompt: Sequence[int]
    output: Sequence[int]
    paths: Sequence[Path] = ()
    sessions: Sequence[str | None] = ()
    priorities: Sequence[int] = ()

    def __len__(self) -> int:
        return len(self.arrival_ns)


Integers: TypeAlias = Sequence[int] | NDArray[np.integer]
"""A column of a trace."""


class Traced(Protocol):
    """A trace as it was read: a column each, in order of arrival. ``hashes`` stand for ``hash_block`` tokens each."""

    @property
    def arrivals_ns(self) -> Integers: ...
    @property
    def prompt(self) -> Integers: ...
    @property
    def output(self) -> Integers: ...
    @property
    def hashes(self) -> Sequence[Sequence[int]] | None: ...
    @property
    def hash_block(self) -> int: ...


def log_of(trace: Traced, block_size: int) -> Log:
    """The requests of a trace, their blocks of ``block_size`` tokens numbered where the trace tells their content.

    Raises InputError where a hash does not stand for whole blocks.
    """
    paths: list[Path] = []
    prompt = _plain(trace.prompt)
    if trace.hashes is not None and block_size % trace.hash_block == 0:
        names, some = BlockNames(block_size, block_size), block_size // trace.hash_block
        paths = [names.path(one[some - 1 :: some], tokens) for one, tokens in zip(trace.hashes, prompt, strict=True)]
    elif trace.hashes is not None:
        if trace.hash_block % block_size:
            raise InputError.at(
                f"--block-size is {block_size}, but a hash of {getattr(trace, 'source', 'the trace')} stands for "
                f"{trace.hash_block} tokens",
                field="--block-size",
                hint=f"use a divisor or a multiple of {trace.hash_block}",
            )
        names = BlockNames(block_size, trace.hash_block)
        paths = [names.path(one, tokens) for one, tokens in zip(trace.hashes, prompt, strict=True)]
    return Log(_plain(trace.arrivals_ns), prompt, _plain(trace.output), paths)


def _plain(column: Integers) -> Sequence[int]:
    return column.tolist() if isinstance(column, np.ndarray) else column


class ReplayWorkers(msgspec.Struct, frozen=True):
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
    cluster: ReplayWorkers,
    policy: RoutingPolicy,
    *,
    event_lag_ns: int = 0,
    seed: int = 0,
    known_outputs: bool = False,
    keep_receipts: bool = False,
    observe: Callable[[int], None] | None = None,
) -> Replay:
    """Play ``log`` on ``cluster`` under ``policy``. ``observe`` is called with the number of each request sent.

    With ``known_outputs`` the router is told how many tokens each request will generate, which no router can know.
    """
    return _Player(log, cluster, policy, event_lag_ns, seed).play(known_outputs, keep_receipts, observe)


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


class _Held(Mapping[int, int]):
    """Leading blocks of a prompt that engines hold, by index, none being absent; each is looked up when asked for."""

    __slots__ = ("_known", "_look", "_workers")

    def __init__(self, workers: int, look: Callable[[int], int]) -> None:
        self._known: dict[int, int] = {}
        self._look = look
        self._workers = workers

    def __getitem__(self, index: int) -> int:
        held = self._known.get(index)
        if held is None:
            held = self._known[index] = self._look(index) if 0 <= index < self._workers else 0
        if not held:
            raise KeyError(index)
        return held

    def __iter__(self) -> Iterator[int]:
        return (index for index in range(self._workers) if index in self)

    def __len__(self) -> int:
        return sum(1 for _ in self)


class _Player:
    def __init__(self, log: Log, cluster: ReplayWorkers, policy: RoutingPolicy, event_lag_ns: int, seed: int) -> None:
        self._log = log
        self._cluster = cluster
        self._policy = policy
        config = cluster.config
        self._tiers: dict[int, Tiers] = {}
        if cluster.tiers is not None:
            self._tiers = {index: cluster.tiers(index) for index in range(cluster.workers)}
        self._engines = [
            Engine(
                config,
                cluster.timing,
                prefix_caching=cluster.prefix_caching,
                record_events=event_lag_ns > 0,
                tiers=self._tiers.get(index),
            )
            for index in range(cluster.workers)
        ]
        workers = [_worker(index, config, self._tiers.get(index)) for index in range(cluster.workers)]
        self._rng = Random(seed)
        self._router = Router(policy, workers, self._rng)
        self._views: list[_LateView] = []
        if event_lag_ns > 0 and cluster.prefix_caching:
            caches = [engine.cache for engine in self._engines]
            self._views = [_LateView(cache, event_lag_ns * PS_PER_NS) for cache in caches if cache is not None]
        # Engines that share a tier, or whose events are read, go on side by side.
        self._together = policy.looks == "caches" or bool(self._tiers) or event_lag_ns > 0
        self._changes: list[int | None] = [None] * cluster.workers
        self._finished: list[Finished | None] = [None] * len(log)

    def play(self, known_outputs: bool, keep_receipts: bool, observe: Callable[[int], None] | None) -> Replay:
        chosen: list[int] = []
        receipts: list[Receipt] = []
        unseen = self._policy.looks == "nothing" and not (self._together or keep_receipts)
        for request, output in self._requests(known_outputs):
            if unseen:
                chosen.append(self._send_unseen(request, output))
            else:
                receipt = self._send(request, output)
                chosen.append(receipt.worker)
                if keep_receipts:
                    receipts.append(receipt)
            if observe is not None:
                observe(request.request_id)
        if unseen:
            self._end_unseen()
        while any(change is not None for change in self._changes):
            self._advance(min(change for change in self._changes if change is not None))
        busy = [engine.busy_ns for engine in self._engines]
        return Replay(self._policy.name, self._finished, chosen, busy, receipts)

    def _requests(self, known_outputs: bool) -> Iterator[tuple[RouteRequest, int]]:
        """Each request as the router sees it, and the tokens that it will generate."""
        log = self._log
        paths = log.paths or [()] * len(log)
        sessions = log.sessions or [None] * len(log)
        priorities = log.priorities or [0] * len(log)
        columns = (log.arrival_ns, log.prompt, log.output, paths, sessions, priorities)
        for number, (at, prompt, output, path, session, priority) in enumerate(zip(*columns, strict=True)):
            expected = output if known_outputs else None
            yield RouteRequest(number, at, prompt, length(path), path, expected, session, priority), output

    def _send(self, request: RouteRequest, output: int) -> Receipt:
        at = request.arrival_ns
        self._advance(at)
        receipt = self._router.route(request, self._overlap(request.path, at), at)
        if receipt.refused:
            return receipt
        engine = self._at(receipt.worker, at)
        engine.submit(request.request_id, at, request.prompt_tokens, output, request.engine_priority, request.path)
        self._changes[receipt.worker] = engine.next_change_ns()
        self._collect(receipt.worker)
        return receipt

    def _send_unseen(self, request: RouteRequest, output: int) -> int:
        """What ``_send`` does where nobody asks what became of the requests before: the worker."""
        router, at = self._router, request.arrival_ns
        policy = self._policy
        choice = policy.choose(request, NOTHING_CACHED, router.candidates(request), router.book, at, self._rng)
        policy.dispatched(request, choice, at)
        self._engines[choice.worker].submit(
            request.request_id, at, request.prompt_tokens, output, request.engine_priority, request.path
        )
        return choice.worker

    def _end_unseen(self) -> None:
        for engine in self._engines:
            engine.advance(_FOREVER_NS)
            for done in engine.take_finished():
                self._finished[done.request_id] = done

    def _at(self, index: int, now_ns: int) -> Engine:
        """An engine of which there is no news until ``now_ns``, as it is then."""
        engine = self._engines[index]
        if self._changes[index] is not None and engine.now_ns < now_ns:
            engine.advance(now_ns)
        return engine

    def _overlap(self, path: Path, now_ns: int) -> Overlap:
        if not path or not self._cluster.prefix_caching:
            return NOTHING_CACHED
        most = length(path)
        if not self._together:
            return Overlap(_Held(len(self._engines), lambda index: _held(self._at(index, now_ns), path, most)))
        if self._views:
            held = [view.blocks(path, now_ns * PS_PER_NS) for view in self._views]
        else:
            held = [_held(engine, path, most) for engine in self._engines]
        return overlap_of(path, dict(enumerate(held)), self._tiers, now_ns)

    def _advance(self, now_ns: int) -> None:
        """Bring engines that have work, or news at least, to ``now_ns``; tell the router what happened, in order."""
        news: list[tuple[int, int, bool]] = []  # (when, request, ended)
        together = self._together
        for index, change in enumerate(self._changes):
            if change is None or not (together or change <= now_ns):
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


def _held(engine: Engine, path: Path, most: int) -> int:
    """Leading blocks of ``path``, of which there are ``most``, in the engine's cache."""
    return engine.cache.match(path, most)[0] if engine.cache is not None else 0


def _worker(index: int, config: EngineConfig, tiers: Tiers | None) -> Worker:
    host_s, disk_s = tiers.block_s() if tiers is not None else (None, None)
    return Worker(
        index,
        str(index),
        total_blocks=config.kv_blocks,
        block_size=config.block_size,
        max_num_batched_tokens=config.max_num_batched_tokens,
        max_num_seqs=config.max_num_seqs,
        host_block_s=host_s,
        disk_block_s=disk_s,
        lower_blocks=tiers.most_blocks if tiers is not None else 0,
    )
