"""Where MIG instances can stand on a card: memory slices as bits, legal starts as a table worked out once a mask.

Source of the placements: NVIDIA MIG user guide (``-lgipp``), in :mod:`tonnage.facts.mig`. A set of instances is legal
if and only if their slices do not overlap, and one instance at most has the media engines (``+me``)."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache

from msgspec import Struct

from tonnage.facts import gpus, mig

MEDIA = 1 << 8
"""The bit of the media engines, of which a card has one set to give away."""


class Slot(Struct, frozen=True):
    """One profile on one card. ``spans``: start → bits in use by an instance there. ``milli``: its compute slices in
    thousandths of the card, rounded down; ``mib``: its memory."""

    name: str
    resource: str
    spans: dict[int, int]
    milli: int
    mib: int


class ComputeSlot(Struct, frozen=True):
    """A compute instance. ``parent``: the resource of its GPU instance; ``within``: the compute slices of that at which
    it may begin; ``slices``: how many it has. Its slot has the part of the GPU instance's memory and compute that its
    slices are of all: what it uses beyond that, the others there have not."""

    slot: Slot
    parent: str
    within: tuple[int, ...]
    slices: int


@dataclass(frozen=True, slots=True)
class Geometry:
    """The profiles of one GPU model and what is left of a card, by the mask of bits in use."""

    gpu: str
    memory_mib: int
    slots: dict[str, Slot]
    """By resource name, as in ``nvidia.com/mig-1g.10gb``; smallest profile first."""
    parts: dict[str, ComputeSlot] = field(default_factory=dict)
    """The compute instances, by resource name: they are there where somebody made them, and never made on demand."""
    _best: dict[tuple[int, str], int | None] = field(default_factory=dict, compare=False, repr=False)
    _left: dict[int, int] = field(default_factory=dict, compare=False, repr=False)
    _capacity: dict[int, dict[str, int]] = field(default_factory=dict, compare=False, repr=False)

    def starts(self, mask: int, resource: str) -> list[int]:
        """Where an instance can be made beside those in use, lowest first."""
        slot = self.slot(resource)
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
        slot = self.slot(resource)
        if slot is None:
            raise KeyError(resource)
        return slot.spans[start]

    def slot(self, resource: str) -> Slot | None:
        """The GPU instance or the compute instance with this resource name."""
        part = None if resource in self.slots else self.parts.get(resource)
        return self.slots.get(resource) if part is None else part.slot

    def named(self, resource: str) -> Slot:
        """The same. Raises KeyError where there is none."""
        slot = self.slot(resource)
        if slot is None:
            raise KeyError(resource)
        return slot

    def owner(self, resource: str, start: int) -> tuple[str, int]:
        """(resource, start) of the GPU instance that a compute instance stands in; of a GPU instance itself."""
        part = self.parts.get(resource)
        if part is None:
            return resource, start
        return part.parent, max(at for at in self.slots[part.parent].spans if start - at in part.within)

    @property
    def memory_slices(self) -> int:
        """How many a card has."""
        return max((mask & ~MEDIA).bit_length() for slot in self.slots.values() for mask in slot.spans.values())

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
    names = {one.name: one.resource for one in profiles}
    parts = {one.resource: _part(one, mig.get(gpu, one.parent), names, card) for one in mig.compute_profiles(gpu)}
    return Geometry(gpu, card.memory_mib, slots, parts)


@lru_cache(maxsize=1)
def least_parts() -> dict[str, tuple[int, int]]:
    """By the resource of a MIG instance, the least thousandths of compute and of memory that one takes of a card."""
    found: dict[str, tuple[int, int]] = {}
    for gpu in gpus.all():
        for one in mig.profiles(gpu.name, plain=False):
            own = 1000 * one.compute_slices // one.of_compute_slices, 1000 * one.memory_slices // one.of_memory_slices
            compute, memory = found.get(one.resource, own)
            found[one.resource] = min(compute, own[0]), min(memory, own[1])
    return found


def _part(profile: mig.MigProfile, parent: mig.MigProfile, names: dict[str, str], card: gpus.Gpu) -> ComputeSlot:
    count, bits = profile.compute_slices, (1 << profile.compute_slices) - 1
    slot = Slot(
        profile.name,
        profile.resource,
        {start: bits << start for start in profile.starts},
        1000 * count // profile.of_compute_slices,
        parent.usable_mib(card) * count // parent.compute_slices,
    )
    first = min(parent.starts)
    within = tuple(sorted({start - first for start in profile.starts if start - first < parent.compute_slices}))
    return ComputeSlot(slot, names[parent.name], within, count)


def _slot(profile: mig.MigProfile, card: gpus.Gpu) -> Slot:
    bits, media = (1 << profile.memory_slices) - 1, MEDIA if "+me" in profile.name else 0
    return Slot(
        profile.name,
        profile.resource,
        {start: bits << start | media for start in sorted(profile.starts)},
        1000 * profile.compute_slices // profile.of_compute_slices,
        profile.usable_mib(card),
    )
