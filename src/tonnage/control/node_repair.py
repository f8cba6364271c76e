"""Which nodes are terminated as their GPUs stay unhealthy, as Karpenter does with its feature gate NodeRepair."""

from __future__ import annotations

from collections.abc import Container

from tonnage.control.nodes import Pools
from tonnage.decisions import Reason, Ref
from tonnage.fleet.rows import NodeRow
from tonnage.fleet.snapshot import Snapshot
from tonnage.provisioning.group_pools import is_node_group
from tonnage.provisioning.repair import ACCELERATED_HARDWARE_READY, NodeHealth, StandingCondition, repairs


def unhealthy(snapshot: Snapshot, pools: Pools, going: Container[str]) -> list[tuple[Ref, Reason]]:
    """Nodes of NodePools that are due, each with why. ``going``: names of those that go for it already."""
    nodes = [snapshot.fleet.node(row) for row in snapshot.fleet.node_rows()]
    if all(node.ailing_ns is None for node in nodes):
        return []
    own = {pool.name for pool in pools.node_pools if not is_node_group(pool)}
    known = [_health(node, node.spec.name in going) for node in nodes if node.spec.node_pool in own]
    return repairs(known, snapshot.now_ns)


def _health(node: NodeRow, going: bool) -> NodeHealth:
    spec, since_ns = node.spec, node.ailing_ns
    said = () if since_ns is None else (StandingCondition(ACCELERATED_HARDWARE_READY, "False", since_ns),)
    return NodeHealth(Ref("Node", spec.name, uid=spec.uid), spec.node_pool, said, going)
