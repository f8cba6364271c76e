"""How long things take, and what machines there are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from tonnage.facts import gpus
from tonnage.facts.durations import Durations
from tonnage.facts.instances import InstanceType
from tonnage.machines.objects import EngineSetup, Workload
from tonnage.objects import core
from tonnage.partitioning.node_cuts import OWN, Configurations
from tonnage.provisioning.nodeclass import NodeStorage, fill_bytes_per_s


@dataclass(frozen=True, slots=True)
class Pool:
    """What the world needs of a NodePool when one of its nodes joins."""

    labels: Mapping[str, str]
    taints: tuple[core.Taint, ...]
    storage: NodeStorage
    images_on_disk: bool  # its volume comes from a snapshot that holds the images
    do_not_disrupt: bool = False  # its template has the annotation karpenter.sh/do-not-disrupt: "true"
    group: bool = False  # a node group: its nodes have no labels of Karpenter's
    auto: bool = False  # of EKS Auto Mode, whose nodes have labels of their own


class Engines(Protocol):
    """Gives a workload's engine on a GPU or a MIG instance (``h100:1g.10gb``), or why it cannot start there.

    ``utilization``: the part of the memory that it may have, in place of its --gpu-memory-utilization."""

    def __call__(self, workload: Workload, gpu: str, utilization: float | None = None) -> EngineSetup | str: ...


@dataclass(frozen=True, slots=True)
class Physics:
    """The machines and their engines. ``configurations``: those that the labels of a node may name, as its
    GPUs are partitioned."""

    durations: Durations
    pools: Mapping[str, Pool]
    region: str
    engine: Engines
    configurations: Configurations = OWN

    def disk_bytes_per_s(self, pool: str, itype: InstanceType) -> float:
        """How fast a node of this pool fills its disk: its volume, or what local NVMe and the network allow."""
        known = self.pools.get(pool)
        return fill_bytes_per_s(known.storage if known else NodeStorage(), itype)

    def image_bytes(self, image: str) -> float:
        """Compressed size of an image."""
        return self.durations.image_bytes if "vllm" in image else self.durations.small_image_bytes

    @staticmethod
    def gpu_product(itype: InstanceType) -> str:
        """The product name of the type's GPU; empty without one."""
        return gpus.get(itype.gpu).product if itype.gpu else ""
