"""Patterns of one node: the most valuable one, and all above a value. Depth first, bounded by each dimension alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import inf

_EPSILON = 1e-9


@dataclass(slots=True)
class Item:
    """Pods of one class: ``key`` is its index, ``weight`` what one takes by dimension, ``most`` how many there are.
    ``filling``: whether one more costs nothing, so that a pattern without it is never better."""

    key: int
    value: float
    weight: tuple[int, ...]
    most: int
    filling: bool = True


@dataclass(slots=True)
class BestPattern:
    """``value`` is that of ``counts`` (key → pods), ``bound`` what no pattern exceeds: equal where it is proved."""

    value: float
    counts: dict[int, int]
    bound: float
    steps: int


@dataclass(slots=True)
class _Search:
    """Items in the order in which they are tried, with what the rest can be worth at most from each on."""

    items: list[Item]
    room: list[int]
    limit: int
    steps: int = 0
    chosen: list[int] = field(default_factory=list)
    densities: list[list[float]] = field(default_factory=list)
    rest: list[float] = field(default_factory=list)

    def prepare(self) -> None:
        count = len(self.items)
        self.chosen = [0] * count
        self.rest = [0.0] * (count + 1)
        self.densities = [[0.0] * (count + 1) for _ in self.room]
        for at in range(count - 1, -1, -1):
            item = self.items[at]
            self.rest[at] = self.rest[at + 1] + max(item.value, 0.0) * item.most
            for d, weight in enumerate(item.weight):
                density = item.value / weight if weight else (inf if item.value > 0 else 0.0)
                self.densities[d][at] = max(self.densities[d][at + 1], density)

    def bound(self, at: int) -> float:
        """What the items from this one on add at most."""
        best = self.rest[at]
        for densities, room in zip(self.densities, self.room, strict=True):
            density = densities[at]
            if density != inf and density * room < best:
                best = density * room
        return best

    def fit(self, item: Item) -> int:
        """How many more of the item there is room for."""
        count = item.most
        for weight, room in zip(item.weight, self.room, strict=True):
            if weight and count * weight > room:
                count = room // weight
        return count

    def takes(self, item: Item) -> bool:
        """Whether there is room for one more of the item."""
        return all(weight <= room for weight, room in zip(item.weight, self.room, strict=True))

    def put(self, at: int, count: int) -> None:
        """Let ``count`` of the item stand there."""
        item, before = self.items[at], self.chosen[at]
        self.chosen[at] = count
        for d, weight in enumerate(item.weight):
            self.room[d] -= (count - before) * weight

    def counts(self) -> dict[int, int]:
        return {item.key: n for item, n in zip(self.items, self.chosen, strict=True) if n}


def best(items: Sequence[Item], room: Sequence[int], limit: int, floor: float = 0.0) -> BestPattern:
    """The pattern of the most value above ``floor`` that fits into ``room``, searched for ``limit`` steps at most; no
    pods where there is none."""
    search = _Search(_densest([one for one in items if one.value > _EPSILON], room), list(room), limit)
    search.prepare()
    found = BestPattern(floor, {}, max(floor, search.bound(0)), 0)
    cut_short = False

    def go(at: int, value: float) -> None:
        nonlocal cut_short
        search.steps += 1
        if value > found.value + _EPSILON:
            found.value, found.counts = value, search.counts()
        if at == len(search.items) or value + search.bound(at) <= found.value + _EPSILON:
            return
        if search.steps > limit:
            cut_short = True
            return
        item = search.items[at]
        for count in range(search.fit(item), -1, -1):
            search.put(at, count)
            go(at + 1, value + count * item.value)
            search.put(at, 0)
            if cut_short:
                return

    go(0, 0.0)
    found.steps = search.steps
    if not cut_short:
        found.bound = found.value
    return found


def above(
    items: Sequence[Item], room: Sequence[int], least: float, limit: int, most: int = 1_000_000
) -> tuple[list[tuple[float, dict[int, int]]], int, bool]:
    """All patterns worth ``least`` or more to which nothing that is ``filling`` can be added, with their values; the
    steps it took, and whether these are all of them: it ends after ``limit`` steps or ``most`` patterns."""
    search = _Search(_densest(items, room), list(room), limit)
    search.prepare()
    found: list[tuple[float, dict[int, int]]] = []
    complete = True

    def go(at: int, value: float) -> None:
        nonlocal complete
        search.steps += 1
        if value + search.bound(at) < least - _EPSILON or not complete:
            return
        if search.steps > limit or len(found) > most:
            complete = False
            return
        if at == len(search.items):
            if value >= least - _EPSILON and not _grows(search):
                found.append((value, search.counts()))
            return
        item = search.items[at]
        fit = search.fit(item)
        last = at == len(search.items) - 1
        for count in range(fit, fit - 1 if last and item.filling else -1, -1):
            search.put(at, count)
            go(at + 1, value + count * item.value)
            search.put(at, 0)

    go(0, 0.0)
    return found, search.steps, complete


def _grows(search: _Search) -> bool:
    """Whether one more pod fits that costs nothing."""
    for item, count in zip(search.items, search.chosen, strict=True):
        if item.filling and count < item.most and search.takes(item):
            return True
    return False


def _densest(items: Sequence[Item], room: Sequence[int]) -> list[Item]:
    """What is worth the most for the part of the node that it takes comes first."""

    def part(item: Item) -> float:
        return max((w / have for w, have in zip(item.weight, room, strict=True) if w), default=1.0)

    fitting = [one for one in items if one.most and all(w <= have for w, have in zip(one.weight, room, strict=True))]
    return sorted(fitting, key=lambda one: (-one.value / part(one), one.key))
