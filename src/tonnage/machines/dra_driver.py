"""NVIDIA's DRA driver on simulated nodes: GPUs as ResourceSlices for claims, in place of a device plugin's resource.

It runs where a node has the label that the GPU operator looks at. A GPU whose layout may be changed is published with
every placement of its MIG profiles, as the driver does with its gate DynamicMIG.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from uuid import UUID, uuid5

from tonnage.dra import nvidia
from tonnage.facts import gpus, mig
from tonnage.facts.labels import GPU_CLIQUE
from tonnage.fleet.state import Fleet
from tonnage.machines import claiming
from tonnage.machines.objects import SimulatedNode
from tonnage.machines.site import Site
from tonnage.objects import compute_domains
from tonnage.objects.base import ObjectMeta
from tonnage.objects.dra import V1, ResourceSlice

_GPUS = UUID("7d1b0d2e-3f0c-5a55-9c3e-1f6b8f0a8c11")
"""Namespace of the UUIDs of GPUs."""


def offered(node: SimulatedNode, labels: Mapping[str, str]) -> dict[str, int]:
    """What the node has for pods besides claims."""
    if not nvidia.has_driver(labels):
        return node.allocatable
    return {name: amount for name, amount in node.allocatable.items() if name != node.kind.resource}


def publish(cluster: Site, node: SimulatedNode) -> None:
    """The driver has started: what it has found is published, with the classes that come with it."""
    fleet = cluster.fleet
    if not node.gpus or not nvidia.has_driver(fleet.node(fleet.node_by_name[node.name]).labels):
        return
    served = fleet.device_claims.served
    labels = fleet.node(fleet.node_by_name[node.name]).labels
    channels = [nvidia.channel_class()] if GPU_CLIQUE in labels else []
    for one in (*nvidia.device_classes(), *channels):
        if one.name not in fleet.device_claims.classes:
            fleet.device_claims.see(one)
    if fleet.device_claims.served != served:
        claiming.follow(cluster)
    made = slices(fleet, node)
    for each in made:
        fleet.device_claims.see(each)
    if channels:
        name = f"{node.name}-{compute_domains.DRIVER}"
        spec = nvidia.channel_spec(node.name)
        fleet.device_claims.see(
            ResourceSlice(api_version=V1, kind="ResourceSlice", metadata=ObjectMeta(name=name), spec=spec)
        )
    devices = sum(len(each.spec.devices) for each in made)
    message = f"{len(made)} ResourceSlices with {devices} devices are published"
    cluster.events.add(cluster.now_ns, f"Node {node.name}", "Normal", "ResourceSlicesPublished", message)


def slices(fleet: Fleet, node: SimulatedNode) -> list[ResourceSlice]:
    """What the driver publishes of the node."""
    cards = [nvidia.published(one) for one in _cards(fleet, node)]
    return [
        ResourceSlice(
            api_version=V1,
            kind="ResourceSlice",
            metadata=ObjectMeta(name=f"{node.name}-{nvidia.DRIVER}-{number}"),
            spec=spec,
        )
        for number, spec in enumerate(nvidia.slice_specs(cards, node.name, 1))
    ]


def _cards(fleet: Fleet, node: SimulatedNode) -> Iterator[nvidia.DraCard]:
    known = gpus.get(node.gpu) if node.gpu else None
    labels = fleet.node(fleet.node_by_name[node.name]).labels
    profiles = mig.profiles(node.gpu) if known is not None and nvidia.partitions_on_demand(labels) else ()
    for minor in range(node.gpus):
        yield nvidia.DraCard(
            minor=minor,
            uuid=f"GPU-{uuid5(_GPUS, f'{node.name}/{minor}')}",
            product=node.gpu_product,
            memory_mib=node.gpu_memory_mib,
            gpu=node.gpu,
            partitions=profiles or None,
        )
