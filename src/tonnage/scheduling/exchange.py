"""Room for pods that are left over, made by seating pods of the same decision elsewhere.

A pod that fits nowhere is put on a node where enough pods stand that this decision bound, and that fit elsewhere: those
go, it is seated, and each of them is given a new place, or nothing happens. Nobody who is bound loses that, so with
each exchange one pod more stands. Pods with rules about others stay, and so do those that others ask for or are spread
among, members of gangs, and pods for which room was made.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from tonnage.fleet.asks import FULL
from tonnage.fleet.rows import PodRow
from tonnage.scheduling.trial import Trial
from tonnage.scheduling.view import NEVER, Ints, ShapeView

NODES = 4
"""So many nodes are tried for one pod, those first where the least is missing."""


@dataclass(frozen=True, slots=True)
class Seat:
    """Where a pod stands now: ``node`` is a row, ``key`` that of the node when it was chosen (:class:`ShapeView`).

    ``moved``: it stood elsewhere before, and ``about`` is the name of the pod that needed its room; else ``about`` says
    how many others went."""

    row: int
    node: int
    devices: tuple[int, ...]
    key: int
    moved: bool
    about: str | int


class Exchange:
    """``own``: rows of the pods that the policy has bound in this decision. Inside a what-if only.

    What is missing and what could go is counted in the fleet's resources; devices in thousandths, in one more column,
    where all devices are open."""

    def __init__(self, trial: Trial, own: Iterable[int]) -> None:
        self._trial = trial
        self._fleet = fleet = trial.snapshot.fleet
        self._open = not bool(fleet.cards.special.any())
        rows = [row for row in own if self._may_move(fleet.pod(row))]
        self._at = {row: number for number, row in enumerate(rows)}
        self._shape = np.array([fleet.pod_class(row).shape for row in rows], np.int64)
        self._size = np.array([self._amounts(row) for row in rows], np.int64).reshape(len(rows), fleet.free.shape[1] + 1)
        nodes = sorted({fleet.pod(row).node for row in rows})
        self._nodes = np.array(nodes, np.int64)
        self._index = {node: number for number, node in enumerate(nodes)}
        self._where = np.array([self._index[fleet.pod(row).node] for row in rows], np.int64)
        self._on: list[dict[int, None]] = [{} for _ in nodes]
        for row, where in zip(rows, self._where.tolist(), strict=True):
            self._on[where][row] = None
        self._roams = {shape: self._fits_somewhere(rows[int(at)]) for shape, at in self._first_of_each_shape()}
        self._count()

    def _may_move(self, pod: PodRow) -> bool:
        topology = self._trial.cache.topology
        pod_class = self._fleet.classes.rows[pod.class_id]
        return not (topology.has_rules(pod_class) or topology.is_company(pod_class))

    def _amounts(self, row: int) -> list[int]:
        """What the pod has: by resource, and thousandths of devices."""
        pod = self._fleet.pod(row)
        amounts = [0] * (self._fleet.free.shape[1] + 1)
        for column, amount in self._fleet.requests(self._fleet.pod_class(row).shape):
            amounts[column] = amount
        amounts[-1] = held_milli(pod)
        return amounts

    def _first_of_each_shape(self) -> list[tuple[int, int]]:
        shapes, first = np.unique(self._shape, return_index=True)
        return list(zip(shapes.tolist(), first.tolist(), strict=True))

    def _fits_somewhere(self, row: int) -> bool:
        return bool((self._trial.view(row).key != NEVER).any())

    def _count(self) -> None:
        """Add up, for each node, what those of its pods have that fit elsewhere too."""
        roams = np.array([self._roams[shape] for shape in self._shape.tolist()], np.bool_)
        self._more = np.zeros((len(self._nodes), self._size.shape[1]), np.int64)
        np.add.at(self._more, self._where[roams], self._size[roams])

    # ---- one after the other ----

    def seat(self, left: Sequence[int]) -> list[Seat]:
        """Let pods of these stand, in this order, and say who is bound where now that was not before. Equal pods are
        not asked for again once one of them has found no room."""
        failed: set[tuple[bool, int]] = set()
        done: list[Seat] = []
        for row in left:
            pod_class = self._fleet.pod_class(row)
            ruled = self._trial.cache.topology.has_rules(pod_class)
            kind = (ruled, pod_class.id if ruled else pod_class.shape)
            if kind not in failed:
                found = self._for(row)
                done += found
                if not found:
                    failed.add(kind)
        return done

    def _for(self, row: int) -> list[Seat]:
        keys = self._trial.keys(row)
        best = int(keys.argmax()) if len(keys) else 0
        if len(keys) and keys[best] != NEVER:
            key = int(keys[best])
            self._trial.seat(row, best)
            return [Seat(row, best, self._fleet.pod(row).devices, key, moved=False, about=0)]
        for where, short in self._candidates(row):
            found = self._try(row, where, short)
            if found:
                self._apply(where, found)
                return found
        return []

    def _candidates(self, row: int) -> list[tuple[int, Ints]]:
        """Nodes that could take the pod if those went that fit elsewhere, by number in ``_nodes``, and what each lacks
        by column; those first that lack least."""
        fleet, view = self._fleet, self._trial.view(row)
        pod_class = fleet.pod_class(row)
        nodes = self._nodes
        able = view.able[nodes]
        for _, mask in self._trial.cache.topology.masks(pod_class, view):
            able = able & mask[nodes]
        number = np.flatnonzero(able)
        if not len(number):
            return []
        need = self._needs(row, view)
        columns = np.flatnonzero(need)
        need = need[columns]
        free = np.column_stack([fleet.free[nodes[number]], fleet.cards.milli[nodes[number]].sum(axis=1)])[:, columns]
        number_of = (free + self._more[number][:, columns] >= need).all(axis=1)
        number, free = number[number_of], free[number_of]
        short = np.zeros((len(number), self._more.shape[1]), np.int64)
        short[:, columns] = (need - free).clip(0)
        effort = (short[:, columns] / need).sum(axis=1)
        order = np.lexsort((-view.nodes.tie[nodes[number]], effort))[:NODES]
        return [(int(number[at]), short[at]) for at in order.tolist()]

    def _needs(self, row: int, view: ShapeView) -> Ints:
        """What a pod that waits asks for, by column."""
        ask = view.shape.ask
        need = np.zeros(self._more.shape[1], np.int64)
        need[view.columns] = view.amounts
        if self._open and ask.count:
            need[self._fleet.resource(ask.resource)] = 0
            need[-1] = ask.gpu_milli
        return need

    def _try(self, row: int, where: int, short: Ints) -> list[Seat]:
        """Who stands where if the pod is put on that node: it first, then those who went; empty where one of them finds
        no place. Nothing changes."""
        fleet, node, trial = self._fleet, int(self._nodes[where]), self._trial
        name = fleet.pod(row).spec.name
        columns = np.flatnonzero(short) if short.any() else np.array([len(short) - 1])
        size = {
            one: float((self._size[self._at[one], columns] / np.maximum(short[columns], 1)).sum())
            for one in self._on[where]
            if self._roams[int(self._shape[self._at[one]])]
        }
        going: list[int] = []
        with fleet.what_if():
            for one in sorted(size, key=lambda one: (size[one], fleet.pod(one).key)):
                if not size[one]:
                    continue
                fleet.unbind(one)
                going.append(one)
                key = int(trial.keys(row)[node])
                if key != NEVER:
                    break
            else:
                return []
            trial.seat(row, node)
            seats = [Seat(row, node, fleet.pod(row).devices, key, moved=False, about=len(going))]
            for one in reversed(going):
                keys = trial.keys(one)
                best = int(keys.argmax())
                key = int(keys[best])
                if key == NEVER:
                    return []
                trial.seat(one, best)
                seats.append(Seat(one, best, fleet.pod(one).devices, key, moved=True, about=name))
        return seats

    def _apply(self, where: int, seats: Sequence[Seat]) -> None:
        fleet = self._fleet
        first, *others = seats
        for one in reversed(others):
            fleet.unbind(one.row)
            self._more[where] -= self._size[self._at[one.row]]
            del self._on[where][one.row]
        fleet.bind(first.row, first.node, first.devices or None)
        for one in others:
            fleet.bind(one.row, one.node, one.devices or None)
        gone = False
        for one in others:
            at, index = self._at[one.row], self._index.get(one.node, -1)
            if index < 0:
                index = self._open_node(one.node)
            self._where[at] = index
            self._on[index][one.row] = None
            self._more[index] += self._size[at]
            shape = int(self._shape[at])
            if self._roams[shape] and not self._fits_somewhere(one.row):
                self._roams[shape], gone = False, True
        if gone:
            self._count()

    def _open_node(self, node: int) -> int:
        """Count a node in on which none of these stood."""
        index = self._index[node] = len(self._nodes)
        self._nodes = np.append(self._nodes, node)
        self._on.append({})
        self._more = np.vstack([self._more, np.zeros(self._more.shape[1], np.int64)])
        return index


def held_milli(pod: PodRow) -> int:
    """Thousandths of devices that the pod has; of those that it has in parts, of their compute."""
    if not pod.pieces:
        return FULL * len(pod.devices)
    apart = {piece.device for piece in pod.pieces}
    return FULL * sum(device not in apart for device in pod.devices) + sum(piece.milli for piece in pod.pieces)
