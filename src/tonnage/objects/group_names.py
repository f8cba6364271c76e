"""How a pod's spec names the group that it is bound with."""

from __future__ import annotations

from tonnage.objects.base import Field


class PodSchedulingGroup(Field, frozen=True, kw_only=True):
    """The scheduling.k8s.io PodGroup that the pod is bound with (1.36)."""

    pod_group_name: str = ""


class WorkloadReference(Field, frozen=True, kw_only=True):
    """The group of a scheduling.k8s.io/v1alpha1 Workload that the pod is bound with (1.35)."""

    name: str
    pod_group: str
    pod_group_replica_key: str = ""
