"""Instance types, NodePools, pods and nodes for the tests of this folder, with short defaults."""

from __future__ import annotations

from typing import Any

import msgspec

from tonnage.decisions import Ref
from tonnage.facts import instances, prices
from tonnage.objects import core, karpenter
from tonnage.provisioning.catalogue import Catalogue
from tonnage.provisioning.pods import ExistingNode, PendingPod, PodShape
from tonnage.units import GIB, MIB, NS_PER_S

GPU = "nvidia.com/gpu"
ZONE = "us-east-1a"


def instance(
    name: str,
    *,
    cpu: int = 4,
    memory_gib: int = 16,
    gpus: int = 0,
    gpu: str = "a10g",
    max_pods: int = 50,
    **other: Any,
) -> instances.InstanceType:
    """An instance type whose allocatable is its whole size, so that sums are easy to follow."""
    family, _, size = name.partition(".")
    fields: dict[str, Any] = {
        "name": name,
        "family": family,
        "size": size,
        "arch": "amd64",
        "kind": "gpu" if gpus else "cpu",
        "gpu": gpu if gpus else "",
        "gpu_count": gpus,
        "gpu_memory_mib": 22888 if gpus else 0,
        "accelerator_name": gpu if gpus else "",
        "accelerator_manufacturer": "nvidia" if gpus else "",
        "accelerator_count": gpus,
        "resource": GPU if gpus else "",
        "resource_count": gpus,
        "vcpu": cpu,
        "memory_mib": memory_gib * GIB // MIB,
        "allocatable_cpu_milli": cpu * 1000,
        "allocatable_memory_mib": memory_gib * GIB // MIB,
        "max_pods": max_pods,
        "network_mbps": None,
        "ebs_mbps": None,
        "local_nvme_gb": None,
        "efa": 0,
        "hypervisor": "nitro",
        "cpu_manufacturer": "intel",
        "source": "test",
    }
    return instances.InstanceType(**(fields | other))


def catalogue(types: list[instances.InstanceType], offers: dict[tuple[str, str, str], int]) -> Catalogue:
    """A catalogue of these types; ``offers``: (type, zone, capacity type) → micro-USD an hour."""
    pairs = [
        (name, prices.Offering(zone, capacity_type, price, "2026-07-20", "us-east-1", "test"))
        for (name, zone, capacity_type), price in offers.items()
    ]
    return Catalogue(types, prices.book("2026-07-20", "us-east-1", pairs))


def on_demand(
    types: dict[instances.InstanceType, int] | list[tuple[instances.InstanceType, int]],
) -> Catalogue:
    """A catalogue of these types on demand in one zone, at these prices in micro-USD an hour."""
    listed = list(types.items()) if isinstance(types, dict) else types
    return catalogue([one for one, _ in listed], {(one.name, ZONE, "on-demand"): price for one, price in listed})


def node_pool(
    name: str = "default",
    *requirements: tuple[Any, ...],
    weight: int | None = None,
    limits: dict[str, str] | None = None,
    labels: dict[str, str] | None = None,
    taints: list[dict[str, str]] | None = None,
    startup_taints: list[dict[str, str]] | None = None,
    disruption: dict[str, Any] | None = None,
) -> karpenter.NodePool:
    """A NodePool; each requirement is (key, operator, values) or (key, operator, values, minValues)."""
    written = [
        {"key": one[0], "operator": one[1], "values": list(one[2])} | ({"minValues": one[3]} if len(one) > 3 else {})
        for one in requirements
    ]
    template_spec: dict[str, Any] = {
        "requirements": written,
        "nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"},
        "taints": taints or [],
        "startupTaints": startup_taints or [],
    }
    spec: dict[str, Any] = {"template": {"metadata": {"labels": labels or {}}, "spec": template_spec}}
    if weight is not None:
        spec["weight"] = weight
    if limits is not None:
        spec["limits"] = limits
    if disruption is not None:
        spec["disruption"] = disruption
    written_pool = {
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodePool",
        "metadata": {"name": name},
        "spec": spec,
    }
    return msgspec.convert(written_pool, karpenter.NodePool)


def shape(
    cpu: float = 1,
    memory_gib: float = 1,
    gpus: int = 0,
    *,
    selector: dict[str, str] | None = None,
    **other: Any,
) -> PodShape:
    """What pods ask for; ``affinity`` is a node affinity as in YAML, ``tolerations`` likewise."""
    requests = {"cpu": round(cpu * 1000), "memory": round(memory_gib * GIB), **other.get("more", {})}
    if gpus:
        requests[GPU] = gpus
    affinity = other.get("affinity")
    return PodShape(
        requests=requests,
        tolerations=tuple(msgspec.convert(other.get("tolerations", []), list[core.Toleration])),
        node_selector=selector or {},
        node_affinity=None if affinity is None else msgspec.convert(affinity, core.NodeAffinity),
    )


def pods(count: int, of: PodShape, prefix: str = "pod") -> list[PendingPod]:
    """``count`` pods of one shape, created one second apart."""
    return [
        PendingPod(Ref("Pod", f"{prefix}-{i:05d}", "default", f"{prefix}-{i:05d}"), of, i * NS_PER_S)
        for i in range(count)
    ]


def node(name: str, *, cpu: float = 8, memory_gib: float = 32, gpus: int = 0, **other: Any) -> ExistingNode:
    """A node that is there, with these free resources."""
    free = {"cpu": round(cpu * 1000), "memory": round(memory_gib * GIB), "pods": 50, GPU: gpus}
    taints = tuple(msgspec.convert(other.pop("taints", []), list[core.Taint]))
    startup = tuple(msgspec.convert(other.pop("startup_taints", []), list[core.Taint]))
    return ExistingNode(
        ref=Ref("Node", name),
        labels=other.pop("labels", {}),
        free=free,
        taints=taints,
        startup_taints=startup,
        **other,
    )
