"""Nodes that the manifests have: machines that are there from the start, and are nobody's to return.

A Node of an instance type that is known is one of these; any other is what its labels and its status say.
"""

from __future__ import annotations

from tonnage.decisions import Launch, Reason, Ref
from tonnage.errors import InputError
from tonnage.facts import gpus, instances
from tonnage.facts.instances import InstanceType
from tonnage.facts.labels import (
    ARCH,
    CAPACITY_TYPE,
    GPU,
    GPU_COUNT,
    GPU_MEMORY,
    GPU_PRODUCT,
    HOSTNAME,
    INSTANCE_TYPE,
    OS,
    REGION,
    SHARED_PRODUCT,
    ZONE,
)
from tonnage.facts.price_book import PriceBook
from tonnage.objects import core
from tonnage.units import MIB

_KUBELET = {OS: "linux", ARCH: "amd64"}
"""What a kubelet says of itself, unless the Node says otherwise."""
_HAND_WRITTEN = {"cpu": 8_000, "memory": 32 * 1024 * MIB, "pods": 110}
"""Taken for a Node that says nothing of what it can hold, and is of no type that is known."""


def machine_of(node: core.Node) -> InstanceType:
    """The machine: one of the instance types, or a type of its own made from the labels and the status."""
    labels = node.metadata.labels
    name = labels.get(INSTANCE_TYPE, "")
    if instances.known(name):
        return instances.get(name)
    there = _HAND_WRITTEN | core.amounts(node.status.capacity) | core.amounts(node.status.allocatable)
    product = labels.get(GPU_PRODUCT, "")
    count = int(labels[GPU_COUNT]) if labels.get(GPU_COUNT, "").isdigit() else there.get(GPU, 0)
    gpu = _gpu(product) if count else ""
    memory = labels.get(GPU_MEMORY, "")
    return InstanceType(
        name=name,
        family="",
        size="",
        arch=labels.get(ARCH, "amd64"),
        kind="gpu" if count else "cpu",
        vcpu=there["cpu"] // 1000,
        memory_mib=there["memory"] // MIB,
        allocatable_cpu_milli=there["cpu"],
        allocatable_memory_mib=there["memory"] // MIB,
        max_pods=there["pods"],
        hypervisor="",
        cpu_manufacturer="",
        source="the manifests",
        gpu=gpu,
        gpu_count=count,
        gpu_memory_mib=int(memory) if memory.isdigit() else gpus.get(gpu).memory_mib if gpu else 0,
        resource=GPU if count else "",
        resource_count=count,
    )


def _gpu(product: str) -> str:
    """The name of the GPU among the facts; empty where it is not among them. Sharing adds a suffix to the label."""
    try:
        return gpus.get(product.removesuffix(SHARED_PRODUCT)).name if product else ""
    except InputError:
        return ""


def launch_of(node: core.Node, machine: InstanceType, book: PriceBook) -> Launch:
    """As if it had been launched: with the labels and taints that it has. In another region than that of the prices it
    has no price."""
    labels = node.metadata.labels
    zone, kind = labels.get(ZONE, ""), labels.get(CAPACITY_TYPE, "on-demand")
    sold = book.offerings(machine.name) if instances.known(machine.name) and not abroad(node, book) else ()
    offers = [o for o in sold if o.capacity_type == kind]
    price = next((o.micro_usd_per_hour for o in offers if o.zone == zone), None)
    if price is None:
        price = offers[0].micro_usd_per_hour if offers else 0
    return Launch(
        Ref("NodeClaim", node.name),
        "",
        machine.name,
        zone,
        kind,
        price,
        Reason("it is among the manifests"),
        labels={HOSTNAME: node.name, **_KUBELET, **labels},
        allocatable=core.amounts(node.status.allocatable or node.status.capacity),
        taints=tuple(node.spec.taints),
    )


def abroad(node: core.Node, book: PriceBook) -> str:
    """The region of the node, where it is another than that of the prices; else empty."""
    labels = node.metadata.labels
    region = labels.get(REGION, "") or instances.region_of(labels.get(ZONE, ""))
    return region if region != book.region else ""


def usable(node: core.Node) -> bool:
    """Whether pods may be placed on it: not cordoned, and not known to be unready."""
    ready = next((one.status for one in node.status.conditions if one.type == "Ready"), "True")
    return not node.spec.unschedulable and ready == "True"
