"""What of an EC2NodeClass matters to a node's start and to its pods: where container images and scratch
data live.

Defaults and rules: aws/karpenter-provider-aws pkg/apis/v1/ec2nodeclass.go,
pkg/providers/instancetype/types.go and pkg/providers/amifamily; volume performance: the Amazon EBS user
guide, "General Purpose SSD volumes".
"""

from __future__ import annotations

from msgspec import Struct

from tonnage.facts import instances
from tonnage.objects import karpenter, quantity
from tonnage.units import GIB, MIB

DEFAULT_VOLUME_BYTES = 20 * GIB
GP3_THROUGHPUT = 125 * MIB
GP3_IOPS = 3000
GP2_THROUGHPUT = 250 * MIB
GP2_SMALL_THROUGHPUT = 128 * MIB
GP2_SMALL_BYTES = 170 * GIB
GP2_IOPS_PER_GIB = 3
GP2_IOPS = (100, 16_000)
KUBE_RESERVED_STORAGE = GIB
EVICTION_PERCENT = 10
BITS_PER_BYTE = 8


class NodeStorage(Struct, frozen=True):
    """Storage for images, logs and scratch data of the nodes of one EC2NodeClass.

    ``throughput_bytes_per_s`` and ``iops`` are of the volume (``None``: not known for this volume type).
    ``local_nvme``: instanceStorePolicy is RAID0, so that instance types with local NVMe use that instead.
    ``reservations``: the ids of the capacity reservations that its nodes may be launched in.
    """

    volume_bytes: int = DEFAULT_VOLUME_BYTES
    volume_type: str = "gp3"
    throughput_bytes_per_s: int | None = GP3_THROUGHPUT
    iops: int | None = GP3_IOPS
    local_nvme: bool = False
    reservations: frozenset[str] = frozenset()

    def capacity_bytes(self, instance: instances.InstanceType) -> int:
        """The node's ephemeral-storage capacity."""
        return self._local_bytes(instance) or self.volume_bytes

    def allocatable_bytes(self, instance: instances.InstanceType) -> int:
        """Capacity less what the kubelet keeps: 1 GiB, and the eviction threshold of 10 % rounded up."""
        capacity = self.capacity_bytes(instance)
        return max(capacity - KUBE_RESERVED_STORAGE - -(-capacity * EVICTION_PERCENT // 100), 0)

    def uses_local_nvme(self, instance: instances.InstanceType) -> bool:
        """Whether images and scratch data live on the instance's own NVMe disks."""
        return self._local_bytes(instance) > 0

    def _local_bytes(self, instance: instances.InstanceType) -> int:
        return (instance.local_nvme_gb or 0) * 10**9 if self.local_nvme else 0

    def disk_bytes_per_s(self, instance: instances.InstanceType) -> int | None:
        """How fast weights and images can be read or written: the slower of the volume and the instance's
        EBS bandwidth.

        ``None`` where the volume's speed is not known, and for local NVMe, which no network pull outruns.
        """
        if self.uses_local_nvme(instance) or self.throughput_bytes_per_s is None:
            return None
        if not instance.ebs_mbps:
            return self.throughput_bytes_per_s
        return min(self.throughput_bytes_per_s, instance.ebs_mbps * 10**6 // BITS_PER_BYTE)


NETWORK_SHARE = 4
"""A download from an object store over one connection pool reaches about a quarter of an instance's bandwidth."""
DEFAULT_NETWORK_MBPS = 10_000
"""Taken for an instance type whose bandwidth is not known."""
_BYTES_PER_S_PER_MBPS = 125_000


def fill_bytes_per_s(storage: NodeStorage, instance: instances.InstanceType) -> float:
    """How fast a node fills its disk: its volume, or what local NVMe and the network allow."""
    volume = storage.disk_bytes_per_s(instance)
    network = (instance.network_mbps or DEFAULT_NETWORK_MBPS) * _BYTES_PER_S_PER_MBPS / NETWORK_SHARE
    return min(volume, network) if volume is not None else network


def storage_key(pool: karpenter.NodePool) -> str:
    """Under which key the storage of a NodePool's nodes is known: the name of its EC2NodeClass, and for classes of
    other kinds, which may have the same name, KIND/NAME."""
    reference = pool.spec.template.spec.node_class_ref
    return reference.name if reference.kind == "EC2NodeClass" else f"{reference.kind}/{reference.name}"


def read(node_class: karpenter.EC2NodeClass) -> NodeStorage:
    """The storage that an EC2NodeClass asks for, with EC2's defaults where it says nothing."""
    spec = node_class.spec
    local = spec.instance_store_policy == "RAID0"
    reserved = frozenset(str(term["id"]) for term in spec.capacity_reservation_selector_terms if "id" in term)
    mapping = _kubelet_volume(node_class)
    ebs = mapping.ebs if mapping else None
    if ebs is None:
        return NodeStorage(local_nvme=local, reservations=reserved)
    size = quantity.bytes_(ebs.volume_size) if ebs.volume_size else DEFAULT_VOLUME_BYTES
    kind = ebs.volume_type or "gp3"
    throughput = ebs.throughput * MIB if ebs.throughput else _default_throughput(kind, size)
    return NodeStorage(size, kind, throughput, ebs.iops or _default_iops(kind, size), local, reserved)


def _kubelet_volume(node_class: karpenter.EC2NodeClass) -> karpenter.BlockDeviceMapping | None:
    """The mapping that holds the kubelet's data: the one marked rootVolume, else the AMI family's own
    device.
    """
    mappings = node_class.spec.block_device_mappings
    for mapping in mappings:
        if mapping.root_volume:
            return mapping
    family = _ami_family(node_class)
    if family == "custom":
        return mappings[-1] if mappings else None
    device = {"bottlerocket": "/dev/xvdb", "windows": "/dev/sda1"}.get(family, "/dev/xvda")
    return next((mapping for mapping in mappings if mapping.device_name == device), None)


def _ami_family(node_class: karpenter.EC2NodeClass) -> str:
    spec = node_class.spec
    if spec.ami_family:
        return spec.ami_family.lower().rstrip("0123456789")
    for term in spec.ami_selector_terms:
        if term.alias:
            return term.alias.partition("@")[0].lower().rstrip("0123456789")
    return "custom"


def _default_throughput(kind: str, size: int) -> int | None:
    if kind == "gp3":
        return GP3_THROUGHPUT
    if kind == "gp2":
        return GP2_SMALL_THROUGHPUT if size <= GP2_SMALL_BYTES else GP2_THROUGHPUT
    return None


def _default_iops(kind: str, size: int) -> int | None:
    if kind == "gp3":
        return GP3_IOPS
    if kind == "gp2":
        low, high = GP2_IOPS
        return min(max(size // GIB * GP2_IOPS_PER_GIB, low), high)
    return None
