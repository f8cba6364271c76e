"""Who holds which blocks in which tier, by the engine's own hashes and by the index's keys."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import Literal

from tonnage.inference.index import hashes
from tonnage.inference.index.answers import EventCounts
from tonnage.inference.index.events import DEVICE, DISK, HOST
from tonnage.inference.index.held import TierHeld, WorkerHeld
from tonnage.inference.index.runs import Ranges, RunIndex
from tonnage.inference.index.workers import Slots

DEFAULT_BLOCKS = 1 << 20
"""Blocks kept for a worker and tier unless told otherwise; more than an engine's cache has."""

DEFAULT_ORPHANS = 1 << 14
"""Blocks of a worker that may wait for an unknown parent."""


class Holdings:
    """What :class:`KvIndex` keeps: workers, and the blocks that each holds in each tier."""

    def __init__(
        self,
        block_size: int,
        *,
        keys: Literal["tokens", "engine"] = "tokens",
        count_copies: bool = True,
        max_blocks: int = DEFAULT_BLOCKS,
        max_orphans: int = DEFAULT_ORPHANS,
        hash: hashes.Hash = hashes.default_hash,
    ) -> None:
        self.block_size = block_size
        self.max_blocks = max_blocks
        self.max_orphans = max_orphans
        self.count_copies = count_copies
        self.counts = EventCounts()
        self.slots = Slots()
        self._engine_keys = keys == "engine"
        self._hash = hash
        self._root = hashes.root(None, hash)
        self._tiers = (RunIndex(), RunIndex(), RunIndex())
        self._workers: dict[str, WorkerHeld] = {}
        self._coarse: dict[str, list[int]] = {}  # workers with larger blocks: how many of ours they are, by tier
        self.groups = self._tiers[DEVICE].groups

    # -- workers --------------------------------------------------------------------------------------------------

    def add_worker(self, name: str) -> int:
        """The worker's slot; it gets one unless it has one. Events add their worker by themselves."""
        slot = self.slots.add(name)
        if name not in self._workers:
            self._workers[name] = WorkerHeld(1 << slot, self.max_orphans, name)
        return slot

    def remove_worker(self, name: str) -> None:
        """Forget a worker; its slot is free for another. Unknown workers are not an error."""
        if name in self._workers:
            self.clear(name)
            del self._workers[name]
            self._coarse.pop(name, None)
            self.slots.release(name)

    def clear(self, name: str, tier: int | None = None) -> None:
        """The worker holds nothing any more (in one tier, or at all): restarted, or its cache was reset."""
        worker = self._workers.get(name)
        if worker is None:
            return
        self.counts.clears += 1
        for number in (DEVICE, HOST, DISK) if tier is None else (tier,):
            held = worker.tiers[number]
            self._tiers[number].clear(worker.bit, held.keys.values())
            held.clear()
            worker.units[number] = 1
        worker.parts.clear(tier)
        self._coarse.pop(name, None) if max(worker.units) == 1 else None
        if tier is None or tier == DEVICE:
            worker.orphans.clear()

    def __len__(self) -> int:
        """Distinct blocks over all tiers (a block in two tiers counts twice)."""
        return sum(map(len, self._tiers))

    def held(self, name: str, tier: int = DEVICE) -> int:
        """Blocks of a worker in a tier."""
        worker = self._workers.get(name)
        return len(worker.tiers[tier].keys) if worker is not None else 0

    # -- blocks ---------------------------------------------------------------------------------------------------

    def store(self, name: str, parent: int | None, keys: list[int], tier: int = DEVICE) -> None:
        """The worker holds this chain of keys, without an event: for callers whose keys are their own."""
        self.add_worker(name)
        worker = self._workers[name]
        self._commit(worker, tier, parent, keys, keys)

    def remove(self, name: str, keys: Sequence[int], tier: int = DEVICE) -> None:
        """The worker holds these keys no longer."""
        worker = self._workers.get(name)
        if worker is not None:
            self._release(worker, tier, keys, None)

    def _commit(self, worker: WorkerHeld, tier: int, parent: int | None, names: list[int], keys: list[int]) -> None:
        """The worker holds ``keys`` in this tier, which its engine calls ``names``."""
        self.counts.stored += len(keys)
        held = worker.tiers[tier]
        mine = held.keys
        known = None
        if not self._engine_keys and not (names[0] not in mine if len(names) == 1 else mine.keys().isdisjoint(names)):
            known = self._known_again(worker, tier, names, keys)
        index = self._tiers[tier]
        again = index.store(worker.bit, parent, keys)
        if index.contradicted:
            self.counts.contradicted += index.contradicted
            index.contradicted = 0
        if again:
            self._count_again(held, again, known, names, keys)
        if self._engine_keys:
            for key in reversed(keys):
                mine[key] = key
        else:
            for name, key in zip(reversed(names), reversed(keys), strict=True):
                mine[name] = key
        if len(mine) > self.max_blocks:
            self._trim(worker, tier)

    def _count_again(
        self, held: TierHeld, again: Ranges, known: set[int] | None, names: list[int], keys: list[int]
    ) -> None:
        """Blocks that the worker has already: another copy of the same engine hash, or another hash for the same."""
        mine = held.keys
        places = [at for low, high in again for at in range(low, high)]
        if known is None:
            known = set({names[at]: at for at in places if names[at] in mine}.values())  # one place of each
        for at in known:
            if self.count_copies:
                held.copies[names[at]] = held.copies.get(names[at], 0) + 1
            mine.pop(names[at], None)  # stored last now
        for at in places:
            if at not in known and not self._engine_keys:
                held.shared[keys[at]] = held.shared.get(keys[at], 0) + 1

    def _known_again(self, worker: WorkerHeld, tier: int, names: list[int], keys: list[int]) -> set[int]:
        """Places whose engine hash the worker holds with the same key. One with another key is released first: its
        engine uses the hash for something else now."""
        held = worker.tiers[tier]
        known = set()
        for at, (name, key) in enumerate(zip(names, keys, strict=True)):
            old = held.keys.get(name)
            if old == key:
                known.add(at)
            elif old is not None:
                _, free = held.release(name, 0)
                if free is not None:
                    self._tiers[tier].remove(worker.bit, [free])
        return known

    def _trim(self, worker: WorkerHeld, tier: int) -> None:
        held = worker.tiers[tier]
        excess = min(len(held.keys), len(held.keys) - self.max_blocks + self.max_blocks // 64)
        self.counts.over_cap += excess
        free = [held.release(name, 0)[1] for name in list(islice(held.keys, excess))]
        self._tiers[tier].remove(worker.bit, [key for key in free if key is not None])

    def _release(self, worker: WorkerHeld, tier: int, names: Sequence[int], left: Sequence[int] | None) -> None:
        held = worker.tiers[tier]
        free: list[int] = []
        if left is None and not held.copies and not held.shared:
            for name in names:
                key = held.keys.pop(name, None)
                if key is not None:
                    free.append(key)
                elif not (worker.orphans and worker.orphans.removed(name)):
                    self.counts.removed_unknown += 1
        else:
            for at, name in enumerate(names):
                known, key = held.release(name, left[at] if left is not None and at < len(left) else None)
                if key is not None:
                    free.append(key)
                elif not known and not (worker.orphans and worker.orphans.removed(name)):
                    self.counts.removed_unknown += 1
        if free:
            self.counts.removed += len(free)
            self._tiers[tier].remove(worker.bit, free)
