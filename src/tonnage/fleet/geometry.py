"""Where MIG instances can stand on a card: memory slices as bits, legal starts as a table worked out once a mask.

Source of the placements: NVIDIA MIG user guide (``-lgipp``), in :mod:`tonnage.facts.mig`. A set of instances is legal
if and only if their slices do not overlap, and one instance at most has the media engines (``+me``)."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache

from tonnage.facts import gpus, mig

MEDIA = 1 << 8
"""The bit of the media engines, of which a card has one set to give away."""

MIG_PREFIX = "nvidia.com/mig-"


@dataclass(frozen=True, slots=True)
class Slot:
    """One profile on one card. ``spans``: start → bits in use by an instance there. ``milli``: its compute slices in
    thousandths of the card, rounded down; ``mib``: its memory."""

    name: str
    resource: str
    spans: dict[int, int]
    milli: int
    mib: int


@dataclass(frozen=True, slots=True)
class Geometry:
    """The profiles of one GPU model and what is left of a card, by the mask of bits in use."""

    gpu: str
    memory_mib: int
    slots: dict[str, Slot]
    """By resource name, as in ``nvidia.com/mig-1g.10gb``; smallest profile first."""
    _best: dict[tuple[int, str], int | None] = field(default_factory=dict, compare=False, repr=False)
    _left: dict[int, int] = field(default_factory=dict, compare=False, repr=False)
    _capacity: dict[int, dict[str, int]] = field(default_factory=dict, compare=False, repr=False)

    def starts(self, mask: int, resource: str) -> list[int]:
        """Where an instance can be made beside those in use, lowest first."""
        slot = self.slots.get(resource)
        return [start for start, span in slot.spans.items() if not span & mask] if slot else []

    def best_start(self, mask: int, resource: str) -> int | None:
        """The start after which the most placements of all profiles are left, the highest of equals; None: no room."""
        key = mask, resource
        if key not in self._best:
            here = self.starts(mask, resource)
            self._best[key] = max(here, key=lambda at: (self.left(mask | self.span(resource, at)), at), default=None)
        return self._best[key]

    def span(self, resource: str, start: int) -> int:
        """The bits that an instance at ``start`` uses."""
        return self.slots[resource].spans[start]

    def left(self, mask: int) -> int:
        """How many placements of all profiles are still free, each taken alone."""
        known = self._left.get(mask)
        if known is None:
            known = self._left[mask] = sum(len(self.starts(mask, resource)) for resource in self.slots)
        return known

    def capacity(self, mask: int) -> dict[str, int]:
        """By resource, how many instances of that profile alone can still be made."""
        known = self._capacity.get(mask)
        if known is None:
            known = self._capacity[mask] = {name: _most(slot, mask) for name, slot in self.slots.items()}
        return known


def _most(slot: Slot, mask: int) -> int:
    """The most instances of one profile in what is free: spans are of one length, so the first that fits is right."""
    count = 0
    for span in slot.spans.values():
        if not span & mask:
            mask |= span
            count += 1
    return count


@lru_cache
def geometry(gpu: str) -> Geometry | None:
    """The geometry of the GPU with this name in :mod:`tonnage.facts.gpus`; None where no profile is known."""
    profiles = mig.profiles(gpu, plain=False)
    if not profiles:
        return None
    card = gpus.get(gpu)
    slots = {one.resource: _slot(one, card) for one in profiles}
    return Geometry(gpu, card.memory_mib, slots)


def _slot(profile: mig.MigProfile, card: gpus.Gpu) -> Slot:
    bits, media = (1 << profile.memory_slices) - 1, MEDIA if "+me" in profile.name else 0
    whole = 7 if profile.of_memory_slices == 8 else profile.of_memory_slices
    return Slot(
        profile.name,
        profile.resource,
        {start: bits << start | media for start in sorted(profile.starts)},
        1000 * profile.compute_slices // whole,
        profile.usable_mib(card),
    )
