"""What is free on the devices of a node, interned: few thousand states cover a fleet, and what they are worth is worked
out once for each."""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Sequence
from typing import NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from tonnage.fleet.asks import FULL
from tonnage.fleet.cards import NO_DEVICE
from tonnage.fleet.state import CPU, MEMORY, Fleet
from tonnage.scheduling.value.fragment import Fragments
from tonnage.scheduling.value.worth import Worth

FEW = 48
"""This many nodes are read and weighed one by one; more of them with arrays. Changes speed only."""

Ints = NDArray[np.int64]


class DeviceDemand(NamedTuple):
    """What a pod takes of a node's devices: ``milli`` thousandths of each of this many ``devices``; (0, 0): nothing."""

    devices: int
    milli: int

    @property
    def total(self) -> int:
        """Thousandths of devices in all."""
        return self.devices * self.milli


NOTHING = DeviceDemand(0, 0)


class ValuedState(msgspec.Struct, frozen=True, gc=False):
    """What is known of a state: the kind of node, thousandths free of each device in ascending order, their sum, their
    worth beyond that sum, the fragment by bucket of free cores (:class:`Fragments`), and ``blocks``: devices in whole
    sets of 2, 4, 8, …, each set counted by the share of demand that asks for this many."""

    kind: int
    free: tuple[int, ...]
    idle: int
    excess: int
    fragment: Sequence[int]
    blocks: float


class States:
    """The states met, by number in ``rows``."""

    def __init__(self, fragments: Fragments, worth: Worth, blocks: tuple[tuple[int, float], ...]) -> None:
        self.fragments = fragments
        self._worth = worth
        self._blocks = blocks
        self._numbers: dict[tuple[int, tuple[int, ...]], int] = {}
        self.rows: list[ValuedState] = []

    def intern(self, kind: int, free: tuple[int, ...]) -> int:
        """The number of the state."""
        known = self._numbers.get((kind, free))
        if known is not None:
            return known
        number = self._numbers[kind, free] = len(self.rows)
        fragment, idle = self.fragments.measure(kind, free), sum(free)
        whole = free.count(FULL)
        blocks = sum([share * count * (whole // count) for count, share in self._blocks])
        self.rows.append(ValuedState(kind, free, idle, self._worth.of(kind, free) - idle, fragment, blocks))
        return number

    def following(self, state: int, demand: DeviceDemand) -> list[tuple[int, int]]:
        """What the state can become when the demand is met, one for each distinct choice, tightest first: (number of
        the state, thousandths free, before, of the tightest device taken)."""
        now = self.rows[state]
        return [(self.intern(now.kind, left), size) for left, size in _choices(now.free, demand)]


def _choices(free: tuple[int, ...], demand: DeviceDemand) -> list[tuple[tuple[int, ...], int]]:
    """The distinct states that meet the demand, tightest first, and the thousandths free of the first device taken.

    One device: each that has room. Several: those with the least room that is enough."""
    count, milli = demand
    if not count:
        return [(free, 0)]
    sizes = sorted({size for size in free if size >= milli})
    if count == 1:
        return [(_less(free, size, milli), size) for size in sizes]
    room = [size for size in free if size >= milli]
    if len(room) < count:
        return []
    left = free
    for size in room[:count]:
        left = _less(left, size, milli)
    return [(left, room[0])]


def _less(free: tuple[int, ...], size: int, milli: int) -> tuple[int, ...]:
    """``free`` with one device of ``size`` that has ``milli`` less."""
    left = list(free)
    left.remove(size)
    insort(left, size - milli)
    return tuple(left)


class NodeStates:
    """The state of every node row, kept current from the fleet's journal; nodes without devices have one too.

    ``numbers``: of the states; ``kinds``: of the rows; ``devices``: how many. ``plain``: memory goes with
    compute, which alone is read (memory is counted in whole MiB, so that it may seem to be shorter). As arrays, and as
    lists for those who look at few nodes: ``place`` (``places``), number × buckets + the
    bucket of the free cores; ``idle`` (``idle_of``), thousandths; ``stranded`` (``stranded_of``), those of them for
    which the node has no cores left at ``per_core`` thousandths a millicore. ``hosts``: cores and memory of the node,
    and whether it has devices. ``amounts``: what is free of each of the fleet's resources."""

    def __init__(self, fleet: Fleet, states: States, kind_of: Ints, per_core: float, *, plain: bool) -> None:
        self.fleet = fleet
        self.states = states
        self.per_core = per_core
        self.plain = plain
        self._cursor, self._width = 0, 0
        self._buckets = states.fragments.buckets
        self._cores: list[int] = states.fragments.cores.tolist()
        self.restart(kind_of)

    def restart(self, kind_of: Ints) -> None:
        """Read all nodes again; ``kind_of``: the kind of each row."""
        rows = len(self.fleet.alive)
        self.kinds: list[int] = kind_of.tolist()
        self.numbers, self.places, self.idle_of, self.stranded_of = [0] * rows, [0] * rows, [0] * rows, [0.0] * rows
        self.amounts: list[list[int]] = [[]] * rows
        self.place, self.idle, self.devices = (np.zeros(rows, np.int64) for _ in range(3))
        self.stranded = np.zeros(rows)
        self._put_all()
        whole = np.maximum(self.fleet.allocatable[:, [CPU, MEMORY]], 1)
        self.hosts = list(zip(*whole.T.tolist(), (self.devices > 0).tolist(), strict=True))

    def read_as(self, *, plain: bool) -> None:
        """Read the nodes with their memory or without it from now on."""
        if self.plain != plain:
            self.plain = plain
            self._put_all()

    def refresh(self) -> None:
        """Follow pods that were bound or unbound."""
        journal = self.fleet.journal
        if self._width != self.fleet.free.shape[1]:
            self._put_all()
        if self._cursor == journal.end:
            return
        entries = journal.since(self._cursor)
        if entries is None:
            self._put_all()
            return
        self._cursor = journal.end
        if len(entries) == 1:
            self._put_one(entries[0][2])
            return
        rows = {node for _, _, node in entries}
        if len(rows) > FEW:
            self._put(np.array(sorted(rows)))
            return
        for row in rows:
            self._put_one(row)

    def _free(self, row: int) -> tuple[int, ...]:
        """As :func:`free_shares` for one node, in ascending order, of the devices that are there."""
        cards = self.fleet.cards
        count = len(self.states.rows[self.numbers[row]].free)
        free: list[int] = cards.milli[row, :count].tolist()
        if not self.plain and (memory := int(cards.memory[row])):
            free = [min(f, mib * FULL // memory) for f, mib in zip(free, cards.mib[row, :count].tolist(), strict=True)]
        free.sort()
        if free and (free[0] < 0 or free[-1] > FULL):
            free = [min(FULL, max(0, f)) for f in free]
        return tuple(free)

    def _put_all(self) -> None:
        self._put(np.flatnonzero(self.fleet.alive))
        self._cursor, self._width = self.fleet.journal.end, self.fleet.free.shape[1]

    def _put(self, rows: NDArray[np.intp]) -> None:
        """What :meth:`_put_one` notes, for many nodes."""
        cpu, found = self.fleet.free[rows, CPU], self._numbers_of(rows)
        idle = np.array([self.states.rows[number].idle for number in found], np.int64)
        free = self.states.fragments.bucket(cpu)
        self.idle[rows] = idle
        self.devices[rows] = [len(self.states.rows[number].free) for number in found]
        self.place[rows] = np.array(found, np.int64) * self._buckets + free
        self.stranded[rows] = np.maximum(idle - cpu * self.per_core, 0.0)
        self.places, self.idle_of, self.stranded_of = self.place.tolist(), self.idle.tolist(), self.stranded.tolist()
        for row, number, amounts in zip(rows.tolist(), found, self.fleet.free[rows].tolist(), strict=True):
            self.numbers[row], self.amounts[row] = number, amounts

    def _numbers_of(self, rows: NDArray[np.intp]) -> list[int]:
        """The states of these nodes: interned once for each that is met, as many nodes have the same."""
        shares = free_shares(self.fleet, rows, memory=not self.plain)
        kinds = np.array(self.kinds, np.int64)[rows]
        packed, width = np.column_stack([kinds, shares]).tobytes(), 8 * (shares.shape[1] + 1)
        known: dict[bytes, int] = {}
        found: list[int] = []
        for at, row in enumerate(rows.tolist()):
            number = known.get(state := packed[at * width : (at + 1) * width])
            if number is None:
                free = tuple([one for one in shares[at].tolist() if one >= 0])
                number = known[state] = self.states.intern(self.kinds[row], free)
            found.append(number)
        return found

    def _put_one(self, row: int) -> None:
        """Note what the node's devices have free, and what its free cores say."""
        amounts = self.amounts[row] = self.fleet.free[row].tolist()
        cpu, number, free = amounts[CPU], self.numbers[row], self._free(row)
        if free != self.states.rows[number].free:
            number = self.numbers[row] = self.states.intern(self.kinds[row], free)
            self.idle[row] = self.idle_of[row] = self.states.rows[number].idle
        idle = self.idle_of[row]
        self.place[row] = self.places[row] = number * self._buckets + bisect_right(self._cores, cpu)
        self.stranded[row] = self.stranded_of[row] = max(idle - cpu * self.per_core, 0.0)


def free_shares(fleet: Fleet, rows: NDArray[np.intp], *, memory: bool) -> Ints:
    """Thousandths free of each device of these nodes, ascending; -1 for each device that a node has not.

    Of compute; with ``memory`` of compute or of memory, whichever is less."""
    cards = fleet.cards
    free = cards.milli[rows].astype(np.int64)
    if memory:
        mib = cards.memory[rows].astype(np.int64)[:, None]
        of_memory = cards.mib[rows].astype(np.int64) * FULL // np.maximum(mib, 1)
        free = np.where(mib > 0, np.minimum(free, of_memory), free)
    there = cards.holder[rows] != NO_DEVICE
    return np.sort(np.where(there, np.minimum(np.maximum(free, 0), FULL), -1), axis=1)
