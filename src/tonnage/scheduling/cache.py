"""Derived tables of one fleet that survive between decisions."""

from __future__ import annotations

import numpy as np

from tonnage.fleet.classes import PodClass
from tonnage.fleet.state import Fleet
from tonnage.scheduling.bound import BoundPods
from tonnage.scheduling.levels import LevelTables
from tonnage.scheduling.open_nodes import PREFERENCE_WEIGHT
from tonnage.scheduling.policies import Views
from tonnage.scheduling.topology import Masks, TopologyFilter
from tonnage.scheduling.value.mix import Mix
from tonnage.scheduling.view import NEVER, TIE_BITS, Ints, ShapeView


class Cache:
    """The views of pod shapes, tallies for topology, levels and bound pods of one fleet. Dropping it changes speed
    only, and that the mix of pods is read again (:class:`tonnage.scheduling.policies.Views`). ``mix``: pods to think of
    other than the fleet's."""

    def __init__(self, fleet: Fleet, mix: Mix | None = None) -> None:
        self.fleet = fleet
        self.classes = fleet.classes
        self.topology = TopologyFilter(fleet)
        self.levels = LevelTables(fleet)
        self.bound = BoundPods(fleet)
        self.view = Views(fleet, mix).get
        """The up-to-date view of a class's shape under a policy."""

    def fits(self, fleet: Fleet) -> bool:
        """Whether these are the tables of this fleet, with the classes that it has now."""
        return self.fleet is fleet and self.classes is fleet.classes


def keys_of(topology: TopologyFilter, pod_class: PodClass, view: ShapeView, masks: Masks) -> Ints:
    """The view's keys with the rules about other pods applied: NEVER where one forbids the node, preferences added."""
    key = view.key
    for _, mask in masks:
        key = np.where(mask, key, NEVER)
    rules = topology.rules(pod_class)
    wishes = topology.preference(pod_class, key != NEVER) if rules.soft_spread or rules.soft_affinity else None
    if wishes is not None:
        key = np.where(key != NEVER, key + (view.scale * PREFERENCE_WEIGHT * wishes << TIE_BITS), NEVER)
    return key


def kept(cache: Cache | None, fleet: Fleet) -> Cache:
    """The cache of an earlier decision where it is still that of the fleet, else a new one."""
    return cache if cache is not None and cache.fits(fleet) else Cache(fleet)
