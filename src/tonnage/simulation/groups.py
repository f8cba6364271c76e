"""Node groups in the simulated cluster: the nodes that they begin with, and what may still be planned on them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

import msgspec

from tonnage.control.nodes import Pools
from tonnage.decisions import Ref
from tonnage.facts.labels import EKS_NODE_GROUP, EKSCTL_NODE_GROUP
from tonnage.machines import nodes
from tonnage.machines.cluster import SimulatedCluster
from tonnage.machines.objects import SimulatedNodeClaim
from tonnage.provisioning.catalogue import NO_OFFER, NODES, Catalogue
from tonnage.provisioning.group_pools import GroupPool, group_pools
from tonnage.provisioning.labels import INSTANCE_TYPE
from tonnage.provisioning.node_groups import NodeGroup
from tonnage.provisioning.nodeclass import NodeStorage, storage_key
from tonnage.provisioning.pods import ExistingNode

Described = Sequence[tuple[NodeGroup, NodeStorage]]


def start(groups: Described, catalogue: Catalogue, cluster: SimulatedCluster) -> None:
    """As many nodes of each group as are desired, those of the scenario's fleet among them, spread over its zones,
    serve from the start."""
    there = Counter(cluster.fleet.node(row).spec.node_pool for row in cluster.fleet.node_rows())
    daemon_sets = [template.spec for _, _, template in cluster.declared.daemon_sets]
    for pool in _pools(groups, catalogue):
        machine = pool.machine(catalogue, daemon_sets)
        prices = _prices(catalogue, machine.instance_type, machine.capacity_type)
        zones = [zone for zone in pool.group.zones or sorted(prices) if zone in prices]
        for number in range(there[pool.name], pool.group.desired if zones else 0):
            zone = zones[number % len(zones)]
            launch = msgspec.structs.replace(
                machine,
                claim=Ref("NodeClaim", f"{pool.name}-{number + 1:05d}"),
                zone=zone,
                price_micro_usd_per_hour=prices[zone],
            )
            node = nodes.start_node(cluster, SimulatedNodeClaim(launch, 0))
            nodes.register_node(cluster, node)
            nodes.initialize_node(cluster, node)


def pools(groups: Described, catalogue: Catalogue, cluster: SimulatedCluster, others: Pools) -> Pools:
    """The NodePools with those that stand for the groups as large as they are now."""
    nodes = (cluster.fleet.node(row) for row in cluster.fleet.node_rows())
    there = (node.spec.node_pool for node in nodes if not node.leaving)
    coming = (claim.launch.node_pool for claim in cluster.cloud.claims.values() if not claim.node)
    return with_groups(others, groups, catalogue, (*there, *coming))


def adopted(nodes: Iterable[ExistingNode], groups: Described, catalogue: Catalogue) -> Iterator[ExistingNode]:
    """The nodes, those of a group with its name, by the labels that EKS and eksctl give them."""
    names = {group.name for group, _ in groups}
    for node in nodes:
        name = next((node.labels[key] for key in (EKS_NODE_GROUP, EKSCTL_NODE_GROUP) if key in node.labels), "")
        if node.node_pool or name not in names:
            yield node
            continue
        capacity = catalogue.capacity_of(node.labels.get(INSTANCE_TYPE, ""))
        yield msgspec.structs.replace(node, node_pool=name, capacity=capacity or {NODES: 1})


def with_groups(others: Pools, groups: Described, catalogue: Catalogue, there: Iterable[str]) -> Pools:
    """The NodePools with those that stand for the groups, of which ``there`` has a name for each node that there is or
    that is on its way. Groups of which nothing can be asked are left out."""
    if not groups:
        return others
    counted = Counter(there)
    now = [(msgspec.structs.replace(group, desired=counted[group.name]), own) for group, own in groups]
    made = [one for one in _pools(now, catalogue) if not one.unusable]
    return replace(
        others,
        node_pools=(*others.node_pools, *(one.pool for one in made)),
        storage={**others.storage, **{storage_key(one.pool): one.storage for one in made}},
        daemon_sets=(*others.daemon_sets, *(one.reserve for one in made if one.held_back)),
    )


def _pools(groups: Described, catalogue: Catalogue) -> list[GroupPool]:
    storage = {group.name: own for group, own in groups}
    counted = {group.name: group.desired for group, _ in groups}
    made = group_pools([group for group, _ in groups], catalogue, counted)
    return [replace(one, storage=storage[one.name]) for one in made]


def _prices(catalogue: Catalogue, instance_type: str, capacity_type: str) -> dict[str, int]:
    index = catalogue.index(instance_type)
    found = {
        zone: int(catalogue.prices[row, index])
        for row, (zone, kind) in enumerate(catalogue.pairs)
        if kind == capacity_type
    }
    return {zone: price for zone, price in found.items() if price != NO_OFFER}
