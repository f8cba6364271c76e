"""A fleet as it would be: pending pods are bound for a trial, and GPUs repartitioned so that more of them can be.

Everything happens inside a what-if of the fleet. Which nodes let a pod in, and what rules about other pods leave, is
asked of the scheduler (:class:`tonnage.fleet.filters.Filters`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from tonnage.decisions import Instances
from tonnage.facts.labels import GPU
from tonnage.fleet.cards import FREE_DEVICE
from tonnage.fleet.devices import OPEN
from tonnage.fleet.filters import Filters
from tonnage.fleet.fits import fits
from tonnage.fleet.geometry import Geometry, geometry
from tonnage.fleet.offers import too_small
from tonnage.fleet.outfit import node_gpu
from tonnage.fleet.state import Fleet
from tonnage.partitioning import fleet_plan
from tonnage.partitioning.fleet_layouts import (
    Device,
    as_instances,
    as_layout,
    asks,
    busy_in,
    devices,
    has_layout,
    lay,
    layout_of,
    may_change,
)
from tonnage.partitioning.fleet_plan import Demand, PlannedGpu
from tonnage.partitioning.layouts import Placement


class TrialGpu(Struct, frozen=True):
    """A GPU that may be repartitioned. One that is whole and idle is planned as a card with an instance that takes all
    of it."""

    device: Device
    card: PlannedGpu
    whole: bool

    @property
    def now(self) -> Instances:
        """How it is partitioned."""
        return None if self.whole else as_instances(self.card.running)


@dataclass(frozen=True, slots=True)
class NodeRelayout:
    """GPUs of one node to repartition, and how. ``destroyed``: how many instances go."""

    changes: list[tuple[TrialGpu, Instances]]
    destroyed: int


NOTHING = NodeRelayout([], 0)


@dataclass(slots=True)
class Savepoint:
    """A part of a trial; ``keep``: it stands when it is over, else all that was done in it is undone."""

    keep: bool = False


@dataclass(slots=True)
class LayoutTrial:
    """What the fleet would be. ``filters``: the scheduler's, of this fleet. ``changing``: devices that are being
    repartitioned already. ``done``: in order, the rows of the pods bound, and the devices repartitioned with what they
    were before. ``anyway``: GPUs of nodes that do not allow a change of MIG layout count too."""

    fleet: Fleet
    filters: Filters
    changing: frozenset[Device] = frozenset()
    done: list[int | tuple[Device, Instances]] = field(default_factory=list)
    anyway: bool = False
    _admitting: dict[int, tuple[int, ...]] = field(default_factory=dict)
    _versions: dict[int, int] = field(default_factory=dict)  # by node row; undoing brings the old number back
    _last: int = 0
    _planned: dict[tuple[int, int, int], NodeRelayout] = field(
        default_factory=dict
    )  # by class, node row and its version

    @contextmanager
    def attempt(self) -> Iterator[Savepoint]:
        """What is done inside the block is undone when it ends, unless it is to be kept."""
        attempt, mark, versions = Savepoint(), len(self.done), dict(self._versions)
        yield attempt
        if not attempt.keep:
            self._versions = versions
        while not attempt.keep and len(self.done) > mark:
            last = self.done.pop()
            if isinstance(last, int):
                self.fleet.unbind(last)
            else:
                lay(self.fleet, *last)

    def cut(self) -> dict[Device, Instances]:
        """The devices that are repartitioned, and how they were before."""
        found: dict[Device, Instances] = {}
        for one in self.done:
            if isinstance(one, tuple):
                found.setdefault(*one)
        return found

    def gained(self) -> dict[Device, list[int]]:
        """The pods that were bound, by the devices that they are on."""
        found: dict[Device, list[int]] = {}
        for pod in (one for one in self.done if isinstance(one, int)):
            row = self.fleet.pod(pod)
            for device in row.devices:
                found.setdefault((row.node, device), []).append(pod)
        return found

    def admitting(self, pod: int) -> tuple[int, ...]:
        """Rows of the nodes, by name, that would let the pod in if they had room."""
        fleet, number = self.fleet, self.fleet.pod(pod).class_id
        if number not in self._admitting:
            there = self.filters.admit(fleet.classes.rows[number])
            self._admitting[number] = tuple(row for row in fleet.node_rows() if there[row])
        return self._admitting[number]

    def rules(self, pod: int) -> NDArray[np.bool_] | None:
        """What rules about other pods leave the pod in this row; None: no rule says anything."""
        return self.filters.rules(self.fleet.pod_class(pod))

    def open(self, pod: int) -> tuple[int, ...]:
        """Those of the admitting nodes that the places of other pods leave the pod."""
        rows, left = self.admitting(pod), self.rules(pod)
        return rows if left is None else tuple(row for row in rows if left[row])

    def bind(self, pod: int, among: tuple[int, ...] | None = None) -> bool:
        """Bind the pod where it fits, on the first node by name; ``among``: these nodes, which are open to it."""
        fleet, rows = self.fleet, self.open(pod) if among is None else among
        shape = fleet.classes.shapes[fleet.pod_class(pod).shape]
        with_room = np.flatnonzero(fits(fleet, np.array(rows, np.intp), shape))
        if not len(with_room):
            return False
        row = rows[int(with_room[0])]
        fleet.bind(pod, row)
        self.done.append(pod)
        self._changed(row)
        return True

    def sites(self, rows: Iterable[int]) -> list[TrialGpu]:
        """The GPUs of these nodes that may be repartitioned, by node and index."""
        return [site for row in rows for site in self._on_node(row)]

    def _on_node(self, row: int) -> list[TrialGpu]:
        fleet, node = self.fleet, self.fleet.node(row)
        on = geometry(node_gpu(node.labels, node.spec.gpu))
        if on is None or not (self.anyway or may_change(node.labels)):
            return []
        found, small = [], too_small(fleet.cards, row, on.memory_mib)
        for device in range(devices(fleet, row)):
            at, cut = (row, device), fleet.cards.cut_of(row, device)
            name = f"{node.spec.name}/{device}"
            if at in self.changing:
                continue
            if has_layout(cut):
                found.append(
                    TrialGpu(at, PlannedGpu(name, on, layout_of(cut), busy_in(fleet, at), node.spec.name), False)
                )
            elif small:  # GPUs of the node have parts in use that would not be there
                continue
            elif cut == OPEN and fleet.devices[at] == FREE_DEVICE and node.spec.device_resource == GPU:
                found.append(TrialGpu(at, PlannedGpu(name, on, (all_of(on),), (), node.spec.name), True))
        return found

    def _changed(self, row: int) -> None:
        self._last += 1
        self._versions[row] = self._last

    def bind_after_change(self, pod: int, row: int) -> bool:
        """Bind the pod to the node after GPUs of it are repartitioned; else nothing is changed, and the node is ruled
        out for pods of the class as long as it stays as it is."""
        with self.attempt() as attempt:
            self.make(self.planned(pod, row).changes)
            attempt.keep = self.bind(pod, (row,))
        if not attempt.keep:
            self._planned[self._key(pod, row)] = NOTHING
        return attempt.keep

    def planned(self, pod: int, row: int) -> NodeRelayout:
        """What to repartition on this node for the pod."""
        key = self._key(pod, row)
        if key not in self._planned:
            changes = self.plan([pod], (row,))
            gone = sum(one not in as_layout(goal) for site, goal in changes for one in as_layout(site.now))
            self._planned[key] = NodeRelayout(changes, gone)
        return self._planned[key]

    def _key(self, pod: int, row: int) -> tuple[int, int, int]:
        return self.fleet.pod(pod).class_id, row, self._versions.get(row, 0)

    def make(self, changes: Iterable[tuple[TrialGpu, Instances]]) -> None:
        """Repartition these GPUs."""
        for site, goal in changes:
            lay(self.fleet, site.device, goal)
            self.done.append((site.device, site.now))
            self._changed(site.device[0])

    def plan(self, pods: Sequence[int], rows: Sequence[int]) -> list[tuple[TrialGpu, Instances]]:
        """Which GPUs of these nodes to repartition, and how, so that as many as can be of the pods have what they ask
        for, with the fewest instances destroyed. Changes nothing."""
        wanted = Counter(piece for pod in pods for piece in asks(self.fleet, pod))
        sites, found = self.sites(rows), list[tuple[TrialGpu, Instances]]()
        for gpu in sorted({site.card.on.gpu for site in sites}):
            among = [site for site in sites if site.card.on.gpu == gpu]
            on = among[0].card.on
            demands = [
                Demand(name, count, all_of(on).profile if name == GPU else name)
                for name, count in sorted(wanted.items())
                if name == GPU or name in on.slots
            ]
            if not demands:
                continue
            plan = fleet_plan.plan([site.card for site in among], demands)
            for demand, served in zip(demands, plan.served, strict=True):
                wanted[demand.name] -= served
            wanted = +wanted
            for site, card in zip(among, plan.cards, strict=True):
                serves = [demands[number].name for _, number in card.serves]
                goal = None if GPU in serves else as_instances(card.change.after)
                if serves and goal != site.now:
                    found.append((site, goal))
        return found


def all_of(on: Geometry) -> Placement:
    """The instance that takes all of a card."""
    largest = max(on.slots.values(), key=lambda slot: (slot.mib, slot.milli, "+" not in slot.name, slot.name))
    return Placement(0, largest.name)
