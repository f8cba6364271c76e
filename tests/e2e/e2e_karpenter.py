"""A NodePool that our nodes controller buys for, and machines of our facts for Karpenter's kwok provider."""

from __future__ import annotations

import json

from e2e.api import Json
from tonnage.facts import instances, prices
from tonnage.live.assembly import BUYS, LIMITS

POOL = "ours"
IN_POOL = {"karpenter.sh/nodepool": POOL}
MACHINE = "g6e.12xlarge"
"""Four L40S."""


def node_pool(
    *,
    limits: Json | None = None,
    own: Json | None = None,
    consolidate_after: str = "5s",
    types: tuple[str, ...] = (MACHINE,),
) -> Json:
    """``limits``: those that our controller keeps; ``own``: Karpenter's."""
    return {
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodePool",
        "metadata": {"name": POOL, "annotations": {BUYS: "true", LIMITS: json.dumps(limits or {})}},
        "spec": {
            "template": {
                "spec": {
                    "requirements": [
                        {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["on-demand"]},
                        {"key": "node.kubernetes.io/instance-type", "operator": "In", "values": list(types)},
                    ],
                    "nodeClassRef": {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default"},
                    "expireAfter": "Never",
                }
            },
            "limits": {"nodes": "0"} if own is None else own,
            "disruption": {
                "consolidationPolicy": "WhenEmpty",
                "consolidateAfter": consolidate_after,
                "budgets": [{"nodes": "100%"}],
            },
        },
    }


def machines(names: tuple[str, ...]) -> list[Json]:
    """The instance types file of Karpenter's kwok provider, from our facts."""
    book = prices.load()
    found = []
    for name in names:
        one = instances.get(name)
        offerings = [
            {
                "Price": offering.micro_usd_per_hour / 1e6,
                "Available": True,
                "Requirements": [
                    {"key": "karpenter.sh/capacity-type", "operator": "In", "values": [offering.capacity_type]},
                    {"key": "topology.kubernetes.io/zone", "operator": "In", "values": [offering.zone]},
                ],
            }
            for offering in book.offerings(name)
        ]
        resources = {"cpu": str(one.vcpu), "memory": f"{one.memory_mib}Mi", "pods": str(one.max_pods)}
        resources |= {"ephemeral-storage": "200Gi"}
        if one.resource:
            resources[one.resource] = str(one.resource_count)
        found.append(
            {
                "name": name,
                "offerings": offerings,
                "architecture": one.arch,
                "operatingSystems": ["linux"],
                "resources": resources,
            }
        )
    return found
