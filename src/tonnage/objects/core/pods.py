"""core/v1 Pod: of it, the parts that placement looks at."""

from __future__ import annotations

from typing import Any

import msgspec

from tonnage.objects.base import Field, KubeObject, ObjectMeta
from tonnage.objects.core.affinity import Affinity, Toleration, TopologySpreadConstraint
from tonnage.objects.core.containers import Container, ResourceRequirements
from tonnage.objects.group_names import PodSchedulingGroup, WorkloadReference


class PodSchedulingGate(Field, frozen=True, kw_only=True):
    """Holds a pod back from scheduling until it is removed."""

    name: str


class PodSpec(Field, frozen=True, kw_only=True):
    """What a pod wants."""

    containers: list[Container]
    init_containers: list[Container] = []
    node_selector: dict[str, str] = {}
    node_name: str = ""
    affinity: Affinity | None = None
    tolerations: list[Toleration] = []
    topology_spread_constraints: list[TopologySpreadConstraint] = []
    scheduler_name: str = ""
    priority: int | None = None
    priority_class_name: str = ""
    preemption_policy: str = ""
    scheduling_gates: list[PodSchedulingGate] = []
    termination_grace_period_seconds: int | None = None
    overhead: dict[str, str | int | float] = {}
    resources: ResourceRequirements | None = None
    service_account_name: str = ""
    restart_policy: str = "Always"
    volumes: list[dict[str, Any]] = []
    resource_claims: list[dict[str, Any]] = []
    scheduling_group: PodSchedulingGroup | None = None
    workload_ref: WorkloadReference | None = None
    host_network: bool = False
    host_users: bool | None = None
    runtime_class_name: str = ""
    service_account: str = ""
    active_deadline_seconds: int | None = None


class PodCondition(Field, frozen=True, kw_only=True):
    """One condition of a pod."""

    type: str
    status: str
    reason: str = ""
    message: str = ""
    last_transition_time: str | None = None


class ContainerRunning(Field, frozen=True, kw_only=True):
    """Since when a container runs."""

    started_at: str | None = None


class ContainerState(Field, frozen=True, kw_only=True):
    """What a container is doing; ``running`` is None where it does not run."""

    running: ContainerRunning | None = None


class ContainerStatus(Field, frozen=True, kw_only=True):
    """What has become of one container of a pod. ``resources``: in force, ``allocated_resources``: granted by the node;
    of a container that has what its spec requests, neither is kept."""

    name: str = ""
    state: ContainerState = ContainerState()
    resources: ResourceRequirements | None = None
    allocated_resources: dict[str, str | int | float] = {}


class ContainerExtendedResourceRequest(Field, frozen=True, kw_only=True):
    """Which request of the claim for the extended resources of its pod serves a resource of a container."""

    container_name: str = ""
    resource_name: str = ""
    request_name: str = ""


class PodExtendedResourceClaimStatus(Field, frozen=True, kw_only=True):
    """The claim that a scheduler made for the extended resources of the pod."""

    request_mappings: list[ContainerExtendedResourceRequest] = []
    resource_claim_name: str = ""


class PodStatus(Field, frozen=True, kw_only=True):
    """Where a pod is in its life."""

    phase: str = ""
    conditions: list[PodCondition] = []
    container_statuses: list[ContainerStatus] = []
    init_container_statuses: list[ContainerStatus] = []
    resources: ResourceRequirements | None = None
    allocated_resources: dict[str, str | int | float] = {}
    nominated_node_name: str = ""
    start_time: str | None = None
    resource_claim_statuses: list[dict[str, Any]] = []
    extended_resource_claim_status: PodExtendedResourceClaimStatus | None = None


FINISHED = ("Succeeded", "Failed")
"""Phases of a pod whose containers have ended for good: it holds nothing any more."""


class Pod(KubeObject, kw_only=True):
    """core/v1 Pod."""

    spec: PodSpec
    status: PodStatus = PodStatus()

    def __post_init__(self) -> None:
        """Of a hundred thousand pods few are being resized: of the others, what they have is in their spec."""
        status = self.status
        for one in status.container_statuses:
            if one.resources is not None:
                _forget_what_is_in_the_spec(one, self.spec.containers)
        for one in status.init_container_statuses:
            if one.resources is not None:
                _forget_what_is_in_the_spec(one, self.spec.init_containers)


def _forget_what_is_in_the_spec(status: ContainerStatus, containers: list[Container]) -> None:
    own = next((one.resources.requests for one in containers if one.name == status.name), None)
    if status.resources is not None and status.resources.requests == status.allocated_resources == own:
        msgspec.structs.force_setattr(status, "resources", None)
        msgspec.structs.force_setattr(status, "allocated_resources", {})


class PodTemplateSpec(Field, frozen=True, kw_only=True):
    """What a workload stamps its pods from."""

    spec: PodSpec
    metadata: ObjectMeta = ObjectMeta()
