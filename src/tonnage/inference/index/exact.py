"""The exact index: which worker holds which prefix, from the engines' own events."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from sys import getsizeof

from tonnage.inference.index import hashes
from tonnage.inference.index.answers import MemoryUse, TierBlocks
from tonnage.inference.index.event_index import EventIndex
from tonnage.inference.index.events import DEVICE, DISK, HOST
from tonnage.inference.index.held import TierHeld
from tonnage.inference.index.runs import Groups


class KvIndex(EventIndex):
    """Answers how many leading blocks of a prompt each worker holds.

    ``keys="tokens"``: keys are our own chained hashes of the tokens in the events (:mod:`hashes`), so engines may hash
    as they like; a worker's engine hashes are kept for its removals. ``keys="engine"``: the engines' hashes are the
    keys; right when all engines hash alike and the caller can compute their hashes, and quicker.

    ``count_copies``: an engine that announces each physical copy of a block (vLLM 0.33) also announces the removal of
    each, and the block is gone with the last. False: gone with the first removal, and back when it is stored again.

    Memory is bounded by ``max_blocks`` for each worker and tier, the least recently stored dropped first (tails before
    heads), and ``max_orphans`` waiting blocks for each worker.
    """

    # -- lookup ---------------------------------------------------------------------------------------------------

    def scores(self, keys: Sequence[int]) -> dict[str, int]:
        """Leading blocks of the prompt on the GPU of each worker that has any. ``keys``: of all its full blocks."""
        return self._whole(self.slots.scores(self.groups(keys)), DEVICE)

    def overlap(self, keys: Sequence[int]) -> dict[str, TierBlocks]:
        """The same for all tiers: host blocks continue where the GPU's end, disk blocks where the host's end."""
        groups = self.groups(keys)
        named = self.slots.scores
        device = named(groups)
        if self._coarse:
            device = self._whole(device, DEVICE)
            groups = self._regrouped(device)
        if not self._tiers[HOST] and not self._tiers[DISK]:
            return {name: TierBlocks(blocks) for name, blocks in device.items()}
        host = self._whole(named(self._tiers[HOST].beyond(keys, self._starts(groups))), HOST, device)
        reached = [(blocks + host.get(name, 0), name) for name, blocks in device.items()]
        reached += [(blocks, name) for name, blocks in host.items() if name not in device]
        before = {name: blocks for blocks, name in reached}
        disk = self._whole(named(self._tiers[DISK].beyond(keys, self._starts(self._regrouped(before)))), DISK, before)
        return {
            name: TierBlocks(device.get(name, 0), host.get(name, 0), disk.get(name, 0))
            for name in self.slots.slot
            if name in device or name in host or name in disk
        }

    def _whole(self, found: dict[str, int], tier: int, before: dict[str, int] | None = None) -> dict[str, int]:
        """Without what is not a whole block of the engine's; ``before``: blocks in the tiers above."""
        for name, units in self._coarse.items() if found else ():
            if name not in found or units[tier] == 1:
                continue
            above = before.get(name, 0) if before is not None else 0
            reached = (above + found[name]) // units[tier] * units[tier]
            if reached > above:
                found[name] = reached - above
            else:
                del found[name]
        return found

    def _regrouped(self, found: dict[str, int]) -> Groups:
        masks: dict[int, int] = {}
        for name, blocks in found.items():
            masks[blocks] = masks.get(blocks, 0) | 1 << self.slots.slot[name]
        return list(masks.items())

    def _starts(self, groups: Groups) -> Groups:
        """The groups, and all other workers at 0."""
        seen = 0
        for _, mask in groups:
            seen |= mask
        rest = self.slots.live & ~seen
        return [*groups, (0, rest)] if rest else groups

    def prompt_keys(self, tokens: Iterable[int], lora: str | None = None, salt: str | None = None) -> list[int]:
        """Keys of a prompt's full blocks, for an index whose keys are made from tokens."""
        extras = [[salt]] if salt is not None else None
        return hashes.chain(tokens, self.block_size, hashes.root(lora, self._hash), extras, self._hash)

    def memory(self) -> MemoryUse:
        """Bytes of everything kept; takes time in proportion to the number of blocks."""
        total = sum(index.bytes() for index in self._tiers)
        count = 0
        for worker in self._workers.values():
            for held in worker.tiers:
                total += _bytes(held, self._engine_keys)
                count += len(held.keys)
        return MemoryUse(total, len(self), count)


def _bytes(held: TierHeld, engine_keys: bool) -> int:
    own = 0 if engine_keys else sum(map(getsizeof, held.keys))  # the keys themselves are counted with the runs
    return own + getsizeof(held.keys) + getsizeof(held.copies) + getsizeof(held.shared)
