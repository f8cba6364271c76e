"""Whether and where units fit in the fleet as it is, what-ifs included, and binding them there."""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from tonnage.decisions import Reason
from tonnage.fleet.classes import PodClass
from tonnage.fleet.filters import OPEN, Mask
from tonnage.fleet.snapshot import Snapshot
from tonnage.scheduling.assumed import Assumed
from tonnage.scheduling.cache import Cache, keys_of
from tonnage.scheduling.explain import explain
from tonnage.scheduling.gangs.plan import NoPlan, plan
from tonnage.scheduling.levels import UnknownLevel, order_of
from tonnage.scheduling.order import Places, Unit
from tonnage.scheduling.seat import seat
from tonnage.scheduling.view import NEVER, Ints, ShapeView

NOT_THERE_YET = Reason("its pod affinity or topology spread needs pods that are not scheduled yet")


class Trial(Struct, frozen=True):
    """``assumed``: pods that do not count for pod affinity, as they are not there yet."""

    snapshot: Snapshot
    cache: Cache
    policy: str
    assumed: Assumed

    def view(self, row: int) -> ShapeView:
        """What the policy says of every node for the pod."""
        return self.cache.view(self.snapshot.fleet.pod_class(row), self.policy)

    def open(self, row: int) -> Mask:
        """The nodes on which nothing but other pods can be in the pod's way."""
        why: Mask = self.view(row).why == OPEN
        return why

    def keys(self, row: int) -> Ints:
        """The score of every node; NEVER where the pod does not fit."""
        return self.looked(self.snapshot.fleet.pod_class(row))[1]

    def looked(self, pod_class: PodClass) -> tuple[ShapeView, Ints]:
        """What the policy says of every node for pods of the class, and :meth:`keys`."""
        view, topology = self.cache.view(pod_class, self.policy), self.cache.topology
        if topology.is_silent(pod_class):
            return view, view.key
        key = keys_of(topology, pod_class, view, topology.masks(pod_class, view))
        if self.assumed and topology.asks_for_others(pod_class):
            with self.assumed.away():
                there = self.cache.view(pod_class, self.policy)
                alone = keys_of(topology, pod_class, there, topology.masks(pod_class, there))
            key = np.where(alone == NEVER, NEVER, key)
        return view, key

    def refusal(self, pod_class: PodClass) -> Reason:
        """Why no node is feasible for the class."""
        view = self.cache.view(pod_class, self.policy)
        masks = self.cache.topology.masks(pod_class, view)
        if (keys_of(self.cache.topology, pod_class, view, masks) != NEVER).any():
            return NOT_THERE_YET
        return explain(self.snapshot.fleet, view, masks)

    def domains(self, unit: Unit) -> dict[int, str]:
        """Node row → its domain of the level that the unit's pods must share; of all nodes the same, if there is none.
        Empty where the gang names a level or a topology that is not there."""
        snapshot, levels = self.snapshot, self.cache.levels
        if not unit.region_key:
            return dict.fromkeys(snapshot.fleet.node_rows(), "")
        gang = snapshot.gangs[unit.gang]
        try:
            known = levels.get(order_of((gang.rule, *(part.rule for part in gang.subgroups)), snapshot.topologies))
        except UnknownLevel:
            return {}
        level = known.index(unit.region_key)
        numbers = known.of_node[known.rows, level].tolist()
        names = [known.name(level, n) for n in range(known.count(level))]
        return {row: names[n] for row, n in zip(known.rows.tolist(), numbers, strict=True) if n >= 0}

    def seat(self, row: int, node: int, view: ShapeView | None = None) -> None:
        """Bind the pod there, on the devices that suit it best. ``view``: what the policy says now, where that is at
        hand. Raises Conflict where it does not fit."""
        fleet = self.snapshot.fleet
        seat(fleet, row, node, (view or self.view(row)).devices(node))

    def has_no_room(self, unit: Unit) -> bool:
        """Whether counting alone says that the gang has no place, so that it has none with less room either."""
        found = plan(self.snapshot, unit.gang, unit.rows, self.cache)
        return isinstance(found, NoPlan) and found.counted

    def place(self, unit: Unit) -> Places | None:
        """Bind what the unit needs (of a gang what its minimum lacks) and say where, or bind nothing."""
        if unit.gang:
            found = plan(self.snapshot, unit.gang, unit.rows, self.cache)
            if isinstance(found, NoPlan):
                return None
            for place in found.minimum:
                seat(self.snapshot.fleet, place.pod, place.node, place.devices)
            return tuple((place.pod, place.node) for place in found.minimum)
        (row,) = unit.rows
        key = self.keys(row)
        best = int(key.argmax())
        if key[best] == NEVER:
            return None
        self.seat(row, best)
        return ((row, best),)
