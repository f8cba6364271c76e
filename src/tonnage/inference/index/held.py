"""What one worker holds, by the engine's own hashes, and what waits for a parent that is not known yet."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from tonnage.inference.index.parts import Parts


@dataclass(slots=True)
class Pending:
    """Blocks whose parent the worker has not announced."""

    tier: int
    hashes: list[int]
    tokens: list[int]
    extras: list[Any] | None
    small: bool = False  # of fewer tokens than a block of the index


class Orphans:
    """At most ``limit`` blocks that wait for their parent, the oldest given up first."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.blocks = 0
        self._by_parent: dict[int, list[Pending]] = {}
        self._gone: set[int] = set()  # removed while they waited

    def __bool__(self) -> bool:
        return bool(self._by_parent)

    def add(self, parent: int, pending: Pending) -> int:
        """Keep these; returns how many blocks were given up for it."""
        self._by_parent.setdefault(parent, []).append(pending)
        self.blocks += len(pending.hashes)
        self._gone.difference_update(pending.hashes)
        dropped = 0
        while self.blocks > self.limit and self._by_parent:
            oldest = self._by_parent[next(iter(self._by_parent))]
            dropped += len(oldest[0].hashes)
            self.blocks -= len(oldest[0].hashes)
            self._gone.difference_update(oldest.pop(0).hashes)
            if not oldest:
                del self._by_parent[next(iter(self._by_parent))]
        return dropped

    def removed(self, hash: int) -> bool:
        """A removal of a block that may wait here; True when it does."""
        if any(hash in pending.hashes for waiting in self._by_parent.values() for pending in waiting):
            self._gone.add(hash)
            return True
        return False

    def take(self, hashes: Sequence[int]) -> Iterator[tuple[int, Pending, list[int]]]:
        """What waited for one of these blocks: (parent, blocks, those of them that were removed meanwhile)."""
        for parent in hashes:
            for pending in self._by_parent.pop(parent, ()):
                self.blocks -= len(pending.hashes)
                gone = [one for one in pending.hashes if one in self._gone]
                self._gone.difference_update(gone)
                yield parent, pending, gone

    def clear(self) -> None:
        """Nothing waits any more."""
        self._by_parent.clear()
        self._gone.clear()
        self.blocks = 0


@dataclass(slots=True)
class TierHeld:
    """One worker's blocks in one tier. ``keys``: engine hash to key, least recently stored first."""

    keys: dict[int, int] = field(default_factory=dict)
    copies: dict[int, int] = field(default_factory=dict)  # engine hash to physical copies beyond the first
    shared: dict[int, int] = field(default_factory=dict)  # key to engine hashes beyond the first that stand for it

    def release(self, hash: int, left: int | None) -> tuple[bool, int | None]:
        """(was held, the key that is now free) after one copy of this block is gone.

        ``left``: copies that remain, where the engine says so; otherwise they are counted.
        """
        key = self.keys.get(hash)
        if key is None:
            return False, None
        remain = self.copies.get(hash, 0) if left is None else left
        self.copies.pop(hash, None)
        if remain:
            if remain > 1:
                self.copies[hash] = remain - 1
            return True, None
        del self.keys[hash]
        others = self.shared.pop(key, 0)
        if others > 1:
            self.shared[key] = others - 1
        return True, None if others else key

    def clear(self) -> None:
        """Nothing is held any more."""
        self.keys = {}
        self.copies.clear()
        self.shared.clear()


class WorkerHeld:
    """One worker's blocks in all tiers."""

    __slots__ = ("bit", "hidden_groups", "name", "orphans", "parts", "tiers", "units")

    def __init__(self, bit: int, orphan_limit: int, name: str = "") -> None:
        self.bit = bit
        self.name = name
        self.units = [1, 1, 1]  # of the index's blocks in one of the engine's, by tier
        self.parts = Parts()
        self.tiers = (TierHeld(), TierHeld(), TierHeld())
        self.orphans = Orphans(orphan_limit)
        self.hidden_groups: set[int | None] = set()

    def key_of(self, hash: int) -> int | None:
        """The key of a block that the worker holds in any tier."""
        device, host, disk = self.tiers
        key = device.keys.get(hash)
        if key is None:
            key = host.keys.get(hash)
            if key is None:
                key = disk.keys.get(hash)
        return key
