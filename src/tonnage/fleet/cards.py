"""The columns of the fleet's devices: what is free of each, how it is partitioned, and the pieces taken and
released."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from tonnage.fleet.asks import FULL
from tonnage.fleet.columns import Interned, grow
from tonnage.fleet.devices import OPEN, Cut, DeviceState, How, Piece

FREE_DEVICE, NO_DEVICE, SHARED_DEVICE = -1, -2, -3
"""In place of a holder: nothing is on the device; there is none; pieces of it are held."""

Ints = NDArray[np.int32]
Correction = tuple[str, int]
"""(resource, how much more of it is free), beyond what the pod's requests say."""


Chosen: TypeAlias = tuple[tuple[int, ...], tuple[Piece, ...]]
"""The devices of a pod, and the pieces on them; a device without a piece is held whole."""

NO_CHOICE: Chosen = ((), ())


class Cards:
    """One row a node, one column a device.

    ``holder``: the pod row that holds it whole, or one of the marks above. ``milli``, ``mib``: free thousandths of
    compute and MiB; ``mask``: MIG slices in use (:mod:`tonnage.fleet.geometry`); ``sharers``: pieces on it; ``cut``:
    the number in ``cuts`` of how it is partitioned, 0: open. ``memory``: MiB of each device of a node, 0 where not
    known; ``special``: whether some device of the node is not open; ``unit``: the resource column that counts the
    node's whole devices or replicas, -1: none; ``numbers``: whether the node counts memory and cores of GPUs as
    numbers."""

    def __init__(self, nodes: int, width: int) -> None:
        self.holder: Ints = np.full((nodes, width), NO_DEVICE, np.int32)
        self.milli: Ints = np.zeros((nodes, width), np.int32)
        self.mib: Ints = np.zeros((nodes, width), np.int32)
        self.mask: Ints = np.zeros((nodes, width), np.int32)
        self.sharers: Ints = np.zeros((nodes, width), np.int32)
        self.cut: Ints = np.zeros((nodes, width), np.int32)
        self.memory: Ints = np.zeros(nodes, np.int32)
        self.special: NDArray[np.bool_] = np.zeros(nodes, np.bool_)
        self.unit: Ints = np.full(nodes, -1, np.int32)
        self.numbers: NDArray[np.bool_] = np.zeros(nodes, np.bool_)
        self.cuts: Interned[Cut, Cut] = Interned()
        self.cuts.intern(OPEN, OPEN)

    def reserve(self, nodes: int, width: int) -> None:
        """Make room for this many nodes and devices."""
        rows, columns = self.holder.shape
        if nodes <= rows and width <= columns:
            return
        shape = max(nodes, rows), max(width, columns)
        self.holder = grow(self.holder, shape, NO_DEVICE)
        self.milli, self.mib = grow(self.milli, shape, 0), grow(self.mib, shape, 0)
        self.mask, self.sharers = grow(self.mask, shape, 0), grow(self.sharers, shape, 0)
        self.cut = grow(self.cut, shape, 0)
        self.memory, self.special = grow(self.memory, shape[:1], 0), grow(self.special, shape[:1], 0)
        self.unit, self.numbers = grow(self.unit, shape[:1], -1), grow(self.numbers, shape[:1], 0)

    def select(self, rows: Sequence[int]) -> Cards:
        """A copy of these rows alone. The numbers of cuts stay what they are."""
        other = copy.copy(self)
        for name, column in vars(self).items():
            if isinstance(column, np.ndarray):
                setattr(other, name, column[rows])
        return other

    # ---- what is there ----

    def lay(self, row: int, cuts: Sequence[Cut], count: int, memory: int, unit: int) -> None:
        """Let the node have its first ``count`` devices, cut so (open where ``cuts`` says nothing), each of ``memory``
        MiB. New ones are free; what is on others stays."""
        self.reserve(0, count)
        holder, more = self.holder[row], memory - int(self.memory[row])
        self.memory[row], self.unit[row] = memory, unit
        self.special[row] = any(cut.how is not How.OPEN for cut in cuts)
        if more:
            self.mib[row, (holder == FREE_DEVICE) | (holder == SHARED_DEVICE)] += more
        new = np.flatnonzero(holder[:count] == NO_DEVICE)
        holder[new] = FREE_DEVICE
        self.milli[row, new], self.mib[row, new] = FULL, memory
        holder[count:] = NO_DEVICE
        for column in (self.milli, self.mib, self.mask, self.sharers, self.cut):
            column[row, count:] = 0
        self.cut[row, :count] = [self.cuts.intern(cut, cut) for cut in cuts[:count]] if cuts else 0

    def cut_of(self, row: int, device: int) -> Cut:
        """How the device is partitioned."""
        return self.cuts.rows[int(self.cut[row, device])]

    def state(self, row: int, device: int) -> DeviceState:
        """What is free of the device."""
        at = row, device
        return DeviceState(int(self.milli[at]), int(self.mib[at]), int(self.mask[at]), int(self.sharers[at]))

    # ---- taking and releasing ----

    def hold(self, row: int, devices: Iterable[int], pod_row: int) -> None:
        """Let the pod hold devices whole."""
        for device in devices:
            self.holder[row, device] = pod_row
            self.milli[row, device] = self.mib[row, device] = 0

    def release(self, row: int, devices: Iterable[int]) -> None:
        """Undo :meth:`hold`."""
        memory = self.memory[row]
        for device in devices:
            self.holder[row, device] = FREE_DEVICE
            self.milli[row, device] = FULL
            self.mib[row, device] = memory

    def take(self, row: int, chosen: Chosen, resource: str, pod_row: int) -> list[Correction]:
        """Put the pod on its devices; ``resource`` counts the node's whole ones. Returns what that changes in the
        node's free resources beyond the requests."""
        whole = _whole(chosen)
        self.hold(row, whole, pod_row)
        found = [one for device in whole for one in self._whole_correction(row, device, -1)]
        for piece in chosen[1]:
            found += self._move(row, resource, piece, 1)
        return found

    def give_back(self, row: int, chosen: Chosen, resource: str) -> list[Correction]:
        """Undo :meth:`take`."""
        whole = _whole(chosen)
        found: list[Correction] = []
        for piece in reversed(chosen[1]):
            found += self._move(row, resource, piece, -1)
        self.release(row, whole)
        return [*found, *(one for device in whole for one in self._whole_correction(row, device, 1))]

    def _whole_correction(self, row: int, device: int, sign: int) -> list[Correction]:
        cut = self.cut_of(row, device)
        if cut.dynamic:
            return [(name, sign * most) for name, most in cut.geometry.capacity(0).items()]
        return [(cut.resource, sign * (cut.replicas - 1))] if cut.how is How.SPLIT else []

    def _move(self, row: int, resource: str, piece: Piece, sign: int) -> list[Correction]:
        """Take (+1) or release (-1) one piece."""
        at = row, piece.device
        cut = self.cut_of(row, piece.device)
        before = int(self.mask[at])
        self.milli[at] -= sign * piece.milli
        self.mib[at] -= sign * piece.mib
        self.mask[at] ^= piece.mask
        self.sharers[at] += sign
        on_it = int(self.sharers[at])
        self.holder[at] = SHARED_DEVICE if on_it else FREE_DEVICE
        first_or_last = on_it == (1 if sign > 0 else 0)
        if cut.dynamic:
            after, geometry = int(self.mask[at]), cut.geometry
            was, now = geometry.capacity(before), geometry.capacity(after)
            found = [(name, now[name] - was[name]) for name in now if now[name] != was[name]]
            whole = [(cut.resource or resource, -sign)] if cut.whole and first_or_last else []
            return [*found, *whole, (piece.what, sign)]
        if cut.how is How.SPLIT:
            return [(cut.resource or resource, -sign)]
        return [(resource, -sign)] if cut.how is How.OPEN and first_or_last else []


def _whole(chosen: Chosen) -> list[int]:
    shared = {piece.device for piece in chosen[1]}
    return [device for device in chosen[0] if device not in shared]
