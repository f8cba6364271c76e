"""Room for unschedulable pods, made by placing pods of the same decision elsewhere.

A pod that fits nowhere is put on a node where enough pods stand that this decision bound, and that fit elsewhere: those
go, it is placed, and each of them is given a new place, or nothing happens. Nobody who is bound loses that, so with
each exchange one pod more stands. Pods with rules about others stay, and so do those that others ask for or are spread
among, members of gangs, and pods for which room was made.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from tonnage.fleet import holding
from tonnage.fleet.asks import FULL, Ask
from tonnage.fleet.cards import NO_DEVICE
from tonnage.fleet.classes import PodClass
from tonnage.fleet.rows import PodRow
from tonnage.scheduling.trial import Trial
from tonnage.scheduling.view import NEVER, Ints

NODES = 4
"""This many nodes are tried for one pod, those first where the least is missing."""
NONE = 1 << 20
"""More devices than any node has: it cannot be."""


class Seat(Struct, frozen=True):
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

    What is missing and what could go is counted in the fleet's resources; devices one by one, in thousandths, where all
    devices are open."""

    def __init__(self, trial: Trial, own: Iterable[int]) -> None:
        self._trial = trial
        self._fleet = fleet = trial.snapshot.fleet
        self._open = not bool(fleet.cards.special.any())
        stand, classes = list(own), fleet.classes.rows
        pods = dict(zip(stand, fleet.pods_in(stand), strict=True))
        may = {one: self._may_move(classes[one]) for one in dict.fromkeys([pod.class_id for pod in pods.values()])}
        rows = [row for row, pod in pods.items() if may[pod.class_id]]
        self._at = {row: number for number, row in enumerate(rows)}
        self._shape = np.array([classes[pods[row].class_id].shape for row in rows], np.int64)
        amounts = np.zeros((len(fleet.classes.shapes), fleet.free.shape[1]), np.int64)
        for shape in set(self._shape.tolist()):
            amounts[shape] = self._amounts(shape)
        self._size = amounts[self._shape]
        on_node = [pods[row].node for row in rows]
        nodes = sorted(set(on_node))
        self._nodes = np.array(nodes, np.int64)
        self._index = {node: number for number, node in enumerate(nodes)}
        self._where = np.array([self._index[node] for node in on_node], np.int64)
        self._on: list[dict[int, None]] = [{} for _ in nodes]
        for row, where in zip(rows, self._where.tolist(), strict=True):
            self._on[where][row] = None
        self._roams = {shape: self._fits_somewhere(rows[int(at)]) for shape, at in self._first_of_each_shape()}
        self._count(pods)

    def _may_move(self, pod_class: PodClass) -> bool:
        topology = self._trial.cache.topology
        return not (topology.has_rules(pod_class) or topology.is_company(pod_class))

    def _amounts(self, shape: int) -> list[int]:
        """What a pod has of each resource."""
        amounts = [0] * self._fleet.free.shape[1]
        for column, amount in self._fleet.requests(shape):
            amounts[column] = amount
        return amounts

    def _first_of_each_shape(self) -> list[tuple[int, int]]:
        shapes, first = np.unique(self._shape, return_index=True)
        return list(zip(shapes.tolist(), first.tolist(), strict=True))

    def _fits_somewhere(self, row: int) -> bool:
        return bool((self._trial.view(row).key != NEVER).any())

    def _count(self, pods: Mapping[int, PodRow]) -> None:
        """Add up, for each node, what those of its pods have that fit elsewhere too; ``pods``: all of them, by row."""
        roams = np.array([self._roams[shape] for shape in self._shape.tolist()], np.bool_)
        self._more = np.zeros((len(self._nodes), self._size.shape[1]), np.int64)
        np.add.at(self._more, self._where[roams], self._size[roams])
        self._milli = np.zeros((len(self._nodes), self._fleet.cards.milli.shape[1]), np.int64)
        rows = list(self._at)
        for at, where in zip(np.flatnonzero(roams).tolist(), self._where[roams].tolist(), strict=True):
            for device, milli in holding.of_each(pods[rows[at]]):
                self._milli[where, device] += milli

    def _put(self, where: int, row: int, sign: int) -> None:
        """Count the devices of a pod on the node in (+1) or out (-1)."""
        if self._roams[int(self._shape[self._at[row]])]:
            for device, milli in holding.of_each(self._fleet.pod(row)):
                self._milli[where, device] += sign * milli

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
        by resource; those first that lack least."""
        fleet, view = self._fleet, self._trial.view(row)
        able = view.able[self._nodes]
        for _, mask in self._trial.cache.topology.masks(fleet.pod_class(row), view):
            able = able & mask[self._nodes]
        number = np.flatnonzero(able)
        need = np.zeros(self._more.shape[1], np.int64)
        need[view.columns] = view.amounts
        ask = view.shape.ask
        if self._open and ask.count:
            need[fleet.resource(ask.resource)] = 0  # its devices are looked at one by one
        columns = np.flatnonzero(need)
        free = fleet.free[self._nodes[number]][:, columns]
        enough = (free + self._more[number][:, columns] >= need[columns]).all(axis=1)
        number, free = number[enough], free[enough]
        if not len(number):
            return []
        short = np.zeros((len(number), len(need)), np.int64)
        short[:, columns] = (need[columns] - free).clip(0)
        effort = (short[:, columns] / need[columns]).sum(axis=1)
        if self._open and ask.count and ask.milli:
            lacks = np.sort(self._lacks(number, ask), axis=1)[:, : ask.count].sum(axis=1)
            effort = effort + lacks / FULL
        order = np.lexsort((-view.nodes.tie[self._nodes[number]], effort))[:NODES]
        return [(int(number[at]), short[at]) for at in order.tolist() if effort[at] < NONE]

    def _lacks(self, number: NDArray[np.intp], ask: Ask) -> Ints:
        """Thousandths that would have to go from each device of these nodes; NONE where that cannot be."""
        cards, nodes = self._fleet.cards, self._nodes[number]
        lack: Ints = (ask.milli - cards.milli[nodes].astype(np.int64)).clip(0)
        there = (cards.holder[nodes] != NO_DEVICE) & (lack <= self._milli[number][:, : lack.shape[1]])
        lack = np.where(there, lack, NONE * FULL)
        missing = ask.count - lack.shape[1]
        return np.pad(lack, ((0, 0), (0, max(0, missing))), constant_values=NONE * FULL)

    def _going(self, row: int, where: int, short: Ints) -> Iterator[int]:
        """Who could go from the node, in which order: who stands on the devices where least has to go, then who has
        least of what is short."""
        fleet = self._fleet
        may = [one for one in self._on[where] if self._roams[int(self._shape[self._at[one]])]]
        ask = self._trial.view(row).shape.ask
        done: set[int] = set()
        if ask.count and ask.milli and self._open:
            (lacks,) = self._lacks(np.array([where]), ask).tolist()
            rank = {device: at for at, device in enumerate(sorted(range(len(lacks)), key=lambda d: (lacks[d], d)))}
            wanted = [device for device, at in rank.items() if at < ask.count and lacks[device]]
            each = {one: dict(holding.of_each(fleet.pod(one))) for one in may}
            on_them = [one for one in may if not each[one].keys().isdisjoint(wanted)]
            at = {one: min(rank[device] for device in each[one]) for one in on_them}
            for one in sorted(on_them, key=lambda one: (at[one], sum(each[one].values()), fleet.pod(one).key)):
                done.add(one)
                yield one
        columns = np.flatnonzero(short)
        if not len(columns) and not (ask.count and self._open):
            columns = np.flatnonzero(self._more[where])
        size = {one: float((self._size[self._at[one], columns] / short[columns].clip(1)).sum()) for one in may}
        for one in sorted(may, key=lambda one: (size[one], fleet.pod(one).key)):
            if size[one] and one not in done:
                yield one

    def _try(self, row: int, where: int, short: Ints) -> list[Seat]:
        """Who stands where if the pod is put on that node: it first, then those who went; empty where one of them finds
        no place. Nothing changes."""
        fleet, node, trial = self._fleet, int(self._nodes[where]), self._trial
        name, key = fleet.pod(row).spec.name, NEVER
        going: list[int] = []
        order = list(self._going(row, where, short))
        with fleet.what_if():
            for one in order:
                fleet.unbind(one)
                going.append(one)
                key = int(trial.keys(row)[node])
                if key != NEVER:
                    break
            if key == NEVER:
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
            self._put(where, one.row, -1)
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
            self._put(index, one.row, 1)
            shape = int(self._shape[at])
            if self._roams[shape] and not self._fits_somewhere(one.row):
                self._roams[shape], gone = False, True
        if gone:
            self._count({row: fleet.pod(row) for row in self._at})

    def _open_node(self, node: int) -> int:
        """Count a node in on which none of these stood."""
        index = self._index[node] = len(self._nodes)
        self._nodes = np.append(self._nodes, node)
        self._on.append({})
        self._more = np.vstack([self._more, np.zeros(self._more.shape[1], np.int64)])
        self._milli = np.vstack([self._milli, np.zeros(self._milli.shape[1], np.int64)])
        return index
