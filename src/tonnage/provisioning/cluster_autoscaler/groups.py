"""Node groups as a scale-up sees them: what a machine of each is like, where it may come, and how many may."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import msgspec

from tonnage.decisions import Launch, Reason, Ref
from tonnage.facts.labels import AWS_ZONE_ID, EBS_ZONE, EKS_NODE_GROUP, EKSCTL_NODE_GROUP
from tonnage.objects import karpenter
from tonnage.provisioning import labels
from tonnage.provisioning.catalogue import NO_OFFER, NODES, Catalogue, OfferingKey
from tonnage.provisioning.compiled import template_of
from tonnage.provisioning.node_groups import labels_of_machine
from tonnage.provisioning.on_its_way import on_its_way
from tonnage.provisioning.plans import PlanSettings
from tonnage.provisioning.pods import ExistingNode
from tonnage.provisioning.template import pool_requirements


@dataclass(slots=True, eq=False)
class ScalableGroup:
    """``node``: one machine before any pod is on it; ``launch``: what is asked for it, name and zone aside.

    ``zones``: where machines come, with the price in micro-USD an hour, those out of stock left out; ``declared``:
    labels of its nodes beside those that kubelet and cloud give. ``room``: machines that it may still grow by;
    ``held``: why it grows by none; ``size``: machines that it has, those on their way among them. ``seen``: whether one
    of them is or was there."""

    name: str
    node: ExistingNode
    launch: Launch
    zones: dict[str, int]
    declared: dict[str, str]
    room: int
    held: str = ""
    size: int = 0
    seen: bool = False

    def is_similar(self, other: ScalableGroup) -> bool:
        """Whether machines of both are alike but for zone and name of the group (processors/nodegroupset)."""
        return (
            self.launch.allocatable == other.launch.allocatable
            and self.launch.capacity == other.launch.capacity
            and _telling(self.node.labels) == _telling(other.node.labels)
        )


def group_of(
    pool: karpenter.NodePool, nodes: Sequence[ExistingNode], catalogue: Catalogue, settings: PlanSettings
) -> ScalableGroup:
    """The group that the NodePool stands for (:mod:`~tonnage.provisioning.group_pools`), with the ``nodes`` that there
    are and are on their way.

    Its machine is taken to come in the first zone of the group, whichever that will be (cloudprovider/aws
    aws_manager.go)."""
    spec = pool.spec.template.spec
    template = template_of(pool, catalogue, settings)
    requirements = pool_requirements(pool)
    (instance_type,) = requirements[labels.INSTANCE_TYPE].values
    (capacity_type,) = requirements[labels.CAPACITY_TYPE].values
    index = catalogue.index(instance_type)
    prices = {
        zone: int(catalogue.prices[row, index])
        for row, (zone, kind) in enumerate(catalogue.pairs)
        if kind == capacity_type and catalogue.prices[row, index] != NO_OFFER
    }
    listed = [zone for one in spec.requirements if one.key == labels.ZONE for zone in one.values]
    zones = [zone for zone in listed or sorted(prices) if zone in prices]
    stocked = {
        zone: prices[zone]
        for zone in zones
        if OfferingKey(instance_type, zone, capacity_type) not in settings.unavailable
    }
    first, declared = next(iter(zones), ""), dict(pool.spec.template.metadata.labels)
    launch = Launch(
        claim=Ref("NodeClaim", pool.name),
        node_pool=pool.name,
        instance_type=instance_type,
        zone=first,
        capacity_type=capacity_type,
        price_micro_usd_per_hour=min(stocked.values(), default=0),
        reason=Reason("asked of the node group"),
        labels=labels_of_machine(instance_type, first, declared),
        allocatable=_without_nodes(template.allocatable(index, catalogue)),
        daemons=_without_nodes(catalogue.as_map(template.daemons[index])),
        capacity=catalogue.as_map(template.capacity[index]),
        taints=template.taints,
        startup_taints=template.startup_taints,
    )
    counted = sum(one.capacity.get(NODES, 0) for one in nodes if one.node_pool == pool.name and not one.deleted)
    most = template.limits.get(NODES, counted)
    held = "" if counted < most else f"is at its maximum of {most}"
    if not held and not stocked:
        held = f"has just failed to make {instance_type} ({capacity_type})"
    room = max(0, most - counted)
    there = any(one.node_pool == pool.name and one.initialized and one.ref.kind == "Node" for one in nodes)
    seen = there or pool.name in settings.seen_groups
    return ScalableGroup(pool.name, machine_of(launch, settings), launch, stocked, declared, room, held, counted, seen)


def machine_of(launch: Launch, settings: PlanSettings, *, parts: bool = False) -> ExistingNode:
    """The node that a launch becomes, before any pod is on it. ``parts``: pods ask for parts of its devices."""
    node = on_its_way(launch, settings.configurations, parts=parts)
    name = launch.claim.name
    named = {**launch.labels, labels.HOSTNAME: name}
    return msgspec.structs.replace(node, ref=Ref("Node", name), labels=named)


def renamed(node: ExistingNode, name: str) -> ExistingNode:
    """Another machine like this one, of this name."""
    return msgspec.structs.replace(
        node,
        ref=Ref("Node", name),
        labels={**node.labels, labels.HOSTNAME: name},
        devices=node.devices and node.devices.copy(),
    )


_TELLS_GROUPS = frozenset(
    {
        *(labels.HOSTNAME, labels.ZONE, EBS_ZONE, AWS_ZONE_ID),
        *(EKSCTL_NODE_GROUP, EKS_NODE_GROUP, "k8s.amazonaws.com/eniConfig", "lifecycle"),
    }
)
"""Labels in which similar groups may differ (BasicIgnoredLabels and those of AWS)."""


def _telling(own: Mapping[str, str]) -> dict[str, str]:
    return {key: value for key, value in own.items() if key not in _TELLS_GROUPS}


def _without_nodes(amounts: dict[str, int]) -> dict[str, int]:
    return {name: amount for name, amount in amounts.items() if name != NODES}
