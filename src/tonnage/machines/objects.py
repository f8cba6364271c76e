"""The rows of the simulated API: workloads, pods, nodes and node claims."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, Protocol, TypeAlias, TypeVar

from msgspec import Struct

from tonnage.costs.ledger import Resources
from tonnage.decisions import Launch, Ref
from tonnage.facts import instances, models
from tonnage.facts.instances import InstanceType
from tonnage.facts.models import ModelShape
from tonnage.fleet.snapshot import ClaimView
from tonnage.health.blocker import Blocker
from tonnage.health.rules.shutdown import SLEEP
from tonnage.inference.config import VllmArgs
from tonnage.inference.engine import EngineConfig
from tonnage.inference.timing import StepTiming
from tonnage.machines.cards import Sharer
from tonnage.machines.serving.replica import ServingReplica
from tonnage.machines.serving.service import SimulatedService
from tonnage.node.device_health import DeviceHealth, HealthRules
from tonnage.objects import apps, core
from tonnage.units import NS_PER_MS, NS_PER_S
from tonnage.workloads.admission.refused import AdmissionRefusal
from tonnage.workloads.failures import Cause
from tonnage.workloads.volumes.weights import WeightSource

Cluster_contra = TypeVar("Cluster_contra", contravariant=True)

Offering: TypeAlias = tuple[str, str, str]
"""(instance type, zone, capacity type)."""


@dataclass(slots=True)
class ModelServer:
    """What a pod's container serves: an LLM, with the engine settings of its command line. ``refused``: why the engine
    starts on no GPU; empty where it may. ``container``: which of the pod's containers it is. ``eager``: it compiles
    nothing."""

    args: VllmArgs
    weight_bytes: int
    model: str
    shutdown_timeout_s: int = 0
    prefix_caching: bool = True
    refused: str = ""
    container: int = 0
    eager: bool = False
    weights: WeightSource | None = None  # the claim on which they lie; None: the node's disk
    shape: ModelShape | None = None  # of a model that the table does not have

    @property
    def known(self) -> ModelShape:
        """The model's shape. Raises InputError where nothing is known of it."""
        return self.shape or models.get(self.model)


class WorkloadController(Protocol[Cluster_contra]):
    """Who makes a workload's pods, where that is not the Deployment controller, and is told what becomes of them on a
    cluster."""

    @property
    def owner(self) -> str:
        """Of whom the pods are, and no others; empty where no object owns them."""
        ...

    @property
    def key(self) -> str:
        """Its object: namespace/kind/name, the kind in lower case."""
        ...

    @property
    def origin(self) -> str:
        """The object of the manifests, of which it may be one of several copies: likewise."""
        ...

    def before(self, cluster: Cluster_contra, pod: SimulatedPod) -> None:
        """What the pod does is about to change: it is being bound, is told to stop, or is about to be gone."""
        ...

    def after(self, cluster: Cluster_contra, pod: SimulatedPod) -> None:
        """The pod was bound, became Ready, or is gone."""
        ...

    def lost(self, cluster: Cluster_contra, pod: SimulatedPod, cause: Cause) -> None:
        """The pod was told to stop, or is gone, through no doing of its own."""
        ...

    def paced(self, cluster: Cluster_contra, pod: SimulatedPod) -> None:
        """Others share a GPU with the pod now, or some no longer do."""
        ...

    def exits(self, cluster: Cluster_contra, pod: SimulatedPod, cause: Cause, exit_code: int, said: str) -> None:
        """The pod's container ends with an error, of which an event says ``said``."""
        ...

    def has_succeeded(self, pod: SimulatedPod) -> bool:
        """Whether the pod's work is done, so that its end is not a failure."""
        ...

    def saved_ns(self, pod: SimulatedPod) -> int:
        """What the pod did before then would not be lost with it; 0 where nothing that it did was saved."""
        ...

    def settle(self, now_ns: int) -> None:
        """Tell the ledger what the pods' devices did until now."""
        ...


@dataclass(slots=True, eq=False)
class Workload:
    """A Deployment, StatefulSet or ReplicaSet and the controller's memory of it; or another owner of pods, with a
    ``controller`` of its own. ``stateful``: the StatefulSet, its template as it was admitted.

    ``gang``: the gang of its pods, if they are in one, and their part of it."""

    namespace: str
    name: str
    template: core.PodTemplateSpec
    replicas: int
    server: ModelServer | None = None
    service: SimulatedService | None = None
    role: str = ""  # "prefill" or "decode" where its Service has pools
    pods: dict[str, SimulatedPod] = field(default_factory=dict)
    created: int = 0
    minimum: int | None = None
    min_ready: int = 0
    max_ready: int = 0
    ready_ns: int | None = None  # when one of its pods was Ready first
    cold_starts_ns: list[int] = field(default_factory=list)
    gang: tuple[str, str] = ("", "")
    controller: WorkloadController[Any] | None = None
    refused: AdmissionRefusal | None = None  # why the API server admits none of its pods
    lasted: int | None = None  # the fewest that were Ready for a while, up to now
    counted_ns: int = 0
    standing: dict[str, str] = field(
        default_factory=dict
    )  # pods that are there before the run begins, by name: on which node
    stateful: apps.StatefulSet | None = None
    kind: str = "Deployment"  # of the object that has these pods, where no controller of its own makes them

    @property
    def ref(self) -> Ref:
        return Ref(self.kind, self.name, self.namespace)

    @property
    def key(self) -> str:
        return self.ref.workload

    def stands_on(self, name: str) -> str:
        """On which node a pod that is made now is already, once; empty for none. Controllers add a suffix to names: the
        Job controller in place of the number of a pod without an index."""
        one, job = re.escape(name), re.escape(name.rpartition("-")[0])
        alike = (one, rf"{one}-[a-z0-9]+", rf"{job}-[a-z0-9]{{5}}")
        known = [there for pattern in alike for there in self.standing if re.fullmatch(pattern, there)]
        return self.standing.pop(known[0], "") if known else ""

    @property
    def active(self) -> list[SimulatedPod]:
        """Pods that are not being deleted, by name."""
        return [pod for _, pod in sorted(self.pods.items()) if not pod.terminating]


@dataclass(frozen=True, slots=True)
class Failing:
    """Why a pod does not serve, and will not as it is. ``stage``: of :data:`tonnage.health.blocker.STAGES`; ``rule``:
    of the finding that names the cause; ``event``: what its events or its container's state say, the reason first."""

    since_ns: int
    stage: str
    rule: str
    cause: str
    event: str


class End(Struct, frozen=True):
    """How a container ended, as its state says it: ``reason`` is Error, or OOMKilled."""

    exit_code: int
    reason: str
    message: str
    started_ns: int
    ended_ns: int


@dataclass(slots=True, eq=False)
class SimulatedPod:
    """One pod's lifecycle. Times in ns; None until it happened. ``own``: its template, where its workload has several.

    ``starts``: how often its container has started; ``crashes``: how often it has ended with an error in a row, of
    which ``last_end`` is the last. ``sharer``: its part of GPUs on which others can slow it down, while its container
    runs. ``failing``: set where it does not serve for a cause that stays."""

    workload: Workload
    name: str
    uid: str
    row: int
    created_ns: int
    bound_ns: int | None = None
    started_ns: int | None = None
    ready_ns: int | None = None
    node: str = ""
    terminating: bool = False
    deletion_cost: int = 0
    replica: ServingReplica | None = None
    held: Resources = field(default_factory=Resources)  # as the ledger knows it
    busy_ns: int = 0  # time of each of its GPUs, as told to the ledger
    own: core.PodTemplateSpec | None = None
    starts: int = 0
    crashes: int = 0
    sharer: Sharer | None = None
    failing: Failing | None = None
    last_end: End | None = None
    again_ns: int = 0  # when its container starts once more after its last crash

    @property
    def namespace(self) -> str:
        return self.workload.namespace

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}"

    def running_since(self, start: int) -> bool:
        """Whether its container still runs as it did after that start."""
        return self.started_ns is not None and self.starts == start

    @property
    def template(self) -> core.PodTemplateSpec:
        """What it was made from."""
        return self.own or self.workload.template


def _settled_health() -> DeviceHealth:
    """Of GPUs that are healthy as soon as there is evidence of it: a scenario says when a GPU is offered again."""
    return DeviceHealth(HealthRules(settle_s=0))


@dataclass(slots=True, eq=False)
class SimulatedNode:
    """A machine: what it is, when it was launched, and what its disk and memory hold already."""

    name: str
    uid: str
    instance_type: str
    gpu: str
    gpus: int
    node_pool: str
    capacity_type: str
    zone: str
    price_micro_usd_per_hour: int
    launched_ns: int
    disk_bytes_per_s: float
    gpu_product: str = ""
    gpu_memory_mib: int = 0
    images_on_disk: bool = False
    machine: InstanceType | None = None  # where it is none of the instance types that are known
    taints: tuple[core.Taint, ...] = ()  # its own, where no pool gives it any
    labels: dict[str, str] = field(default_factory=dict)  # as planned; empty: those of the instance type
    allocatable: dict[str, int] = field(default_factory=dict)  # likewise
    kubelet_ready: bool = False
    ready_ns: int | None = None
    ended_ns: int | None = None
    end_reason: str = ""
    image_ready_ns: dict[str, int] = field(default_factory=dict)
    weights_ready_ns: dict[str, int] = field(default_factory=dict)
    compiled: set[str] = field(default_factory=set)  # models whose engine has started here
    leaving: bool = False
    health: DeviceHealth = field(default_factory=_settled_health)  # of its GPUs

    def gpu_uuid(self, device: int) -> str:
        """How NVML names the GPU with this index."""
        return f"GPU-{self.name}-{device}"

    @property
    def kind(self) -> InstanceType:
        """What machine it is."""
        return self.machine or instances.get(self.instance_type)


@dataclass(slots=True)
class SimulatedNodeClaim:
    """A NodeClaim between the decision and the initialised node."""

    launch: Launch
    created_ns: int
    node: str = ""  # once the instance runs

    def view(self) -> ClaimView:
        """As a decision sees it."""
        return ClaimView(self.launch, self.created_ns, self.node)


@dataclass(frozen=True, slots=True)
class EngineSetup:
    """The engine of one workload on one kind of GPU, and the part of a GPU's time that its steps take when alone: less
    than all on a MIG instance."""

    config: EngineConfig
    timing: StepTiming
    part: int | Fraction = 1


def drain_times(spec: core.PodSpec, server: ModelServer | None) -> tuple[int, int]:
    """(least, most) nanoseconds that a pod lives on after it is told to stop.

    The preStop hook runs first (its ``sleep`` is waited for), then the engine finishes running requests for as long as
    its ``--shutdown-timeout`` allows (vLLM: 0 by default, requests are aborted at once). terminationGracePeriodSeconds
    bounds both.
    """
    grace = spec.termination_grace_period_seconds
    limit = 30 if grace is None else grace
    sleep = 0
    for container in spec.containers:
        hook = container.lifecycle.pre_stop if container.lifecycle else None
        if hook is not None and hook.exec is not None:
            sleep = max([sleep, *(int(s) for s in SLEEP.findall(" ".join(hook.exec.command or ())))])
        if hook is not None and hook.sleep is not None:
            sleep = max(sleep, hook.sleep.seconds)
    timeout = server.shutdown_timeout_s if server else 0
    return min(sleep, limit) * NS_PER_S, min(sleep + timeout, limit) * NS_PER_S


def gated_by_probe(spec: core.PodSpec) -> bool:
    """Whether a pod is kept out of its Service until a probe says that it serves."""
    return any(c.readiness_probe is not None or c.startup_probe is not None for c in spec.containers)


def probe_period_s(spec: core.PodSpec) -> int:
    """The longest probe period of the pod's containers, in seconds (Kubernetes' default is 10)."""
    probes = [p for c in spec.containers for p in (c.readiness_probe, c.startup_probe) if p is not None]
    return max((p.period_seconds or 10 for p in probes), default=0)


FIRST_NS, LONGEST_NS = 5 * NS_PER_MS, 1000 * NS_PER_S
"""How long a controller waits before it tries again: twice as long each time.

Source: kubernetes/client-go util/workqueue/default_rate_limiters.go."""


@dataclass(slots=True)
class CreationBackoff:
    """What a controller has been refused since it last made a pod."""

    tries: int = 0
    waits: bool = False

    def next_ns(self) -> int:
        """How long it waits now."""
        self.tries += 1
        return min(LONGEST_NS, FIRST_NS << min(self.tries - 1, 40))


Blockers = Mapping[str, tuple[Blocker, ...]]
"""What holds for all pods of an object: namespace/kind/name, the kind in lower case → causes, the first in the pod
lifecycle first."""
