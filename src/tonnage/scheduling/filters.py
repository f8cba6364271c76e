"""Which nodes are feasible for a pod: the scheduler's answer, for all who ask before or beside it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tonnage.fleet.classes import PodClass
from tonnage.fleet.filters import Mask
from tonnage.fleet.state import Fleet
from tonnage.scheduling.cache import Cache, kept
from tonnage.scheduling.policies import ANY_POLICY
from tonnage.scheduling.view import NEVER, ShapeView


@dataclass(slots=True)
class SchedulerFilters:
    """Of one fleet: :class:`tonnage.fleet.filters.Filters`. All filters that placing asks, in one view."""

    cache: Cache

    @classmethod
    def of(cls, fleet: Fleet, before: SchedulerFilters | None = None) -> SchedulerFilters:
        """``before``: those of an earlier decision; their tables are kept where they are still of the fleet."""
        cache = kept(before.cache if before is not None else None, fleet)
        return before if before is not None and before.cache is cache else cls(cache)

    def admit(self, pod_class: PodClass) -> Mask:
        """The nodes that let the pods in whatever room there is, by row."""
        return self._view(pod_class).able.copy()

    def rules(self, pod_class: PodClass) -> Mask | None:
        """The nodes that rules about other pods leave, by row, as things stand; None: no rule says anything."""
        topology = self.cache.topology
        if not topology.has_rules(pod_class):
            return None
        masks = [mask for _, mask in topology.masks(pod_class, self._view(pod_class))]
        return np.logical_and.reduce(masks) if masks else None

    def take(self, pod_class: PodClass) -> Mask:
        """The nodes on which such a pod could be bound now, by row."""
        there: Mask = self._view(pod_class).key != NEVER
        left = self.rules(pod_class)
        return there if left is None else there & left

    def _view(self, pod_class: PodClass) -> ShapeView:
        return self.cache.view(pod_class, ANY_POLICY)
