"""The tiers below an engine's GPU: what goes down, what comes back up, and when it is better to compute again.

Rules, as in Dynamo's KV block manager (ai-dynamo/dynamo docs/components/kvbm, lib/llm/src/block_manager/offload):

- Blocks are written down as soon as the GPU's cache has them (``fill`` through), or when the tier above evicts them
  (spill). A write takes its time, one after another in each tier, and the blocks cannot be read before it ends; if
  the GPU gives them up earlier and no tier above has them, they are lost.
- A tier takes in blocks that were used often enough: 1 at first, doubled whenever the GPU's cache gets them again
  (out of a lower tier, or recomputed), less 1 each decay step.
- Each tier evicts the least recently used. A prompt's blocks count as used in every tier that has them.
- A prompt's blocks behind those on the GPU come from the fastest tier that has each. They are copied only as far as
  that is quicker than computing them.

Not modelled: engines that read a shared tier at the same time do not slow each other down.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import isinf
from typing import NamedTuple, TypeAlias

from tonnage.inference.prompts import Path, length
from tonnage.inference.tiers.ranges import Frequencies, HeldBlocks
from tonnage.inference.tiers.specs import TierSpec
from tonnage.inference.timing import PS_PER_NS, TICKS_PER_PS, BatchTiming, StepTiming, StepWork, prompt_work
from tonnage.units import NS_PER_S

_PS_PER_S = 1_000_000_000_000
_S_PER_PS = 1e-12

ENDLESS = 1 << 62
"""Blocks of an unlimited tier."""

HOST = "host"
"""The name of the tier in host memory."""

RecomputeTime: TypeAlias = Callable[[int, int], int]
"""ps to compute the prompt's blocks from the first number to the second."""

DECAY_NS = 600 * NS_PER_S
"""A decay step of the frequencies. Source: ai-dynamo/dynamo lib/bindings/kvbm/src/block_manager.rs."""


class HostAndDisk(NamedTuple):
    """Something of the tiers as a router sees them: host memory, and everything below it."""

    host: int
    disk: int


class Tier:
    """One tier, of one engine or shared by several, for KV blocks of ``block_bytes`` bytes.

    The counters are blocks: ``read`` by engines, ``written``, ``evicted`` for want of room, ``lost`` because their
    only copy went before they were written.
    """

    __slots__ = (
        "evicted", "frequencies", "held", "latency_ps", "lost", "read", "read_ps", "spec", "write_ps", "writing_until",
        "written",
    )  # fmt: skip

    def __init__(self, spec: TierSpec, block_bytes: int) -> None:
        if block_bytes < 1:
            raise ValueError("a KV block has at least one byte")
        self.spec = spec
        self.held = HeldBlocks(spec.blocks)
        self.frequencies = Frequencies() if spec.min_frequency > 1 else None
        self.latency_ps = spec.latency_ns * PS_PER_NS
        self.read_ps = _transfer_ps(block_bytes, spec.read_bytes_per_s)
        self.write_ps = _transfer_ps(block_bytes, spec.write_bytes_per_s)
        self.writing_until = 0
        self.read = self.written = self.evicted = self.lost = 0

    def admitted(self, low: int, high: int, step: int) -> list[tuple[int, int]]:
        """The parts of a range that were used often enough."""
        if self.frequencies is None:
            return [(low, high)]
        return list(self.frequencies.at_least(low, high, self.spec.min_frequency, step))

    def write(self, low: int, high: int, now: int, since: int) -> list[tuple[int, int]]:
        """Take in what is not here yet; all count as used, and those from ``since`` on. Returns what had to go."""
        missing = sum(end - start for start, end in self.held.gaps(low, high))
        ready = now
        if missing:
            start = max(now, self.writing_until)
            self.writing_until = start + missing * self.write_ps
            ready = self.writing_until + self.latency_ps
            self.written += missing
        gone = self.held.add(low, high, ready, now, since)
        self.evicted += sum(end - start for start, end in gone)
        return gone


class Tiers:
    """The tiers of one engine, fastest first; pass the same ``Tier`` to several engines to share it.

    ``recompute`` says what computing blocks of a prompt takes. Tiers without room are left out.
    """

    def __init__(self, tiers: Sequence[Tier], recompute: RecomputeTime, *, decay_ns: int = DECAY_NS) -> None:
        if decay_ns < 1:
            raise ValueError("a decay step takes time")
        self.tiers = tuple(tier for tier in tiers if tier.spec.blocks != 0)
        self.loaded_blocks = 0
        self.loaded_ps = 0
        self.refused_blocks = 0  # found, but computing them was quicker
        self._offer: tuple[Path, list[tuple[Tier, int]], int, int, int] | None = None
        self._run = (0, 0)  # what was stored since the last load, as far as it is one range
        self._recompute = recompute
        self._decay_ps = decay_ns * PS_PER_NS
        self._now = 0

    def load(self, path: Path, have_blocks: int, now_ns: int, most: int | None = None) -> tuple[int, int]:
        """Bring up blocks behind the first ``have_blocks`` of ``path``, which the GPU has.

        Returns how many to copy and the time in ps that it takes; (0, 0) if there are none or computing them is
        quicker. ``most`` caps how many blocks of the path the GPU may have then: a prompt's last token is always
        computed. The same path asked for again at once, as by a request that had to wait, counts once.
        """
        self._now = now_ns * PS_PER_NS
        self._run = (0, 0)
        if self._offer is not None and self._offer[0] is path:
            self._count(self._offer, -1)
        total = length(path)
        end = total if most is None else min(most, total)
        parts = self._found(path, have_blocks, end, self._now)
        blocks, copy_ps = self._worthwhile(parts, have_blocks, total)
        found = sum(size for _, size in parts)
        self._offer = (path, parts, blocks, copy_ps, found - blocks)
        self._count(self._offer, 1)
        self._touch(path, have_blocks + blocks)
        return blocks, copy_ps

    def held(self, path: Path, have_blocks: int, now_ns: int | None = None) -> HostAndDisk:
        """Blocks behind the first ``have_blocks`` of ``path`` that can be read without a gap, by the tier they are in.

        The tier called host is host memory; disk is all others, remote ones too. Nothing is loaded, counted or touched.
        Without ``now_ns`` it is the time of the last call.
        """
        now = self._now if now_ns is None else now_ns * PS_PER_NS
        host = disk = 0
        for tier, blocks in self._found(path, have_blocks, length(path), now):
            if tier.spec.name == HOST:
                host += blocks
            else:
                disk += blocks
        return HostAndDisk(host, disk)

    def block_s(self) -> tuple[float | None, float | None]:
        """Seconds to bring one block up from host memory and from disk, as ``held`` has them; None without such a tier.

        Latencies are left out, which are paid once a prompt. Of several tiers that count as disk it is the slowest.
        """
        host = [tier.read_ps for tier in self.tiers if tier.spec.name == HOST]
        disk = [tier.read_ps for tier in self.tiers if tier.spec.name != HOST]
        return (max(host) * _S_PER_PS if host else None, max(disk) * _S_PER_PS if disk else None)

    @property
    def most_blocks(self) -> int:
        """Blocks that the largest tier holds: 0 without one, ``ENDLESS`` for an unlimited one."""
        return max((ENDLESS if tier.spec.blocks is None else tier.spec.blocks for tier in self.tiers), default=0)

    def stored(self, low: int, high: int, now_ns: int | None = None) -> None:
        """The GPU's cache has these blocks now. Without ``now_ns`` it is the time of the last call.

        What is stored between two loads belongs to one prompt, which is computed chunk by chunk.
        """
        self._advance(now_ns)
        since = self._run[0] if self._run[1] == low else low
        self._run = (since, high)
        step = self._now // self._decay_ps
        for tier in self.tiers:
            if tier.frequencies is not None:
                tier.frequencies.use(low, high, step)
        for index, tier in enumerate(self.tiers):
            if tier.spec.fill == "through":
                for start, end in tier.admitted(low, high, step):
                    self._write(index, start, end, since)

    def evicted(self, low: int, high: int, now_ns: int | None = None) -> None:
        """The GPU's cache has these blocks no more. Without ``now_ns`` it is the time of the last call."""
        self._advance(now_ns)
        self._lose_unwritten(low, high)
        if self.tiers and self.tiers[0].spec.fill == "spill":
            self._spill(0, low, high)

    def _count(self, offer: tuple[Path, list[tuple[Tier, int]], int, int, int], sign: int) -> None:
        _, parts, blocks, copy_ps, refused = offer
        self.refused_blocks += sign * refused
        self.loaded_blocks += sign * blocks
        self.loaded_ps += sign * copy_ps
        for tier, size in parts:
            tier.read += sign * min(size, blocks)
            blocks -= min(size, blocks)

    def _advance(self, now_ns: int | None) -> None:
        if now_ns is not None:
            self._now = max(self._now, now_ns * PS_PER_NS)

    def _found(self, path: Path, start: int, stop: int, now: int) -> list[tuple[Tier, int]]:
        """The blocks from ``start`` on that can be loaded without a gap at ``now`` ps, as (tier, how many) in order."""
        parts: list[tuple[Tier, int]] = []
        position = 0
        for low, high in path:
            size = high - low
            at, end = low + max(0, start - position), low + min(size, stop - position)
            position += size
            while at < end:
                for tier in self.tiers:
                    reached = tier.held.reach(at, end, now)
                    if reached > at:
                        break
                else:
                    return parts
                if parts and parts[-1][0] is tier:
                    parts[-1] = (tier, parts[-1][1] + reached - at)
                else:
                    parts.append((tier, reached - at))
                at = reached
            if position >= stop:
                break
        return parts

    def _worthwhile(self, parts: list[tuple[Tier, int]], have: int, total: int) -> tuple[int, int]:
        """As many of the parts, from the first on, as save the most time: (blocks, ps of the copy)."""
        best = (0, 0)
        if not parts:
            return best
        longest = self._recompute(have, total)
        most_saved = 0
        blocks = copy_ps = 0
        started: set[int] = set()
        for tier, size in parts:
            blocks += size
            copy_ps += size * tier.read_ps
            if id(tier) not in started:
                started.add(id(tier))
                copy_ps += tier.latency_ps
            saved = longest - self._recompute(have + blocks, total) - copy_ps
            if saved > most_saved:
                most_saved, best = saved, (blocks, copy_ps)
        return best

    def _touch(self, path: Path, stop: int) -> None:
        """The first blocks of a path were used; of one prompt the last is the first to go."""
        inside: list[tuple[int, int]] = []
        for low, high in path:
            if stop <= 0:
                break
            inside.append((low, min(high, low + stop)))
            stop -= high - low
        for low, high in reversed(inside):
            for tier in self.tiers:
                tier.held.touch(low, high, self._now)

    def _write(self, index: int, low: int, high: int, since: int) -> None:
        for start, end in self.tiers[index].write(low, high, self._now, since):
            self._spill(index + 1, start, end)

    def _spill(self, index: int, low: int, high: int) -> None:
        """What a tier evicts goes to the one below if that is filled so; else it is gone."""
        if index >= len(self.tiers) or self.tiers[index].spec.fill != "spill":
            return
        for start, end in self.tiers[index].admitted(low, high, self._now // self._decay_ps):
            self._write(index, start, end, start)

    def _lose_unwritten(self, low: int, high: int) -> None:
        """Writes that have not ended lose their source, unless a tier above has the blocks."""
        pieces = [(low, high)]
        for tier in self.tiers:
            if tier.spec.fill == "through" and not tier.spec.shared:
                for start, end in pieces:
                    tier.lost += tier.held.drop_unready(start, end, self._now)
            pieces = [gap for start, end in pieces for gap in tier.held.gaps(start, end)]
            if not pieces:
                return


def recompute_time(timing: StepTiming | BatchTiming, block_size: int) -> RecomputeTime:
    """What computing blocks of a prompt adds to a step that runs anyway, with the engine's own step times."""
    if isinstance(timing, StepTiming):
        window = timing.window
        base = timing.step(StepWork(prompts=1, tokens=1))

        def by_step(first: int, last: int) -> int:
            before, new = first * block_size, (last - first) * block_size
            work = prompt_work(new, before, window)._replace(tokens=new + 1)
            return (timing.step(work) - base) // TICKS_PER_PS if new else 0

        return by_step
    prefill_ps = timing.prefill_ps
    least = prefill_ps(1, 1, 0)

    def by_batch(first: int, last: int) -> int:
        return prefill_ps(1, last * block_size + 1, first * block_size) - least

    return by_batch


def _transfer_ps(size: int, bytes_per_s: float) -> int:
    return 0 if isinf(bytes_per_s) else round(size * _PS_PER_S / bytes_per_s)
