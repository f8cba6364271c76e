"""Bounds on the room for a gang, by domain: what they rule out is impossible, and what they say is why a gang waits."""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

import numpy as np

from tonnage.decisions import Reason, Scalar
from tonnage.fleet.state import Fleet
from tonnage.scheduling.gangs.room import Room
from tonnage.scheduling.gangs.tree import GangTree
from tonnage.scheduling.levels import Levels
from tonnage.scheduling.view import Ints


class Lack(NamedTuple):
    """No domain of ``level`` (None: not even the whole cluster) holds ``needs`` more pods of the group; the nearest is
    ``domain``, which holds ``holds``. ``begun``: bound members keep the group to that domain. ``within``: another may,
    but this is the domain that is nearest to holding the whole gang. ``each``: so many groups need a domain each that
    they share with no other of them, and ``holds`` domains have room for one."""

    group: int
    needs: int
    level: int | None
    domain: int
    holds: int
    begun: bool = False
    within: bool = False
    each: bool = False


class GangBounds:
    """The bounds for one gang in a room of the fleet into which nothing of it has been put yet. ``count``: by class and
    node row, how many of its pods the node holds at most. ``pods``: by group, the pending pods of it and its parts, by
    class."""

    def __init__(
        self, tree: GangTree, levels: Levels, room: Room, fleet: Fleet, like: GangBounds | None = None
    ) -> None:
        """``like``: bounds of the same pods in the same room under other rules."""
        self._tree = tree
        self._levels = levels
        self._fleet = fleet
        self._room = room
        if like is None:
            self.count = {item.class_id: room.count(item.class_id).copy() for item in tree.items}
            self.pods = [self._pods_of(number) for number in range(len(tree.groups))]
        else:
            self.count, self.pods = like.count, like.pods
        self._sums: dict[tuple[int, int | None], Ints] = {}

    def _pods_of(self, number: int) -> dict[int, int]:
        """Pending pods of the group and its parts, by class."""
        one = self._tree.groups[number]
        found: Counter[int] = Counter()
        for i in one.items:
            found[self._tree.items[i].class_id] += len(self._tree.items[i].pods)
        for child in one.children:
            found.update(self._pods_of(child))
        return dict(found)

    def part_that_fits_nowhere(self) -> Lack | None:
        """A group with a required level of which no domain has room for its minimum, if there is one; the gang itself
        is not looked at."""
        for number, group in enumerate(self._tree.groups):
            if number and group.required >= 0:
                lack = self._lack(number, group.required, self.held(number, group.required))
                if lack is not None:
                    return lack
        return self._crowded()

    def _crowded(self) -> Lack | None:
        """Groups that are led keep each other out of their domains: whether there are fewer domains than groups."""
        tree = self._tree
        begin = [n for n, group in enumerate(tree.groups) if group.rule.led and group.required >= 0 and tree.need(n)]
        by_level: dict[int, list[int]] = {}
        for number in begin:
            if not tree.groups[number].members:
                by_level.setdefault(tree.groups[number].required, []).append(number)
        for level, numbers in by_level.items():
            may = np.any([self.held(number, level) >= tree.need(number) for number in numbers], axis=0)
            if may.sum() < len(numbers):
                return Lack(numbers[0], len(numbers), level, -1, int(may.sum()), each=True)
        return None

    def lack(self, level: int | None) -> Lack | None:
        """Why no domain of the level can hold the minimum of the gang and of all its parts; None where one may. A part
        that no domain has room for is named before the gang."""
        held = self.held(0, level)
        need = self._tree.need(0)
        parts = [part for part in range(1, len(self._tree.groups)) if self._tree.need(part)]
        by_part = {part: self.held(part, level) for part in parts}
        lack = self._lack(0, level, held)
        if lack is not None:
            nowhere = [part for part in parts if len(held) and (by_part[part] < self._tree.need(part)).all()]
            if lack.begun or not nowhere:
                return lack
            room = by_part[nowhere[0]]
            return Lack(nowhere[0], self._tree.need(nowhere[0]), level, int(room.argmax()), int(room.max()))
        fitting = sum((room >= self._tree.need(part) for part, room in by_part.items()), np.zeros(len(held), np.int64))
        if ((fitting == len(parts)) & (held >= need)).any():
            return None
        nearest = int(np.lexsort((held, fitting))[-1])
        short = next((part for part in parts if by_part[part][nearest] < self._tree.need(part)), None)
        if short is None:
            return Lack(0, need, level, nearest, int(held[nearest]))
        within = level is not None and bool((by_part[short] >= self._tree.need(short)).any())
        return Lack(short, self._tree.need(short), level, nearest, int(by_part[short][nearest]), within=within)

    def held(self, number: int, level: int | None) -> Ints:
        """By domain of the level: at most how many pods of the group fit. Each class of them by itself, no more than
        there are; those that differ in nothing that they ask for together; and all of them, the smallest first, in what
        is free in all."""
        held = np.zeros(1 if level is None else self._levels.count(level), np.int64)
        shapes: dict[int, list[int]] = {}
        for class_id in self.pods[number]:
            shapes.setdefault(self._fleet.classes.rows[class_id].shape, []).append(class_id)
        for alike in shapes.values():
            sums = [np.minimum(self.by_domain(one, level), self.pods[number][one]) for one in alike]
            held += np.minimum(np.sum(sums, axis=0), self._together(tuple(alike), level)) if len(alike) > 1 else sums[0]
        return np.minimum(held, self._by_amounts(number, level)) if len(shapes) > 1 else held

    def _together(self, classes: tuple[int, ...], level: int | None) -> Ints:
        """By domain, how many pods of these classes of one shape it holds: a node holds no more than of one class, or
        one of each where each of them can be there once only and none is in the way of another."""
        apart = len(classes) if self._room.one_of_each(classes) else 1
        most = np.max([self.count[one] for one in classes], axis=0)
        return self._sum(apart * most, level)

    def _by_amounts(self, number: int, level: int | None) -> Ints:
        """By domain, how many of the group's pods what is free of each resource is enough for, those that ask for least
        of it first."""
        pods, fleet = self.pods[number], self._fleet
        open_ = np.any([self.count[one] > 0 for one in pods], axis=0)
        asked = {one: dict(fleet.requests(fleet.classes.rows[one].shape)) for one in pods}
        found = np.full(1 if level is None else self._levels.count(level), sum(pods.values()), np.int64)
        for column in sorted({column for of_class in asked.values() for column in of_class}):
            free = self._sum(np.maximum(fleet.free[: len(open_), column], 0) * open_, level)
            amounts = np.sort(np.repeat([asked[one].get(column, 0) for one in pods], list(pods.values())))
            found = np.minimum(found, np.searchsorted(np.cumsum(amounts), free, "right"))
        return found

    def by_domain(self, class_id: int, level: int | None) -> Ints:
        """By domain of the level, how many pods of the class its nodes hold at most."""
        known = self._sums.get((class_id, level))
        if known is None:
            known = self._sums[class_id, level] = self._sum(self.count[class_id], level)
        return known

    def _sum(self, values: Ints, level: int | None) -> Ints:
        return np.array([values.sum()], np.int64) if level is None else self._levels.sums(level, values)

    def _lack(self, number: int, level: int | None, held: Ints) -> Lack | None:
        """Where no domain holds what the group needs; where members are bound in one, that domain alone counts."""
        tree, need = self._tree, self._tree.need(number)
        home = tree.home(number, self._levels, level) if level is not None else -1
        if level is not None and home >= 0:
            if tree.groups[number].required != level and len(tree.bound_domains(number, self._levels, level)) > 1:
                return Lack(number, need, level, home, 0, True)
            return Lack(number, need, level, home, int(held[home]), True) if held[home] < need else None
        if not len(held):
            return Lack(number, need, level, -1, 0) if need else None
        nearest = int(held.argmax())
        return Lack(number, need, level, nearest, int(held[nearest])) if held[nearest] < need else None


def refusal(tree: GangTree, levels: Levels, lack: Lack | None, unknown: bool) -> Reason:
    """Why the gang waits, for a person and in numbers."""
    key = tree.gang.key
    evidence: list[tuple[str, Scalar]] = [("gang", key)]
    if unknown:
        evidence.append(("search", "out of budget"))
        return Reason(
            f"gang {key}: no placement found for its minimum before the search reached its budget", tuple(evidence)
        )
    if lack is None:
        evidence += [("needs", tree.need(0)), ("search", "complete")]
        return Reason(
            f"gang {key}: enough is free, but its pods do not fit together under their constraints",
            tuple(evidence),
        )
    group = tree.groups[lack.group]
    where = levels.keys[lack.level] if lack.level is not None else "the cluster"
    domain = levels.name(lack.level, lack.domain) if lack.level is not None and lack.domain >= 0 else ""
    evidence += [("group", group.name), ("needs", lack.needs), ("bound", group.members)]
    evidence += [("level", where), ("nearest", domain), ("holds", lack.holds)]
    named = f"gang {key}" if lack.group == 0 else f"gang {key}, subgroup {group.name}"
    more = " more" if group.members else ""
    if lack.each:
        have = f"{lack.holds} have" if lack.holds != 1 else "1 has"
        text = f"gang {key} needs {lack.needs} domains of {where}, one for each of its jobs alone; {have} room for one"
    elif lack.level is None:
        text = f"{named} needs room for {lack.needs}{more} pods; the cluster has room for {lack.holds}"
    elif lack.begun:
        text = f"{named} needs {lack.needs}{more} pods in {where} {domain}, where it runs; it holds {lack.holds}"
    elif lack.within:
        text = (
            f"{named} needs {lack.needs}{more} pods in the {where} of its gang; the best, {domain}, holds {lack.holds}"
        )
    elif not domain:
        text = f"{named} needs {lack.needs} pods in one {where}; no node has that label"
    else:
        text = f"{named} needs {lack.needs} pods in one {where}; the best, {domain}, holds {lack.holds}"
    return Reason(text, tuple(evidence))
