"""Fill a gang into a room, quickly: the tightest domain that holds a group, then inside it as few domains as possible.

The rules are those that KAI and Kueue have in common: of the domains that hold all of it the one with the least room
left (so that whole racks stay free), inside it those with most room first and the last one as tight as it goes
(Kueue's BestFit); least room first where a rule says ``unconstrained``. Quick, not complete:
:mod:`tonnage.scheduling.gangs.search` looks further when this finds nothing.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tonnage.scheduling.gangs.room import FleetRoom, Room, Rows
from tonnage.scheduling.gangs.tree import GangGroup, GangTree
from tonnage.scheduling.levels import Levels
from tonnage.scheduling.view import Ints

DOMAINS_TRIED = 12
"""Domains of a level in which a group is tried before another order or level is."""
ORDERS_TRIED = 3
"""Orders of the parts of a group that are tried in one domain."""


class Filler:
    """Fills the items of a tree into a room. ``wanted``: by item, how many pods. ``weight``: free devices by node."""

    def __init__(self, tree: GangTree, levels: Levels, room: Room, wanted: list[int], weight: Ints) -> None:
        self._tree = tree
        self._levels = levels
        self._room = room
        self._wanted = wanted
        self._weight = weight
        self._free: dict[int, Ints] = {}
        self._size = [self._size_of(number) for number in range(len(tree.groups))]

    def _size_of(self, group: int) -> int:
        one = self._tree.groups[group]
        return sum(self._wanted[i] for i in one.items) + sum(self._size_of(child) for child in one.children)

    def everything(self, root_level: int | None) -> bool:
        """Fill the whole gang, in one domain of ``root_level``, or anywhere for None. Nothing is put where it fails."""
        return self._group(0, self._levels.rows, -1, [root_level])

    # ---- groups ----

    def _group(self, number: int, rows: Rows, level: int, at_levels: list[int | None] | None = None) -> bool:
        if not self._size[number]:
            return True
        for inside, at in self._domains(number, rows, level, at_levels or self._levels_to_try(number, level)):
            if self._parts(number, inside, at):
                return True
        return False

    def _levels_to_try(self, number: int, level: int) -> list[int | None]:
        """Levels below ``level`` in the order of preference, None for all of the domain that the group is in."""
        group = self._tree.groups[number]
        lowest = len(self._levels.keys) - 1
        floor = max(group.required, level + 1)
        start = group.preferred if group.rule.preferred else group.required if group.rule.required else lowest
        found: list[int | None] = list(range(min(start, lowest), floor - 1, -1))
        if group.required >= 0:
            return found or [group.required]
        return [None] if group.rule.unconstrained else [*found, None]

    def _domains(self, number: int, rows: Rows, level: int, at_levels: list[int | None]) -> Iterator[tuple[Rows, int]]:
        """Node rows of the domains that may hold the group, and their level: best level first, then the tightest."""
        wanted = self.wanted_classes(number)
        for at in at_levels:
            if at is None:
                yield rows, level
                continue
            of_node = self._levels.of_node[rows, at]
            for domain in self.fitting(number, rows, at, wanted)[:DOMAINS_TRIED]:
                for inside in self._pieces(number, rows[of_node == domain], at, wanted):
                    yield inside, at

    def _pieces(self, number: int, rows: Rows, level: int, wanted: dict[int, int]) -> list[Rows]:
        """The parts of a domain that are in one domain of the level that the group requires: all of it, where levels
        nest and no node lacks the outer one's label."""
        required = self._tree.groups[number].required
        if required in (-1, level):
            return [rows]
        of_node = self._levels.of_node[rows, required]
        if of_node[0] >= 0 and (of_node == of_node[0]).all() and not self._tree.groups[number].bound:
            return [rows]
        return [rows[of_node == domain] for domain in self.fitting(number, rows, required, wanted)[:DOMAINS_TRIED]]

    def wanted_classes(self, number: int) -> dict[int, int]:
        """Pods of each class that the group and its parts want."""
        found: dict[int, int] = {}
        for i in self._items_of(number):
            class_id = self._tree.items[i].class_id
            found[class_id] = found.get(class_id, 0) + self._wanted[i]
        return {class_id: wanted for class_id, wanted in found.items() if wanted}

    def _items_of(self, number: int) -> Iterator[int]:
        one = self._tree.groups[number]
        yield from one.items
        for child in one.children:
            yield from self._items_of(child)

    def room_in(self, number: int, rows: Rows, level: int, class_id: int) -> Ints:
        """By domain of the level, how many pods of the class it holds; whole slices only, where the group has them."""
        group = self._tree.groups[number]
        count = self._room.count(class_id)[rows]
        if group.slice_level > level and not group.bound:
            count = _whole_slices(count, self._levels.of_node[rows, group.slice_level], group.rule.slice_size)
        return self._levels.sums(level, count, rows)

    def fitting(self, number: int, rows: Rows, level: int, wanted: dict[int, int]) -> list[int]:
        """The domains of the level with room for the group, those with the least room left first, then by name.

        Where members are bound already, only their domain."""
        group = self._tree.groups[number]
        fits = np.ones(self._levels.count(level), np.bool_)
        room = np.zeros(len(fits), np.int64)
        for class_id, pods in wanted.items():
            held = self.room_in(number, rows, level, class_id)
            rest = pods % group.rule.slice_size if group.slice_level > level else 0
            fits &= held >= pods - rest
            room += held
        home = self._tree.home(number, self._levels, level)
        if home >= 0:
            if group.required != level and len(self._tree.bound_domains(number, self._levels, level)) > 1:
                return []
            return [home] if fits[home] else []
        found = np.flatnonzero(fits)
        order = np.lexsort((found, self._free_devices(level)[found], room[found]))
        return [int(domain) for domain in found[order]]

    def _free_devices(self, level: int) -> Ints:
        """By domain, before anything was put: of two with the same room for the group, the fuller one is taken."""
        known = self._free.get(level)
        if known is None:
            known = self._free[level] = self._levels.sums(level, self._weight)
        return known

    def _parts(self, number: int, rows: Rows, level: int) -> bool:
        """Fill the group's parts and its own pods into these rows, in several orders if need be."""
        group = self._tree.groups[number]
        mark = len(self._room.put)
        order = self._order(group)
        for _ in range(ORDERS_TRIED):
            failed = self._in_order(number, order, rows, level)
            if failed is None:
                return True
            self._room.back(mark)
            at = order.index(failed)
            order = [failed, *order[:at], *order[at + 1 :]] if at else order[::-1]
            if len(order) == 1:
                break
        return False

    def _order(self, group: GangGroup) -> list[tuple[bool, int]]:
        """The parts (True, group) and own items (False, item): largest first, then as written."""
        parts = [(True, child) for child in group.children] + [(False, i) for i in group.items]
        return sorted(parts, key=lambda part: -(self._size[part[1]] if part[0] else self._wanted[part[1]]))

    def _in_order(self, number: int, order: list[tuple[bool, int]], rows: Rows, level: int) -> tuple[bool, int] | None:
        """The first part that does not fit; None when all do."""
        for part in order:
            is_group, which = part
            fitted = self._group(which, rows, level) if is_group else self._item(number, which, rows, level)
            if not fitted:
                return part
        return None

    # ---- items ----

    def _item(self, number: int, item: int, rows: Rows, level: int) -> bool:
        wanted = self._wanted[item]
        sliced = [g for g in self._tree.path(number) if self._tree.groups[g].slice_level >= 0]
        if len(sliced) > 1:
            return False  # slices of slices: left to the search
        if sliced:
            return self._slices(sliced[0], item, wanted, rows, level)
        return self.fill(item, wanted, rows, level, unconstrained=self._tree.groups[number].rule.unconstrained)

    def fill(self, item: int, wanted: int, rows: Rows, level: int, *, unconstrained: bool = False) -> bool:
        """Put ``wanted`` pods of the item on these rows, which are in one domain of ``level``."""
        if not wanted:
            return True
        class_id = self._tree.items[item].class_id
        if isinstance(self._room, FleetRoom):
            return self._one_by_one(self._room, item, wanted, rows, level)
        count = self._room.count(class_id)
        if int(count[rows].sum()) < wanted:
            return False
        where, counts = self.spread(count, rows, level, wanted, unconstrained=unconstrained)
        return self._room.take(item, where, counts)

    def _one_by_one(self, room: FleetRoom, item: int, wanted: int, rows: Rows, level: int) -> bool:
        """As ``fill``, each pod where the filters allow it by then."""
        class_id = self._tree.items[item].class_id
        mark = len(room.put)
        for left in range(wanted, 0, -1):
            count = room.count_now(class_id, rows)
            held = int(count[rows].sum())
            if not held:
                room.back(mark)
                return False
            where, counts = self.spread(count, rows, level, min(left, held))
            if not any(room.bind(item, row) for row in where[np.argsort(-counts, kind="stable")].tolist()):
                room.back(mark)
                return False
        return True

    def _slices(self, number: int, item: int, wanted: int, rows: Rows, level: int) -> bool:
        """Fill a group whose pods stand ``slice_size`` at a time in a domain: slices begun first, then whole ones."""
        group = self._tree.groups[number]
        size, inner = group.rule.slice_size, group.slice_level
        if len(list(self._items_of(number))) > 1 and wanted % size:
            return False  # several classes share slices: left to the search
        mark = len(self._room.put)
        of_node = self._levels.of_node[rows, inner]
        begun = self._tree.bound_domains(number, self._levels, inner)
        for domain in sorted(d for d, bound in begun.items() if bound % size):
            missing = min(wanted, size - begun[domain] % size)
            if not self.fill(item, missing, rows[of_node == domain], inner):
                self._room.back(mark)
                return False
            wanted -= missing
        while wanted:
            count = self._room.count(self._tree.items[item].class_id)[rows]
            at_once = size if wanted >= size else wanted
            whole = _whole_slices(count, of_node, at_once)
            slices = wanted // at_once
            if int(whole.sum()) < at_once:
                self._room.back(mark)
                return False
            by_domain = np.zeros(len(self._levels.of_node), np.int64)
            by_domain[rows] = whole // at_once
            where, taken = self.spread(by_domain, rows, level, min(slices, int(by_domain.sum())))
            for row, number_of in zip(where.tolist(), taken.tolist(), strict=True):
                inside = rows[of_node == self._levels.of_node[row, inner]]
                if not self.fill(item, number_of * at_once, inside, inner):
                    self._room.back(mark)
                    return False
                wanted -= number_of * at_once
        return True

    # ---- where the pods of one class go ----

    def spread(
        self, count: Ints, rows: Rows, level: int, wanted: int, *, unconstrained: bool = False
    ) -> tuple[Rows, Ints]:
        """(rows, pods on each) for ``wanted`` pods, of which ``rows`` hold at least this many. Rows of one domain of a
        level stand together."""
        if unconstrained:
            order = np.argsort(count[rows], kind="stable")
            where, taken = _greedily(rows[order], count[rows][order], wanted)
        else:
            where, taken = self._descend(count, rows[count[rows] > 0], level + 1, wanted)
        order = np.lexsort(self._levels.of_node[where][:, ::-1].T)
        return where[order], taken[order]

    def _descend(self, count: Ints, rows: Rows, level: int, wanted: int) -> tuple[Rows, Ints]:
        held = count[rows]
        last = level >= len(self._levels.keys) - 1
        if last:
            domains, sums = np.arange(len(rows)), held
        else:
            ids = self._levels.of_node[rows, level]
            present, domains = np.unique(ids, return_inverse=True)
            if len(present) == 1:
                return self._descend(count, rows, level + 1, wanted)
            sums = np.bincount(domains, held).astype(np.int64)
        full, tight, rest = _domains_for(sums, wanted)
        if last:
            picked, numbers = [*full, tight], [*sums[full].tolist(), rest]
            return rows[picked], np.array(numbers, np.int64)
        inside = np.isin(domains, full)
        below, taken = self._descend(count, rows[domains == tight], level + 1, rest)
        return np.concatenate((rows[inside], below)), np.concatenate((held[inside], taken))


def _domains_for(sums: Ints, wanted: int) -> tuple[list[int], int, int]:
    """(domains to fill whole, the domain for the rest, the rest): those with most room until one can take the rest, and
    for the rest the tightest that can."""
    order = np.argsort(-sums, kind="stable")
    before = np.cumsum(sums[order]) - sums[order]
    whole = int(np.searchsorted(before + sums[order], wanted))  # the first that completes the number
    rest = wanted - int(before[whole])
    others = order[whole:]
    able = others[sums[others] >= rest]
    tight = int(able[np.argmin(sums[able])])
    return order[:whole].tolist(), tight, rest


def _greedily(rows: Rows, held: Ints, wanted: int) -> tuple[Rows, Ints]:
    """As much as each row holds, in this order, until ``wanted`` are placed."""
    before = np.cumsum(held) - held
    taken = np.clip(wanted - before, 0, held)
    some = taken > 0
    return rows[some], taken[some]


def _whole_slices(count: Ints, domains: Ints, size: int) -> Ints:
    """What each domain holds, rounded down to whole slices, standing at its first node; elsewhere 0."""
    found = np.zeros_like(count)
    if not len(domains) or domains.max() < 0:
        return found
    sums = np.bincount(domains + 1, count)[1:].astype(np.int64)
    present, first = np.unique(domains, return_index=True)
    for_first = present >= 0
    found[first[for_first]] = sums[present[for_first]] // size * size
    return found
