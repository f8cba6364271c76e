"""Pods beyond a gang's minimum: one by one (a slice at a time, where it has slices), near those that are there."""

from __future__ import annotations

import numpy as np

from tonnage.fleet.filters import Mask
from tonnage.scheduling.gangs.fill import Filler
from tonnage.scheduling.gangs.room import FleetRoom, Room, Rows
from tonnage.scheduling.gangs.tree import GangTree
from tonnage.scheduling.levels import Levels

NOWHERE = -2
"""A domain that no node is in; not even the nodes that are in none."""


def grow(tree: GangTree, levels: Levels, room: Room, filler: Filler) -> None:
    """Put as many of the remaining pods into the room as fit, inside the domains that rules require of their groups.

    The minimum is settled in the tree; what is put here is settled as it goes."""
    placed = [0] * len(tree.items)
    for number, _, counts, _ in room.put:
        placed[number] += int(counts.sum())
    for number, item in enumerate(tree.items):
        left = len(item.pods) - placed[number]
        if not left:
            continue
        sliced = [group for group in tree.path(item.group) if tree.groups[group].slice_level >= 0]
        if len(sliced) > 1:
            continue  # slices of slices do not grow
        if sliced:
            _by_slices(tree, levels, room, filler, number, sliced[0], left)
        else:
            _nearby(tree, levels, room, filler, number, left, _allowed(tree, levels, room, number, left))


def _allowed(tree: GangTree, levels: Levels, room: Room, number: int, left: int) -> Rows:
    """Node rows in the domains that the rules of the item's groups require; where a group stands nowhere yet, in the
    tightest domain that holds what is left, or else in the one with most room."""
    inside = np.zeros(len(levels.of_node), np.bool_)
    inside[levels.rows] = True
    for group in reversed(tree.path(tree.items[number].group)):
        level = tree.groups[group].required
        if level < 0:
            continue
        home = tree.home(group, levels, level)
        if home < 0:
            home = _new_home(levels, level, room, tree.items[number].class_id, inside, left)
        inside &= levels.of_node[:, level] == home
    return levels.rows[inside[levels.rows]]


def _new_home(levels: Levels, level: int, room: Room, class_id: int, inside: Mask, left: int) -> int:
    count = np.where(inside, room.count(class_id), 0)
    sums = levels.sums(level, count)
    if not len(sums):
        return NOWHERE
    enough = np.flatnonzero(sums >= left)
    return int(enough[sums[enough].argmin()] if len(enough) else sums.argmax())


def _nearby(tree: GangTree, levels: Levels, room: Room, filler: Filler, number: int, left: int, rows: Rows) -> int:
    """Put up to ``left`` pods on these rows, nearest first; how many were put."""
    group = tree.items[number].group
    put = 0
    for level in range(len(levels.keys) - 1, -2, -1):
        near = rows
        if level >= 0:
            near = rows[np.isin(levels.of_node[rows, level], [*tree.bound_domains(group, levels, level)])]
        put += _as_many(tree, room, filler, number, left - put, near, level)
        if put == left:
            break
    return put


def _as_many(tree: GangTree, room: Room, filler: Filler, number: int, left: int, rows: Rows, level: int) -> int:
    mark, put = len(room.put), 0
    if isinstance(room, FleetRoom):
        while put < left and filler.fill(number, 1, rows, level):
            put += 1
    elif left:
        fits = min(left, int(room.count(tree.items[number].class_id)[rows].sum()))
        put = fits if fits and filler.fill(number, fits, rows, level) else 0
    _settle(tree, room, mark)
    return put


def _settle(tree: GangTree, room: Room, mark: int) -> None:
    for number, rows, counts, _ in room.put[mark:]:
        tree.settle(number, rows, counts)


def _by_slices(tree: GangTree, levels: Levels, room: Room, filler: Filler, number: int, sliced: int, left: int) -> None:
    """Finish the slices that are begun, then put whole ones, then what remains as one that is begun."""
    group = tree.groups[sliced]
    size, inner = group.rule.slice_size, group.slice_level
    while left:
        rows = _allowed(tree, levels, room, number, left)
        begun = {d: size - n % size for d, n in tree.bound_domains(sliced, levels, inner).items() if n % size}
        if begun:
            homes = [(domain, min(left, begun[domain])) for domain in sorted(begun)]
        else:
            homes = [(_slice_home(tree, levels, room, number, rows, inner, min(left, size)), min(left, size))]
        mark = len(room.put)
        for home, wanted in homes:
            if home >= 0 and filler.fill(number, wanted, rows[levels.of_node[rows, inner] == home], inner):
                _settle(tree, room, mark)
                left -= wanted
                break
        else:
            return


def _slice_home(tree: GangTree, levels: Levels, room: Room, number: int, rows: Rows, inner: int, pods: int) -> int:
    """The tightest domain with room for a slice, -1 for none."""
    count = room.count(tree.items[number].class_id)[rows]
    sums = levels.sums(inner, count, rows)
    enough = np.flatnonzero(sums >= pods)
    return int(enough[sums[enough].argmin()]) if len(enough) else -1
