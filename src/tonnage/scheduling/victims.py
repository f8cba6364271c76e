"""Who may be evicted for whom, in the units in which they go: pods, pods of a gang above its minimum, whole gangs.

Sources: kubernetes/kubernetes v1.36 pkg/scheduler/framework/plugins/defaultpreemption (who is eligible, the order of
importance); the units are those of KAI-Scheduler and Volcano: what is above a gang's minimum goes first and alone,
going below takes the gang.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from tonnage.fleet.gangs import Gang
from tonnage.fleet.snapshot import Snapshot
from tonnage.objects.karpenter import DO_NOT_DISRUPT
from tonnage.scheduling.budgets import Budgets
from tonnage.scheduling.view import Ints
from tonnage.units import NS_PER_S

PRIORITY_OFFSET = 1 << 31
"""Makes every priority positive, so that fewer victims of negative priority are never dearer than more of them.

Source: kubernetes/kubernetes pkg/scheduler/framework/preemption/preemption.go."""


NOBODY = 1 << 62
"""Above every priority that anybody preempts with: the pod is nobody's victim any more."""


@dataclass(frozen=True, slots=True)
class Victim:
    """What goes together. ``rest_of``: the gang that this is all of, but for its pods that may go alone.

    ``lost_ns``: work that would be done again, in ns of each device held (of the pod, where it holds none)."""

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


@dataclass(frozen=True, slots=True, order=True)
class Cost:
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
        """Work that would be done again, in device-seconds."""
        return self.lost_ns / NS_PER_S


class Candidates:
    """The pods that may be evicted, as of one snapshot. ``respect_budgets``: never beyond what budgets allow.

    Never those that are leaving, that belong to their node or are marked do-not-disrupt, nor of gangs that are not
    preemptible. ``only``: which of the others; ``whole_gangs``: of a gang all pods or none."""

    def __init__(
        self,
        snapshot: Snapshot,
        *,
        respect_budgets: bool,
        only: Callable[[int], bool] | None = None,
        whole_gangs: bool = False,
    ) -> None:
        self.snapshot = snapshot
        self.budgets = Budgets(snapshot)
        self.respect_budgets = respect_budgets
        self._fleet = snapshot.fleet
        self._gang_priority: dict[str, int] = {}
        self._evictable: dict[int, bool] = {}
        self._only = only
        self._whole_gangs = whole_gangs

    # ---- one pod ----

    def gang_of(self, row: int) -> Gang | None:
        """The pod's gang, if it is known."""
        return self.snapshot.gangs.get(self._fleet.pod(row).spec.gang)

    def priority(self, row: int) -> int:
        """The priority with which the pod preempts and is preempted: a gang has one, the highest of its own and its
        pods'."""
        spec = self._fleet.pod(row).spec
        gang = self.gang_of(row)
        if gang is None:
            return spec.priority
        known = self._gang_priority.get(gang.key)
        if known is None:
            known = self._gang_priority[gang.key] = self.snapshot.gang_priority(gang.key)
        return known

    def leaving(self, row: int) -> bool:
        """Whether the pod is being deleted, or was chosen to be."""
        return self.snapshot.leaves(self._fleet.pod(row).key)

    def evictable(self, row: int) -> bool:
        """Whether the pod may be evicted at all, priorities aside."""
        known = self._evictable.get(row)
        if known is None:
            spec, gang = self._fleet.pod(row).spec, self.gang_of(row)
            known = self._evictable[row] = (
                not spec.daemon
                and spec.annotations.get(DO_NOT_DISRUPT) != "true"
                and (gang is None or gang.preemptible)
                and not self.leaving(row)
                and (not self.respect_budgets or self.budgets.evictable(row))
                and (self._only is None or self._only(row))
            )
        return known

    def take(self, rows: Iterable[int]) -> None:
        """These pods are going to be evicted: they are nobody's victims any more, and their budgets are drawn on."""
        rows = tuple(rows)
        self.budgets.spend(rows)
        self._evictable.clear()
        self._table.priority[np.isin(self._table.row, rows)] = NOBODY

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
        fleet, snapshot = self._fleet, self.snapshot
        lost = sum(snapshot.unsaved_ns(row) * max(1, len(fleet.pod(row).devices)) for row in rows)
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
        fleet, table = self._fleet, self._table
        eligible = table.priority < below
        node, priority = table.node[eligible], table.priority[eligible]
        offered = table.requests[table.class_id[eligible]][:, columns]
        size = len(fleet.alive)
        largest = np.zeros((size, len(columns)), np.int64)
        np.maximum.at(largest, node, offered)
        lacking = np.maximum(amounts - fleet.free[:size, columns], 0)
        pods = (-(-lacking // np.maximum(largest, 1))).max(axis=1, initial=1)
        level = np.full(size, below, np.int64)
        freed = np.zeros((size, len(columns)), np.int64)
        for one in np.unique(priority).tolist():
            here = priority == one
            np.add.at(freed, node[here], offered[here])
            touched = np.unique(node[here])
            enough = touched[(freed[touched] >= lacking[touched]).all(axis=1)]
            level[enough] = np.minimum(level[enough], one)
        rows = np.flatnonzero(level < below)
        return list(zip(level[rows].tolist(), pods[rows].tolist(), rows.tolist(), strict=True))

    @property
    def count(self) -> int:
        """How many pods there are that may go."""
        return len(self._table.node)

    @cached_property
    def _table(self) -> _Table:
        fleet = self._fleet
        bound = [row for row, pod in enumerate(fleet.pods) if pod is not None and pod.node >= 0]
        rows = [row for row in bound if self.evictable(row)]
        pods = [fleet.pod(row) for row in rows]
        requests = np.zeros((len(fleet.classes.rows), fleet.free.shape[1]), np.int64)
        for number in {pod.class_id for pod in pods}:
            for column, amount in fleet.requests(fleet.classes.rows[number].shape):
                requests[number, column] = amount
        columns = ([pod.node for pod in pods], [pod.class_id for pod in pods], [pod.spec.priority for pod in pods])
        node, class_id, priority = (np.array(column, np.int64) for column in columns)
        return _Table(np.array(rows, np.int64), node, class_id, priority, requests)


@dataclass(frozen=True, slots=True)
class _Table:
    """The pods that may be evicted, as columns; and what each class requests, by class and resource."""

    row: Ints
    node: Ints
    class_id: Ints
    priority: Ints
    requests: Ints


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
