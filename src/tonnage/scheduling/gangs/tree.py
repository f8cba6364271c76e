"""A gang as a tree of groups: what each still needs, which pods could serve it, and where its bound members stand."""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from tonnage.fleet.gangs import Gang, TopologyRule
from tonnage.fleet.rows import PodRow
from tonnage.fleet.snapshot import Snapshot
from tonnage.scheduling.levels import Levels
from tonnage.units import NS_PER_S

LEADER_ALONE_NS = 5 * NS_PER_S
"""The pods of a group that is led are waited for so long after the newest of them: most controllers create all at once.
Assumption: several times what a controller takes between two pods."""


@dataclass(slots=True)
class GroupPods:
    """Pending pods of one class in one group, in the order in which they are taken: age, then name."""

    group: int
    class_id: int
    pods: list[int]


@dataclass(slots=True)
class GangGroup:
    """The gang (group 0) or one of its subgroups. ``bound``: how many of its pods, those of its parts included, each
    node row holds; ``done``: how many have succeeded and hold nothing any more. ``required``, ``preferred``,
    ``slice_level``: levels by number, -1 for none."""

    name: str
    parent: int
    rule: TopologyRule
    minimum: int
    bound: Counter[int] = field(default_factory=Counter)
    done: int = 0
    items: list[int] = field(default_factory=list)
    children: list[int] = field(default_factory=list)
    required: int = -1
    preferred: int = -1
    slice_level: int = -1

    @property
    def members(self) -> int:
        """Pods that are bound, or have done their work."""
        return self.bound.total() + self.done


class GangTree:
    """The groups of a gang, parents before their parts, and its pending pods by group and class.

    A pod of a subgroup that the gang does not have belongs to the gang itself, and so does a subgroup whose parent is
    not there. Bound members that are being deleted do not count. ``alike``: classes that are planned as another one."""

    def __init__(
        self, snapshot: Snapshot, gang: Gang, pods: Sequence[int], alike: Mapping[int, int] = MappingProxyType({})
    ) -> None:
        fleet = snapshot.fleet
        self.gang = gang
        self.groups = [GangGroup(gang.key, -1, gang.rule, gang.min_member)]
        self.items: list[GroupPods] = []
        self._number = {"": 0}
        self._add_subgroups()
        for row in fleet.gang_pods.get(gang.key, ()):
            pod = fleet.pods[row]
            if pod is not None and pod.node >= 0 and not snapshot.leaves(pod.key):
                for group in self.path(self._group_of(pod.spec.subgroup)):
                    self.groups[group].bound[pod.node] += 1
        for subgroup, count in snapshot.done.get(gang.key, {}).items():
            for group in self.path(self._group_of(subgroup)):
                self.groups[group].done += count
        self._add_pods([(row, fleet.pod(row)) for row in pods], alike)
        newest = max((fleet.pod(row).spec.created_ns for row in pods), default=snapshot.now_ns)
        self._alone = snapshot.now_ns - newest >= LEADER_ALONE_NS
        self._lead()
        self._members = [group.members for group in self.groups]
        self._needs = self.needs([group.minimum for group in self.groups])

    def _add_subgroups(self) -> None:
        waiting = list(self.gang.subgroups)
        names = {subgroup.name for subgroup in waiting}
        while waiting:
            ready = [s for s in waiting if s.parent in self._number or s.parent not in names] or waiting[:1]
            for subgroup in ready:
                waiting.remove(subgroup)
                parent = self._number.get(subgroup.parent, 0)
                self._number[subgroup.name] = len(self.groups)
                self.groups[parent].children.append(len(self.groups))
                self.groups.append(GangGroup(subgroup.name, parent, subgroup.rule, subgroup.min_member))

    def _add_pods(self, pods: list[tuple[int, PodRow]], alike: Mapping[int, int]) -> None:
        def order(one: tuple[int, PodRow]) -> tuple[int, str, str]:
            spec = one[1].spec
            return spec.created_ns, spec.namespace, spec.name

        known: dict[tuple[str, int], GroupPods] = {}
        for row, pod in sorted(pods, key=order):
            class_id = alike.get(pod.class_id, pod.class_id)
            item = known.get((pod.spec.subgroup, class_id))
            if item is None:
                item = GroupPods(self._group_of(pod.spec.subgroup), class_id, [])
                known[pod.spec.subgroup, class_id] = item
                self.groups[item.group].items.append(len(self.items))
                self.items.append(item)
            item.pods.append(row)

    def _lead(self) -> None:
        """Pods that are created once their leader is bound are not waited for before that."""
        for number, group in enumerate(self.groups):
            if not (self._alone and group.rule.led) or group.members:
                continue  # a leader that is bound has the others created
            absent = max(0, group.minimum - self.available(number))
            for above in self.path(number):
                self.groups[above].minimum = max(0, self.groups[above].minimum - absent)
            for below, part in enumerate(self.groups):
                if below != number and number in self.path(below):
                    part.minimum = min(part.minimum, self.available(below))

    def _group_of(self, subgroup: str) -> int:
        return self._number.get(subgroup, 0)

    def path(self, group: int) -> list[int]:
        """The group and those that it is part of, up to the gang."""
        found = [group]
        while self.groups[found[-1]].parent >= 0:
            found.append(self.groups[found[-1]].parent)
        return found

    def set_levels(self, levels: Levels) -> None:
        """Resolve the rules."""
        for group in self.groups:
            rule = group.rule
            group.required = levels.index(rule.required) if rule.required else -1
            group.preferred = levels.index(rule.preferred) if rule.preferred else -1
            group.slice_level = levels.index(rule.slice_required) if rule.slice_required and rule.slice_size > 1 else -1

    def root_levels(self, levels: Levels) -> Iterator[tuple[int | None, bool]]:
        """Levels for the whole gang, best first, None for no level; and whether to search where filling fails."""
        root = self.groups[0]
        if root.required >= 0 or root.preferred >= 0:
            lowest = max(root.preferred, root.required)
            yield from ((level, True) for level in range(lowest, max(root.required, 0) - 1, -1))
        elif not root.rule.unconstrained:
            yield from ((level, False) for level in range(len(levels.keys) - 1, -1, -1))
        if root.required < 0:
            yield None, True

    def under(self, gang: Gang) -> GangTree:
        """The same groups and pods under other rules and minima, those of this gang; levels are to be set again."""
        rules = {part.name: (part.rule, part.min_member) for part in gang.subgroups}
        other = copy.copy(self)
        other.gang, other.groups = gang, []
        for number, group in enumerate(self.groups):
            rule, minimum = rules[group.name] if number else (gang.rule, gang.min_member)
            other.groups.append(replace(group, rule=rule, minimum=minimum))
        other._lead()
        other._needs = other.needs([group.minimum for group in other.groups])
        return other

    def available(self, group: int) -> int:
        """Pending pods of the group and its parts."""
        one = self.groups[group]
        return sum(len(self.items[i].pods) for i in one.items) + sum(self.available(child) for child in one.children)

    def need(self, group: int) -> int:
        """How many pods had to be bound, before any were settled, for it and all its parts to have their minimum."""
        return self._needs[group]

    def needs(self, minima: Sequence[int]) -> list[int]:
        """By group, how many pods had to be bound, before any were settled, for it and all its parts to have these
        minima."""
        found, of_parts = [0] * len(self.groups), [0] * len(self.groups)
        for number in range(len(self.groups) - 1, -1, -1):  # parts come after what they are part of
            found[number] = max(0, minima[number] - self._members[number], of_parts[number])
            parent = self.groups[number].parent
            if parent >= 0:
                of_parts[parent] += found[number]
        return found

    def short(self) -> GangGroup | None:
        """A group that has not enough pods for its minimum, if there is one."""
        for number, group in enumerate(self.groups):
            if self.available(number) < self.need(number):
                return group
        return None

    def chosen(self) -> list[int]:
        """By item, how many pods make the minimum: each part's own first, then the group's own, then more of its parts,
        the oldest first."""
        counts = [0] * len(self.items)
        self._choose(0, self.need(0), counts)
        return counts

    def _choose(self, group: int, need: int, counts: list[int]) -> None:
        one = self.groups[group]
        for child in one.children:
            self._choose(child, self.need(child), counts)
        left = need - sum(self.need(child) for child in one.children)
        for i in self._own_then_parts(group):
            more = max(0, min(left, len(self.items[i].pods) - counts[i]))
            counts[i] += more
            left -= more

    def _own_then_parts(self, group: int) -> list[int]:
        one = self.groups[group]
        return [*one.items, *(i for child in one.children for i in self._own_then_parts(child))]

    def settle(self, number: int, rows: NDArray[np.int64], counts: NDArray[np.int64]) -> None:
        """Count pods of the item on these node rows as bound."""
        added = dict(zip(rows.tolist(), counts.tolist(), strict=True))
        for group in self.path(self.items[number].group):
            self.groups[group].bound.update(added)

    def stands_in(self, levels: Levels) -> tuple[str, str]:
        """(level, domain) of the innermost domain that holds all bound members of the gang; empty where none does."""
        members = self.groups[0].bound.total()
        for level in range(len(levels.keys) - 1, -1, -1):
            domain = self.home(0, levels, level)
            if domain >= 0 and self.bound_domains(0, levels, level)[domain] == members:
                return levels.keys[level], levels.name(level, domain)
        return "", ""

    def bound_domains(self, group: int, levels: Levels, level: int) -> Counter[int]:
        """How many bound members of the group each domain of the level holds; nodes without a domain are left out."""
        found: Counter[int] = Counter()
        bound = self.groups[group].bound
        for domain, count in zip(levels.of_node[[*bound], level].tolist(), bound.values(), strict=True):
            if domain >= 0:
                found[domain] += count
        return found

    def home(self, group: int, levels: Levels, level: int) -> int:
        """The domain that holds most of the group's bound members, the first by name of several; -1 for none."""
        if not self.groups[group].bound:
            return -1
        found = self.bound_domains(group, levels, level)
        return min(found, key=lambda domain: (-found[domain], domain), default=-1)


def pods_needed(snapshot: Snapshot, key: str, rows: Sequence[int]) -> int | None:
    """How many of the gang's pending pods (rows) have to be bound for all of its minima; None where it is not known, or
    has too few."""
    gang = snapshot.gangs.get(key)
    tree = GangTree(snapshot, gang, rows) if gang is not None else None
    return tree.need(0) if tree is not None and tree.short() is None else None
