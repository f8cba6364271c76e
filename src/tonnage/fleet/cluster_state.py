"""What a world knows of its cluster, and the one way from there to a snapshot.

A world feeds it by the events of a heap, by watches, or once from files. All of it is abstract: a world that left a
part out would decide differently from the others, and cannot be made.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping

from tonnage.decisions import Evict, Instances, Launch, Wait
from tonnage.fleet.cliques import in_cliques
from tonnage.fleet.gangs import Gang
from tonnage.fleet.snapshot import ClaimView, PodLife, Snapshot, WorkloadView
from tonnage.fleet.state import Fleet
from tonnage.objects.policy import PodDisruptionBudget
from tonnage.units import NS_PER_S

UNAVAILABLE_NS = 180 * NS_PER_S
"""For this long Karpenter does not ask again for an offering of which EC2 had none.

Source: aws/karpenter-provider-aws pkg/cache/cache.go, UnavailableOfferingsTTL.
"""

Offering = tuple[str, str, str]
"""(instance type, zone, capacity type)."""


def offering_of(launch: Launch) -> Offering:
    """What a Launch asks for."""
    return launch.instance_type, launch.zone, launch.capacity_type


class State(ABC):
    """The cluster as its world knows it now. The world writes ``fleet``; nominations and offerings out of stock are
    kept here, for all worlds alike."""

    def __init__(self, fleet: Fleet) -> None:
        self.fleet = fleet
        self.nominations: dict[str, str] = {}
        """Pod (namespace/name) that is pending, or leaves as it is moved → node on which room is kept for it."""
        self._unavailable: dict[Offering, int] = {}

    @abstractmethod
    def workloads(self) -> Mapping[str, WorkloadView]:
        """Deployments by namespace/name."""

    @abstractmethod
    def claims(self) -> tuple[ClaimView, ...]:
        """NodeClaims that are not initialized yet, by name."""

    @abstractmethod
    def knows_claim(self, name: str) -> bool:
        """Whether there is such a NodeClaim that is not initialized."""

    @abstractmethod
    def last_claim(self) -> int:
        """The highest number in the name of a NodeClaim that there is or was; 0 where the world keeps none."""

    @abstractmethod
    def gangs(self) -> Mapping[str, Gang]:
        """By key."""

    @abstractmethod
    def done(self) -> Mapping[str, Mapping[str, int]]:
        """Pods that have succeeded and are not in the fleet any more, by gang and subgroup."""

    @abstractmethod
    def topologies(self) -> Mapping[str, tuple[str, ...]]:
        """The label keys of each Topology's levels, outermost first."""

    @abstractmethod
    def disruption_budgets(self) -> tuple[PodDisruptionBudget, ...]:
        """All PodDisruptionBudgets."""

    @abstractmethod
    def life(self, pod: str) -> PodLife:
        """What is known of the life of a pod (namespace/name)."""

    @abstractmethod
    def lives(self) -> Mapping[str, PodLife]:
        """The same of all pods of which more is known than that they are there."""

    @abstractmethod
    def relayouts(self) -> Mapping[tuple[str, int], Instances]:
        """GPUs whose MIG layout is being changed, (name of the node, index) → what they will be."""

    @abstractmethod
    def fixed(self) -> Mapping[tuple[str, int], str]:
        """GPUs that cannot be repartitioned now, of nodes that allow it → why."""

    def snapshot(self, now_ns: int) -> Snapshot:
        """The cluster at this instant, as decisions see it."""
        return Snapshot(
            now_ns,
            self.fleet,
            self.workloads(),
            self.claims(),
            self.unavailable(now_ns),
            self.last_claim(),
            gangs=in_cliques(self.gangs(), self.fleet),
            done=self.done(),
            topologies=self.topologies(),
            disruption_budgets=self.disruption_budgets(),
            lives=self.lives(),
            nominations=self.nominations,
            relayouts=self.relayouts(),
            fixed=self.fixed(),
        )

    # ---- what is kept for all worlds ----

    def refused(self, offering: Offering, now_ns: int) -> None:
        """The cloud had none of this offering."""
        self._unavailable[offering] = now_ns + UNAVAILABLE_NS

    def unavailable(self, now_ns: int) -> frozenset[Offering]:
        """Offerings not to be asked for now."""
        self._unavailable = {offering: until for offering, until in self._unavailable.items() if until > now_ns}
        return frozenset(self._unavailable)

    def let_wait(self, decision: Wait) -> None:
        """What a scheduler lets a pod wait for replaces what it waited for before."""
        if decision.by != "scheduler":
            return
        key = f"{decision.pod.namespace}/{decision.pod.name}"
        self.nominations.pop(key, None)
        if decision.nominated and (decision.pod.namespace, decision.pod.name) in self.fleet.pod_by_key:
            self.nominations[key] = decision.nominated

    def leaves(self, decision: Evict) -> None:
        """A pod that is moved keeps room where it goes."""
        if decision.to:
            self.nominations[f"{decision.pod.namespace}/{decision.pod.name}"] = decision.to

    def settled(self, pod: str) -> None:
        """The pod (namespace/name) is bound, or gone: no room is kept for it."""
        self.nominations.pop(pod, None)
