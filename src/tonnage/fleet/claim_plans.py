"""Pods with ResourceClaims as those see them who plan nodes that are not there yet.

What a driver will publish of such a node is known: the GPUs of its instance type as NVIDIA's driver publishes them, and
every placement of their MIG profiles where labels of the node say that it partitions them on demand. A pod whose claims
have to be allocated yet is planned as one that requests as many GPUs and MIG instances of a node with the driver, of an
instance type whose devices its claims select.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import NamedTuple

import msgspec

from tonnage.dra import nvidia
from tonnage.dra.allocated import AllocatedState
from tonnage.dra.allocator import Allocator, Feasibility
from tonnage.dra.pools import NodeView
from tonnage.facts import gpus, instances, mig
from tonnage.facts.instances import InstanceType
from tonnage.facts.labels import DRA_PLUGIN, GPU, INSTANCE_TYPE, MIG_PREFIX, MIG_RELAYOUT
from tonnage.fleet.asks import FULL, Ask, Kind, worth
from tonnage.fleet.claim_needs import ClaimKey, PlannedDevices
from tonnage.fleet.device_claims import DeviceClaims, Planned
from tonnage.fleet.rows import FleetPod
from tonnage.fleet.volumes import folded
from tonnage.objects import core
from tonnage.objects.base import ObjectMeta
from tonnage.objects.dra import POD_CLAIM_NAME, V1, DeviceClass, ResourceClaim, ResourceSlice

_ATTRIBUTE = "profile"


class ComingTypes(NamedTuple):
    """The instance types of which nodes with NVIDIA's driver may come: ``whole`` with its GPUs as they are,
    ``partitioned`` with every placement of their MIG profiles."""

    whole: tuple[InstanceType, ...]
    partitioned: tuple[InstanceType, ...]


def every_type() -> ComingTypes:
    """Where nobody says which nodes may come."""
    known = tuple(instances.all())
    return ComingTypes(known, known)


def as_planned(pod: FleetPod, claims: DeviceClaims, coming: ComingTypes | None = None) -> core.PodSpec | None:
    """The spec with what volumes and claims ask of a node to come; None where no node can be planned for the claims:
    they are not there, have devices already, or ask for what no node that is ``coming`` will have."""
    spec = folded(pod.spec, pod.volumes)
    if not pod.spec.resource_claims:
        return _of_a_plugin(spec) if claims.classes else spec
    known = [claim for key in pod.claims.keys if (claim := claims.claims.get(key)) is not None]
    if not known or len(known) < len(pod.claims.keys) or any(claims.allocation_of(key) for key in pod.claims.keys):
        return None
    return _planned(spec, known, claims, coming)


def as_moved(pod: FleetPod, claims: DeviceClaims, coming: ComingTypes | None = None) -> core.PodSpec | None:
    """The same of a pod on a node, as the one would ask that comes in its place: it has claims of its own, by the
    templates. None where they would not be, or no node can be planned for them."""
    spec = folded(pod.spec, pod.volumes)
    if not pod.spec.resource_claims:
        return _of_a_plugin(spec) if claims.classes else spec
    known = [claim for key in pod.claims.keys if (claim := claims.claims.get(key)) is not None]
    own = [one for one in known if POD_CLAIM_NAME in one.metadata.annotations]
    return _planned(spec, known, claims, coming) if own and len(own) == len(pod.claims.keys) else None


def named_claims(pod: FleetPod, claims: DeviceClaims) -> tuple[ClaimKey, ...]:
    """Those of the pod's claims that other pods may use too."""
    there = claims.claims
    return tuple(
        key for key in pod.claims.keys if key in there and POD_CLAIM_NAME not in there[key].metadata.annotations
    )


def _planned(
    spec: core.PodSpec, known: Sequence[ResourceClaim], claims: DeviceClaims, coming: ComingTypes | None
) -> core.PodSpec | None:
    asked = tuple(_text(one) for one in known)
    if coming is not None:
        asked = (*asked, *(" ".join(one.name for one in types) for types in coming))
    found = claims.planned(asked, lambda classes: _wanted(known, classes, coming or every_type()))
    return _requesting(spec, found) if found is not None else None


def _text(claim: ResourceClaim) -> str:
    return msgspec.json.encode(claim.spec, order="sorted").decode()


def _wanted(claims: Sequence[ResourceClaim], classes: Sequence[DeviceClass], coming: ComingTypes) -> Planned:
    """What the claims take together, and the instance types whose devices will do. Where types differ in that, the
    smallest part of a GPU is planned, of equals what most types have; of whole GPUs the most that any takes."""
    names = {one.name for one in classes}
    known = [*classes, *(one for one in nvidia.device_classes() if one.name not in names)]
    cut = {one.name for one in coming.partitioned}
    found: dict[tuple[tuple[str, int], ...], dict[str, int]] = {}
    allocators: dict[int, tuple[Allocator, dict[str, str]]] = {}
    for itype in sorted(
        {one.name: one for one in (*coming.partitioned, *coming.whole)}.values(), key=lambda one: one.name
    ):
        if not itype.gpu or not itype.gpu_count:
            continue
        slices, profiles = _published(itype.gpu, itype.gpu_count, itype.gpu_memory_mib, itype.name in cut)
        if id(slices) not in allocators:
            allocators[id(slices)] = Allocator(slices, known), profiles
        taken = _taken(claims, *allocators[id(slices)])
        if taken:
            whole = taken.pop(GPU, 0)
            found.setdefault(tuple(sorted(taken.items())), {})[itype.name] = whole
    return min((_devices(*one) for one in found.items()), key=_order, default=None)


def _devices(profiles: tuple[tuple[str, int], ...], types: dict[str, int]) -> PlannedDevices:
    return PlannedDevices(tuple(sorted(types)), max(types.values()), profiles)


def _order(one: PlannedDevices) -> tuple[int, int, tuple[str, ...]]:
    part = worth(Ask(Kind.MIG, GPU, one.whole, FULL, profiles=one.profiles), 0)
    return part, -len(one.types), one.types


def _taken(claims: Sequence[ResourceClaim], allocator: Allocator, profiles: dict[str, str]) -> Counter[str]:
    """The GPUs and MIG instances of a node that the claims take, by resource; none where they cannot be had there."""
    found = allocator.allocate(claims, NodeView(_NODE), AllocatedState())
    if found.feasibility is not Feasibility.ALLOCATED:
        return Counter()
    return Counter(profiles[device.device] for one in found.results for device in one.devices.results)


_NODE = "node"


@lru_cache(maxsize=256)
def _published(gpu: str, count: int, memory_mib: int, on_demand: bool) -> tuple[list[ResourceSlice], dict[str, str]]:
    """The slices of a node to come, and the resource that stands for each device in a plan."""
    made = published_slices(gpu, count, memory_mib, _NODE, on_demand=on_demand)
    names = {one.name: one.resource for one in mig.profiles(gpu)}
    found = {}
    for each in (device for one in made for device in one.spec.devices):
        profile = each.attributes.get(_ATTRIBUTE)
        found[each.name] = GPU if profile is None else names[profile.string_value or ""]
    return made, found


def published_slices(gpu: str, count: int, memory_mib: int, node: str, *, on_demand: bool) -> list[ResourceSlice]:
    """What NVIDIA's driver publishes of a node with so many of a GPU (its name in the facts), with every placement of
    MIG profiles where it partitions them ``on_demand``."""
    product, partitions = gpus.get(gpu).product, (mig.profiles(gpu) or None) if on_demand else None
    cards = [
        nvidia.published(
            nvidia.DraCard(minor=minor, uuid="", product=product, memory_mib=memory_mib, gpu=gpu, partitions=partitions)
        )
        for minor in range(count)
    ]
    return [
        ResourceSlice(api_version=V1, kind="ResourceSlice", metadata=ObjectMeta(name=f"{node}-{number}"), spec=spec)
        for number, spec in enumerate(nvidia.slice_specs(cards, node, 1))
    ]


def _requesting(spec: core.PodSpec, planned: PlannedDevices) -> core.PodSpec:
    """The pod as one that requests these devices of a node with the driver, of one of these types."""
    first, *others = spec.containers
    amounts = {name: number for name, number in ((GPU, planned.whole), *planned.profiles) if number}
    resources = msgspec.structs.replace(
        first.resources,
        requests={**first.resources.requests, **amounts},
        limits={**first.resources.limits, **amounts},
    )
    only = core.NodeSelectorRequirement(key=INSTANCE_TYPE, operator="In", values=list(planned.types))
    labels = {DRA_PLUGIN: "true", **({MIG_RELAYOUT: "true"} if planned.profiles else {})}
    return msgspec.structs.replace(
        _only(spec, [[only]]),
        containers=[msgspec.structs.replace(first, resources=resources), *others],
        node_selector={**spec.node_selector, **labels},
    )


def _of_a_plugin(spec: core.PodSpec) -> core.PodSpec:
    """A pod without claims: where a driver partitions GPUs on demand, no device plugin offers the MIG instances that it
    requests."""
    if not any(name.startswith(MIG_PREFIX) for name in core.pod_requests(spec)):
        return spec
    keys = (DRA_PLUGIN, MIG_RELAYOUT)
    return _only(spec, [[core.NodeSelectorRequirement(key=key, operator="NotIn", values=["true"])] for key in keys])


def _only(spec: core.PodSpec, ways: Iterable[list[core.NodeSelectorRequirement]]) -> core.PodSpec:
    """The pod on nodes that meet one of these too."""
    affinity = spec.affinity or core.Affinity()
    node = affinity.node_affinity or core.NodeAffinity()
    required = node.required_during_scheduling_ignored_during_execution
    terms = list(required.node_selector_terms) if required is not None else [core.NodeSelectorTerm()]
    selector = core.NodeSelector(
        node_selector_terms=[
            msgspec.structs.replace(one, match_expressions=[*one.match_expressions, *way])
            for one in terms
            for way in ways
        ]
    )
    node = msgspec.structs.replace(node, required_during_scheduling_ignored_during_execution=selector)
    return msgspec.structs.replace(spec, affinity=msgspec.structs.replace(affinity, node_affinity=node))
