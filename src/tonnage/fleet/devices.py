"""The state of one device, and what one piece does to it.

Whole devices, shares, memory, MIG instances and replicas differ only in the :class:`Piece` that they take: a vector of
amounts that is subtracted from a :class:`DeviceState` (thousandths of compute, MiB, memory slices, sharers). A device
whose parts share counters, as DRA describes them, is the same with other counters."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

from tonnage.fleet.asks import FULL, Ask, Kind
from tonnage.fleet.geometry import Geometry, geometry


class How(IntEnum):
    """How a device is given away."""

    OPEN = 0
    """Whole, or in shares and MiB."""
    REPLICAS = 1
    """In equal replicas: time-slicing or MPS of the device plugin."""
    SPLIT = 2
    """Whole, or in MiB and cores to a limited number of sharers, with limits enforced (HAMi)."""
    MIG = 3
    """In MIG instances."""


@dataclass(frozen=True, slots=True)
class Cut:
    """How one device is partitioned. ``resource``: what counts its whole devices or replicas; empty: the node's own.

    ``replicas``: the most that can share it (REPLICAS, SPLIT). ``isolated``: no sharer can take the memory of another.
    ``one_each``: a pod may have one replica only. MIG: ``gpu`` names the geometry; ``instances`` are the (resource,
    start) that were made, None: they are made where they are asked for, and the card is given whole too where it is
    ``whole`` and nothing is on it, as a DRA driver publishes it. REPLICAS of a card with equal MIG instances that are
    given as whole GPUs (strategy ``single``) have both too, and a replica or several for each instance."""

    how: How = How.OPEN
    resource: str = ""
    replicas: int = 1
    isolated: bool = False
    one_each: bool = False
    gpu: str = ""
    instances: tuple[tuple[str, int], ...] | None = None
    whole: bool = False

    @property
    def geometry(self) -> Geometry:
        """The geometry of a MIG device. Raises ValueError where none is known."""
        found = geometry(self.gpu)
        if found is None:
            raise ValueError(f"no MIG profiles of {self.gpu or 'a GPU without a name'} are known")
        return found

    @property
    def dynamic(self) -> bool:
        """Whether MIG instances are made where they are asked for."""
        return self.how is How.MIG and self.instances is None

    def keeps(self, old: Cut, pieces: Sequence[Piece]) -> bool:
        """Whether a device that was cut as ``old`` and holds these pieces, or is held whole, can be partitioned like
        this."""
        if self == old:
            return True
        if self.how is not How.MIG or old.how is not How.MIG or self.gpu != old.gpu:
            return False
        made, how = self.instances, self.geometry
        if not pieces:
            return self.whole
        return made is None or all(
            any(name == one.what and how.span(name, start) == one.mask for name, start in made) for one in pieces
        )

    def offers(self, resource: str) -> dict[str, int]:
        """What the untouched device adds to the node's allocatable; ``resource`` is the node's own."""
        if self.how is How.MIG:
            made = self.instances
            found = dict(self.geometry.capacity(0) if made is None else Counter(name for name, _ in made))
            return {**found, self.resource or resource: 1} if self.whole else found
        return {self.resource or resource: 1 if self.how is How.OPEN else self.replicas}


OPEN = Cut()


class DeviceState(NamedTuple):
    """What is free of a device: thousandths, MiB (0 where not known); slices in use; how many pieces are on it."""

    milli: int
    mib: int
    mask: int = 0
    sharers: int = 0

    def without(self, piece: Piece) -> DeviceState:
        """The state after the piece is taken."""
        return DeviceState(self.milli - piece.milli, self.mib - piece.mib, self.mask | piece.mask, self.sharers + 1)


class Piece(NamedTuple):
    """What is taken of one device. ``what``: the MIG resource of an instance."""

    device: int
    milli: int
    mib: int
    mask: int = 0
    what: str = ""


class Want(NamedTuple):
    """One piece of an ask: the MIG resource, or a whole device or replica (``what`` empty, ``part`` False), or a part
    of a device. ``apart``: on another device than the ask's other pieces."""

    what: str = ""
    part: bool = False
    apart: bool = True


MOST_PIECES = 4096


def wants(ask: Ask, count: int) -> list[Want]:
    """The pieces of an ask, largest MIG instance first; ``count``: whole devices or replicas that the pod requests.
    More than MOST_PIECES of a kind are no more than those: no node has as many."""
    if ask.shares:
        return [Want(part=True)] * ask.count
    profiles = sorted(ask.profiles, key=size, reverse=True)
    instances = [Want(name, apart=False) for name, n in profiles for _ in range(min(n, MOST_PIECES))]
    return [*[Want()] * min(count, MOST_PIECES), *instances]


def size(profile: tuple[str, int]) -> tuple[float, str]:
    """Orders MIG resources by the GB in their names."""
    digits = "".join(c for c in profile[0].partition("g.")[2].partition("gb")[0] if c.isdigit())
    return int(digits or 0), profile[0]


def amounts(ask: Ask, memory: int) -> tuple[int, int] | None:
    """(thousandths, MiB) that a share takes of a device with ``memory`` MiB (0: not known); None: it can give none.

    Where compute and memory are one share, memory is worth its part of the device, rounded down, and a share is worth
    its part of the memory, rounded down: so what fits in one always fits in the other."""
    if ask.kind is Kind.SHARE:
        return ask.milli, ask.milli * memory // FULL
    mib = ask.mib or ask.percent * memory // 100
    if not memory or mib > memory:
        return None
    return ask.milli if ask.separate else max(1, mib * FULL // memory), mib


def takes_part(cut: Cut, state: DeviceState, ask: Ask, milli: int, mib: int) -> bool:
    """Whether a device gives a part of ``milli`` and ``mib``. All cores are given to one alone, and none where all are
    taken (Project-HAMi/HAMi pkg/device/nvidia)."""
    if cut.how not in (How.OPEN, How.SPLIT) or state.milli < max(milli, 1) or state.mib < mib:
        return False
    if ask.separate and milli == FULL and state.sharers:
        return False
    return cut.how is How.OPEN or state.sharers < cut.replicas


def replica(cut: Cut, device: int, memory: int) -> Piece:
    """One of the device's replicas: an equal part of compute, and of memory where that is isolated; of a card that
    gives its equal MIG instances as replicas, an instance or an equal part of one."""
    if cut.instances:
        slot = cut.geometry.named(cut.instances[0][0])
        parts = cut.replicas // len(cut.instances)
        return Piece(device, slot.milli // parts, slot.mib if cut.isolated else 0, what=slot.resource)
    return Piece(device, FULL // cut.replicas, memory // cut.replicas if cut.isolated else 0)


def instances(cut: Cut, state: DeviceState, device: int, what: str) -> Iterator[Piece]:
    """The MIG instances of a resource that the device can give now, best first: made already, or each legal start."""
    how = cut.geometry
    slot = how.slot(what)
    if slot is None or (cut.instances is None and what in how.parts):
        return
    made = None if cut.instances is None else {start for name, start in cut.instances if name == what}
    starts = [at for at in how.starts(state.mask, what) if made is None or at in made]
    starts.sort(key=lambda at: (-how.left(state.mask | how.span(what, at)), -at))
    for at in starts:
        yield Piece(device, slot.milli, slot.mib, slot.spans[at], what)
