"""The smallest change that makes a waiting gang fit, in the measure of :mod:`tonnage.scheduling.why.gang_changes`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property, partial
from itertools import combinations
from typing import TypeAlias

import numpy as np
from msgspec import Struct

from tonnage.fleet.filters import OPEN
from tonnage.fleet.snapshot import Snapshot
from tonnage.fleet.state import HOSTNAME
from tonnage.scheduling.cache import Cache
from tonnage.scheduling.gangs import plan as gangs
from tonnage.scheduling.policies import ANY_POLICY
from tonnage.scheduling.why.changes import Cost
from tonnage.scheduling.why.gang_changes import GangChange, GangEdit, LowerMinimum, MorePlaces, RelaxLevel, apply
from tonnage.scheduling.why.gang_counts import GangCounts
from tonnage.scheduling.why.standing import GangStart, standing

__all__ = [
    "CLUSTER",
    "EVERY",
    "FoundForGang",
    "GangChange",
    "GangEdit",
    "LowerMinimum",
    "MorePlaces",
    "RelaxLevel",
    "GangChangeSearch",
    "apply",
    "smallest",
    "standing",
]

PLANS = 400
"""Changes that are tried before a search ends without proof."""
CLUSTER = "the cluster"


class FoundForGang(Struct, frozen=True):
    """The smallest change, None where none was found; ``proved``: no smaller one exists among single edits and
    pairs."""

    change: GangChange | None
    proved: bool


EVERY = frozenset({"level", "minimum", "places"})
"""What may be changed of a gang."""


def smallest(
    snapshot: Snapshot,
    key: str,
    pods: Sequence[int],
    cache: Cache,
    may: frozenset[str] = EVERY,
    budget: int = PLANS,
) -> FoundForGang:
    """The smallest change, of the kinds that ``may`` be made, after which the minimum of the gang fits with these
    pending pods. Changes nothing."""
    with snapshot.fleet.what_if():
        return GangChangeSearch(snapshot, key, pods, cache, budget).find(may)


Family: TypeAlias = tuple[Callable[[int], GangEdit], int, int]
"""Edits that differ in their amount: (edit of an amount, least amount, most)."""


def _lower(group: str, minimum: int, by: int) -> GangEdit:
    return LowerMinimum(group, by, minimum - by)


def _places(level: str, domain: str, like: str, apart: bool, count: int) -> GangEdit:
    return MorePlaces(level, domain, count, like, apart)


def _numbered(edits: Sequence[GangEdit], number: int) -> GangEdit:
    return edits[number - 1]


class GangChangeSearch:
    """Searches for one gang; what one has tried, the next knows. Inside a what-if only."""

    def __init__(self, snapshot: Snapshot, key: str, pods: Sequence[int], cache: Cache, budget: int = PLANS) -> None:
        self.snapshot, self.key, self.pods, self.cache, self.budget = snapshot, key, pods, cache, budget
        self.gang = snapshot.gangs[key]
        self.standing = standing(snapshot, key, pods, cache)
        self._counts = GangCounts(snapshot, key, pods, cache, self.standing) if self.standing else None
        self.may = EVERY
        self.best: GangChange | None = None
        self._best_order: tuple[GangChange, tuple[Cost, tuple[str, ...]]] | None = None
        self.spent = 0
        self.unknown = False
        self.tried: dict[frozenset[GangEdit], bool | None] = {}

    def find(self, may: frozenset[str] = EVERY) -> FoundForGang:
        """The smallest change of the kinds that ``may`` be made."""
        self.may, self.best, self.spent, self.unknown = may, None, 0, False
        return self._run()

    def _run(self) -> FoundForGang:
        families = list(self._families())
        for family in families:
            self._single(family, ())
        if self.best is None:
            for first, second in combinations(families, 2):
                if self.spent >= self.budget:
                    self.unknown = True
                    break
                self._pair(first, second)
        if self.best is None and families:
            self._all_at_once(families)
        return FoundForGang(self.best, not self.unknown and (self.best is None or len(self.best.edits) <= 2))

    def _families(self) -> Iterator[Family]:
        if "level" in self.may:
            yield from self._relaxing()
        for name, minimum in ((self.key, self.gang.min_member), *((s.name, s.min_member) for s in self.gang.subgroups)):
            if minimum > 1 and "minimum" in self.may:
                yield partial(_lower, name, minimum), 1, minimum - 1
        if "places" in self.may:
            yield from self._more_places

    def _relaxing(self) -> Iterator[Family]:
        keys = self.standing.levels.keys if self.standing else ()
        for name, rule in ((self.key, self.gang.rule), *((s.name, s.rule) for s in self.gang.subgroups)):
            for kind, level in (("required", rule.required), ("slice", rule.slice_required)):
                if not level or (kind == "slice" and rule.slice_size < 2):
                    continue
                at = keys.index(level) if level in keys else 0
                wider = [*reversed(keys[:at]), ""]
                edits = [RelaxLevel(name, kind, level, to, n) for n, to in enumerate(wider, 1)]
                yield partial(_numbered, edits), 1, len(edits)

    @cached_property
    def _more_places(self) -> list[Family]:
        return list(self._placing())

    def _placing(self) -> Iterator[Family]:
        """More places on hosts like each that differs in its domains, of which the fullest come first."""
        standing = self.standing
        if standing is None or not standing.tree.need(0):
            return
        tree, levels = standing.tree, standing.levels
        most = tree.available(0)
        apart = any(self._one_a_host(item.class_id) for item in tree.items)
        hosts = self._hosts(standing)
        for level in sorted({group.required for group in tree.groups if group.required >= 0} or {-1}):
            lacks = self._lacks(standing, level)
            domains = levels.of_node[hosts, level].tolist() if level >= 0 else [0] * len(hosts)
            cases = [(max(1, int(lacks[d])) if d >= 0 else 1, row, d) for row, d in zip(hosts, domains, strict=True)]
            for least, row, domain in sorted(cases, key=lambda case: case[0]):
                named = level >= 0 and domain >= 0
                where = (levels.keys[level], levels.name(level, domain)) if named else ("", "")
                yield partial(_places, *where, self.snapshot.fleet.node(row).spec.name, apart), least, max(most, least)

    def _lacks(self, standing: GangStart, level: int) -> list[int]:
        """By domain of the level (-1: the cluster), how many places it lacks at least for a group to be in it."""
        tree, limits = standing.tree, standing.limits
        groups = [number for number, group in enumerate(tree.groups) if group.required == level] or [0]
        lacks = [tree.need(number) - limits.held(number, None if level < 0 else level) for number in groups]
        found: list[int] = np.min(lacks, axis=0).tolist()
        return found

    def _hosts(self, standing: GangStart) -> list[int]:
        """The first host of those that are in the same domains of all levels that rules ask for, and take all the
        gang's pods but for room."""
        fleet, levels = self.snapshot.fleet, standing.levels
        takes = fleet.alive & ~fleet.cards.special
        for class_id in {fleet.pod(row).class_id for row in self.pods}:
            view = self.cache.view(fleet.classes.rows[class_id], ANY_POLICY)
            takes = takes & (view.why == OPEN)
        rows = levels.rows[takes[levels.rows]]
        deepest = max(max(group.required, group.slice_level) for group in standing.tree.groups)
        if deepest < 0:
            return [int(row) for row in rows[:1]]
        _, first = np.unique(levels.of_node[rows, : deepest + 1], axis=0, return_index=True)
        return [int(row) for row in rows[np.sort(first)]]

    def _one_a_host(self, class_id: int) -> bool:
        pod_class = self.snapshot.fleet.classes.rows[class_id]
        rules = self.cache.topology.rules(pod_class)
        spread = any(c.topology_key == HOSTNAME for c, _ in rules.spread)
        return spread or any(
            term.topology_key == HOSTNAME and term.matches(pod_class, self.snapshot.fleet.namespaces)
            for term in rules.anti_affinity
        )

    # ---- trying ----

    def _better(self, edits: Sequence[GangEdit]) -> bool:
        best = self.best
        if best is None:
            return True
        if self._best_order is None or self._best_order[0] is not best:
            self._best_order = best, best.order
        change, (cost, texts) = GangChange(tuple(edits)), self._best_order[1]
        own = change.cost
        return own < cost if own != cost else change.texts < texts

    def _fits(self, edits: Sequence[GangEdit]) -> bool:
        at = frozenset(edits)
        if at not in self.tried:
            if self.spent >= self.budget:
                self.unknown = True
                return False
            self.spent += 1
            self.tried[at] = self._planned(edits)
        fits = self.tried[at]
        self.unknown |= fits is None
        return bool(fits)

    def _planned(self, edits: Sequence[GangEdit]) -> bool | None:
        """Whether there is a plan after the edits; None where that is not known. Only those are planned that counting
        leaves."""
        if self._counts is not None and self._counts.refuse(edits):
            return False
        with self.snapshot.fleet.what_if():
            after = apply(self.snapshot, self.key, GangChange(tuple(edits)), self.pods)
            found = gangs.plan(after, self.key, self.pods, self.cache)
        return (None if found.unknown else False) if isinstance(found, gangs.NoPlan) else True

    def _single(self, family: Family, beside: tuple[GangEdit, ...]) -> None:
        """The least amount of the family, beside other edits, that makes the gang fit: more never fits less."""
        edit, low, high = family
        if not self._better((*beside, edit(low))):
            return
        while high > low and not self._better((*beside, edit(high))):
            high -= 1
        if not self._fits((*beside, edit(high))):
            return
        while low < high:
            middle = (low + high) // 2
            if self._fits((*beside, edit(middle))):
                high = middle
            else:
                low = middle + 1
        self.best = GangChange((*beside, edit(high)))

    def _pair(self, first: Family, second: Family) -> None:
        """Beside each amount of the first, the least of the second: from 1 on, for beside others less may be enough."""
        (edit, _, high), (other, _, most) = first, second
        for amount in range(1, high + 1):
            self._single((other, 1, most), (edit(amount),))

    def _all_at_once(self, families: Sequence[Family]) -> None:
        """Every level relaxed and room for the whole minimum: not the smallest, but it shows that there is a way."""
        most = [edit(high) for edit, _, high in families]
        relaxed = [edit for edit in most if isinstance(edit, RelaxLevel)]
        places = next((edit for edit in most if isinstance(edit, MorePlaces)), None)
        edits = (*relaxed, *([places] if places else ()))
        if edits and self._fits(edits):
            self.best = GangChange(edits)
