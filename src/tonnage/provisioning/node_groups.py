"""From planned nodes to sizes of node groups: which group can make each node, and how far each has to grow.

A node group makes machines of a few instance types in a few zones and cannot be told which of them comes next; it can
only be told how many. So a group may take a planned node only if every machine that it could make would do.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from tonnage.decisions import Alternative, Launch, Reason, Ref, Scalar
from tonnage.facts import instances
from tonnage.facts.labels import ARCH, AWS_ZONE_ID, INSTANCE_TYPE, OS
from tonnage.fleet.asks import Kind
from tonnage.fleet.fits import describe
from tonnage.objects import core, selectors
from tonnage.provisioning import labels
from tonnage.provisioning.catalogue import EFA
from tonnage.provisioning.devices import FreeDevices, beyond_counting, machine
from tonnage.provisioning.explain import amount_text, taint_text
from tonnage.provisioning.pods import PodShape, strict_requirements
from tonnage.provisioning.requirements import Requirements

MIXED = "mixed"
"""Capacity type of a group that makes both on-demand and spot machines."""

SELF_GIVEN = frozenset(
    {
        INSTANCE_TYPE,
        ARCH,
        OS,
        labels.HOSTNAME,
        labels.ZONE,
        labels.REGION,
        AWS_ZONE_ID,
    }
)
"""Labels that the kubelet and the cloud's node controller put on every node (kubernetes.io/docs/reference/
labels-annotations-taints). The other well-known labels of a plan come from Karpenter: a node group has them only where
somebody declared them."""


class NodeGroup(msgspec.Struct, frozen=True, kw_only=True):
    """A node group as its cloud describes it. Sizes are numbers of machines.

    ``instance_types`` and ``zones``: what it may make, () where the cloud does not say. ``capacity_type``:
    ``on-demand``, ``spot`` or ``mixed``. ``labels``, ``taints`` and ``resources`` (cpu in millicores, memory and
    storage in bytes, all else in units): what is declared of its new nodes. ``nodes``: provider ids of the machines
    that it counts in ``desired`` and that are not on their way out. ``micro_usd_per_hour`` of one machine: None where
    not known. ``held``: why it makes no machines for now, empty when it does.
    """

    name: str
    instance_types: tuple[str, ...]
    zones: tuple[str, ...]
    minimum: int
    desired: int
    maximum: int
    capacity_type: str = labels.ON_DEMAND
    labels: dict[str, str] = {}
    taints: tuple[core.Taint, ...] = ()
    resources: dict[str, int] = {}
    nodes: tuple[str, ...] = ()
    micro_usd_per_hour: int | None = None
    held: str = ""


class Resize(msgspec.Struct, frozen=True):
    """Let ``group`` grow from ``expect`` to ``desired`` machines, one for each of ``claims``."""

    group: str
    expect: int
    desired: int
    claims: tuple[Ref, ...]
    reason: Reason


class NoGroup(msgspec.Struct, frozen=True):
    """No group can make this node; the reason's alternatives say why of each."""

    launch: Launch
    reason: Reason


class Sizes(msgspec.Struct, frozen=True):
    """What to ask of the node groups, in order of name, and what cannot be asked of any."""

    resizes: tuple[Resize, ...] = ()
    refused: tuple[NoGroup, ...] = ()


def sizes(
    launches: Sequence[Launch], groups: Iterable[NodeGroup], shapes: Mapping[Ref, PodShape] | None = None
) -> Sizes:
    """Sizes that give every launch its node where a group can make it; each launch raises one group by one.

    ``launches`` are those that nothing was asked for yet: what a group already owes is in its ``desired``. ``shapes``
    of the pods: with them, a group whose machines a pod would not accept is no good for its node (a pod may select on a
    label that only Karpenter gives). Of several groups that can, the one with the fewest instance types and zones goes
    first, then the first by name; a full group is passed over.
    """
    by_name = sorted(groups, key=lambda group: group.name)
    preferred = sorted(by_name, key=lambda group: len(group.instance_types) * max(len(group.zones), 1))
    taken: dict[str, list[Launch]] = {group.name: [] for group in by_name}
    beaten: dict[str, tuple[Alternative, ...]] = {}
    refused = []
    for launch in launches:
        pods = {pod: shapes[pod] for pod in launch.pods if pod in shapes} if shapes else {}
        verdicts = {group.name: _unfit(group, launch, pods, len(taken[group.name])) for group in by_name}
        chosen = next((group for group in preferred if not verdicts[group.name]), None)
        others = tuple(
            Alternative(name, why or "less certain, or later by name")
            for name, why in verdicts.items()
            if chosen is None or name != chosen.name
        )
        if chosen is None:
            refused.append(NoGroup(launch, Reason(_no_group(by_name, verdicts), _wanted(launch), others)))
            continue
        taken[chosen.name].append(launch)
        beaten.setdefault(chosen.name, others)
    resizes = tuple(_resize(group, taken[group.name], beaten[group.name]) for group in by_name if taken[group.name])
    return Sizes(resizes, tuple(refused))


def _unfit(group: NodeGroup, launch: Launch, pods: Mapping[Ref, PodShape], taken: int) -> str:
    """Why the group cannot make the node for this launch after ``taken`` others; empty when it can."""
    if group.held:
        return group.held
    return (
        _unfit_offering(group, launch)
        or _unfit_labels(group, launch)
        or _unfit_taints(group, launch)
        or _unfit_size(group, launch)
        or _unfit_devices(group, launch, pods)
        or _unfit_pods(group, launch, pods)
        or (f"is at its maximum of {group.maximum}" if group.desired + taken >= group.maximum else "")
    )


def _unfit_offering(group: NodeGroup, launch: Launch) -> str:
    if not group.instance_types:
        return "its instance types are not known"
    if launch.instance_type not in group.instance_types:
        return f"makes {', '.join(group.instance_types)}, not {launch.instance_type}"
    if launch.zone and group.zones and launch.zone not in group.zones:
        return f"is in {', '.join(group.zones)}, not {launch.zone}"
    if group.capacity_type == MIXED:
        return f"makes spot and on-demand machines, and {launch.capacity_type} cannot be asked of it"
    if group.capacity_type != launch.capacity_type:
        return f"makes {group.capacity_type} machines, not {launch.capacity_type}"
    return ""


def _unfit_labels(group: NodeGroup, launch: Launch) -> str:
    """The labels that the NodePool gives must be declared; those that follow from the machine must not differ."""
    for key, planned in sorted(launch.labels.items()):
        declared = group.labels.get(key)
        given = key in labels.well_known() or key == labels.HOSTNAME
        if declared is None and not given:
            return f"its nodes have no label {key}, the plan has {key}={planned}"
        if declared is not None and declared != planned and key not in (labels.NODE_POOL, labels.HOSTNAME):
            return f"its nodes have {key}={declared}, the plan has {planned}"
    return ""


def _unfit_devices(group: NodeGroup, launch: Launch, pods: Mapping[Ref, PodShape]) -> str:
    """Parts of devices that are planned on the node must find room on those of every machine that may come."""
    if not any(beyond_counting(shape.ask) for shape in pods.values()):
        return ""
    for other in group.instance_types:
        if not instances.known(other):
            return f"may also make {other}, whose devices are not known"
        devices = FreeDevices.untouched([machine(instances.get(other), group.labels)])
        for pod, shape in pods.items():
            if shape.ask.kind is not Kind.NONE and not devices.take(0, shape.ask, shape.requests):
                return f"may make {other}, whose devices have no room for {describe(shape.ask)} of {pod}"
    return ""


def _unfit_pods(group: NodeGroup, launch: Launch, pods: Mapping[Ref, PodShape]) -> str:
    """Every pod must accept every machine that may come."""
    shapes = {id(shape): (pod, shape) for pod, shape in pods.items()}
    wanted = [(pod, strict_requirements(shape)) for pod, shape in shapes.values()]
    for instance_type in group.instance_types:
        for zone in group.zones or (launch.zone,):
            node = node_labels(group, instance_type, zone)
            for pod, terms in wanted:
                unmet = [broken(term, node) for term in terms]
                if None not in unmet:
                    return f"{instance_type} in {zone} does not meet the requirement of {pod}: {unmet[0]}"
    return ""


def node_labels(group: NodeGroup, instance_type: str, zone: str) -> dict[str, str]:
    """The labels of one machine that the group may make: what kubelet and cloud give, and what is declared."""
    return labels_of_machine(instance_type, zone, group.labels)


def labels_of_machine(instance_type: str, zone: str, declared: Mapping[str, str]) -> dict[str, str]:
    """Likewise by what is ``declared`` of the group's nodes."""
    own = {INSTANCE_TYPE: instance_type, OS: "linux", labels.ZONE: zone}
    if instances.known(instance_type):
        own = instances.get(instance_type).labels(zone)
    return {**{key: value for key, value in own.items() if key in SELF_GIVEN}, **declared}


def broken(term: Requirements, node: Mapping[str, str]) -> str | None:
    """The first requirement that a node with these labels does not meet; None when it meets all."""
    for key in sorted(term):
        if not term[key].has(node.get(key)):
            karpenter = key in labels.well_known() - SELF_GIVEN and key not in node
            return f"{term[key]}{', a label that only Karpenter gives' if karpenter else ''}"
    return None


def _unfit_taints(group: NodeGroup, launch: Launch) -> str:
    """Hard taints must be those of the plan: one more keeps the pods off, one less lets others in."""
    declared, planned = _hard(group.taints), _hard((*launch.taints, *launch.startup_taints))
    for key in sorted(declared.keys() - planned.keys()):
        return f"its nodes have the taint {taint_text(declared[key])}, which the plan does not count on"
    lasting = _hard(launch.taints)
    for key in sorted(lasting.keys() - declared.keys()):
        return f"its nodes lack the taint {taint_text(lasting[key])} of the plan"
    return ""


def _hard(taints: Iterable[core.Taint]) -> dict[tuple[str, str, str], core.Taint]:
    return {(t.key, t.value, t.effect): t for t in taints if t.effect in selectors.HARD_EFFECTS}


def _unfit_size(group: NodeGroup, launch: Launch) -> str:
    """Every machine that may come needs room for what is planned on the node."""
    needs = Counter(launch.requests)
    needs.update(launch.daemons)
    for name, declared in sorted(group.resources.items()):
        if needs.get(name, 0) > declared:
            return f"its nodes are declared with {name} {amount_text(name, declared)}, {_needed(name, needs)}"
    for other in group.instance_types:
        if other == launch.instance_type:
            continue
        if not instances.known(other):
            return f"may also make {other}, whose size is not known"
        has = {**_allocatable(instances.get(other)), **group.resources}
        for name, need in sorted(needs.items()):
            if name != "ephemeral-storage" and need > has.get(name, 0):
                return (
                    f"may also make {other} with {name} {amount_text(name, has.get(name, 0))}, {_needed(name, needs)}"
                )
    return ""


def _needed(name: str, needs: Mapping[str, int]) -> str:
    return f"and {amount_text(name, needs[name])} is needed"


def _allocatable(one: instances.InstanceType) -> dict[str, int]:
    """What a node of this type offers; its storage depends on the group's volumes and is not known here."""
    offered = {
        "cpu": one.allocatable_cpu_milli,
        "memory": one.allocatable_memory_mib << 20,
        "pods": one.max_pods,
        EFA: one.efa,
    }
    return {**offered, one.resource: one.resource_count} if one.resource else offered


def _no_group(groups: Sequence[NodeGroup], verdicts: Mapping[str, str]) -> str:
    if not groups:
        return "there is no node group"
    if len(groups) == 1:
        return f"{groups[0].name}: {verdicts[groups[0].name]}"
    return f"none of {len(groups)} node groups can make this node"


def _wanted(launch: Launch) -> tuple[tuple[str, Scalar], ...]:
    return (
        ("instance_type", launch.instance_type),
        ("zone", launch.zone),
        ("capacity_type", launch.capacity_type),
    )


def _resize(group: NodeGroup, launches: Sequence[Launch], beaten: tuple[Alternative, ...]) -> Resize:
    planned = {(launch.instance_type, launch.zone) for launch in launches}
    may = {(type_, zone) for type_ in group.instance_types for zone in group.zones or ("",)}
    evidence: list[tuple[str, Scalar]] = [("nodes", len(launches)), ("maximum", group.maximum)]
    if may - planned:
        evidence.append(("may_make", ", ".join(" ".join(pair).strip() for pair in sorted(may))))
    reason = Reason("node group can launch the planned nodes", tuple(evidence), beaten)
    claims = tuple(launch.claim for launch in launches)
    return Resize(group.name, group.desired, group.desired + len(launches), claims, reason)
