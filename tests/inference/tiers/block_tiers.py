"""The tiers again, one block at a time: slow and plain, to check the ranges against."""

from __future__ import annotations

from collections import OrderedDict

from tonnage.inference.tiers import TierSpec

NS = 1_000


class BlockTier:
    def __init__(self, spec: TierSpec, write_ps: int) -> None:
        self.spec = spec
        self.ready: OrderedDict[int, int] = OrderedDict()  # least recently used first
        self.counts: dict[int, tuple[int, int]] = {}
        self.write_ps = write_ps
        self.writing_until = 0
        self.written = self.evicted = self.lost = self.read = 0

    def use(self, block: int, step: int) -> None:
        value, seen = self.counts.get(block, (0, step))
        value -= step - seen
        self.counts[block] = (2 * value if value > 0 else 1, step)

    def admits(self, block: int, step: int) -> bool:
        if self.spec.min_frequency == 1:
            return True
        value, seen = self.counts.get(block, (0, step))
        return value - (step - seen) >= self.spec.min_frequency

    def touch(self, low: int, high: int) -> None:
        for block in reversed(range(low, high)):
            if block in self.ready:
                self.ready.move_to_end(block)

    def write(self, low: int, high: int, now: int, since: int) -> list[int]:
        missing = [block for block in range(low, high) if block not in self.ready]
        if missing:
            self.writing_until = max(now, self.writing_until) + len(missing) * self.write_ps
        for block in missing:
            self.ready[block] = self.writing_until + self.spec.latency_ns * NS
        self.written += len(missing)
        self.touch(since, high)
        gone = []
        while self.spec.blocks is not None and len(self.ready) > self.spec.blocks:
            gone.append(self.ready.popitem(last=False)[0])
        self.evicted += len(gone)
        return gone


class BlockTiers:
    """As ``Tiers``; ``recompute_ps`` is what one block takes."""

    def __init__(self, tiers: list[BlockTier], read_ps: list[int], recompute_ps: int, decay_ps: int) -> None:
        self.tiers = tiers
        self.read_ps = read_ps
        self.recompute_ps = recompute_ps
        self.decay_ps = decay_ps
        self.now = 0
        self.run = (0, 0)

    def load(self, path: list[int], have: int, now_ns: int) -> tuple[int, int]:
        self.now = now_ns * NS
        self.run = (0, 0)
        sources: list[int] = []
        for block in path[have:]:
            source = next((i for i, tier in enumerate(self.tiers) if tier.ready.get(block, 1 << 62) <= self.now), None)
            if source is None:
                break
            sources.append(source)
        best, most_saved = (0, 0), 0
        for count in range(1, len(sources) + 1):
            if count < len(sources) and sources[count] == sources[count - 1]:
                continue  # only whole parts are considered
            latency = sum(self.tiers[source].spec.latency_ns * NS for source in set(sources[:count]))
            copy = latency + sum(self.read_ps[source] for source in sources[:count])
            saved = count * self.recompute_ps - copy
            if saved > most_saved:
                most_saved, best = saved, (count, copy)
        for source in sources[: best[0]]:
            self.tiers[source].read += 1
        for tier in self.tiers:
            for block in reversed(path[: have + best[0]]):
                tier.touch(block, block + 1)
        return best

    def held(self, path: list[int], have: int, now_ns: int) -> int:
        found = 0
        for block in path[have:]:
            if all(tier.ready.get(block, 1 << 62) > now_ns * NS for tier in self.tiers):
                break
            found += 1
        return found

    def stored(self, low: int, high: int) -> None:
        step = self.now // self.decay_ps
        self.run = (self.run[0] if self.run[1] == low else low, high)
        for tier in self.tiers:
            for block in range(low, high):
                tier.use(block, step)
        for index, tier in enumerate(self.tiers):
            if tier.spec.fill == "through":
                blocks = [block for block in range(low, high) if tier.admits(block, step)]
                self._write(index, blocks, self.run[0])

    def evicted(self, low: int, high: int) -> None:
        for block in range(low, high):
            for tier in self.tiers:
                if tier.spec.fill == "through" and tier.ready.get(block, 0) > self.now:
                    del tier.ready[block]
                    tier.lost += 1
                if block in tier.ready:
                    break
        if self.tiers and self.tiers[0].spec.fill == "spill":
            step = self.now // self.decay_ps
            self._write(0, [block for block in range(low, high) if self.tiers[0].admits(block, step)])

    def _write(self, index: int, blocks: list[int], since: int | None = None) -> None:
        for low, high in runs(blocks):
            gone = self.tiers[index].write(low, high, self.now, low if since is None else since)
            below = index + 1
            if below < len(self.tiers) and self.tiers[below].spec.fill == "spill":
                self.spill(below, gone)

    def spill(self, index: int, gone: list[int]) -> None:
        step = self.now // self.decay_ps
        for low, high in falling_runs(gone):
            self._write(index, [block for block in range(low, high) if self.tiers[index].admits(block, step)])


def runs(blocks: list[int]) -> list[tuple[int, int]]:
    """Ascending block numbers as ranges."""
    found: list[tuple[int, int]] = []
    for block in blocks:
        if found and found[-1][1] == block:
            found[-1] = (found[-1][0], block + 1)
        else:
            found.append((block, block + 1))
    return found


def falling_runs(blocks: list[int]) -> list[tuple[int, int]]:
    """Block numbers in order of eviction as ranges, each evicted from its end to its beginning."""
    found: list[tuple[int, int]] = []
    for block in blocks:
        if found and found[-1][0] == block + 1:
            found[-1] = (block, found[-1][1])
        else:
            found.append((block, block + 1))
    return found
