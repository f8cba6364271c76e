"""Who of the pods that wait would be bound now: the scheduler's answer for those who decide about room."""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass

from tonnage.decisions import Bind
from tonnage.fleet.snapshot import Snapshot
from tonnage.scheduling import place
from tonnage.scheduling.cache import Cache, kept

POLICY = "binpack"
"""What fits is the same under every policy, and this one keeps the cheapest tables."""


@dataclass(slots=True)
class Seats:
    """Keeps the tables from one call to the next. Pods of every scheduler count; nobody is evicted for them."""

    _cache: Cache | None = None

    def __call__(self, snapshot: Snapshot, waiting: Set[int]) -> Set[int]:
        """Those of these pods (rows) that would be bound, all of them together."""
        fleet = snapshot.fleet
        if not waiting:
            return frozenset()
        self._cache = kept(self._cache, fleet)
        names = tuple(sorted({fleet.pod(row).spec.spec.scheduler_name for row in waiting}))
        settings = place.Settings(POLICY, receipts=False, scheduler_names=names, preemption=False)
        found = place.decide(snapshot, settings, self._cache, waiting)
        return {fleet.pod_by_key[one.pod.namespace, one.pod.name] for one in found if isinstance(one, Bind)}
