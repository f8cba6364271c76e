"""eksctl.io/v1alpha5: an EKS cluster's node groups, as `eksctl create nodegroup -f` reads them."""

from __future__ import annotations

import msgspec

from tonnage.objects.base import Field, KubeObject, ObjectMeta
from tonnage.objects.core import Taint


class EksctlMeta(ObjectMeta, frozen=True, kw_only=True):
    """The cluster's name and where it is."""

    region: str = ""
    version: str | float = ""
    tags: dict[str, str] = {}


class InstancesDistribution(Field, frozen=True, kw_only=True):
    """Of an unmanaged group: the instance types that it may make, and how many of them on demand."""

    instance_types: list[str] = []
    on_demand_base_capacity: int | None = None
    on_demand_percentage_above_base_capacity: int | None = None
    spot_allocation_strategy: str = ""


class EksctlGroup(Field, frozen=True, kw_only=True):
    """A node group. Sizes are numbers of machines, volumes in GiB, throughput in MiB/s. ``taints``: a list, or a
    mapping from key to ``value:effect``. ``spot``: all machines are spot instances (of managed groups)."""

    name: str
    instance_type: str = ""
    instance_types: list[str] = []
    instances_distribution: InstancesDistribution | None = None
    spot: bool = False
    min_size: int | None = None
    max_size: int | None = None
    desired_capacity: int | None = None
    labels: dict[str, str] = {}
    taints: list[Taint] | dict[str, str] = []
    availability_zones: list[str] = []
    volume_size: int | None = None
    volume_type: str = ""
    volume_throughput: int | None = None
    volume_iops: int | None = msgspec.field(default=None, name="volumeIOPS")
    tags: dict[str, str] = {}


class AutoModeConfig(Field, frozen=True, kw_only=True):
    """EKS Auto Mode. ``node_pools``: the built-in ones that are on; None: eksctl's default, both."""

    enabled: bool = False
    node_pools: list[str] | None = None


class ClusterConfig(KubeObject, kw_only=True):
    """eksctl.io/v1alpha5 ClusterConfig."""

    metadata: EksctlMeta = EksctlMeta()
    availability_zones: list[str] = []
    managed_node_groups: list[EksctlGroup] = []
    node_groups: list[EksctlGroup] = []
    auto_mode_config: AutoModeConfig | None = None
