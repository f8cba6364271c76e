"""Keeps static NodePools at as many nodes as they say; what is too much goes by :mod:`tonnage.control.disruption`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from tonnage.control.loops import Loop
from tonnage.control.nodes import Provisioner
from tonnage.control.world import World
from tonnage.decisions import Decision
from tonnage.fleet.snapshot import Snapshot
from tonnage.provisioning import static
from tonnage.provisioning.catalogue import OfferingKey
from tonnage.units import NS_PER_S

STATIC_NS = 30 * NS_PER_S
"""A NodePool that has reached its limit of nodes is looked at again after this long (static/provisioning)."""


@dataclass(slots=True)
class StaticCapacity:
    """``provisioner``: whose NodePools and numbers of NodeClaims these are."""

    provisioner: Provisioner

    def decide(self, world: World) -> Sequence[Decision]:
        """A Launch for each node that a static NodePool lacks."""
        pools = self.provisioner.pools()
        if not any(pool.is_static for pool in pools.node_pools):
            return ()
        snapshot = world.snapshot()
        staying, every = nodes_of_pools(snapshot)
        settings = pools.plan_settings(
            frozenset(OfferingKey(*one) for one in snapshot.unavailable), self.provisioner.next_number(snapshot)
        )
        return static.plan(pools.node_pools, staying, every, self.provisioner.catalogue, settings).launches

    def loop(self) -> Loop:
        """Every half a minute, and when a node or a NodeClaim changes."""
        wakes_on = frozenset({"node", "claim", "offering"})
        return Loop("static-capacity", self.decide, STATIC_NS, wakes_on, learn=self.provisioner.learn)


def nodes_of_pools(snapshot: Snapshot) -> tuple[Counter[str], Counter[str]]:
    """By NodePool, how many nodes stay, those on their way among them, and how many there are with those that leave."""
    fleet = snapshot.fleet
    staying: Counter[str] = Counter()
    every: Counter[str] = Counter()
    for node in map(fleet.node, fleet.node_rows()):
        every[node.spec.node_pool] += 1
        staying[node.spec.node_pool] += not node.leaving
    for claim in snapshot.claims:
        if claim.name not in fleet.node_by_name and claim.node not in fleet.node_by_name:
            every[claim.launch.node_pool] += 1
            staying[claim.launch.node_pool] += 1
    return staying, every
