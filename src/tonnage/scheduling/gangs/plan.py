"""Gangs: plan the whole gang before anything is held, then bind all of it or none.

At each level that the gang's rule allows, the best first: is there room at all (a count by domain, which can only be
too hopeful), then the quick filling (:mod:`tonnage.scheduling.gangs.fill`), then a complete search within a budget
(:mod:`tonnage.scheduling.gangs.search`). Pods beyond the minimum follow one by one, or a slice at a time, inside the
domains that the gang has by then. A gang that finds no place holds nothing, and others pass it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import NamedTuple

import numpy as np
from msgspec import Struct

from tonnage.decisions import Reason
from tonnage.fleet.snapshot import Snapshot
from tonnage.fleet.state import FREE_DEVICE, Fleet
from tonnage.scheduling.cache import Cache
from tonnage.scheduling.gangs.fill import Filler
from tonnage.scheduling.gangs.growth import grow
from tonnage.scheduling.gangs.limits import GangBounds, refusal
from tonnage.scheduling.gangs.room import FleetRoom, Put, Room, Sheet, depends
from tonnage.scheduling.gangs.search import GangSearch, OutOfBudget
from tonnage.scheduling.gangs.tree import GangTree
from tonnage.scheduling.levels import Levels, UnknownLevel, order_of
from tonnage.scheduling.policies import ANY_POLICY
from tonnage.scheduling.view import Ints

BUDGET = 2_000
"""Steps of the complete search for one gang: pods put on nodes. Some 50 microseconds each."""


class PodPlace(NamedTuple):
    """A pod's row, the row of its node, and the devices that it has to have there; None: any."""

    pod: int
    node: int
    devices: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True)
class GangPlan:
    """Where the pods of a gang go, to be bound in this order: ``minimum`` all or none, then ``extra`` one by one.

    ``level`` and ``domain``: the innermost that all of it stands in by then, empty where there is none."""

    gang: str
    minimum: tuple[PodPlace, ...]
    extra: tuple[PodPlace, ...]
    level: str = ""
    domain: str = ""


class NoPlan(Struct, frozen=True):
    """Why the gang waits. ``unknown``: the search ran out of its budget, so a place may exist all the same.
    ``counted``: its pods are there and its levels, but counting alone leaves no domain, nor would it with less room."""

    reason: Reason
    unknown: bool = False
    counted: bool = False


def plan(snapshot: Snapshot, key: str, pods: Sequence[int], cache: Cache, budget: int = BUDGET) -> GangPlan | NoPlan:
    """Plan for the gang's pending ``pods`` (rows); members that are bound count. The fleet is unchanged afterwards."""
    gang = snapshot.gangs.get(key)
    if gang is None:
        return NoPlan(Reason(f"gang {key} does not exist, or has not been seen yet", (("gang", key),)))
    tree = GangTree(snapshot, gang, pods, alike(snapshot.fleet, cache, pods))
    short = tree.short()
    if short is not None:
        there = short.members + tree.available(tree.groups.index(short))
        evidence = (("gang", key), ("group", short.name), ("needs", short.minimum), ("there", there))
        return NoPlan(Reason(f"gang {short.name} waits for its pods: {there} of {short.minimum} exist", evidence))
    try:
        levels = cache.levels.get(order_of((group.rule for group in tree.groups), snapshot.topologies))
    except UnknownLevel as unknown:
        return NoPlan(Reason(f"gang {key}: {unknown}", (("gang", key),)))
    tree.set_levels(levels)
    return _Planning(snapshot, tree, levels, cache, budget).run()


def alike(fleet: Fleet, cache: Cache, pods: Sequence[int]) -> dict[int, int]:
    """Classes of one shape, where no rule is about their labels, as the first of them: controllers write a number into
    the labels of each pod, and classes of one pod each would be planned one by one."""
    first: dict[int, int] = {}
    found: dict[int, int] = {}
    for class_id in dict.fromkeys(fleet.pod(row).class_id for row in pods):
        pod_class = fleet.classes.rows[class_id]
        if not cache.topology.masks(pod_class, cache.view(pod_class, ANY_POLICY)):
            found[class_id] = first.setdefault(pod_class.shape, class_id)
    return found


class _Planning:
    """One gang's planning."""

    def __init__(self, snapshot: Snapshot, tree: GangTree, levels: Levels, cache: Cache, budget: int) -> None:
        self._fleet = snapshot.fleet
        self._tree = tree
        self._levels = levels
        self._cache = cache
        self._budget = budget
        self._unknown = False

    def run(self) -> GangPlan | NoPlan:
        classes = {item.class_id for item in self._tree.items}
        if not any(depends(self._fleet, self._cache, class_id) for class_id in classes):
            return self._in(Sheet(self._fleet, self._cache, self._tree.items))
        with self._fleet.what_if():
            return self._in(FleetRoom(self._fleet, self._cache, self._tree.items))

    def _in(self, room: Room) -> GangPlan | NoPlan:
        wanted = self._tree.chosen()
        filler = Filler(self._tree, self._levels, room, wanted, self._free_devices())
        if not any(wanted):
            return self._planned(room, filler)
        limits = GangBounds(self._tree, self._levels, room, self._fleet)
        lack = limits.part_that_fits_nowhere()
        counted = True
        for level, must_search in self._tree.root_levels(self._levels) if lack is None else ():
            lack = limits.lack(level)
            counted = counted and lack is not None
            if lack is None and (filler.everything(level) or (must_search and self._search(room, level))):
                return self._planned(room, filler)
        return NoPlan(refusal(self._tree, self._levels, lack, self._unknown), self._unknown, counted)

    def _free_devices(self) -> Ints:
        """By node: of two domains with the same room for the gang, the one with fewer free devices is taken."""
        free: Ints = (self._fleet.devices == FREE_DEVICE).sum(axis=1)
        return free

    def _search(self, room: Room, level: int | None) -> bool:
        at = [{group.required} - {-1} for group in self._tree.groups]
        at[0] |= set() if level is None else {level}
        search = GangSearch(self._tree, self._levels, room, at, self._budget)
        try:
            return search.run()
        except OutOfBudget:
            self._unknown = True
            return False
        finally:
            self._budget = search.budget

    def _planned(self, room: Room, filler: Filler) -> GangPlan:
        minimum = len(room.put)
        for number, rows, counts, _ in room.put:
            self._tree.settle(number, rows, counts)
        grow(self._tree, self._levels, room, filler)
        places = self._places(room.put)
        pods = sum(int(counts.sum()) for _, _, counts, _ in room.put[:minimum])
        level, domain = self._tree.stands_in(self._levels)
        return GangPlan(self._tree.gang.key, tuple(places[:pods]), tuple(places[pods:]), level, domain)

    def _places(self, put: Sequence[Put]) -> list[PodPlace]:
        taken = [0] * len(self._tree.items)
        places: list[PodPlace] = []
        for number, rows, counts, devices in put:
            nodes = np.repeat(rows, counts).tolist()
            start, taken[number] = taken[number], taken[number] + len(nodes)
            pods = self._tree.items[number].pods[start : taken[number]]
            places += map(PodPlace, pods, nodes, repeat(devices))
        return places
