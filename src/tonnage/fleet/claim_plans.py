"""Pods with ResourceClaims as those see them who plan nodes that are not there yet.

What a driver will publish of such a node is known for whole GPUs: those of its instance type, as NVIDIA's driver
publishes them. A pod whose claims have to be allocated yet, and can be on whole GPUs, is planned as one that requests
so many GPUs of a node with the driver, of an instance type whose devices its claims select.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from tonnage.dra import nvidia
from tonnage.dra.allocated import AllocatedState
from tonnage.dra.allocator import Allocator, Feasibility
from tonnage.dra.pools import NodeView
from tonnage.facts import gpus, instances
from tonnage.facts.instances import InstanceType
from tonnage.facts.labels import DRA_PLUGIN, GPU, INSTANCE_TYPE
from tonnage.fleet.device_claims import DeviceClaims
from tonnage.fleet.rows import FleetPod
from tonnage.fleet.volumes import folded
from tonnage.objects import core
from tonnage.objects.base import ObjectMeta
from tonnage.objects.dra import POD_CLAIM_NAME, V1, DeviceClass, ResourceClaim, ResourceSlice


def as_planned(pod: FleetPod, claims: DeviceClaims) -> core.PodSpec | None:
    """The spec with what volumes and claims ask of a node to come; None where no node can be planned for the claims:
    they are not there, have devices already, or ask for what is no whole GPU."""
    spec = folded(pod.spec, pod.volumes)
    if not pod.spec.resource_claims:
        return spec
    known = [claim for key in pod.claims.keys if (claim := claims.claims.get(key)) is not None]
    if not known or len(known) < len(pod.claims.keys) or any(claims.allocation_of(key) for key in pod.claims.keys):
        return None
    return _planned(spec, known, claims)


def as_moved(pod: FleetPod, claims: DeviceClaims) -> core.PodSpec | None:
    """The same of a pod on a node, as the one would ask that comes in its place: it has claims of its own, by the
    templates. None where they would not be, or no node can be planned for them."""
    spec = folded(pod.spec, pod.volumes)
    if not pod.spec.resource_claims:
        return spec
    known = [claim for key in pod.claims.keys if (claim := claims.claims.get(key)) is not None]
    own = [one for one in known if POD_CLAIM_NAME in one.metadata.annotations]
    return _planned(spec, known, claims) if own and len(own) == len(pod.claims.keys) else None


def _planned(spec: core.PodSpec, known: Sequence[ResourceClaim], claims: DeviceClaims) -> core.PodSpec | None:
    found = claims.planned(tuple(_text(one) for one in known), lambda classes: _wanted(known, classes))
    return _requesting(spec, *found) if found is not None else None


def _text(claim: ResourceClaim) -> str:
    return msgspec.json.encode(claim.spec, order="sorted").decode()


def _wanted(claims: Sequence[ResourceClaim], classes: Sequence[DeviceClass]) -> tuple[int, tuple[str, ...]] | None:
    """How many GPUs the claims take together, and the instance types whose GPUs will do, by name."""
    names = {one.name for one in classes}
    known = [*classes, *(one for one in nvidia.device_classes() if one.name not in names)]
    count, types = 0, list[str]()
    for itype in instances.all():
        if itype.gpu and itype.gpu_count:
            taken = _taken(claims, known, itype)
            if taken:
                count, types = max(count, taken), [*types, itype.name]
    return (count, tuple(types)) if count else None


def _taken(claims: Sequence[ResourceClaim], classes: Sequence[DeviceClass], itype: InstanceType) -> int:
    """The GPUs of a node of the type that the claims take; 0 where they cannot be had there."""
    found = Allocator(slices_of(itype, "node"), classes).allocate(claims, NodeView("node"), AllocatedState())
    if found.feasibility is not Feasibility.ALLOCATED:
        return 0
    return sum(len(one.devices.results) for one in found.results)


def slices_of(itype: InstanceType, node: str) -> list[ResourceSlice]:
    """What NVIDIA's driver publishes of a node of the type, without partitions."""
    product = gpus.get(itype.gpu).product
    cards = [
        nvidia.published(
            nvidia.DraCard(minor=minor, uuid="", product=product, memory_mib=itype.gpu_memory_mib, gpu=itype.gpu)
        )
        for minor in range(itype.gpu_count)
    ]
    return [
        ResourceSlice(api_version=V1, kind="ResourceSlice", metadata=ObjectMeta(name=f"{node}-{number}"), spec=spec)
        for number, spec in enumerate(nvidia.slice_specs(cards, node, 1))
    ]


def _requesting(spec: core.PodSpec, count: int, types: Sequence[str]) -> core.PodSpec:
    """The pod as one that requests whole GPUs of a node with the driver, of one of these types."""
    first, *others = spec.containers
    resources = msgspec.structs.replace(
        first.resources,
        requests={**first.resources.requests, GPU: count},
        limits={**first.resources.limits, GPU: count},
    )
    only = core.NodeSelectorRequirement(key=INSTANCE_TYPE, operator="In", values=list(types))
    affinity = spec.affinity or core.Affinity()
    node = affinity.node_affinity or core.NodeAffinity()
    required = node.required_during_scheduling_ignored_during_execution
    terms = list(required.node_selector_terms) if required is not None else [core.NodeSelectorTerm()]
    selector = core.NodeSelector(
        node_selector_terms=[
            msgspec.structs.replace(one, match_expressions=[*one.match_expressions, only]) for one in terms
        ]
    )
    node = msgspec.structs.replace(node, required_during_scheduling_ignored_during_execution=selector)
    return msgspec.structs.replace(
        spec,
        containers=[msgspec.structs.replace(first, resources=resources), *others],
        node_selector={**spec.node_selector, DRA_PLUGIN: "true"},
        affinity=msgspec.structs.replace(affinity, node_affinity=node),
    )
