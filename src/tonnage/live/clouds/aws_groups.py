"""What EC2 Auto Scaling and EKS say of a group, as a node group.

Sources: EC2 Auto Scaling API Reference (AutoScalingGroup, MixedInstancesPolicy, LifecycleState); EKS API Reference
(Nodegroup, Taint); kubernetes/autoscaler cluster-autoscaler/cloudprovider/aws/README.md (tags for scaling from zero).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from tonnage.facts.labels import EKS_CAPACITY_TYPE
from tonnage.facts.labels import EKS_NODE_GROUP as EKS_NODE_GROUP_LABEL
from tonnage.objects import core, quantity
from tonnage.provisioning import labels
from tonnage.provisioning.node_groups import MIXED, NodeGroup

TEMPLATE = "k8s.io/cluster-autoscaler/node-template/"
"""Tags under this prefix say what a node of an empty group will have: ``label/NAME``, ``taint/NAME`` with the value
``VALUE:EFFECT``, ``resources/NAME`` with a quantity."""

EKS_NODE_GROUP = "eks:nodegroup-name"

_COUNTED = ("Pending", "InService", "Quarantined")  # lifecycle states, as prefixes, within the desired capacity
_EFFECTS = {"NO_SCHEDULE": "NoSchedule", "NO_EXECUTE": "NoExecute", "PREFER_NO_SCHEDULE": "PreferNoSchedule"}
_KUBERNETES_EFFECTS = frozenset(_EFFECTS.values())


class LaunchTemplate(msgspec.Struct, frozen=True):
    """A launch template or launch configuration: its instance type, "" where attributes choose it, and the market."""

    instance_type: str = ""
    spot: bool = False


class Declared(msgspec.Struct, frozen=True):
    """What new nodes are said to have. ``unread``: what could not be understood, in words."""

    labels: dict[str, str] = {}
    taints: tuple[core.Taint, ...] = ()
    resources: dict[str, int] = {}
    unread: tuple[str, ...] = ()

    def under(self, other: Declared) -> Declared:
        """Both, ``other`` winning where they name the same label or taint."""
        keys = {taint.key for taint in other.taints}
        taints = (*(taint for taint in self.taints if taint.key not in keys), *other.taints)
        return Declared(
            {**self.labels, **other.labels},
            taints,
            {**self.resources, **other.resources},
            (*self.unread, *other.unread),
        )


def tags_of(raw: Mapping[str, Any]) -> dict[str, str]:
    """The tags of an Auto Scaling group."""
    return {tag["Key"]: tag.get("Value") or "" for tag in raw.get("Tags", ())}


def owned_by(cluster: str) -> tuple[str, str]:
    """Tag keys, one of which every node group of a cluster has: EKS sets both on those that it manages."""
    return f"kubernetes.io/cluster/{cluster}", f"k8s.io/cluster-autoscaler/{cluster}"


def node_group(raw: Mapping[str, Any], template: LaunchTemplate, declared: Declared) -> NodeGroup:
    """An Auto Scaling group as a node group; its price is not known here."""
    return NodeGroup(
        name=raw["AutoScalingGroupName"],
        instance_types=_instance_types(raw, template),
        zones=tuple(sorted(raw.get("AvailabilityZones", ()))),
        minimum=raw["MinSize"],
        desired=raw["DesiredCapacity"],
        maximum=raw["MaxSize"],
        capacity_type=_capacity_type(raw, template),
        labels=declared.labels,
        taints=declared.taints,
        resources=declared.resources,
        nodes=tuple(
            f"aws:///{instance['AvailabilityZone']}/{instance['InstanceId']}"
            for instance in raw.get("Instances", ())
            if instance["LifecycleState"].startswith(_COUNTED)
        ),
        held=_held(raw),
    )


def declared_by_tags(tags: Mapping[str, str]) -> Declared:
    """The cluster-autoscaler's node-template tags."""
    own_labels, taints, resources, unread = {}, [], {}, []
    for key, value in sorted(tags.items()):
        kind, _, name = key.removeprefix(TEMPLATE).partition("/") if key.startswith(TEMPLATE) else ("", "", "")
        if kind == "label" and name:
            own_labels[name] = value
        elif kind == "taint" and name:
            text, colon, effect = value.rpartition(":")
            if not colon or effect not in _KUBERNETES_EFFECTS:
                unread.append(f"tag {key} has {value!r}, expected VALUE:EFFECT such as true:NoSchedule")
                continue
            taints.append(core.Taint(key=name, value=text, effect=effect))
        elif kind == "resources" and name:
            try:
                resources[name] = quantity.amount(name, value)
            except ValueError as error:
                unread.append(f"tag {key}: {error}")
    return Declared(own_labels, tuple(taints), resources, tuple(unread))


def declared_by_eks(raw: Mapping[str, Any]) -> Declared:
    """What EKS gives the nodes of a managed node group: its labels and taints, and two labels of EKS' own."""
    own = {
        EKS_NODE_GROUP_LABEL: raw.get("nodegroupName", ""),
        EKS_CAPACITY_TYPE: raw.get("capacityType", ""),
    }
    taints = tuple(
        core.Taint(key=taint["key"], value=taint.get("value") or "", effect=_EFFECTS.get(taint["effect"], "NoSchedule"))
        for taint in raw.get("taints") or ()
    )
    return Declared({**(raw.get("labels") or {}), **{key: value for key, value in own.items() if value}}, taints)


def template_of(data: Mapping[str, Any]) -> LaunchTemplate:
    """The LaunchTemplateData of one version of a launch template."""
    spot = (data.get("InstanceMarketOptions") or {}).get("MarketType") == "spot"
    return LaunchTemplate(data.get("InstanceType") or "", spot)


def specification(raw: Mapping[str, Any]) -> tuple[str, str] | None:
    """Id and version of the launch template that a group uses; None when it uses a launch configuration."""
    policy = raw.get("MixedInstancesPolicy") or {}
    used = (policy.get("LaunchTemplate") or {}).get("LaunchTemplateSpecification") or raw.get("LaunchTemplate")
    return (used["LaunchTemplateId"], used.get("Version") or "$Default") if used else None


def _instance_types(raw: Mapping[str, Any], template: LaunchTemplate) -> tuple[str, ...]:
    """What the group may make, () where attributes choose."""
    overrides = ((raw.get("MixedInstancesPolicy") or {}).get("LaunchTemplate") or {}).get("Overrides") or ()
    found = [override.get("InstanceType") or "" for override in overrides] or [template.instance_type]
    return tuple(sorted(set(found))) if all(found) else ()


def _capacity_type(raw: Mapping[str, Any], template: LaunchTemplate) -> str:
    """What the next machine is: EC2 fills the on-demand base first, then keeps a percentage on-demand."""
    policy = raw.get("MixedInstancesPolicy")
    if not policy:
        return labels.SPOT if template.spot else labels.ON_DEMAND
    spread = policy.get("InstancesDistribution") or {}
    on_demand_percent = spread.get("OnDemandPercentageAboveBaseCapacity", 100)
    if on_demand_percent == 100:
        return labels.ON_DEMAND
    if on_demand_percent == 0 and raw["DesiredCapacity"] >= spread.get("OnDemandBaseCapacity", 0):
        return labels.SPOT
    return MIXED


def _held(raw: Mapping[str, Any]) -> str:
    if raw.get("Status"):  # set only while the group is being deleted
        return "is being deleted"
    if any(process["ProcessName"] == "Launch" for process in raw.get("SuspendedProcesses", ())):
        return "has its Launch process suspended"
    return ""
