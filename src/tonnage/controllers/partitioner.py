"""Cuts GPUs otherwise when pods wait for what none gives."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tonnage.decisions import Decision
from tonnage.fleet.classes import PodClass
from tonnage.loops import Loop
from tonnage.partitioning import adapt
from tonnage.scheduling import place
from tonnage.scheduling.cache import kept
from tonnage.scheduling.view import Mask
from tonnage.units import NS_PER_S
from tonnage.world import World

PARTITIONER = "partitioner"
AGAIN = f"{PARTITIONER}/again"
"""The kind of change that it is when a decision which could not be carried out may be tried again."""
SETTLE_NS = 2 * NS_PER_S
"""More pods may come, and the scheduler is to place first whom it can."""


@dataclass(slots=True)
class Partitioner:
    """Cuts GPUs for pods that wait, of those that the scheduler with these ``settings`` places."""

    settings: place.Settings = place.DEFAULTS
    _cache: place.Cache | None = None

    def decide(self, world: World) -> Sequence[Decision]:
        """A Relayout for each GPU to repartition."""
        snapshot = world.snapshot()
        if not snapshot.fleet.pending:
            return ()
        self._cache = kept(self._cache, snapshot.fleet)
        return adapt.decide(snapshot, self.settings.scheduler_names, self._others)

    def _others(self, pod_class: PodClass) -> Mask | None:
        """The nodes that the places of other pods leave the class; None: no rule says anything about it."""
        cache = self._cache
        if cache is None or not cache.topology.has_rules(pod_class):
            return None
        masks = cache.topology.masks(pod_class, cache.view(pod_class, self.settings.policy))
        left: Mask = np.logical_and.reduce([mask for _, mask in masks])
        return left

    def loop(self) -> Loop:
        """Two seconds after a pod or a node changed, or after it has come to be time to try again."""
        return Loop(PARTITIONER, self.decide, wakes_on=frozenset({"pod", "node", AGAIN}), settle_ns=SETTLE_NS)
