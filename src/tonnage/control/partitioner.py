"""Cuts GPUs otherwise when pods wait for what none gives."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tonnage.control.loops import Loop
from tonnage.control.world import World
from tonnage.decisions import Decision
from tonnage.partitioning import adapt
from tonnage.scheduling import place
from tonnage.scheduling.filters import SchedulerFilters
from tonnage.units import NS_PER_S

PARTITIONER = "partitioner"
AGAIN = f"{PARTITIONER}/again"
"""The kind of change that it is when a decision which could not be carried out may be tried again."""
SETTLE_NS = 2 * NS_PER_S
"""More pods may come, and the scheduler is to place first whom it can."""


@dataclass(slots=True)
class Partitioner:
    """Cuts GPUs for pending pods, of those that the scheduler with these ``settings`` places."""

    settings: place.Settings = place.DEFAULTS
    _filters: SchedulerFilters | None = None

    def decide(self, world: World) -> Sequence[Decision]:
        """A Relayout for each GPU to repartition."""
        snapshot = world.snapshot()
        if not snapshot.fleet.pending:
            return ()
        self._filters = SchedulerFilters.of(snapshot.fleet, self._filters)
        return adapt.decide(snapshot, self._filters, self.settings.scheduler_names)

    def loop(self) -> Loop:
        """Two seconds after a pod or a node changed, or after it has come to be time to try again."""
        return Loop(PARTITIONER, self.decide, wakes_on=frozenset({"pod", "node", AGAIN}), settle_ns=SETTLE_NS)
