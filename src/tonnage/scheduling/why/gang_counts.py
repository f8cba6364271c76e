"""What planning a gang would refuse by counting alone, after edits that nobody has to make in the fleet for that.

A plan begins with bounds on the room (:class:`tonnage.scheduling.gangs.limits.GangBounds`): where these leave no domain
to a part of the gang, or none to the gang, it ends there. The same is worked out here from the bounds of the fleet as
it is: other minima ask for other numbers, and more places are more room in the domains of the host that they are like.
What is counted is never less than what a plan would count.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from tonnage.fleet.snapshot import Snapshot
from tonnage.fleet.state import HOSTNAME
from tonnage.scheduling.cache import Cache
from tonnage.scheduling.gangs.limits import GangBounds
from tonnage.scheduling.gangs.tree import GangTree
from tonnage.scheduling.levels import Levels, UnknownLevel, order_of
from tonnage.scheduling.why.gang_changes import GangEdit, LowerMinimum, MorePlaces, RelaxLevel, place_size, with_edit
from tonnage.scheduling.why.standing import GangStart

ByClass = dict[int, int]
"""How many pods, by class."""


class _More(Struct, frozen=True):
    """Room that one edit makes: for so many ``pods`` on each of ``hosts`` new hosts, or (0) on the host in row ``like``
    itself; new hosts are in the domains of ``like`` but for its own."""

    like: int
    hosts: int
    pods: ByClass

    @property
    def in_all(self) -> ByClass:
        return {one: max(self.hosts, 1) * count for one, count in self.pods.items()}


class GangCounts:
    """For one gang, whose pending pods are given, as the fleet is now. Nothing changes in the fleet meanwhile."""

    def __init__(self, snapshot: Snapshot, key: str, pods: Sequence[int], cache: Cache, standing: GangStart) -> None:
        self._snapshot, self._gang, self._cache = snapshot, snapshot.gangs[key], cache
        self._standing = standing
        self._size = place_size(snapshot.fleet, pods)
        self._number = {group.name: number for number, group in enumerate(standing.tree.groups)}
        self._told_apart = len(self._number) == len(standing.tree.groups)
        self._minima = [group.minimum for group in standing.tree.groups]
        self._available = [standing.tree.available(number) for number in range(len(self._minima))]
        self._under: dict[tuple[RelaxLevel, ...], _Rules | None] = {}

    def refuse(self, edits: Sequence[GangEdit]) -> bool:
        """Whether planning after these edits is certain to find no place, and to know that there is none."""
        rules = self._rules(tuple(edit for edit in edits if isinstance(edit, RelaxLevel)))
        if rules is None or not self._told_apart:
            return False
        minima = list(self._minima)
        places: list[_More] = []
        for edit in edits:
            if isinstance(edit, LowerMinimum):
                minima[self._number[edit.group]] = edit.to
            elif isinstance(edit, MorePlaces):
                places.append(self._more(edit))
        grown = [more.like for more in places if not more.hosts]
        if len(set(grown)) < len(grown):
            return False  # what two make of one host is more than each alone
        needs = self._standing.tree.needs(minima)
        if any(have < need for have, need in zip(self._available, needs, strict=True)):
            return True
        return bool(needs[0]) and rules.refuse(needs, places)

    def _rules(self, relaxed: tuple[RelaxLevel, ...]) -> _Rules | None:
        """None where a rule names a level that is not there."""
        if relaxed not in self._under:
            self._under[relaxed] = self._make(relaxed)
        return self._under[relaxed]

    def _make(self, relaxed: tuple[RelaxLevel, ...]) -> _Rules | None:
        now, snapshot = self._standing, self._snapshot
        if not relaxed:
            return _Rules(now.tree, now.levels, now.limits)
        gang = self._gang
        for edit in relaxed:
            gang = with_edit(gang, edit)
        tree = now.tree.under(gang)
        try:
            levels = self._cache.levels.get(order_of((group.rule for group in tree.groups), snapshot.topologies))
        except UnknownLevel:
            return None
        tree.set_levels(levels)
        return _Rules(tree, levels, GangBounds(tree, levels, now.room, snapshot.fleet, now.limits))

    def _more(self, edit: MorePlaces) -> _More:
        """The room for pods of each class that the edit makes at most."""
        fleet = self._snapshot.fleet
        like = fleet.node_by_name[edit.like]
        here = edit.level == HOSTNAME
        hosts = 0 if here else edit.count if edit.apart else 1
        each = 1 if edit.apart and not here else edit.count
        free = fleet.free[like].tolist() if here else None
        pods: ByClass = {}
        for one, count in self._standing.limits.count.items():
            held = []
            for column, asked in fleet.requests(fleet.classes.rows[one].shape):
                more = each * self._size.get(fleet.resources[column], 0)
                held.append((more + (max(free[column], 0) if free is not None else 0)) // asked)
            pods[one] = max(0, min(held, default=0) - (int(count[like]) if here else 0))
        return _More(like, hosts, pods)


class _Rules:
    """The gang under certain rules: what its groups find room for."""

    def __init__(self, tree: GangTree, levels: Levels, limits: GangBounds) -> None:
        self._levels, self._limits = levels, limits
        groups = range(len(tree.groups))
        self._total = [int(limits.held(number, None)[0]) for number in groups]
        self._in_one = [(n, group.required) for n, group in enumerate(tree.groups) if n and group.required >= 0]
        self._of_gang = [level for level, _ in tree.root_levels(levels)]
        self._held: dict[int, NDArray[np.int64]] = {}
        self._groups = groups

    def refuse(self, needs: Sequence[int], places: Sequence[_More]) -> bool:
        """Whether some group has too little room in the cluster, a part of the gang has no domain of the level that it
        requires, or no domain of any level that the gang may be in has room for all groups."""
        pods: ByClass = {}
        for more in places:
            for one, count in more.in_all.items():
                pods[one] = pods.get(one, 0) + count
        for number, need in enumerate(needs):
            if need > self._total[number] and (not places or need > self._with(number, None, 0, pods)):
                return True
        for number, level in self._in_one:
            if needs[number] and not self._fits([number], level, needs, places):
                return True
        if None in self._of_gang:
            return False
        wanted = [number for number, need in enumerate(needs) if need]
        return not any(self._fits(wanted, level, needs, places) for level in self._of_gang if level is not None)

    def _with(self, number: int, level: int | None, domain: int, more: Mapping[int, int]) -> int:
        """At most how many pods of the group a domain holds with room for so many more of each class."""
        limits = self._limits
        return sum(
            min((int(limits.by_domain(one, level)[domain]) if domain >= 0 else 0) + more.get(one, 0), pods)
            for one, pods in limits.pods[number].items()
        )

    def _fits(self, groups: Sequence[int], level: int, needs: Sequence[int], places: Sequence[_More]) -> bool:
        """Whether one domain of the level has room for the need of each of these groups."""
        held = self._at(level)
        need = np.array([needs[number] for number in groups])
        if (held[groups] >= need[:, None]).all(axis=0).any():
            return True
        return any(
            all(self._with(number, level, domain, pods) >= needs[number] for number in groups)
            for domain, pods in self._changed(level, places)
        )

    def _at(self, level: int) -> NDArray[np.int64]:
        """By group and domain, at most how many pods of the group it holds as the fleet is."""
        if level not in self._held:
            self._held[level] = np.array([self._limits.held(number, level) for number in self._groups])
        return self._held[level]

    def _changed(self, level: int, places: Sequence[_More]) -> list[tuple[int, ByClass]]:
        """The domains of the level that get more room, -1 for one that is new, and for how many pods of each class."""
        by_domain: dict[int, ByClass] = {}
        new = []
        for more in places:
            if more.hosts and self._levels.keys[level] == HOSTNAME:
                new.append((-1, more.pods))
                continue
            domain = int(self._levels.of_node[more.like, level])
            if domain >= 0:
                known = by_domain.setdefault(domain, {})
                for one, count in more.in_all.items():
                    known[one] = known.get(one, 0) + count
        return [*by_domain.items(), *new]
