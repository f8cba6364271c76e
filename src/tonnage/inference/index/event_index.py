"""Events into the exact index: blocks that workers store, remove and clear, and everything odd about them."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from tonnage.inference.index import hashes, parts
from tonnage.inference.index.events import DEVICE, Batch, BlockRemoved, BlockStored, Event, tier_of
from tonnage.inference.index.held import Pending, WorkerHeld
from tonnage.inference.index.holdings import Holdings


class EventIndex(Holdings):
    """How events change what :class:`~tonnage.inference.index.holdings.Holdings` keeps."""

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
        own = event.block_size
        usable = count == blocks * own > 0 and (blocks == 1 or len(set(names)) == blocks)
        larger = 0 if own == size else parts.per(own, size)
        if not usable or not parts.divides(own, size):
            self._unusable(worker, tier, names, event, count)
            return
        lora = event.lora if event.lora_name or event.lora_id else None
        listed = event.extra_keys
        extras = [hashes.extra(one, lora) for one in listed] if listed else None
        if larger:
            names = parts.spread(names, larger)
            extras = [part for one in extras for part in (one, *[None] * (larger - 1))] if extras else None
            self._larger(worker, tier, larger)
        try:
            tokens = event.tokens()
            if parent is None:
                before: int | None = hashes.root(lora, self._hash) if lora else self._root
            else:
                before = worker.key_of(parent)
                if before is None and own < size and parent in worker.parts.known:
                    before = worker.parts.known[parent].before
                if before is None:
                    self.counts.orphaned += len(names)
                    waiting = Pending(tier, names, tokens, extras, own < size)
                    self.counts.orphans_dropped += worker.orphans.add(parent, waiting)
                    return
            if own < size:
                self._place(worker, tier, parent, before or 0, Pending(tier, names, tokens, extras, True))
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
            self._stored_without_tokens(worker, tier, names, parts.per(event.block_size, self.block_size))
        elif event.block_size != self.block_size and len(set(names)) == len(names):
            self.counts.other_block_size += len(names)
        elif count != len(names) * event.block_size:
            self.counts.misaligned += len(names)
        else:
            self.counts.repeated += len(names)

    def _stored_without_tokens(self, worker: WorkerHeld, tier: int, names: list[int], larger: int) -> None:
        """Events of an offloading connector: the hashes were announced with tokens when the GPU stored them. Of a block
        that is ``larger`` times ours the hash is that of its last part."""
        for name in names:
            keys = [key] if (key := worker.key_of(name)) is not None else []
            while keys and len(keys) < larger and (before := self._before(keys[0])) is not None:
                keys.insert(0, before)
            if len(keys) < max(larger, 1):
                self.counts.without_tokens += 1
                continue
            if larger:
                self._larger(worker, tier, larger)
            self._commit(worker, tier, self._before(keys[0]), parts.spread([name], len(keys)), keys)

    def _before(self, key: int) -> int | None:
        return next((found for index in self._tiers if (found := index.before(key)) is not None), None)

    # -- blocks of other sizes ------------------------------------------------------------------------------------

    def _larger(self, worker: WorkerHeld, tier: int, count: int) -> None:
        worker.units[tier] = max(worker.units[tier], count)
        self._coarse[worker.name] = worker.units

    def _place(self, worker: WorkerHeld, tier: int, parent: int | None, before: int, given: Pending) -> None:
        """Blocks that are smaller than ours: ours are there once all their parts are."""
        start = worker.parts.known.get(parent) if parent is not None else None

        def key(tokens: Sequence[int], before: int, extras: Sequence[object] | None) -> int:
            return hashes.chain(tokens, self.block_size, before, [extras] if extras else None, self._hash)[0]

        begin = start or parts.BlockPart(before, (), (), ())
        for name, part in list(parts.grown(given.hashes, given.tokens, given.extras, begin, self.block_size, key)):
            if len(part.tokens) > self.block_size:
                self.counts.other_block_size += 1
                continue
            worker.parts.add(name, part, tier, copies=self.count_copies)
            for last, whole in list(worker.parts.complete(name, tier)):
                if whole.key is not None and last not in worker.tiers[tier].keys:
                    known = any(index.find(whole.before) is not None for index in self._tiers)
                    self._commit(worker, tier, whole.before if known else None, [last], [whole.key])
        most = self.max_blocks * max(1, self.block_size * len(given.hashes) // len(given.tokens))
        self._remove_parts(worker, tier, worker.parts.oldest(tier, most), None)
        if worker.orphans.blocks:
            self._adopt(worker, given.hashes)

    def _remove_parts(self, worker: WorkerHeld, tier: int, names: Sequence[int], left: Sequence[int] | None) -> None:
        for at, name in enumerate(names):
            remain = left[at] if left is not None and at < len(left) else None
            for whole in worker.parts.remove(name, tier, remain):
                if whole in worker.tiers[tier].keys:
                    self._release(worker, tier, [whole], [0])

    def _adopt(self, worker: WorkerHeld, names: list[int]) -> None:
        ready = [names]
        while ready:
            for parent, pending, gone in list(worker.orphans.take(ready.pop())):
                before = worker.key_of(parent)
                try:
                    if pending.small:
                        self._place(worker, pending.tier, parent, before or 0, pending)
                        self._remove_parts(worker, pending.tier, gone, None)
                        self.counts.adopted += len(pending.hashes)
                        continue
                    keys = hashes.chain(pending.tokens, self.block_size, before or 0, pending.extras, self._hash)
                except (OverflowError, TypeError):
                    self.counts.bad_tokens += len(pending.hashes)
                    continue
                self._commit(worker, pending.tier, before, pending.hashes, keys)
                self.counts.adopted += len(keys)
                ready.append(pending.hashes)
                if gone:
                    self._release(worker, pending.tier, gone, None)

    def _removed(self, worker: WorkerHeld, event: BlockRemoved) -> None:
        tier = tier_of(event.medium)
        if tier is None:
            self.counts.unknown_medium += len(event.block_hashes)
        elif event.group_idx in worker.hidden_groups:
            self.counts.other_groups += len(event.block_hashes)
        else:
            names, left = hashes.engine_hashes(event.block_hashes), event.remaining_copy_counts
            if worker.parts.tiers[tier]:
                there = worker.parts.tiers[tier]
                small = [at for at, name in enumerate(names) if name in there]
                told = [left[at] if left is not None and at < len(left) else None for at in small]
                for at, remain in zip(small, told, strict=True):
                    self._remove_parts(worker, tier, [names[at]], None if remain is None else [remain])
                kept = [at for at in range(len(names)) if at not in set(small)]
                left = [left[at] for at in kept if at < len(left)] if left is not None else None
                names = [names[at] for at in kept]
            if worker.units[tier] > 1:
                held = worker.tiers[tier].keys
                spread = [parts.all_of(name, held) for name in names]
                if left is not None:
                    left = [n for n, of in zip(left, spread, strict=False) for _ in of]
                names = [made for of in spread for made in of]
            self._release(worker, tier, names, left)
