"""Look for a place for a gang completely, within a budget: the answer is a placement, "there is none", or "not known".

Depth first over pods and nodes. The domain of a group is whatever its first pod chooses, so that all domains, all
orders of subgroups and all ways to make up the minimum are looked at. In a
:class:`~tonnage.scheduling.gangs.room.Sheet`, where order does not matter, pods of one item go to nodes in one order
only, and of nodes that cannot be told apart the first is tried. In a :class:`~tonnage.scheduling.gangs.room.FleetRoom`
every order of pods is looked at, since one may have to be there before another, each arrangement once.
"""

from __future__ import annotations

from collections import Counter

import numpy as np

from tonnage.scheduling.gangs.room import Devices, Room, Sheet
from tonnage.scheduling.gangs.tree import GangTree
from tonnage.scheduling.levels import Levels


class OutOfBudget(Exception):
    """The search was not finished."""


class _Bond:
    """A group has to stand in one domain of a level: ``home``, where members are bound; else where its first pod goes.
    ``pods``: put by the search."""

    __slots__ = ("domain", "home", "level", "pods")

    def __init__(self, level: int, home: int) -> None:
        self.level = level
        self.home = self.domain = home
        self.pods = 0


class GangSearch:
    """One search. ``at``: by group, the levels of each of which it has to stand in one domain. ``budget``: steps left,
    a pod put on a node each."""

    def __init__(self, tree: GangTree, levels: Levels, room: Room, at: list[set[int]], budget: int) -> None:
        self._tree = tree
        self._room = room
        self._bonds = [_Bond(level, tree.home(g, levels, level)) for g, wanted in enumerate(at) for level in wanted]
        owners = [g for g, wanted in enumerate(at) for _ in wanted]
        self._bonds_of = [[b for b, g in zip(self._bonds, owners, strict=True) if g == n] for n in range(len(at))]
        self.budget = budget
        self._ordered = isinstance(room, Sheet)
        self._paths = [tree.path(item.group) for item in tree.items]
        self._placed = [0] * len(tree.items)
        self._have = [group.members for group in tree.groups]
        self._of_node = levels.of_node.tolist()
        self._rows = self._candidates(levels)
        self._slices = {
            g: tree.bound_domains(g, levels, group.slice_level)
            for g, group in enumerate(tree.groups)
            if group.slice_level >= 0
        }
        self._begun = {g: _begun(domains, tree.groups[g].rule.slice_size) for g, domains in self._slices.items()}
        self._seen: set[tuple[tuple[int, int, Devices, int], ...]] = set()

    def _candidates(self, levels: Levels) -> list[int]:
        some = np.zeros(len(levels.of_node), np.bool_)
        for item in self._tree.items:
            some |= self._room.count(item.class_id) > 0
        return [row for row in levels.rows.tolist() if some[row]]

    def run(self) -> bool:
        """Whether there is a placement; then the room holds it, else what it held before. Raises OutOfBudget."""
        mark = len(self._room.put)
        try:
            return self._by_item(0, 0) if self._ordered else self._any_order()
        except OutOfBudget:
            self._room.back(mark)
            raise

    def _done(self) -> bool:
        groups = self._tree.groups
        if any(have < group.minimum for have, group in zip(self._have, groups, strict=True)):
            return False
        for number, domains in self._slices.items():
            size = groups[number].rule.slice_size
            if _begun(domains, size) > max(domains.total() % size > 0, self._begun[number]):
                return False
        return True

    # ---- order does not matter ----

    def _by_item(self, number: int, start: int) -> bool:
        if self._done():
            return True
        if number == len(self._tree.items) or not self._enough_left(number):
            return False
        item = self._tree.items[number]
        tried: set[tuple[object, ...]] = set()
        if self._placed[number] < len(item.pods):
            for at in range(start, len(self._rows)):
                row = self._rows[at]
                alike = self._likeness(row)
                if alike in tried or not self._put(number, row):
                    continue
                tried.add(alike)
                if self._by_item(number, at):
                    return True
                self._take_back(number, row)
        return self._by_item(number + 1, 0)

    def _enough_left(self, number: int) -> bool:
        """Whether the items from this one on can still bring every group to its minimum."""
        could = list(self._have)
        for i in range(number, len(self._tree.items)):
            for group in self._paths[i]:
                could[group] += len(self._tree.items[i].pods) - self._placed[i]
        return all(have >= group.minimum for have, group in zip(could, self._tree.groups, strict=True))

    def _likeness(self, row: int) -> tuple[object, ...]:
        """What tells the node from others: what it holds of each class, and its domains of the levels that matter."""
        held = tuple(int(self._room.count(item.class_id)[row]) for item in self._tree.items)
        free = self._room.free_of(row) if isinstance(self._room, Sheet) else ()
        levels = {bond.level for bond in self._bonds} | {self._tree.groups[g].slice_level for g in self._slices}
        return held, free, tuple(self._of_node[row][level] for level in sorted(levels))

    # ---- order matters ----

    def _any_order(self) -> bool:
        if self._done():
            return True
        arrangement = Counter((number, int(rows[0]), devices or ()) for number, rows, _, devices in self._room.put)
        state = tuple(sorted((*key, count) for key, count in arrangement.items()))
        if state in self._seen:
            return False
        self._seen.add(state)
        for number, item in enumerate(self._tree.items):
            if self._placed[number] == len(item.pods):
                continue
            for row in self._rows:
                for devices in self._room.ways(number, row):
                    if self._put(number, row, devices):
                        if self._any_order():
                            return True
                        self._take_back(number, row)
        return False

    # ---- one pod ----

    def _put(self, number: int, row: int, devices: Devices | None = None) -> bool:
        """Put the item's next pod there if its groups' domains and the room allow it."""
        for group in self._paths[number]:
            for bond in self._bonds_of[group]:
                domain = self._of_node[row][bond.level]
                if domain < 0 or bond.domain not in (-1, domain):
                    return False
            if group in self._slices and self._of_node[row][self._tree.groups[group].slice_level] < 0:
                return False
        if not self.budget:
            raise OutOfBudget
        self.budget -= 1
        if not self._room.take(number, np.array([row]), np.array([1]), devices):
            return False
        self._placed[number] += 1
        for group in self._paths[number]:
            self._have[group] += 1
            for bond in self._bonds_of[group]:
                bond.domain = self._of_node[row][bond.level]
                bond.pods += 1
            if group in self._slices:
                self._slices[group][self._of_node[row][self._tree.groups[group].slice_level]] += 1
        return True

    def _take_back(self, number: int, row: int) -> None:
        self._room.back(len(self._room.put) - 1)
        self._placed[number] -= 1
        for group in self._paths[number]:
            self._have[group] -= 1
            for bond in self._bonds_of[group]:
                bond.pods -= 1
                if not bond.pods:
                    bond.domain = bond.home
            if group in self._slices:
                self._slices[group][self._of_node[row][self._tree.groups[group].slice_level]] -= 1


def _begun(domains: Counter[int], size: int) -> int:
    """How many domains hold a number of pods that is not a multiple of ``size``."""
    return sum(1 for count in domains.values() if count % size)
