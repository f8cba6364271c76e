"""What a decision may look at: a read-only view of the cluster at one instant, with its revision. Not a copy."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from msgspec import Struct

from tonnage.decisions import Instances, Launch, Ref
from tonnage.fleet.gangs import Gang
from tonnage.fleet.state import Fleet
from tonnage.objects.policy import PodDisruptionBudget


class PodView(Struct, frozen=True):
    """One pod of a workload. Times in nanoseconds; None until it happened."""

    row: int
    namespace: str
    name: str
    node: str
    created_ns: int
    bound_ns: int | None
    ready_ns: int | None
    deletion_cost: int = 0


@dataclass(frozen=True, slots=True)
class WorkloadView:
    """A Deployment or StatefulSet: replicas wanted, and its pods that are not being deleted, by name.

    ``cold_starts_ns``: how long each of its recent pods took from creation to serving. ``owner``: the HPA or
    ScaledObject that sets its replicas, if one does.
    """

    kind: str
    namespace: str
    name: str
    replicas: int
    pods: tuple[PodView, ...]
    cold_starts_ns: tuple[int, ...] = ()
    uid: str = ""
    annotations: Mapping[str, str] = field(default_factory=dict)
    owner: str = ""

    @property
    def key(self) -> str:
        return Ref(self.kind, self.name, self.namespace).workload

    @property
    def ready(self) -> int:
        """Pods that are Ready."""
        return sum(pod.ready_ns is not None for pod in self.pods)


@dataclass(frozen=True, slots=True)
class ClaimView:
    """A NodeClaim that is not initialized yet: launched, or being launched. ``launch``: the decision that launched
    it."""

    launch: Launch
    created_ns: int
    node: str = ""  # until it registered

    @property
    def name(self) -> str:
        return self.launch.claim.name


@dataclass(frozen=True, slots=True)
class PodLife:
    """What a world knows of the pod lifecycle. Times in nanoseconds.

    ``started_ns``: since when it works; None: since it was created. ``saved_ns``: what it did before then is safe (its
    last checkpoint). ``leaving``: it is being deleted, and its room is free when it is gone. ``bound_ns``: since when
    it has its node; None: it has none, or that is not known.
    """

    started_ns: int | None = None
    saved_ns: int = 0
    ready: bool = True
    leaving: bool = False
    bound_ns: int | None = None


_NOTHING_KNOWN = PodLife()


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The cluster as a decision sees it. ``fleet`` may be changed inside ``fleet.what_if()`` only."""

    now_ns: int
    fleet: Fleet
    workloads: Mapping[str, WorkloadView] = field(default_factory=dict)
    claims: tuple[ClaimView, ...] = ()
    unavailable: frozenset[tuple[str, str, str]] = frozenset()
    """Offerings out of stock: (instance type, zone, capacity type)."""
    last_claim: int = 0
    """The highest number in the name of a NodeClaim that there is or was, where the world knows."""
    gangs: Mapping[str, Gang] = field(default_factory=dict)
    """By key; a pod names its gang (``FleetPod.gang`` of :mod:`tonnage.fleet.rows`)."""
    topologies: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Topology objects by name: the label keys of their levels, outermost first."""
    disruption_budgets: tuple[PodDisruptionBudget, ...] = ()
    lives: Mapping[str, PodLife] = field(default_factory=dict)
    """By the pod's namespace/name; of a pod that is not there nothing is known."""
    nominations: Mapping[str, str] = field(default_factory=dict)
    """Pod (namespace/name) → name of the node where room is kept for it: it is pending, or it leaves as it is moved."""
    relayouts: Mapping[tuple[str, int], Instances] = field(default_factory=dict)
    """GPUs whose MIG layout is being changed, (name of the node, index) → what they will be."""
    done: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """Pods that have succeeded and are not in the fleet any more, by gang and subgroup: they count as its members."""
    fixed: Mapping[tuple[str, int], str] = field(default_factory=dict)
    """GPUs that cannot be repartitioned now, though their nodes allow it → why."""
    backing_off: Mapping[str, int] = field(default_factory=dict)
    """Uids of pods that could not be bound → until when (ns) nobody tries to bind them again, nor their gang."""

    absent_groups: frozenset[str] = frozenset()
    """Projects (:mod:`tonnage.workloads.naming`) of whose pod groups there can be none that is not known."""

    @property
    def revision(self) -> int:
        return self.fleet.revision

    def life(self, key: str) -> PodLife:
        """What is known of the pod (namespace/name)."""
        return self.lives.get(key, _NOTHING_KNOWN)

    def started_ns(self, row: int) -> int:
        """Since when the pod works; since it was created where nothing is known of that."""
        pod = self.fleet.pod(row)
        started = self.life(pod.key).started_ns
        return pod.spec.created_ns if started is None else started

    def unsaved_ns(self, row: int) -> int:
        """For how long the pod has worked on what would be lost with it: since its start or its last checkpoint."""
        return max(0, self.now_ns - max(self.started_ns(row), self.life(self.fleet.pod(row).key).saved_ns))

    def lost_ns(self, row: int) -> int:
        """Work that would be lost with the pod, in ns of each device that it holds; of itself, where it holds none."""
        return self.unsaved_ns(row) * max(1, len(self.fleet.pod(row).devices))

    def leaves(self, key: str) -> bool:
        """Whether the pod (namespace/name) is being deleted."""
        return self.life(key).leaving

    def is_whole(self, key: str, rows: Iterable[int]) -> bool:
        """Whether these members of a gang (rows), with those that have succeeded, reach all of its minima."""
        done = self.done.get(key, {})
        finished = (subgroup for subgroup, count in done.items() for _ in range(count))
        return self.gangs[key].is_whole([*(self.fleet.pod(row).spec.subgroup for row in rows), *finished])

    def gang_priority(self, key: str) -> int:
        """The priority with which a gang takes its turn, preempts and is preempted: the highest of its own and its
        pods'; 0 for a gang that does not exist."""
        gang = self.gangs.get(key)
        if gang is None:
            return 0
        return max((gang.priority, *(self.fleet.pod(row).spec.priority for row in self.fleet.gang_pods.get(key, ()))))
