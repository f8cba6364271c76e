"""Who of the pending pods would be bound now: the scheduler's answer for those who decide about room."""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass

from tonnage.decisions import Bind
from tonnage.fleet.snapshot import Snapshot
from tonnage.fleet.state import Fleet
from tonnage.scheduling import place
from tonnage.scheduling.filters import SchedulerFilters
from tonnage.scheduling.policies import ANY_POLICY


@dataclass(slots=True)
class SchedulerSeats:
    """Keeps the tables from one call to the next. Pods of every scheduler count; nobody is evicted for them."""

    _filters: SchedulerFilters | None = None

    def filters(self, fleet: Fleet) -> SchedulerFilters:
        """Which nodes of the fleet take a pod."""
        self._filters = SchedulerFilters.of(fleet, self._filters)
        return self._filters

    def __call__(self, snapshot: Snapshot, waiting: Set[int]) -> Set[int]:
        """Those of these pods (rows) that would be bound, all of them together."""
        fleet = snapshot.fleet
        if not waiting:
            return frozenset()
        names = tuple(sorted({fleet.pod(row).spec.spec.scheduler_name for row in waiting}))
        settings = place.Settings(ANY_POLICY, receipts=False, scheduler_names=names, preemption=False)
        found = place.decide(snapshot, settings, self.filters(fleet).cache, waiting)
        return {fleet.pod_by_key[one.pod.namespace, one.pod.name] for one in found if isinstance(one, Bind)}
