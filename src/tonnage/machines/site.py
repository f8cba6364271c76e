"""The ground on which simulated machines stand: what there is at one instant, the clock, and what is to come."""

from __future__ import annotations

from abc import ABC, abstractmethod

from tonnage.costs.ledger import Ledger
from tonnage.fleet.cluster_state import State
from tonnage.fleet.gangs import Gang
from tonnage.fleet.rows import split_key
from tonnage.fleet.state import Fleet
from tonnage.machines.cards import SharedCards
from tonnage.machines.event_log import EventLog
from tonnage.machines.events import EventQueue
from tonnage.machines.layout_change import LayoutChange
from tonnage.machines.mirror import Mirror, Unseen
from tonnage.machines.objects import (
    Blockers,
    CreationBackoff,
    Offering,
    SimulatedNode,
    SimulatedNodeClaim,
    SimulatedPod,
    Workload,
)
from tonnage.machines.physics import Physics
from tonnage.machines.scrape_troubles import ScrapeTroubles
from tonnage.machines.serving.service import SimulatedService
from tonnage.metrics.store import SeriesStore
from tonnage.objects import core
from tonnage.objects.policy import PodDisruptionBudget
from tonnage.rng import Streams
from tonnage.units import ns
from tonnage.workloads.admission.chain import Admission
from tonnage.workloads.volumes.book import Volumes


class DeclaredObjects:
    """What objects of the API declare, beside the workloads, and what has been made of it."""

    def __init__(self) -> None:
        self.blockers: Blockers = {}
        """What stops the pods of an object."""
        self.gangs: dict[str, Gang] = {}
        """Those of the workloads that there are now."""
        self.topologies: dict[str, tuple[str, ...]] = {}
        self.disruption_budgets: tuple[PodDisruptionBudget, ...] = ()
        self.admission = Admission(())
        """What admits pods."""
        self.refusals: dict[str, CreationBackoff] = {}
        """Of the owners of pods that were not admitted."""
        self.volumes = Volumes(binds=True)
        """The claims of pods, and what they are bound to."""
        self.daemon_sets: list[tuple[str, str, core.PodTemplateSpec]] = []
        self.moved_bounds: dict[str, tuple[int, int]] = {}
        """(least, most) replicas by workload, where the bounds of its autoscaler have been moved."""


class Cloud:
    """What has been ordered of the cloud, and what it has none of."""

    def __init__(self) -> None:
        self.claims: dict[str, SimulatedNodeClaim] = {}
        """NodeClaims by name, from the order until the node is gone."""
        self.out_of_stock: dict[Offering, int] = {}
        """Until when EC2 has none of an offering."""
        self.taints_rebalance = False
        """Whether a node termination handler taints nodes that have a rebalance recommendation."""


class Gpus:
    """What pods on the same GPU share, and what changes on GPUs."""

    def __init__(self) -> None:
        self.sharing = SharedCards()
        self.relayouts: dict[tuple[str, int], LayoutChange] = {}
        """GPUs whose MIG layout is being changed, by the node's name and the index."""


class Records:
    """What is kept of the run: series that were scraped, and what each node has cost."""

    def __init__(self) -> None:
        self.store = SeriesStore()
        self.ledger = Ledger()
        self.troubles = ScrapeTroubles()


class Site(ABC):
    """Machines, what runs on them, and the API that they share. What happens there is functions and events over it:
    :mod:`tonnage.machines.pods`, :mod:`tonnage.machines.nodes`, :mod:`tonnage.machines.life`, ..."""

    state: State

    def __init__(self, physics: Physics, streams: Streams) -> None:
        self.mirror: Mirror = Unseen()
        self.runs_workloads = True
        """Whether pods are made and removed here, rather than by somebody else's Deployment controller."""
        self.physics = physics
        self.streams = streams
        self.now_ns = 0
        self.queue = EventQueue()
        self.fleet = Fleet()
        self.events = EventLog()
        self.records = Records()
        self.declared = DeclaredObjects()
        self.cloud = Cloud()
        self.gpus = Gpus()
        self.workloads: dict[str, Workload] = {}
        self.services: list[SimulatedService] = []
        self.nodes: dict[str, SimulatedNode] = {}
        self.pods: dict[tuple[str, str], SimulatedPod] = {}
        self._woken: set[str] = set()

    @abstractmethod
    def taken_up(self, pod: SimulatedPod) -> None:
        """The pod has been bound to its node: the kubelet there takes it up."""

    def pod_of(self, key: str) -> SimulatedPod:
        """The pod of ``namespace/name``. Raises KeyError where there is none."""
        return self.pods[split_key(key)]

    # ---- time ----

    def advance_to(self, at_ns: int) -> None:
        """Let the requests before ``at_ns`` arrive, and set the clock."""
        for service in self.services:
            service.advance(at_ns)
        self.now_ns = at_ns

    def wake(self, kind: str) -> None:
        """Something of this kind changed: loops that wait for it run next."""
        self._woken.add(kind)

    def vary(self, what: str, seconds: float) -> int:
        """A duration in ns around its typical value: normal, with the relative sigma of facts, never below half.

        Each kind of duration (``what``) has its own random stream. At time 0 everything has happened already: a run
        starts with a fleet that serves.
        """
        if seconds <= 0 or self.now_ns == 0:
            return 0
        factor = max(0.5, self.streams.python(f"jitter/{what}").gauss(1.0, self.physics.durations.jitter))
        return ns(seconds * factor)
