"""Cuts GPUs otherwise when pods wait for what none gives."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tonnage.decisions import Decision
from tonnage.loops import Loop
from tonnage.partitioning import adapt
from tonnage.units import NS_PER_S
from tonnage.world import World

PARTITIONER = "partitioner"
SETTLE_NS = 2 * NS_PER_S
"""More pods may come, and the scheduler is to place first whom it can."""


@dataclass(slots=True)
class Partitioner:
    """Cuts GPUs for pods that wait."""

    settings: adapt.Settings = adapt.DEFAULTS

    def decide(self, world: World) -> Sequence[Decision]:
        """A Relayout for each GPU to cut otherwise."""
        return adapt.decide(world.snapshot(), self.settings)

    def loop(self) -> Loop:
        """Two seconds after a pod or a node changed."""
        return Loop(PARTITIONER, self.decide, wakes_on=frozenset({"pod", "node"}), settle_ns=SETTLE_NS)
