"""What workers hold of a prompt, from their GPUs' caches and the tiers below them."""

from __future__ import annotations

from collections.abc import Mapping

from tonnage.inference.prompts import Path
from tonnage.inference.routing.types import NOTHING_CACHED, Overlap
from tonnage.inference.tiers import Tiers


def overlap_of(path: Path, device: Mapping[int, int], tiers: Mapping[int, Tiers], now_ns: int) -> Overlap:
    """The overlap of a prompt with all workers; nothing in any cache or tier changes.

    ``device``: its leading blocks on the GPU, by worker index, 0 or absent where none; ``tiers``: by worker index, what
    those have that have any. What a tier holds counts from where the GPU's blocks end.
    """
    if not path:
        return NOTHING_CACHED
    held = {index: blocks for index, blocks in device.items() if blocks}
    if not tiers:
        return Overlap(held)
    host: dict[int, int] = {}
    disk: dict[int, int] = {}
    for index, stack in tiers.items():
        lower = stack.held(path, held.get(index, 0), now_ns)
        if lower.host:
            host[index] = lower.host
        if lower.disk:
            disk[index] = lower.disk
    return Overlap(held, host, disk)
