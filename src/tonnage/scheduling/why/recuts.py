"""GPUs of a node repartitioned so that it takes a pod which waits: MIG instances made, or cards made whole again."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import accumulate

import numpy as np
from numpy.typing import NDArray

from tonnage.facts.labels import GPU, GPU_PRODUCT
from tonnage.fleet.asks import is_device
from tonnage.fleet.cards import FREE_DEVICE
from tonnage.fleet.fits import fits
from tonnage.fleet.geometry import geometry
from tonnage.fleet.outfit import node_gpu
from tonnage.partitioning.fleet_layouts import asks
from tonnage.partitioning.layouts import mask_of, resource
from tonnage.partitioning.node_cuts import MIG_STRATEGY
from tonnage.partitioning.trial import LayoutTrial, TrialGpu
from tonnage.scheduling.filters import SchedulerFilters
from tonnage.scheduling.why.bounds import Tables, rows_of
from tonnage.scheduling.why.changes import Edit, Recut, Uncordon, cost_of
from tonnage.scheduling.why.static import Kin


class Recuts:
    """For one waiting pod. Nodes that forbid another cut are looked at too: a person may allow it. ``wanted``: what the
    pod asks of cards that can be partitioned; empty where it asks for nothing of the kind, or for parts of devices."""

    def __init__(self, tables: Tables) -> None:
        self._tables, self._fleet = tables, tables.fleet
        self._shape = self._fleet.classes.shapes[self._fleet.pod_class(tables.row).shape]
        self.wanted = [] if self._shape.ask.shares or self._shape.ask.refused else asks(self._fleet, tables.row)

    def cases(self, groups: Iterable[Kin]) -> list[tuple[int, tuple[Edit, ...]]]:
        """Nodes of these groups where that may help, with the edits that open them, the fewest first."""
        if not self.wanted:
            return []
        found, may = [], self._with_room()
        for group in groups:
            known, first = self._tables.recuttable, int(group.rows[0])
            if first not in known:
                known[first] = list(self._candidates(group.rows[may[group.rows]]))
            for row in known[first]:
                own = (Uncordon(self._fleet.node(row).spec.name),) if group.cordoned else ()
                found += [(row, (*own, *way)) for way in group.ways]
        return sorted(found, key=lambda case: cost_of(case[1]))

    def _with_room(self) -> NDArray[np.bool_]:
        """By node row: everything that does not come of cards is there, and a device that is free, or cut already."""
        fleet, wanted = self._fleet, set(self.wanted)
        nodes = len(fleet.alive)
        enough: NDArray[np.bool_] = (fleet.devices[:nodes] == FREE_DEVICE).any(axis=1) | fleet.cards.special[:nodes]
        for column, need in self._tables.requests:
            if fleet.resources[column] not in wanted:
                enough &= fleet.free[:nodes, column] >= need
        return enough

    def _candidates(self, rows: NDArray[np.int64]) -> Iterator[int]:
        """Of these nodes those that have cards with the wanted instances; of those that cannot be told apart the first
        by row."""
        fleet, wanted = self._fleet, set(self.wanted)
        columns = [at for at, name in enumerate(fleet.resources) if is_device(name)]
        cards, cuts = fleet.cards, self._tables.cuts
        whole = (cards.cut, cards.mask, cards.milli, cards.sharers, np.minimum(cards.holder, 0))
        beside = (self._tables.allowed[rows, None], cards.memory[rows, None], fleet.free[rows][:, columns])
        states = rows_of(np.hstack([*(one[rows] for one in whole), *beside]).astype(np.int64))
        products, names = fleet.label_columns.of(GPU_PRODUCT)
        by_label = [node_gpu({GPU_PRODUCT: name}, "") for name in names] + [node_gpu({}, "")]
        labelled = products[fleet.label_set[rows]].tolist()
        seen: set[tuple[object, ...]] = set()
        for at, row in enumerate(rows.tolist()):
            node = fleet.node(row)
            gpu = node.spec.gpu or by_label[labelled[at]]
            alike = gpu, cuts[row], states[at]
            if alike not in seen:
                seen.add(alike)
                on = geometry(gpu)
                if on is not None and (node.cuts or any(name in on.slots for name in wanted)):
                    yield row

    def least(self, row: int) -> int | None:
        """At least so many GPUs of the node have to be repartitioned for what the pod asks; None: all are not enough.

        Counted without a plan: a card can have no more instances of a profile than fit beside those in use."""
        fleet, most = self._fleet, 1
        sites = LayoutTrial(fleet, SchedulerFilters(self._tables.cache), anyway=True).sites((row,))
        for column, need in self._tables.requests:
            name, missing = fleet.resources[column], need - int(fleet.free[row, column])
            if name not in self.wanted or missing <= 0:
                continue
            gains = sorted((_gain(site, name) for site in sites), reverse=True)
            enough = next((n for n, sum_ in enumerate(accumulate(gains), 1) if sum_ >= missing), None)
            if enough is None:
                return None
            most = max(most, enough)
        return most

    def on(self, row: int) -> tuple[Recut, ...]:
        """What to repartition on the node so that the pod has all that it asks for, with the fewest instances
        destroyed; nothing where that is not possible. Changes nothing."""
        known = self._tables.recut
        if row not in known:
            with self._fleet.what_if():
                made = self._make(row)
                known[row] = made if made and self._room(row) else ()
        return known[row]

    def _make(self, row: int) -> tuple[Recut, ...]:
        """The same, done in the fleet."""
        trial = LayoutTrial(self._fleet, SchedulerFilters(self._tables.cache), anyway=True)
        changes = trial.plan([self._tables.row], (row,))
        trial.make(changes)
        node = self._fleet.node(row)
        mixed = node.labels.get(MIG_STRATEGY) != "mixed"
        return tuple(Recut(node.spec.name, site.device[1], goal, mixed and bool(goal)) for site, goal in changes)

    def _room(self, row: int) -> bool:
        """Whether the node has all that the pod asks for now."""
        return bool(fits(self._fleet, np.array([row]), self._shape)[0])


def _gain(site: TrialGpu, name: str) -> int:
    """How many more of the resource the GPU offers at most when it is repartitioned."""
    card = site.card
    if name == GPU:
        return int(not site.whole and not card.busy)
    made = 0 if site.whole else sum(resource(card.on, one.profile) == name for one in card.running)
    idle = made - sum(resource(card.on, one.profile) == name for one in card.busy)
    return max(0, card.on.capacity(mask_of(card.on, card.busy)).get(name, 0) - idle)
