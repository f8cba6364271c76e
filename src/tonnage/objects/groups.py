"""Pod groups and topologies: which pods are scheduled together, and where.

Sources of the field names: kai-scheduler/KAI-Scheduler pkg/apis/scheduling/v2alpha2/podgroup_types.go (0.13 and later),
volcano-sh/volcano staging/src/volcano.sh/apis/pkg/apis/scheduling/v1beta1/types.go, kubernetes-sigs/scheduler-plugins
apis/scheduling/v1alpha1/types.go, kubernetes/kubernetes staging/src/k8s.io/api/scheduling (v1alpha1 of 1.35, v1alpha2
of 1.36, v1beta1 of 1.37), kubernetes-sigs/kueue apis/kueue/v1beta2/topology_types.go.
"""

from __future__ import annotations

from typing import Any

from tonnage.objects.base import Field, KubeObject
from tonnage.objects.core import LabelSelector


class KaiTopologyConstraint(Field, frozen=True, kw_only=True):
    """Levels are the node labels of ``topology``."""

    topology: str = ""
    required_topology_level: str = ""
    preferred_topology_level: str = ""


class KaiSubGroup(Field, frozen=True, kw_only=True):
    """A part of a group: a minimum of pods, or, where it has children, of these (``min_sub_group``)."""

    name: str
    min_member: int | None = None
    min_sub_group: int | None = None
    parent: str = ""
    topology_constraint: KaiTopologyConstraint | None = None


class KaiPodGroupSpec(Field, frozen=True, kw_only=True):
    """``min_member`` and ``min_sub_group`` exclude each other."""

    min_member: int | None = None
    min_sub_group: int | None = None
    priority_class_name: str = ""
    preemptibility: str = ""
    topology_constraint: KaiTopologyConstraint = KaiTopologyConstraint()
    sub_groups: list[KaiSubGroup] = []


class KaiPodGroup(KubeObject, kw_only=True):
    """scheduling.run.ai/v2alpha2 PodGroup."""

    spec: KaiPodGroupSpec = KaiPodGroupSpec()


class TopologyLevel(Field, frozen=True, kw_only=True):
    """A level is a node label; nodes with one value of it are one domain."""

    node_label: str


class TopologySpec(Field, frozen=True, kw_only=True):
    """Levels, outermost first."""

    levels: list[TopologyLevel] = []


class Topology(KubeObject, kw_only=True):
    """kai.scheduler/v1alpha1 and kueue.x-k8s.io Topology, which have one shape."""

    spec: TopologySpec = TopologySpec()


class VolcanoNetworkTopology(Field, frozen=True, kw_only=True):
    """``mode``: hard or soft. A tier is a number of the cluster's HyperNodes, or the name of one."""

    mode: str = "hard"
    highest_tier_allowed: int | None = None
    highest_tier_name: str = ""


class VolcanoSubGroup(Field, frozen=True, kw_only=True):
    """The pods that ``label_selector`` selects, ``sub_group_size`` at a time."""

    name: str
    network_topology: VolcanoNetworkTopology | None = None
    sub_group_size: int | None = None
    min_sub_groups: int | None = None
    label_selector: LabelSelector | None = None
    match_label_keys: list[str] = []


class VolcanoPodGroupSpec(Field, frozen=True, kw_only=True):
    """``min_task_member``: a minimum for each task, by name."""

    min_member: int = 0
    min_task_member: dict[str, int] = {}
    priority_class_name: str = ""
    network_topology: VolcanoNetworkTopology | None = None
    sub_group_policy: list[VolcanoSubGroup] = []


class VolcanoPodGroup(KubeObject, kw_only=True):
    """scheduling.volcano.sh/v1beta1 PodGroup."""

    spec: VolcanoPodGroupSpec = VolcanoPodGroupSpec()


class CoschedulingPodGroupSpec(Field, frozen=True, kw_only=True):
    """``min_member`` pods are bound together or none."""

    min_member: int = 0


class CoschedulingPodGroup(KubeObject, kw_only=True):
    """scheduling.x-k8s.io/v1alpha1 PodGroup."""

    spec: CoschedulingPodGroupSpec = CoschedulingPodGroupSpec()


class GangSchedulingPolicy(Field, frozen=True, kw_only=True):
    """``min_count`` pods are bound together or none."""

    min_count: int


class GroupSchedulingPolicy(Field, frozen=True, kw_only=True):
    """One of the two: ``basic`` is pod by pod."""

    basic: dict[str, Any] | None = None
    gang: GangSchedulingPolicy | None = None


class GroupTopologyConstraint(Field, frozen=True, kw_only=True):
    """All pods of the group in one domain of this node label."""

    key: str


class GroupSchedulingConstraints(Field, frozen=True, kw_only=True):
    """At most one topology is looked at."""

    topology: list[GroupTopologyConstraint] = []


class KubePodGroupSpec(Field, frozen=True, kw_only=True):
    """How the pods that name the group are scheduled."""

    scheduling_policy: GroupSchedulingPolicy
    scheduling_constraints: GroupSchedulingConstraints | None = None
    priority_class_name: str = ""
    priority: int | None = None


class KubePodGroup(KubeObject, kw_only=True):
    """scheduling.k8s.io PodGroup, from v1alpha2 on."""

    spec: KubePodGroupSpec


class WorkloadPodGroup(Field, frozen=True, kw_only=True):
    """A group of pods of a v1alpha1 Workload; pods name it, and one of its replicas."""

    name: str
    policy: GroupSchedulingPolicy


class KubeWorkloadSpec(Field, frozen=True, kw_only=True):
    """``pod_groups``: v1alpha1. Later versions have templates, from which controllers make PodGroups."""

    pod_groups: list[WorkloadPodGroup] = []


class KubeWorkload(KubeObject, kw_only=True):
    """scheduling.k8s.io Workload."""

    spec: KubeWorkloadSpec = KubeWorkloadSpec()
