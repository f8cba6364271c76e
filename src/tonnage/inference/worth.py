"""What KV tiers are worth on a log: the same requests with the GPU's cache alone, then with one tier more each time.

The money is that of the requests played: GPU time not spent on computing prompts again, at the price of the engine's
GPUs, less what the tiers cost over the same time. GPU time is worth its price only where the engines saved can be
given back or used otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import dataclass

import msgspec
import numpy as np

from tonnage.inference.engine import EngineConfig
from tonnage.inference.replay import Log, Replay, ReplayWorkers, replay
from tonnage.inference.replay.reuse import reuse_bound
from tonnage.inference.routing.policies import RoundRobin, RoutingPolicy
from tonnage.inference.tiers import Tier, TierFinding, Tiers, TierSpec, find, recompute_time
from tonnage.inference.timing import BatchTiming, StepTiming
from tonnage.units import GIB, MICRO_PER_USD, NS_PER_HOUR

UNBOUNDED = TierSpec("unbounded, free")
"""An unlimited tier that costs neither time nor money: no tiers do better with the same engines."""


@dataclass(frozen=True, slots=True)
class Setup:
    """Engines that are all alike. ``block_bytes`` is what one KV block is long, on all GPUs of an engine together;
    ``seed`` is that of the router's draws."""

    workers: int
    config: EngineConfig
    timing: StepTiming | BatchTiming
    block_bytes: int
    micro_usd_per_engine_hour: int = 0
    policy: Callable[[], RoutingPolicy] = RoundRobin
    seed: int = 0


class Times(msgspec.Struct, frozen=True):
    """Milliseconds."""

    mean: float
    p50: float
    p99: float


class TierUse(msgspec.Struct, frozen=True):
    """What one tier did, on all engines together, in blocks; ``usd`` is what it cost."""

    name: str
    blocks: int | None
    held: int
    read: int
    written: int
    evicted: int
    lost: int
    usd: float


class TierWorth(msgspec.Struct, frozen=True):
    """One setting. ``reuse`` is the share of prompt tokens that were not computed; ``engine_hours`` is the time with a
    step in flight; ``saved_usd`` is what of it was saved against the GPU's cache alone, ``net_usd`` that less
    ``tier_usd``; ``refused``: requests that were not served; ``recomputed``: blocks that a tier had and that were
    recomputed because that was quicker."""

    tiers: list[str]
    reuse: float
    ttft_ms: Times
    engine_hours: float
    saved_usd: float
    tier_usd: float
    net_usd: float
    refused: int
    recomputed: int
    uses: list[TierUse]


class Bound(msgspec.Struct, frozen=True):
    """Reuse with unlimited caches, as a share of tokens and of blocks: each worker its own, or one for all."""

    own: float
    own_blocks: float
    shared: float
    shared_blocks: float


class TierValuation(msgspec.Struct, frozen=True):
    """``settings``: the GPU alone, then one tier more each, last the unbounded free one. ``hours`` were played."""

    requests: int
    hours: float
    workers: int
    bound: Bound
    settings: list[TierWorth]
    findings: list[str]


def value(
    log: Log,
    setup: Setup,
    specs: Sequence[TierSpec],
    observe: Callable[[int], None] | None = None,
) -> TierValuation:
    """Play ``log`` with more and more of the tiers ``specs``, fastest first.

    ``observe`` is called with the number of each request sent, in each setting. Raises ValueError for a log without
    content or without requests.
    """
    if not len(log) or not log.paths:
        raise ValueError("a log of requests with known content is needed")
    stacks = [list(specs[:count]) for count in range(len(specs) + 1)]
    stacks.append([msgspec.structs.replace(UNBOUNDED, shared=any(spec.shared for spec in specs))])
    settings: list[TierWorth] = []
    alone_ns = 0
    hours = 0.0
    for stack in stacks:
        played, built = _play(log, setup, stack, observe)
        busy = sum(played.busy_ns)
        if not settings:
            alone_ns = busy
        ended = max((one.finish_ns for one in played.served), default=log.arrival_ns[-1])
        span_hours = (ended - log.arrival_ns[0]) / NS_PER_HOUR
        hours = max(hours, span_hours)
        settings.append(_worth(stack, setup, played, built, alone_ns - busy, span_hours))
    block = setup.config.block_size
    own, shared = reuse_bound(log, block, setup.workers), reuse_bound(log, block)
    bound = Bound(own.token_share, own.block_share, shared.token_share, shared.block_share)
    found: list[TierFinding] = find(setup.config.kv_blocks, specs, setup.workers)
    return TierValuation(len(log), hours, setup.workers, bound, settings, [str(one) for one in found])


@dataclass(slots=True)
class _Built:
    """The tiers of a replay: by place in the stack, each once; and the stacks of the engines."""

    levels: list[list[Tier]]
    stacks: list[Tiers]


def _play(
    log: Log, setup: Setup, specs: Sequence[TierSpec], observe: Callable[[int], None] | None
) -> tuple[Replay, _Built]:
    # A copy: what tiers ask a table of step times is not what the engines did.
    recompute = recompute_time(deepcopy(setup.timing), setup.config.block_size)
    built = _Built([[] for _ in specs], [])

    def stack(_: int) -> Tiers:
        mine: list[Tier] = []
        for spec, level in zip(specs, built.levels, strict=True):
            if not (spec.shared and level):
                level.append(Tier(spec, setup.block_bytes))
            mine.append(level[-1])
        made = Tiers(mine, recompute)
        built.stacks.append(made)
        return made

    cluster = ReplayWorkers(setup.workers, setup.config, setup.timing, tiers=stack if specs else None)
    return replay(log, cluster, setup.policy(), seed=setup.seed, observe=observe), built


def _worth(
    specs: Sequence[TierSpec], setup: Setup, played: Replay, built: _Built, saved_ns: int, hours: float
) -> TierWorth:
    uses = [_use(spec, level, setup.block_bytes, hours) for spec, level in zip(specs, built.levels, strict=True)]
    saved = saved_ns / NS_PER_HOUR * setup.micro_usd_per_engine_hour / MICRO_PER_USD
    cost = sum(use.usd for use in uses)
    return TierWorth(
        tiers=[spec.name for spec in specs],
        reuse=played.reuse,
        ttft_ms=_times(played),
        engine_hours=sum(played.busy_ns) / NS_PER_HOUR,
        saved_usd=saved,
        tier_usd=cost,
        net_usd=saved - cost,
        refused=played.refused,
        recomputed=sum(stack.refused_blocks for stack in built.stacks),
        uses=uses,
    )


def _use(spec: TierSpec, level: Sequence[Tier], block_bytes: int, hours: float) -> TierUse:
    """An unlimited tier costs what it came to hold."""
    held = sum(tier.held.blocks for tier in level)
    read, written = sum(tier.read for tier in level), sum(tier.written for tier in level)
    capacity = held if spec.blocks is None else spec.blocks * len(level)
    micro = (
        capacity * hours * spec.micro_usd_per_gib_hour
        + read * spec.micro_usd_per_gib_read
        + written * spec.micro_usd_per_gib_written
    )
    evicted, lost = sum(tier.evicted for tier in level), sum(tier.lost for tier in level)
    usd = micro * block_bytes / GIB / MICRO_PER_USD
    return TierUse(spec.name, spec.blocks, held, read, written, evicted, lost, usd)


def _times(played: Replay) -> Times:
    times = played.ttft_ms
    if not len(times):
        return Times(0.0, 0.0, 0.0)
    p50, p99 = np.percentile(times, (50, 99))
    return Times(float(times.mean()), float(p50), float(p99))
