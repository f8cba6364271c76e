"""Events into the exact index: blocks that workers store, remove and clear, and everything odd about them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import Literal

import msgspec

from tonnage.inference.index import hashes
from tonnage.inference.index.answers import Counts
from tonnage.inference.index.events import (
    DEVICE,
    DISK,
    HOST,
    Batch,
    BlockRemoved,
    BlockStored,
    Event,
    tier_of,
)
from tonnage.inference.index.held import Pending, TierHeld, WorkerHeld
from tonnage.inference.index.runs import Ranges, RunIndex
from tonnage.inference.index.workers import Slots

DEFAULT_BLOCKS = 1 << 20
"""Blocks kept for a worker and tier unless told otherwise; more than an engine's cache has."""

DEFAULT_ORPHANS = 1 << 14
"""Blocks of a worker that may wait for an unknown parent."""


class EventIndex:
    """What :class:`KvIndex` keeps, and how events change it."""

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
        self.counts = Counts()
        self.slots = Slots()
        self._engine_keys = keys == "engine"
        self._hash = hash
        self._root = hashes.root(None, hash)
        self._tiers = (RunIndex(), RunIndex(), RunIndex())
        self._workers: dict[str, WorkerHeld] = {}
        self.groups = self._tiers[DEVICE].groups

    # -- workers --------------------------------------------------------------------------------------------------

    def add_worker(self, name: str) -> int:
        """The worker's slot; it gets one unless it has one. Events add their worker by themselves."""
        slot = self.slots.add(name)
        if name not in self._workers:
            self._workers[name] = WorkerHeld(1 << slot, self.max_orphans)
        return slot

    def remove_worker(self, name: str) -> None:
        """Forget a worker; its slot is free for another. Unknown workers are no error."""
        if name in self._workers:
            self.clear(name)
            del self._workers[name]
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
        if tier is None or tier == DEVICE:
            worker.orphans.clear()

    def __len__(self) -> int:
        """Distinct blocks over all tiers (a block in two tiers counts twice)."""
        return sum(map(len, self._tiers))

    def held(self, name: str, tier: int = DEVICE) -> int:
        """Blocks of a worker in a tier."""
        worker = self._workers.get(name)
        return len(worker.tiers[tier].keys) if worker is not None else 0

    # -- events ---------------------------------------------------------------------------------------------------

    def apply_batch(self, name: str, batch: Batch) -> None:
        """All events of a batch of this worker, in order."""
        worker = self._workers.get(name)
        if worker is None:
            self.add_worker(name)
            worker = self._workers[name]
        for event in batch.events:
            if isinstance(event, BlockStored):
                if len(event.block_hashes) != 1 or not self._grown(worker, event):
                    self._stored(worker, event)
            elif isinstance(event, BlockRemoved):
                self._removed(worker, event)
            else:
                self.clear(name, tier_of(event.medium) if event.medium is not None else None)

    def apply(self, name: str, event: Event) -> None:
        """One event of this worker."""
        self.apply_batch(name, Batch(0.0, (event,)))

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

    def _grown(self, worker: WorkerHeld, event: BlockStored) -> bool:
        """The most frequent event, a running request that has filled a block, on a short way; False, and nothing done,
        when it is not that or anything is unusual about it."""
        name = event.block_hashes[0]
        parent = event.parent_block_hash
        if (
            event.medium != "GPU"
            or event.kv_cache_spec_kind is not None
            or event.extra_keys is not None
            or event.block_size != self.block_size
            or event.token_count() != self.block_size
            or not isinstance(name, int)
            or not isinstance(parent, int)
        ):
            return False
        mine = worker.tiers[DEVICE].keys
        key, before = name, mine.get(parent)
        if before is None or name in mine:
            return False
        if not self._engine_keys:
            try:
                (key,) = hashes.chain(event.tokens(), self.block_size, before, None, self._hash)
            except (msgspec.MsgspecError, OverflowError, TypeError):
                return False
        if not self._tiers[DEVICE].grow(worker.bit, before, key):
            return False
        mine[name] = key
        self.counts.stored += 1
        if len(mine) > self.max_blocks:
            self._trim(worker, DEVICE)
        if worker.orphans.blocks:
            self._adopt(worker, [name])
        return True

    def _stored(self, worker: WorkerHeld, event: BlockStored) -> None:
        names: list[int] = event.block_hashes  # type: ignore[assignment]
        if not names:
            return
        if not isinstance(names[0], int):
            names = hashes.engine_hashes(event.block_hashes)
        medium = event.medium
        tier = DEVICE if medium == "GPU" else tier_of(medium)
        if tier is None:
            self.counts.unknown_medium += len(names)
            return
        if event.kv_cache_spec_kind is not None and not event.main_attention:
            worker.hidden_groups.add(event.group_idx)
            self.counts.other_groups += len(names)
            return
        parent = event.parent_block_hash
        if parent is not None and not isinstance(parent, int):
            parent = hashes.engine_hash(parent)
        if not self._engine_keys:
            self._stored_by_tokens(worker, tier, parent, names, event)
        elif event.token_count() == len(names) * event.block_size > 0:
            self._commit(worker, tier, parent, names, names)
        else:
            self._stored_apart(worker, tier, names, event)

    def _stored_apart(self, worker: WorkerHeld, tier: int, names: list[int], event: BlockStored) -> None:
        """Blocks of which nothing says that they follow each other: each goes where the GPU's tier has it."""
        if event.token_count():
            self.counts.misaligned += len(names)
        for name in names:
            self._commit(worker, tier, self._tiers[DEVICE].before(name) if tier else None, [name], [name])

    def _stored_by_tokens(
        self, worker: WorkerHeld, tier: int, parent: int | None, names: list[int], event: BlockStored
    ) -> None:
        size = self.block_size
        count = event.token_count()
        blocks = len(names)
        if count != blocks * size or event.block_size != size or (blocks > 1 and len(set(names)) != blocks):
            self._unusable(worker, tier, names, event, count)
            return
        lora = event.lora if event.lora_name or event.lora_id else None
        listed = event.extra_keys
        extras = [hashes.extra(one, lora) for one in listed] if listed else None
        try:
            tokens = event.tokens()
            if parent is None:
                before: int | None = hashes.root(lora, self._hash) if lora else self._root
            else:
                before = worker.key_of(parent)
                if before is None:
                    self.counts.orphaned += blocks
                    self.counts.orphans_dropped += worker.orphans.add(parent, Pending(tier, names, tokens, extras))
                    return
            keys = hashes.chain(tokens, size, before or 0, extras, self._hash)
        except (msgspec.MsgspecError, OverflowError, TypeError):
            self.counts.bad_tokens += blocks
            return
        self._commit(worker, tier, None if parent is None else before, names, keys)
        if worker.orphans.blocks:
            self._adopt(worker, names)

    def _unusable(self, worker: WorkerHeld, tier: int, names: list[int], event: BlockStored, count: int) -> None:
        """Why the tokens of an event make no keys."""
        if not count:
            self._stored_without_tokens(worker, tier, names)
        elif event.block_size != self.block_size:
            self.counts.other_block_size += len(names)
        elif count != len(names) * self.block_size:
            self.counts.misaligned += len(names)
        else:
            self.counts.repeated += len(names)

    def _stored_without_tokens(self, worker: WorkerHeld, tier: int, names: list[int]) -> None:
        """Events of an offloading connector: the hashes were announced with tokens when the GPU stored them."""
        for name in names:
            key = worker.key_of(name)
            if key is None:
                self.counts.without_tokens += 1
            else:
                before = next((found for index in self._tiers if (found := index.before(key)) is not None), None)
                self._commit(worker, tier, before, [name], [key])

    def _adopt(self, worker: WorkerHeld, names: list[int]) -> None:
        ready = [names]
        while ready:
            for parent, pending, gone in list(worker.orphans.take(ready.pop())):
                before = worker.key_of(parent)
                try:
                    keys = hashes.chain(pending.tokens, self.block_size, before or 0, pending.extras, self._hash)
                except (OverflowError, TypeError):
                    self.counts.bad_tokens += len(pending.hashes)
                    continue
                self._commit(worker, pending.tier, before, pending.hashes, keys)
                self.counts.adopted += len(keys)
                ready.append(pending.hashes)
                if gone:
                    self._release(worker, pending.tier, gone, None)

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

    def _removed(self, worker: WorkerHeld, event: BlockRemoved) -> None:
        tier = tier_of(event.medium)
        if tier is None:
            self.counts.unknown_medium += len(event.block_hashes)
        elif event.group_idx in worker.hidden_groups:
            self.counts.other_groups += len(event.block_hashes)
        else:
            self._release(worker, tier, hashes.engine_hashes(event.block_hashes), event.remaining_copy_counts)

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
