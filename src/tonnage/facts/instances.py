"""Instance types of EC2: resources, allocatable and labels.

Tables: ``data/accelerator_instances.csv`` (types with GPUs or other accelerators), ``data/cpu_instances.csv``
(all other types that have a price) and ``data/instance_families.csv`` (what holds for a whole family).
"""

from __future__ import annotations

import re
from functools import lru_cache

from msgspec import Struct
from msgspec.structs import replace

from tonnage.errors import InputError, Where
from tonnage.facts import names, tables
from tonnage.facts.labels import ARCH, AWS_INSTANCE, CAPACITY_TYPE, INSTANCE_TYPE, OS, REGION, ZONE

_CATEGORY_GENERATION = re.compile(r"([a-z]+)(?:-[0-9]+tb)?([0-9]+)")


class InstanceType(Struct, frozen=True):
    """One EC2 instance type.

    ``kind``: "gpu", "accelerator" (Neuron and the like) or "cpu". ``gpu``: name for
    :func:`tonnage.facts.gpus.get`, empty where there is none whose rates are known. ``gpu_count``,
    ``gpu_memory_mib`` (of one GPU), ``resource`` (such as nvidia.com/gpu) and ``resource_count`` are 0 or
    empty without GPUs or accelerators. A type with a fraction of a GPU (g6f, gr6f) has ``gpu_count`` 0 and no
    resource, as Karpenter sees it; ``gpu_memory_mib`` is its share.

    ``allocatable_*`` and ``max_pods`` are what Karpenter expects of the node: memory less 7.5 % for the
    hypervisor, the kubelet's reserve and the eviction threshold; pods by the ENI rule without prefix
    delegation. ``network_mbps``, ``ebs_mbps``, ``local_nvme_gb`` are None where not recorded, which is so for
    CPU types; ``efa`` (EFA interfaces) is 0 there.
    """

    name: str
    family: str
    size: str
    arch: str
    kind: str
    vcpu: int
    memory_mib: int
    allocatable_cpu_milli: int
    allocatable_memory_mib: int
    max_pods: int
    hypervisor: str
    cpu_manufacturer: str
    source: str
    gpu: str = ""
    gpu_count: int = 0
    gpu_memory_mib: int = 0
    accelerator_name: str = ""
    accelerator_manufacturer: str = ""
    accelerator_count: int = 0
    resource: str = ""
    resource_count: int = 0
    network_mbps: int | None = None
    ebs_mbps: int | None = None
    local_nvme_gb: int | None = None
    efa: int = 0

    def labels(self, zone: str = "", capacity_type: str = "", region: str = "") -> dict[str, str]:
        """Labels of a node of this type, as Karpenter sets them.

        ``zone``, ``capacity_type`` and ``region`` are left out where empty; the region follows from the zone.
        A label whose value is not known, or that does not apply, is absent. Names and meaning:
        aws/karpenter-provider-aws pkg/apis/v1/labels.go.
        """
        placed = {
            ZONE: zone,
            REGION: region or region_of(zone),
            CAPACITY_TYPE: capacity_type,
        }
        return {**self._own_labels(), **{key: value for key, value in placed.items() if value}}

    def _own_labels(self) -> dict[str, str]:
        own: dict[str, str | int | None] = {
            INSTANCE_TYPE: self.name,
            ARCH: self.arch,
            OS: "linux",
            AWS_INSTANCE + "family": self.family,
            AWS_INSTANCE + "size": self.size,
            AWS_INSTANCE + "hypervisor": self.hypervisor,
            AWS_INSTANCE + "tenancy": "default",
            AWS_INSTANCE + "cpu": self.vcpu,
            AWS_INSTANCE + "cpu-manufacturer": self.cpu_manufacturer,
            AWS_INSTANCE + "memory": self.memory_mib,
            AWS_INSTANCE + "network-bandwidth": self.network_mbps,
            AWS_INSTANCE + "ebs-bandwidth": self.ebs_mbps,
            AWS_INSTANCE + "local-nvme": self.local_nvme_gb or None,
            AWS_INSTANCE + "capability-flex": "true" if self.family.endswith("-flex") else "false",
        }
        parts = _CATEGORY_GENERATION.match(self.family)
        if parts:
            own[AWS_INSTANCE + "category"], own[AWS_INSTANCE + "generation"] = parts.groups()
        if self.kind == "gpu":
            own[AWS_INSTANCE + "gpu-name"] = self.accelerator_name
            own[AWS_INSTANCE + "gpu-manufacturer"] = self.accelerator_manufacturer
            own[AWS_INSTANCE + "gpu-count"] = self.gpu_count
            own[AWS_INSTANCE + "gpu-memory"] = self.gpu_memory_mib
        elif self.kind == "accelerator":
            own[AWS_INSTANCE + "accelerator-name"] = self.accelerator_name
            own[AWS_INSTANCE + "accelerator-manufacturer"] = self.accelerator_manufacturer
            own[AWS_INSTANCE + "accelerator-count"] = self.accelerator_count
        return {key: str(value) for key, value in own.items() if value is not None and value != ""}


def get(name: str) -> InstanceType:
    """The instance type called ``name``.

    Raises :class:`~tonnage.errors.InputError` with near names if there is none.
    """
    found = _by_name().get(name)
    if found is None:
        raise unknown(name)
    return found


def known(name: str) -> bool:
    """Whether there is an instance type called ``name``."""
    return name in _by_name()


def all() -> tuple[InstanceType, ...]:
    """Every known instance type, sorted by name."""
    return tuple(_by_name().values())


def region_of(zone: str) -> str:
    """The region of an availability zone: us-east-1 for us-east-1a; empty for an empty zone."""
    return zone.rstrip("abcdefghijklmnopqrstuvwxyz")


@lru_cache(maxsize=1)
def _by_name() -> dict[str, InstanceType]:
    families = {row["family"]: row for row in tables.rows("instance_families.csv")}
    found = [_accelerated(row, families) for row in tables.rows("accelerator_instances.csv")]
    found += [_plain(row, families) for row in tables.rows("cpu_instances.csv")]
    return {one.name: one for one in sorted(found, key=lambda one: one.name)}


def unknown(name: str, where: Where | None = None) -> InputError:
    """The error for an instance type that does not exist, with near names."""
    return names.unknown("instance type", name, _by_name(), where=where, hint="EC2 names are like g6e.12xlarge")


def _accelerated(row: dict[str, str], families: dict[str, dict[str, str]]) -> InstanceType:
    plain = _plain(row, families)
    count = int(row["accelerator_count"])
    is_gpu = row["kind"] == "gpu"
    return replace(
        plain,
        kind=row["kind"],
        gpu=row["gpu"],
        gpu_count=count if is_gpu else 0,
        gpu_memory_mib=(tables.whole(row["accelerator_memory_mib"]) or 0) if is_gpu else 0,
        accelerator_name=row["accelerator_name"],
        accelerator_manufacturer=row["manufacturer"],
        accelerator_count=count,
        resource=row["resource"],
        resource_count=int(row["resource_count"]),
        network_mbps=tables.whole(row["network_mbps"]),
        ebs_mbps=tables.whole(row["ebs_mbps"]),
        local_nvme_gb=int(row["local_nvme_gb"]),
        efa=int(row["efa"]),
    )


def _plain(row: dict[str, str], families: dict[str, dict[str, str]]) -> InstanceType:
    name = row["instance_type"]
    family, _, size = name.partition(".")
    return InstanceType(
        name=name,
        family=family,
        size=size,
        arch=row["arch"],
        kind="cpu",
        vcpu=int(row["vcpu"]),
        memory_mib=int(row["memory_mib"]),
        allocatable_cpu_milli=int(row["allocatable_cpu_milli"]),
        allocatable_memory_mib=int(row["allocatable_memory_mib"]),
        max_pods=int(row["max_pods"]),
        hypervisor="" if "metal" in size else families[family]["hypervisor"],
        cpu_manufacturer=families[family]["cpu_manufacturer"],
        source=row["source"],
    )
