"""Which victims make room for a pod on one node, or for a gang: the cheapest set found, and none in it is needless.

For a pod each node is looked at as kube-scheduler does, cheapest first by a bound that is never too high. On a node
with few candidates all subsets are weighed, else all go and are given back, the most important first, as long as the
pod fits (kubernetes/kubernetes pkg/scheduler/framework/plugins/defaultpreemption; Kueue trims the same way). A gang is
planned again with the first victims gone, twice as many each time, until it fits, then victims are given back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
from msgspec import Struct

from tonnage.fleet.state import Conflict, Fleet
from tonnage.scheduling.order import Places, Unit
from tonnage.scheduling.seat import seat
from tonnage.scheduling.trial import Trial
from tonnage.scheduling.victims import PRIORITY_OFFSET, Candidates, Cost, Victim, released
from tonnage.scheduling.view import NEVER, Ints

EXACT = 10
"""Up to this many candidates on a node, every subset of them is weighed."""
EXACT_TRIES = 64
"""Subsets that have the resources are tried, but other pods may stand in the way; then victims are given back."""
NODES_ENOUGH = 100
"""This many nodes with victims are compared. Source: minCandidateNodesAbsolute of kube-scheduler's
DefaultPreemption."""
TRIMMED_BY_PLANNING = 64
"""Up to this many victims for a gang are given back by planning again without each; more, only node by node."""
REGIONS_ENOUGH = 16
"""This many domains are compared for a gang that has to stand in one."""


class PreemptionPlan(Struct, frozen=True):
    """The victims, where the unit goes when they are gone, what they cost, and the next best (its name, its cost)."""

    victims: tuple[Victim, ...]
    places: Places
    cost: Cost
    next_best: tuple[str, Cost] | None = None

    @property
    def rows(self) -> list[int]:
        """The pods to evict."""
        return sorted({row for victim in self.victims for row in victim.rows})


Fits = Callable[[Sequence[Victim]], bool]


def make_room(fleet: Fleet, unit: Unit, candidates: Candidates, trial: Trial) -> PreemptionPlan | None:
    """The room that costs least, None where no victims help. Changes nothing.

    To be called where the unit does not fit as it is."""
    found = sorted(rooms(fleet, unit, candidates, trial), key=lambda named: (named[1].cost, named[0]))
    if not found:
        return None
    best = found[0][1]
    next_best = (found[1][0], found[1][1].cost) if len(found) > 1 else None
    return PreemptionPlan(best.victims, best.places, best.cost, next_best)


def rooms(fleet: Fleet, unit: Unit, candidates: Candidates, trial: Trial) -> Iterator[tuple[str, PreemptionPlan]]:
    """The room that can be made on each node, or in each domain for a gang, by its name; see :func:`make_room`."""
    return _for_gang(fleet, unit, candidates, trial) if unit.gang else _for_pod(fleet, unit, candidates, trial)


# ---- one pod ----


def _for_pod(fleet: Fleet, unit: Unit, candidates: Candidates, trial: Trial) -> Iterator[tuple[str, PreemptionPlan]]:
    (row,) = unit.rows
    open_ = trial.open(row)
    bounds = candidates.bounds(unit.priority, *needs(fleet, row))
    named = [(level, pods, fleet.node(node).spec.name, node) for level, pods, node in bounds if open_[node]]
    lowest = min(fleet.priorities, default=0) + PRIORITY_OFFSET
    found, best = 0, None
    for level, pods, name, node in sorted(named):
        if best is not None and not best.violations:
            hopeless = (level, pods * lowest) > (best.highest_priority, best.sum_priorities)
            if hopeless or found >= NODES_ENOUGH:
                return
        victims = candidates.on((node,), unit.priority)
        chosen = OnNode(fleet, row, node, candidates, trial).cheapest(victims) if victims else None
        if chosen is not None:
            cost = candidates.cost(chosen)
            found, best = found + 1, cost if best is None else min(best, cost)
            yield name, PreemptionPlan(tuple(chosen), ((row, node),), cost)


def needs(fleet: Fleet, row: int) -> tuple[Ints, Ints]:
    requests = fleet.requests(fleet.pod_class(row).shape)
    return np.array([column for column, _ in requests]), np.array([amount for _, amount in requests])


def _released(fleet: Fleet, node: int, victims: Sequence[Victim], columns: Ints) -> Ints:
    """What each victim's pods on this node release at most, by victim and column."""
    where = {column: i for i, column in enumerate(columns.tolist())}
    amounts = np.zeros((len(victims), len(columns)), np.int64)
    for number, victim in enumerate(victims):
        for row in victim.rows:
            if fleet.pod(row).node == node:
                for column, amount in released(fleet, fleet.pod_class(row).shape):
                    if column in where:
                        amounts[number, where[column]] += amount
    return amounts


class OnNode(Struct, frozen=True):
    """One pod on one node."""

    fleet: Fleet
    row: int
    node: int
    candidates: Candidates
    trial: Trial

    def fits(self, victims: Sequence[Victim]) -> bool:
        with self.fleet.what_if():
            remove(self.fleet, victims)
            return bool(self.trial.keys(self.row)[self.node] != NEVER)

    def cheapest(self, victims: list[Victim]) -> list[Victim] | None:
        """The victims to evict of those on the node; None where the pod does not fit even without all of them."""
        if not self.fits(victims):
            return None
        if len(victims) <= EXACT:
            for tried, chosen in enumerate(self._subsets(victims)):
                if self.fits(chosen):
                    return chosen
                if tried >= EXACT_TRIES:
                    break
        victims = admitted(self.candidates, victims)
        return trimmed(victims, self.fits) if victims and self.fits(victims) else None

    def _subsets(self, victims: list[Victim]) -> Iterator[list[Victim]]:
        """The subsets that have the resources and that budgets allow, the cheapest first."""
        columns, amounts = needs(self.fleet, self.row)
        chosen = (np.arange(1, 1 << len(victims))[:, None] >> np.arange(len(victims))) & 1
        freed = chosen @ _released(self.fleet, self.node, victims, columns) + self.fleet.free[self.node, columns]
        ok = (freed >= amounts).all(axis=1)
        for rest in (number for number, victim in enumerate(victims) if victim.rest_of):
            alone = [n for n, victim in enumerate(victims) if victim.gang == victims[rest].gang and n != rest]
            ok &= chosen[:, rest] <= chosen[:, alone].all(axis=1)
        chosen = chosen[ok]
        for number in _by_cost(self.candidates, victims, chosen):
            one = [victims[n] for n in np.flatnonzero(chosen[number]).tolist()]
            if self.candidates.allowed(one):
                yield one


def _by_cost(candidates: Candidates, victims: Sequence[Victim], chosen: Ints) -> Ints:
    """The order of sets of victims (one a row of zeros and ones), the cheapest first as :class:`Cost` compares."""
    costs = [candidates.cost((victim,)) for victim in victims]
    priority = np.array([cost.highest_priority for cost in costs])
    highest = np.where(chosen == 1, priority, -PRIORITY_OFFSET).max(axis=1, initial=-PRIORITY_OFFSET)
    dearest = (chosen == 1) & (priority == highest[:, None])
    latest = np.where(dearest, [cost.started_ns for cost in costs], np.iinfo(np.int64).min).max(axis=1)
    sums = chosen @ np.array([(cost.sum_priorities, cost.pods, cost.lost_ns) for cost in costs])
    beyond = [0] * len(chosen)
    if any(candidates.budgets.of(row) for victim in victims for row in victim.rows):
        beyond = [candidates.cost([victims[n] for n in np.flatnonzero(row).tolist()]).violations for row in chosen]
    order: Ints = np.lexsort((latest, sums[:, 2], sums[:, 1], sums[:, 0], highest, beyond))
    return order


# ---- a gang ----


def _for_gang(fleet: Fleet, unit: Unit, candidates: Candidates, trial: Trial) -> Iterator[tuple[str, PreemptionPlan]]:
    effort = _effort(fleet, unit, candidates)
    for name, nodes in _regions(fleet, unit, trial)[:REGIONS_ENOUGH]:
        found = _in_region(fleet, unit, nodes, candidates, trial, effort)
        if found is not None:
            yield name, found


def _regions(fleet: Fleet, unit: Unit, trial: Trial) -> list[tuple[str, list[int]]]:
    """The domains in which the gang may stand (one, where it may stand anywhere), those with more room first."""
    usable = np.zeros(len(fleet.alive), np.bool_)
    for row in {fleet.pod(row).class_id: row for row in unit.rows}.values():
        usable |= trial.open(row)
    domains = trial.domains(unit)
    regions: dict[str, list[int]] = {}
    for node in np.flatnonzero(usable).tolist():
        if node in domains:
            regions.setdefault(domains[node], []).append(node)
    columns = sorted({column for row in unit.rows for column in needs(fleet, row)[0].tolist()}, reverse=True)
    names = list(regions)
    within = np.repeat(np.arange(len(names)), [len(regions[name]) for name in names])
    rows = np.array([node for name in names for node in regions[name]], np.int64)
    free = np.zeros((len(names), len(columns)), np.int64)
    np.add.at(free, within, fleet.free[rows][:, columns])
    order = sorted(zip((-free).tolist(), names, strict=True))
    return [(name, regions[name]) for _, name in order]


def _in_region(
    fleet: Fleet, unit: Unit, nodes: list[int], candidates: Candidates, trial: Trial, effort: Ints
) -> PreemptionPlan | None:
    victims = admitted(candidates, _near_first(fleet, unit, nodes, candidates, effort))
    if all(fleet.pod(row).spec.gang != unit.gang for victim in victims for row in victim.rows):
        with fleet.what_if():
            remove(fleet, victims)
            if trial.has_no_room(unit):
                return None

    def places(chosen: Sequence[Victim]) -> Places | None:
        with fleet.what_if():
            remove(fleet, chosen)
            return trial.place(unit)

    size, found = 0, None
    while found is None and size < len(victims):
        size = min(max(1, 2 * size), len(victims))
        found = places(victims[:size])
    if found is None:
        return None
    chosen = victims[:size]
    under = _under(fleet, found, chosen)
    if len(under) < len(chosen) and places(under) is not None:
        chosen = under
    if len(chosen) <= TRIMMED_BY_PLANNING:
        chosen = trimmed(chosen, lambda some: places(some) is not None)
    settled = places(chosen)
    assert settled is not None
    return PreemptionPlan(tuple(chosen), settled, candidates.cost(chosen))


def _under(fleet: Fleet, places: Places, victims: Sequence[Victim]) -> list[Victim]:
    """The victims without whom the pods cannot stand on the very nodes where they were placed, node by node."""
    members: dict[int, list[int]] = {}
    for row, node in places:
        members.setdefault(node, []).append(row)
    here: dict[int, list[Victim]] = {node: [] for node in members}
    for victim in victims:
        for node in {fleet.pod(row).node for row in victim.rows} & here.keys():
            here[node].append(victim)
    needed: set[Victim] = set()
    for node, rows in members.items():

        def fits(some: Sequence[Victim], node: int = node, rows: list[int] = rows) -> bool:
            with fleet.what_if():
                remove(fleet, some)
                try:
                    for row in rows:
                        seat(fleet, row, node)
                except Conflict:
                    return False
            return True

        needed.update(trimmed(here[node], fits))
    return closed([victim for victim in victims if victim in needed], victims)


def _effort(fleet: Fleet, unit: Unit, candidates: Candidates) -> Ints:
    """By node row, how many pods must go at least for one more pod of the unit; -1 where no number is enough."""
    columns, amounts = max((needs(fleet, row) for row in unit.rows), key=lambda need: tuple(need[1][::-1]))
    rows, _, pods = candidates.bounds_of(unit.priority, columns, amounts)
    effort = np.full(len(fleet.alive), -1, np.int64)
    effort[rows] = pods
    return effort


def _near_first(fleet: Fleet, unit: Unit, nodes: list[int], candidates: Candidates, effort: Ints) -> list[Victim]:
    """The victims on these nodes by priority; of equal priority those first where fewer must go for one more pod."""

    def on(node: int) -> tuple[int, str]:
        pods = int(effort[node])
        return (pods, fleet.node(node).spec.name) if pods >= 0 else (len(fleet.pods), "")

    def order(victim: Victim) -> tuple[int, bool, tuple[int, str], tuple[int, bool, int, int, str]]:
        least = min(on(fleet.pod(row).node) for row in victim.rows)
        return (victim.priority, victim.rest_of, least, victim.importance)

    return sorted(candidates.on(nodes, unit.priority), key=order)


# ---- sets of victims ----


def admitted(candidates: Candidates, victims: Sequence[Victim]) -> list[Victim]:
    """The victims in order as far as their budgets allow all of them together; all, where budgets are passed over."""
    if not candidates.respect_budgets:
        return list(victims)
    kept: list[Victim] = []
    left: dict[int, int] = {}
    missing: set[str] = set()
    for victim in victims:
        drawn = [number for row in victim.rows for number in candidates.budgets.used_by(row)]
        for number in drawn:
            left.setdefault(number, candidates.budgets.left(number))
        if all(left[number] >= drawn.count(number) for number in drawn) and not (
            victim.rest_of and victim.gang in missing
        ):
            kept.append(victim)
            for number in drawn:
                left[number] -= 1
        elif victim.gang:
            missing.add(victim.gang)
    return kept


def closed(chosen: Sequence[Victim], among: Sequence[Victim]) -> list[Victim]:
    """The chosen, and with the rest of a gang its pods that could have gone alone."""
    whole = {victim.gang for victim in chosen if victim.rest_of}
    picked = set(chosen)
    return [victim for victim in among if victim in picked or (victim.gang and victim.gang in whole)]


def trimmed(victims: Sequence[Victim], fits: Fits) -> list[Victim]:
    """Those that must go: the most important are given back first, as long as the rest makes room enough.

    Whole stretches are given back at once where that works, so that few needed among many take few tries."""

    def kept(back: list[Victim], others: list[Victim]) -> list[Victim]:
        if not back or fits(closed(others, victims)):
            return []
        if len(back) == 1:
            return back
        half = len(back) // 2
        first = kept(back[:half], [*back[half:], *others])
        return [*first, *kept(back[half:], [*first, *others])]

    return closed(kept(list(reversed(victims)), []), victims)


def remove(fleet: Fleet, victims: Sequence[Victim]) -> None:
    for victim in victims:
        for row in victim.rows:
            fleet.unbind(row)
