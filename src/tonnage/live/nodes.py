"""What a Node of an API says of the machine, as the fleet keeps it."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from tonnage.facts import instances
from tonnage.facts.labels import (
    CAPACITY_TYPE,
    EKS_CAPACITY_TYPE,
    INITIALIZED,
    INSTANCE_TYPE,
    NODE_POOL,
    NOT_READY,
    UNREACHABLE,
    UNSCHEDULABLE_TAINT,
)
from tonnage.fleet.asks import device_resource
from tonnage.objects import core

NOT_READY_TAINTS = frozenset({NOT_READY, UNREACHABLE})
"""What the node lifecycle controller writes on a node whose kubelet is not ready, or silent."""
CORDON = (UNSCHEDULABLE_TAINT, "NoSchedule")
"""Key and effect of the taint that repeats a cordon. Without one it is a taint as any other: it goes a moment later."""
LEAVING = "node(s) were being deleted"


def some(node: core.Node) -> dict[str, int]:
    """What of the node is allocatable, without what there is none of."""
    return {name: amount for name, amount in core.amounts(node.status.allocatable).items() if amount}


def taints(node: core.Node) -> tuple[core.Taint, ...]:
    """The node's taints, but for the one that a cordon says already."""
    return tuple(
        msgspec.structs.replace(taint, time_added=None)
        for taint in node.spec.taints
        if not (node.spec.unschedulable and (taint.key, taint.effect) == CORDON)
    )


def is_ready(node: core.Node) -> bool:
    """Whether the kubelet says so."""
    return any(c.type == "Ready" and c.status == "True" for c in node.status.conditions)


def has_devices(instance_type: str, allocatable: Mapping[str, int]) -> bool:
    """Whether a node offers devices of the vendor whose devices its type has. GPUs that were partitioned have other
    names."""
    resource = instances.get(instance_type).resource if instances.known(instance_type) else ""
    vendor = resource.partition("/")[0]
    return not resource or any(amount and name.startswith(f"{vendor}/") for name, amount in allocatable.items())


def initialized(node: core.Node, pool: str) -> bool:
    """Karpenter's nodes say so themselves, once every resource that was asked for is there. A node group's are once
    they are Ready and have their devices, others when Ready."""
    if NODE_POOL in node.metadata.labels:
        return node.metadata.labels.get(INITIALIZED) == "true"
    if not pool or not is_ready(node):
        return is_ready(node)
    return has_devices(node.metadata.labels.get(INSTANCE_TYPE, ""), core.amounts(node.status.allocatable))


def takes_pods(node: core.Node, pool: str) -> bool:
    """Whether pods that fit are placed on the node, of this NodePool or node group (empty: none). As kube-scheduler
    sees it, but that one which was launched takes none before it has its devices, and none takes any that is being
    deleted. Of a node that is not ready its taints say so, and pods may tolerate them."""
    if node.spec.unschedulable or node.metadata.deletion_timestamp:
        return False
    tainted = any(taint.key in NOT_READY_TAINTS for taint in node.spec.taints)
    return tainted or not pool or (is_ready(node) and initialized(node, pool))


def shut(node: core.Node) -> str:
    """Why a node that is not cordoned takes no pods and never will; empty where it does, or may."""
    return LEAVING if node.metadata.deletion_timestamp and not node.spec.unschedulable else ""


def capacity_type(labels: Mapping[str, str]) -> str:
    """How the node is paid for, by its labels: on-demand, spot or reserved."""
    written = labels.get(CAPACITY_TYPE) or labels.get(EKS_CAPACITY_TYPE, "on-demand")
    return written.lower().replace("_", "-")


def device_resource_of(node: core.Node) -> str:
    """The resource that counts the node's whole devices, as far as it says."""
    return device_resource((*node.status.capacity, *node.status.allocatable))
