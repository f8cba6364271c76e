"""core/v1 objects, and of a pod the parts that placement looks at."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from tonnage.objects import quantity
from tonnage.objects.base import Field, KubeObject, ObjectMeta
from tonnage.objects.group_names import PodSchedulingGroup, WorkloadReference


class Toleration(Field, frozen=True, kw_only=True):
    """Lets a pod stand on nodes with a taint. An empty key with ``Exists`` tolerates every taint."""

    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""
    toleration_seconds: int | None = None


class Taint(Field, frozen=True, kw_only=True):
    """Keeps pods off a node unless they tolerate it."""

    key: str
    effect: str
    value: str = ""
    time_added: str | None = None


class LabelSelectorRequirement(Field, frozen=True, kw_only=True):
    """``operator``: In, NotIn, Exists, DoesNotExist."""

    key: str
    operator: str
    values: list[str] = []


class LabelSelector(Field, frozen=True, kw_only=True):
    """Selects by labels; an empty selector selects everything, an absent one nothing."""

    match_labels: dict[str, str] = {}
    match_expressions: list[LabelSelectorRequirement] = []


class NodeSelectorRequirement(Field, frozen=True, kw_only=True):
    """``operator``: In, NotIn, Exists, DoesNotExist, Gt, Lt."""

    key: str
    operator: str
    values: list[str] = []


class NodeSelectorTerm(Field, frozen=True, kw_only=True):
    """All expressions and fields must hold; an empty term matches nothing."""

    match_expressions: list[NodeSelectorRequirement] = []
    match_fields: list[NodeSelectorRequirement] = []


class NodeSelector(Field, frozen=True, kw_only=True):
    """Any one of the terms must hold."""

    node_selector_terms: list[NodeSelectorTerm]


class PreferredSchedulingTerm(Field, frozen=True, kw_only=True):
    """A preference, worth ``weight`` (1 to 100)."""

    weight: int
    preference: NodeSelectorTerm


class NodeAffinity(Field, frozen=True, kw_only=True):
    """Which nodes a pod insists on and prefers."""

    required_during_scheduling_ignored_during_execution: NodeSelector | None = None
    preferred_during_scheduling_ignored_during_execution: list[PreferredSchedulingTerm] = []


class PodAffinityTerm(Field, frozen=True, kw_only=True):
    """Pods selected by label, in these namespaces (the pod's own when none is named), per topology domain."""

    topology_key: str
    label_selector: LabelSelector | None = None
    namespaces: list[str] = []
    namespace_selector: LabelSelector | None = None
    match_label_keys: list[str] = []
    mismatch_label_keys: list[str] = []


class WeightedPodAffinityTerm(Field, frozen=True, kw_only=True):
    """A preference about other pods, worth ``weight`` (1 to 100)."""

    weight: int
    pod_affinity_term: PodAffinityTerm


class PodAffinity(Field, frozen=True, kw_only=True):
    """Near which pods."""

    required_during_scheduling_ignored_during_execution: list[PodAffinityTerm] = []
    preferred_during_scheduling_ignored_during_execution: list[WeightedPodAffinityTerm] = []


class PodAntiAffinity(Field, frozen=True, kw_only=True):
    """Away from which pods."""

    required_during_scheduling_ignored_during_execution: list[PodAffinityTerm] = []
    preferred_during_scheduling_ignored_during_execution: list[WeightedPodAffinityTerm] = []


class Affinity(Field, frozen=True, kw_only=True):
    """Node affinity, pod affinity and pod anti-affinity."""

    node_affinity: NodeAffinity | None = None
    pod_affinity: PodAffinity | None = None
    pod_anti_affinity: PodAntiAffinity | None = None


class TopologySpreadConstraint(Field, frozen=True, kw_only=True):
    """Keep the numbers of matching pods in any two domains within ``max_skew``."""

    max_skew: int
    topology_key: str
    when_unsatisfiable: str = "DoNotSchedule"
    label_selector: LabelSelector | None = None
    min_domains: int | None = None
    node_affinity_policy: str = "Honor"
    node_taints_policy: str = "Ignore"
    match_label_keys: list[str] = []


class ResourceRequirements(Field, frozen=True, kw_only=True):
    """Quantities by resource name, as written."""

    requests: dict[str, str | int | float] = {}
    limits: dict[str, str | int | float] = {}


class EnvVar(Field, frozen=True, kw_only=True):
    """One environment variable."""

    name: str
    value: str = ""


class ContainerPort(Field, frozen=True, kw_only=True):
    """A port that a container names."""

    container_port: int
    name: str = ""
    host_port: int = 0
    protocol: str = "TCP"
    host_ip: str = msgspec.field(default="", name="hostIP")


class Probe(Field, frozen=True, kw_only=True):
    """How often a container is asked; what it is asked is not read here."""

    initial_delay_seconds: int = 0
    period_seconds: int = 10
    timeout_seconds: int = 1
    success_threshold: int = 1
    failure_threshold: int = 3


class ExecAction(Field, frozen=True, kw_only=True):
    """A command inside the container."""

    command: list[str] = []


class SleepAction(Field, frozen=True, kw_only=True):
    """Wait, at most as long as the pod's grace period."""

    seconds: int = 0


class LifecycleHandler(Field, frozen=True, kw_only=True):
    """What a hook does; requests are not read."""

    exec: ExecAction | None = None
    sleep: SleepAction | None = None


class Lifecycle(Field, frozen=True, kw_only=True):
    """Hooks of a container's life."""

    pre_stop: LifecycleHandler | None = None


class ContainerRestartRule(Field, frozen=True, kw_only=True):
    """What is done when a container ends in some way; of what way is not read here."""

    action: str = ""


class Container(Field, frozen=True, kw_only=True):
    """One container. ``restart_policy`` Always makes an init container a sidecar."""

    name: str
    image: str = ""
    command: list[str] = []
    args: list[str] = []
    env: list[EnvVar] = []
    ports: list[ContainerPort] = []
    resources: ResourceRequirements = ResourceRequirements()
    liveness_probe: Probe | None = None
    readiness_probe: Probe | None = None
    startup_probe: Probe | None = None
    lifecycle: Lifecycle | None = None
    restart_policy: str = ""
    restart_policy_rules: list[ContainerRestartRule] = []


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


FINISHED = ("Succeeded", "Failed")
"""Phases of a pod whose containers have ended for good: it holds nothing any more."""


class Pod(KubeObject, kw_only=True):
    """core/v1 Pod."""

    spec: PodSpec
    status: PodStatus = PodStatus()

    def __post_init__(self) -> None:
        """Of a hundred thousand pods few are being resized: of the others, what they have is in their spec."""
        for one in self.status.container_statuses:
            if one.resources is not None:
                _forget_what_is_in_the_spec(one, self.spec.containers)
        for one in self.status.init_container_statuses:
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


class NodeSpec(Field, frozen=True, kw_only=True):
    """Taints and cordon of a node."""

    taints: list[Taint] = []
    unschedulable: bool = False
    provider_id: str = msgspec.field(default="", name="providerID")


class NodeCondition(Field, frozen=True, kw_only=True):
    """One condition of a node."""

    type: str
    status: str
    reason: str = ""
    message: str = ""


class NodeStatus(Field, frozen=True, kw_only=True):
    """What a node can hold and how it is."""

    capacity: dict[str, str | int | float] = {}
    allocatable: dict[str, str | int | float] = {}
    conditions: list[NodeCondition] = []
    declared_features: list[str] = []


class Node(KubeObject, kw_only=True):
    """core/v1 Node."""

    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()


class Namespace(KubeObject, kw_only=True):
    """core/v1 Namespace: its labels are what selectors of namespaces see."""


class ServicePort(Field, frozen=True, kw_only=True):
    """A port of a Service."""

    port: int
    name: str = ""
    target_port: int | str | None = None
    protocol: str = "TCP"


class ServiceSpec(Field, frozen=True, kw_only=True):
    """Which pods, under which ports."""

    selector: dict[str, str] = {}
    ports: list[ServicePort] = []
    type: str = "ClusterIP"
    cluster_ip: str = msgspec.field(default="", name="clusterIP")
    traffic_distribution: str = ""


class Service(KubeObject, kw_only=True):
    """core/v1 Service."""

    spec: ServiceSpec = ServiceSpec()


class ConfigMap(KubeObject, kw_only=True):
    """core/v1 ConfigMap."""

    data: dict[str, str] = {}
    immutable: bool | None = None


class PriorityClass(KubeObject, kw_only=True):
    """scheduling.k8s.io/v1 PriorityClass."""

    value: int
    global_default: bool = False
    preemption_policy: str = "PreemptLowerPriority"
    description: str = ""


def pod_requests(spec: PodSpec) -> dict[str, int]:
    """What the pod requests: cpu in millicores, memory and storage in bytes, everything else in units.

    Containers and sidecars add up; init containers run one after another, each beside the sidecars started before it,
    and the pod needs the larger of the two; overhead comes on top. A limit without a request is the request. Requests
    of the pod as a whole replace the sum, its limits count where no container says anything.
    Source: kubernetes/kubernetes staging/src/k8s.io/component-helpers/resource/helpers.go.
    """
    running: dict[str, int] = {}
    for container in spec.containers:
        _add(running, container_requests(container))
    sidecars: dict[str, int] = {}
    starting: dict[str, int] = {}
    for container in spec.init_containers:
        own = container_requests(container)
        if container.restart_policy == "Always":
            _add(running, own)
            _add(sidecars, own)
            own = dict(sidecars)
        else:
            _add(own, sidecars)
        for name, amount in own.items():
            starting[name] = max(starting.get(name, 0), amount)
    total = {name: max(running.get(name, 0), starting.get(name, 0)) for name in {**running, **starting}}
    if spec.resources is not None:
        total |= _pod_level(spec.resources.requests)
        total = _pod_level(spec.resources.limits) | total
    _add(total, amounts(spec.overhead))
    return {name: min(amount, quantity.LARGEST) for name, amount in total.items()}


def container_requests(container: Container) -> dict[str, int]:
    """The container's requests, each limit standing in where there is no request."""
    return amounts({**container.resources.limits, **container.resources.requests})


def amounts(quantities: Mapping[str, str | int | float]) -> dict[str, int]:
    """Quantities as integers: cpu in millicores, memory and storage in bytes, everything else in units."""
    return {name: quantity.amount(name, written) for name, written in quantities.items()}


def _pod_level(quantities: Mapping[str, str | int | float]) -> dict[str, int]:
    return amounts({name: written for name, written in quantities.items() if is_pod_level(name)})


def is_pod_level(resource: str) -> bool:
    """Whether the resource can be requested for a pod as a whole: cpu, memory and huge pages."""
    return resource in ("cpu", "memory") or resource.startswith("hugepages-")


def _add(total: dict[str, int], more: Mapping[str, int]) -> None:
    for name, amount in more.items():
        total[name] = total.get(name, 0) + amount
