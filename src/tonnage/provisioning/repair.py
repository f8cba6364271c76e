"""Which nodes Karpenter replaces as they are unhealthy, with the feature gate NodeRepair.

A node whose condition says so for long enough is terminated at once: disruption budgets, PodDisruptionBudgets and
do-not-disrupt have no say, and nothing is launched for it first. Where more than a fifth of the nodes of a NodePool is
unhealthy, none of it is: then it is hardly the nodes.

Source: kubernetes-sigs/karpenter v1.14.0 pkg/controllers/node/health/controller.go.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from math import ceil

import msgspec

from tonnage.decisions import Reason, Ref
from tonnage.facts.repair_policies import RepairPolicy, repair_policies
from tonnage.units import seconds

ACCELERATED_HARDWARE_READY = "AcceleratedHardwareReady"
"""The condition of which a node's monitoring agent says whether its GPUs are healthy."""
ALLOWED_SHARE = 0.2
"""Of a NodePool's nodes, rounded up, that may be unhealthy for one of them to be replaced (allowedUnhealthyPercent)."""


class StandingCondition(msgspec.Struct, frozen=True):
    """A condition of a node, and since when it has this status, nanoseconds."""

    condition: str
    status: str
    since_ns: int


class NodeHealth(msgspec.Struct, frozen=True):
    """A node of a NodePool, with its conditions. ``deleted``: it is being terminated already."""

    node: Ref
    node_pool: str
    conditions: tuple[StandingCondition, ...] = ()
    deleted: bool = False


def unhealthy(node: NodeHealth) -> tuple[RepairPolicy, StandingCondition] | None:
    """By which policy the node is due first, with the condition; None for a healthy one."""
    by_name = {one.condition: one for one in node.conditions}
    found = [
        (policy, by_name[policy.condition])
        for policy in repair_policies()
        if policy.condition in by_name and by_name[policy.condition].status == policy.status
    ]
    return min(found, key=lambda pair: pair[1].since_ns + pair[0].toleration_ns, default=None)


def repairs(nodes: Sequence[NodeHealth], now_ns: int) -> list[tuple[Ref, Reason]]:
    """The nodes that are terminated at ``now_ns`` for their health, by name."""
    sick = [(node, found) for node in nodes if (found := unhealthy(node)) is not None]
    every = Counter(node.node_pool for node in nodes)
    ill = Counter(node.node_pool for node, _ in sick)
    due = []
    for node, (policy, condition) in sorted(sick, key=lambda pair: pair[0].node):
        pool, waited_ns = node.node_pool, now_ns - condition.since_ns
        if node.deleted or waited_ns < policy.toleration_ns or ill[pool] > ceil(ALLOWED_SHARE * every[pool]):
            continue
        evidence = (
            ("condition", f"{condition.condition}={condition.status}"),
            ("unhealthy_s", seconds(waited_ns)),
            ("toleration_s", seconds(policy.toleration_ns)),
            ("unhealthy_nodes", ill[pool]),
            ("nodes", every[pool]),
            ("node_pool", pool),
        )
        due.append((node.node, Reason("unhealthy: its condition has not passed", evidence)))
    return due
