"""What the index answers, and what it counts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from msgspec import Struct


class TierBlocks(NamedTuple):
    """Leading blocks of a prompt that a worker has: on the GPU, further ones in host memory, further ones on disk."""

    device: int
    host: int = 0
    disk: int = 0


@dataclass(slots=True)
class EventCounts:
    """What the events did, in blocks, and what was left out, so that nothing is lost in silence."""

    stored: int = 0
    removed: int = 0
    clears: int = 0
    removed_unknown: int = 0  # removals of blocks that the worker was not known to hold
    orphaned: int = 0  # stored under a parent not known yet, kept aside
    adopted: int = 0  # of those, placed when the parent came
    orphans_dropped: int = 0  # of those, given up
    misaligned: int = 0  # tokens that are not block size times blocks: which token is whose cannot be told
    without_tokens: int = 0  # no tokens, and a hash never seen with tokens
    other_block_size: int = 0
    unknown_medium: int = 0
    other_groups: int = 0  # cache groups that do not say how far a prefix reaches
    over_cap: int = 0  # dropped since a worker had more blocks than its cap
    bad_tokens: int = 0  # tokens that are not a list of numbers from 0 to 2^32 - 1
    repeated: int = 0  # events that list a block twice
    contradicted: int = 0  # blocks stored after another parent than the first one stated, or after themselves


class MemoryUse(Struct, frozen=True):
    """Bytes of the index; ``blocks``: distinct ones; ``held``: (worker, tier, block) triples."""

    bytes: int
    blocks: int
    held: int

    @property
    def bytes_per_million_blocks(self) -> float:
        """Bytes for a million distinct blocks at this sharing; 0 for an empty index."""
        return self.bytes / self.blocks * 1e6 if self.blocks else 0.0
