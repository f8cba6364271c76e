"""Who may be evicted for whom, in the units in which they go: pods, pods of a gang above its minimum, whole gangs.

Sources: kubernetes/kubernetes v1.36 pkg/scheduler/framework/plugins/defaultpreemption (who is eligible, the order of
importance); the units are those of KAI-Scheduler and Volcano: what is above a gang's minimum goes first and alone,
going below takes the gang.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence, Set
from functools import cached_property

import numpy as np
from msgspec import Struct

from tonnage.fleet.columns import distinct
from tonnage.fleet.filters import Mask
from tonnage.fleet.gangs import Gang
from tonnage.fleet.node_columns import Requests
from tonnage.fleet.rows import split_key
from tonnage.fleet.snapshot import Snapshot
from tonnage.fleet.state import Fleet
from tonnage.objects.karpenter import DO_NOT_DISRUPT
from tonnage.scheduling.bound import BoundPods
from tonnage.scheduling.budgets import Budgets
from tonnage.scheduling.order import PlacementPriorities
from tonnage.scheduling.view import Ints
from tonnage.units import NS_PER_S

PRIORITY_OFFSET = 1 << 31
"""Makes every priority positive, so that fewer victims of negative priority are never dearer than more of them.

Source: kubernetes/kubernetes pkg/scheduler/framework/preemption/preemption.go."""


NOBODY = 1 << 62
"""Above every priority that anybody preempts with: the pod is nobody's victim any more."""


class Victim(Struct, frozen=True):
    """What goes together. ``rest_of``: the gang that this is all of, but for its pods that may go alone.

    ``lost_ns``: work that would be lost, in ns of each device held (of the pod, where it holds none)."""

    rows: tuple[int, ...]
    priority: int
    lost_ns: int
    started_ns: int
    name: str
    gang: str = ""
    rest_of: bool = False

    @property
    def importance(self) -> tuple[int, bool, int, int, str]:
        """Compares as who goes first: lower priority, above its gang's minimum, less work lost, later start, name."""
        return (self.priority, self.rest_of, self.lost_ns, -self.started_ns, self.name)


class Cost(Struct, frozen=True, order=True):
    """What evicting some victims costs; compares in kube-scheduler's order, with the work lost before the start time.

    ``sum_priorities``: each with PRIORITY_OFFSET added. ``started_ns``: negative, so that later is cheaper."""

    violations: int
    highest_priority: int
    sum_priorities: int
    pods: int
    lost_ns: int
    started_ns: int

    @property
    def lost_s(self) -> float:
        """Work that would be lost, in device-seconds."""
        return self.lost_ns / NS_PER_S


class Candidates:
    """The pods that may be evicted, as of one snapshot. ``respect_budgets``: never beyond what budgets allow.

    Never those that are leaving, that belong to their node or are marked do-not-disrupt, nor of gangs that are not
    preemptible. ``also``: why others must stay, empty where they need not; ``whole_gangs``: of a gang all pods or none.
    ``absent``: pods that are bound in a what-if alone, who are nobody's victims. ``anyway``: whoever is there, does not
    leave and does not belong to its node, to see what the rules forbid."""

    def __init__(
        self,
        snapshot: Snapshot,
        bound: BoundPods,
        *,
        respect_budgets: bool,
        also: Callable[[int], str] | None = None,
        whole_gangs: bool = False,
        absent: Set[int] = frozenset(),
        anyway: bool = False,
    ) -> None:
        self.snapshot = snapshot
        self.budgets = Budgets(snapshot)
        self.respect_budgets = respect_budgets
        self._fleet = snapshot.fleet
        self._bound = bound
        self._priorities = PlacementPriorities(snapshot)
        self._evictable: dict[int, bool] = {}
        self._also = also
        self._whole_gangs = whole_gangs
        self._absent = absent
        self._anyway = anyway
        self._offers: _Offers | None = None

    # ---- one pod ----

    def gang_of(self, row: int) -> Gang | None:
        """The pod's gang, if it is known."""
        return self.snapshot.gangs.get(self._fleet.pod(row).spec.gang)

    def priority(self, row: int) -> int:
        """The priority with which the pod preempts and is preempted, its gang's where it has one."""
        return self._priorities.of(row)

    def leaving(self, row: int) -> bool:
        """Whether the pod is being deleted, or was chosen to be."""
        return row in self.leaving_rows

    @cached_property
    def leaving_rows(self) -> set[int]:
        """The pods that are being deleted, or were chosen to be."""
        leaving = (split_key(key) for key, life in self.snapshot.lives.items() if life.leaving)
        return {row for key in leaving if (row := self._fleet.pod_by_key.get(key)) is not None}

    def evictable(self, row: int) -> bool:
        """Whether the pod may be evicted at all, priorities aside."""
        known = self._evictable.get(row)
        if known is None:
            stays = row in self._absent or self._fleet.pod(row).spec.daemon or self.leaving(row)
            known = self._evictable[row] = not stays and (self._anyway or not self.forbidden(row))
        return known

    def forbidden(self, row: int) -> str:
        """What forbids to evict the pod; empty where nothing does."""
        spec = self._fleet.pod(row).spec
        if spec.annotations.get(DO_NOT_DISRUPT) == "true":
            return f"it is marked {DO_NOT_DISRUPT}"
        gang = self.snapshot.gangs.get(spec.gang) if spec.gang else None
        if gang is not None and not gang.preemptible:
            return f"its gang {gang.key} is not preemptible"
        by_budget = self.budgets.forbids(row) if self.respect_budgets else ""
        return by_budget or (self._also(row) if self._also is not None else "")

    def take(self, rows: Iterable[int]) -> None:
        """These pods are going to be evicted: they are nobody's victims any more, and their budgets are drawn on."""
        rows = tuple(rows)
        self.leaving_rows.update(rows)
        self.budgets.spend(rows)
        if self.snapshot.disruption_budgets:
            self._evictable.clear()  # of those, too, whose budgets are used up now
        self._evictable.update(dict.fromkeys(rows, False))
        self._table.priority[np.isin(self._table.row, rows)] = NOBODY
        self._offers = None

    # ---- units ----

    def on(self, nodes: Collection[int], below: int) -> list[Victim]:
        """The victims of lower priority than ``below`` with a pod on one of these nodes, the first to go first."""
        fleet = self._fleet
        rows = sorted(row for node in nodes for row in fleet.node(node).pods)
        by_gang: dict[str, list[int]] = {}
        found = []
        for row in rows:
            if self.priority(row) >= below or self.leaving(row):
                continue
            gang = self.gang_of(row)
            if gang is not None:
                by_gang.setdefault(gang.key, []).append(row)
            elif self.evictable(row):
                found.append(self._victim((row,)))
        for key, here in by_gang.items():
            found += self._gang_victims(self.snapshot.gangs[key], here)
        return sorted(found, key=lambda victim: victim.importance)

    def _gang_victims(self, gang: Gang, here: Sequence[int]) -> list[Victim]:
        members = [row for row in self.members(gang.key) if not self.leaving(row)]
        free = () if self._whole_gangs else here
        singles = [self._victim((row,), gang.key) for row in free if self.evictable(row)]
        alone = _above_minimum(self, gang, members, sorted(singles, key=lambda victim: victim.importance))
        apart = {row for victim in alone for row in victim.rows}
        if all(self.evictable(row) for row in members):
            alone.append(self._victim(tuple(row for row in members if row not in apart), gang.key, rest_of=True))
        return alone

    def members(self, key: str) -> list[int]:
        """The bound pods of a gang."""
        return [row for row in self._fleet.gang_pods.get(key, ()) if self._fleet.pod(row).node >= 0]

    def _victim(self, rows: tuple[int, ...], gang: str = "", *, rest_of: bool = False) -> Victim:
        """In the order of their names, as the numbers of rows are of when a world heard of them."""
        fleet, snapshot = self._fleet, self.snapshot
        rows = tuple(sorted(rows, key=lambda row: fleet.pod(row).key))
        lost = sum(map(snapshot.lost_ns, rows))
        first = min((snapshot.now_ns, *(snapshot.started_ns(row) for row in rows)))
        priority = max((self.priority(row) for row in rows), default=0)
        name = gang if rest_of else fleet.pod(rows[0]).key
        return Victim(rows, priority, lost, first, name, gang, rest_of)

    # ---- what they cost ----

    def cost(self, victims: Sequence[Victim]) -> Cost:
        """What evicting these costs."""
        rows = sorted({row for victim in victims for row in victim.rows})
        highest = max((victim.priority for victim in victims), default=-PRIORITY_OFFSET)
        dearest = [victim.started_ns for victim in victims if victim.priority == highest]
        return Cost(
            self.budgets.violations(rows),
            highest,
            sum(self.priority(row) + PRIORITY_OFFSET for row in rows),
            len(rows),
            sum(victim.lost_ns for victim in victims),
            -min(dearest, default=0),
        )

    def allowed(self, victims: Sequence[Victim]) -> bool:
        """Whether budgets allow all of these at once, where they are respected."""
        return not self.respect_budgets or not self.budgets.violations(row for v in victims for row in v.rows)

    # ---- where they help ----

    def bounds(self, below: int, columns: Ints, amounts: Ints) -> list[tuple[int, int, int]]:
        """(priority up to which pods must go, how many pods at least, node row) by node where evictions could help.

        Both are lower bounds by resources alone: ``amounts`` of ``columns`` for a pod of priority ``below``."""
        rows, level, pods = self.bounds_of(below, columns, amounts)
        return list(zip(level.tolist(), pods.tolist(), rows.tolist(), strict=True))

    def bounds_of(self, below: int, columns: Ints, amounts: Ints) -> tuple[Ints, Ints, Ints]:
        """The same as columns: (node row, priority up to which pods must go, how many pods at least)."""
        offers = self._offered(below, columns)
        size = len(self._fleet.alive)
        lacking = np.maximum(amounts - self._fleet.free[:size, columns], 0)
        pods = (-(-lacking // offers.largest)).max(axis=1, initial=1)
        level = np.full(size, below, np.int64)
        for one, freed, touched in offers.by_priority:
            level[touched & (level == below) & (freed >= lacking).all(axis=1)] = one
        rows = np.flatnonzero(level < below)
        return rows, level[rows], pods[rows]

    def _offered(self, below: int, columns: Ints) -> _Offers:
        """What those of lower priority than ``below`` would free; kept for who asks again when more or less is free."""
        table, key = self._table, (below, len(self._fleet.alive), columns.tobytes())
        if self._offers is not None and self._offers.key == key:
            return self._offers
        size = len(self._fleet.alive)
        eligible = np.flatnonzero(table.priority < below)
        eligible = eligible[np.argsort(table.node[eligible], kind="stable")]
        node, priority = table.node[eligible], table.priority[eligible]
        known = columns < table.requests.shape[1]  # nobody stands who asks for a resource that is newer than the table
        offered = np.zeros((len(node), len(columns)), np.int64)
        offered[:, known] = table.requests[:, columns[known]][table.class_id[eligible]]
        largest = np.zeros((size, len(columns)), np.int64)
        _gather(largest, np.maximum, node, offered)
        freed = np.zeros((size, len(columns)), np.int64)
        by_priority = []
        for one in distinct(priority):
            here, touched = priority == one, np.zeros(size, np.bool_)
            freed = freed.copy()
            _gather(freed, np.add, node[here], offered[here])
            touched[node[here]] = True
            by_priority.append((one, freed, touched))
        self._offers = _Offers(key, np.maximum(largest, 1), by_priority)
        return self._offers

    @property
    def count(self) -> int:
        """How many pods there are that may go."""
        return len(self._table.node)

    @cached_property
    def _table(self) -> _Table:
        fleet, pods = self._fleet, self._bound.refresh()
        may = (pods.node >= 0) & ~pods.daemon
        may[[*self._absent, *self.leaving_rows]] = False
        rows = np.flatnonzero(may)
        if not self._anyway:
            by_one = self._also is not None or (self.respect_budgets and bool(self.snapshot.disruption_budgets))
            looked_at = rows if by_one else rows[pods.special[rows]]
            may[[row for row in looked_at.tolist() if self.forbidden(row)]] = False
            rows = np.flatnonzero(may)
        numbers = distinct(pods.class_id[rows])
        amounts = [(number, released(fleet, fleet.classes.rows[number].shape)) for number in numbers]
        requests = np.zeros((len(fleet.classes.rows), fleet.free.shape[1]), np.int64)
        for number, found in amounts:
            for column, amount in found:
                requests[number, column] = amount
        return _Table(rows, pods.node[rows], pods.class_id[rows], pods.priority[rows], requests)


class _Table(Struct, frozen=True):
    """The pods that may be evicted, as columns; and what each class releases, by class and resource."""

    row: Ints
    node: Ints
    class_id: Ints
    priority: Ints
    requests: Ints


class _Offers(Struct, frozen=True):
    """What pods of some priorities would free of some resources, by node row and resource: ``largest``, the most that
    one of them does (at least 1); and for each priority, the lowest first, what all up to it do, and where any of it
    stands."""

    key: tuple[int, int, bytes]
    largest: Ints
    by_priority: list[tuple[int, Ints, Mask]]


def _gather(into: Ints, how: np.ufunc, at: Ints, amounts: Ints) -> None:
    """``how.at``, faster: for rows ``at`` in order."""
    if len(at):
        first = np.flatnonzero(np.r_[True, at[1:] != at[:-1]])
        rows = at[first]
        into[rows] = how(into[rows], how.reduceat(amounts, first, axis=0))


def released(fleet: Fleet, shape: int) -> Requests:
    """(column, at most so much) of each resource that comes free when a pod of this shape goes: what it requests; and
    the devices that it has a part of, which count as taken while any part is."""
    ask = fleet.classes.shapes[shape].ask
    found = dict(fleet.requests(shape))
    if ask.shares and not ask.refused:
        column = fleet.resource(ask.resource)
        found[column] = found.get(column, 0) + ask.count
    return tuple(sorted(found.items()))


def _above_minimum(
    candidates: Candidates, gang: Gang, members: Sequence[int], singles: Sequence[Victim]
) -> list[Victim]:
    """The pods that may go alone, first to go first, so that the gang and each of its subgroups keep their minimum."""
    fleet = candidates.snapshot.fleet
    minima, counted_in = gang.minima, gang.counted_in
    count: Counter[str] = Counter()

    def groups(row: int) -> tuple[str, ...]:
        return counted_in.get(fleet.pod(row).spec.subgroup, ("",))

    for row in members:
        count.update(groups(row))
    alone = []
    for victim in singles:
        around = groups(victim.rows[0])
        if all(count[group] > minima[group] for group in around):
            count.subtract(around)
            alone.append(victim)
    return alone
