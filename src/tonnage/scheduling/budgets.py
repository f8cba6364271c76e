"""PodDisruptionBudgets over a snapshot: which evictions they allow now, and which they do not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from tonnage.fleet.snapshot import PodLife, Snapshot
from tonnage.objects import policy, selectors
from tonnage.objects.policy import PodDisruptionBudget


class Budgets:
    """What the budgets of a snapshot leave, as of :meth:`count`, less what :meth:`spend` promised.

    A budget whose limit is neither a number nor a percentage allows nothing, as in Kubernetes. A pod that has not begun
    to work may go whatever budgets say, as in Kubernetes while its phase is Pending (kubernetes/kubernetes v1.36
    pkg/registry/core/pod/storage/eviction.go, canIgnorePDB)."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._spent: Counter[int] = Counter()
        self._of: dict[int, tuple[int, ...]] = {}  # class → the budgets that select it
        self._by_namespace: dict[str, list[int]] = {}
        for number, one in enumerate(snapshot.disruption_budgets):
            self._by_namespace.setdefault(one.namespace or "default", []).append(number)
        self.states: tuple[policy.DisruptionAllowance, ...] = ()
        """What each budget says of the pods."""

    def of(self, row: int) -> tuple[int, ...]:
        """The numbers of the budgets that select the pod."""
        if not self._by_namespace:
            return ()
        pod_class = self._snapshot.fleet.pod_class(row)
        known = self._of.get(pod_class.id)
        if known is None:
            known = self._of[pod_class.id] = tuple(
                number
                for number in self._by_namespace.get(pod_class.namespace, ())
                if selectors.matches(self._snapshot.disruption_budgets[number].spec.selector, pod_class.labels)
            )
        return known

    def used_by(self, row: int) -> tuple[int, ...]:
        """The budgets that evicting the pod draws on."""
        found = self.of(row)
        if not found or self._has_not_begun(row):
            return ()
        ready = self._life(row).ready
        return tuple(
            number
            for number in found
            if not self.states[number].spares(
                ready=ready, policy=self._snapshot.disruption_budgets[number].spec.unhealthy_pod_eviction_policy
            )
        )

    def forbids(self, row: int) -> str:
        """Why the Eviction API would not let the pod go now; empty where it would. It refuses a pod that several
        budgets select."""
        found = self.of(row)
        if not found or self._has_not_begun(row):
            return ""
        names = ", ".join(self._snapshot.disruption_budgets[number].name for number in found)
        if len(found) > 1:
            return f"several PodDisruptionBudgets select it: {names}"
        return f"PodDisruptionBudget {names} allows no more evictions now" if self.violations((row,)) else ""

    def _has_not_begun(self, row: int) -> bool:
        life = self._life(row)
        return life.started_ns is None and not life.ready

    def left(self, number: int) -> int:
        """How many more evictions a budget allows."""
        return self.states[number].allowed - self._spent[number]

    def violations(self, rows: Iterable[int]) -> int:
        """How many of the pods would go beyond what their budgets allow, if all of them went."""
        if not self._by_namespace:
            return 0
        used: Counter[int] = Counter()
        beyond = 0
        for row in rows:
            drawn = self.used_by(row)
            used.update(drawn)
            beyond += any(used[number] > self.left(number) for number in drawn)
        return beyond

    def in_the_way(self, rows: Iterable[int]) -> tuple[str, ...]:
        """The budgets (namespace/name) that do not allow all of these pods to go, or none of them because a pod has
        several."""
        rows, used = tuple(rows), Counter[int]()
        for row in rows:
            used.update(self.used_by(row))
        several = {number for row in rows if len(self.of(row)) > 1 and self.forbids(row) for number in self.of(row)}
        numbers = several | {number for number, count in used.items() if count > self.left(number)}
        budgets = (self._snapshot.disruption_budgets[number] for number in numbers)
        return tuple(sorted(f"{one.namespace or 'default'}/{one.name}" for one in budgets))

    def spend(self, rows: Iterable[int]) -> None:
        """These pods are going to be evicted."""
        for row in rows:
            self._spent.update(self.used_by(row))

    def count(self) -> None:
        """Look at the pods as they are now."""
        if not self._by_namespace:
            return
        snapshot = self._snapshot
        selected: list[list[int]] = [[] for _ in snapshot.disruption_budgets]
        for row, pod in enumerate(snapshot.fleet.pods):
            if pod is not None and pod.spec.namespace in self._by_namespace:
                for number in self.of(row):
                    selected[number].append(row)
        self.states = tuple(map(self._state, snapshot.disruption_budgets, selected))

    def _state(self, budget: PodDisruptionBudget, rows: list[int]) -> policy.DisruptionAllowance:
        fleet = self._snapshot.fleet
        healthy = sum(fleet.pod(row).node >= 0 and (life := self._life(row)).ready and not life.leaving for row in rows)
        spec = budget.spec
        try:
            desired, expected = policy.needs(
                spec.min_available, spec.max_unavailable, len(rows), lambda: self._scale(rows)
            )
        except ValueError:
            return policy.DisruptionAllowance(healthy, healthy, 0)
        return policy.DisruptionAllowance(healthy, desired, expected)

    def _scale(self, rows: list[int]) -> int:
        """What the controllers of the pods want: replicas where they are known, else the pods that there are."""
        fleet, workloads = self._snapshot.fleet, self._snapshot.workloads
        there = Counter(pod.owner for row in rows if (pod := fleet.pod(row).spec).owner)
        return sum(workloads[owner].replicas if owner in workloads else pods for owner, pods in there.items())

    def _life(self, row: int) -> PodLife:
        return self._snapshot.life(self._snapshot.fleet.pod(row).key)
