"""World 1. Holds the simulated API and its machines, and lets decisions take effect after checking them again."""

from __future__ import annotations

from collections.abc import Sequence

from tonnage import gate
from tonnage.costs.held import held
from tonnage.costs.ledger import Ledger, Resources
from tonnage.decisions import (
    PROTECTED,
    REMOVE_FIRST,
    SOLD_OUT,
    Applied,
    Bind,
    Decision,
    Evict,
    Launch,
    Outcome,
    Ref,
    Refused,
    Relayout,
    Return,
    Scale,
    Stale,
    Wait,
)
from tonnage.fleet.cluster_state import offering_of
from tonnage.fleet.gangs import Gang
from tonnage.fleet.snapshot import Snapshot
from tonnage.fleet.state import Conflict, Fleet
from tonnage.machines import claiming, nodes, pods, relayouts
from tonnage.machines.blocked import unplaceable
from tonnage.machines.event_log import EventLog
from tonnage.machines.events import Queue
from tonnage.machines.layout_change import LayoutChange
from tonnage.machines.life import NodeRunning, PodBound
from tonnage.machines.mirror import Mirror, Unseen
from tonnage.machines.objects import Blockers, Claim, Node, Offering, Pod, Refusals, Workload
from tonnage.machines.physics import Physics
from tonnage.machines.serving.service import Service
from tonnage.machines.sharing import Sharing
from tonnage.machines.state import SimulatedState
from tonnage.machines.training.workload import Training
from tonnage.metrics.promql import Query, Result, evaluate, parse
from tonnage.metrics.store import SeriesStore
from tonnage.objects import core
from tonnage.objects.policy import PodDisruptionBudget
from tonnage.rng import Streams
from tonnage.scheduling.budgets import Budgets
from tonnage.units import ns
from tonnage.workloads.admission.chain import Admission
from tonnage.workloads.failures import Cause
from tonnage.workloads.volumes.book import Volumes


class SimulatedCluster:
    """The simulated world. Implements :class:`tonnage.control.world.World`."""

    def __init__(self, physics: Physics, streams: Streams) -> None:
        self.mirror: Mirror = Unseen()
        self.runs_workloads = True
        """Whether pods are made and removed here, rather than by somebody else's Deployment controller."""
        self.physics = physics
        self.durations = physics.durations
        self.streams = streams
        self.now_ns = 0
        self.queue = Queue()
        self.fleet = Fleet()
        self.store = SeriesStore()
        self.ledger = Ledger()
        self.sharing = Sharing()
        self.events = EventLog()
        self.workloads: dict[str, Workload] = {}
        self.blockers: Blockers = {}
        """What stops the pods of an object."""
        self.training: dict[str, Training] = {}
        self.gangs: dict[str, Gang] = {}
        """Those of the workloads that there are now."""
        self.topologies: dict[str, tuple[str, ...]] = {}
        self.disruption_budgets: tuple[PodDisruptionBudget, ...] = ()
        self.admission = Admission(())
        """What lets pods in."""
        self.refusals: dict[str, Refusals] = {}
        """Of the owners of pods that it did not admit."""
        self.volumes = Volumes(binds=True)
        """The claims of pods, and what they are bound to."""
        self.daemon_sets: list[tuple[str, str, core.PodTemplateSpec]] = []
        self.services: list[Service] = []
        self.nodes: dict[str, Node] = {}
        self.pods: dict[tuple[str, str], Pod] = {}
        self.claims: dict[str, Claim] = {}
        self.relayouts: dict[tuple[str, int], LayoutChange] = {}
        """GPUs whose MIG layout is being changed, by the node's name and the index."""
        self.out_of_stock: dict[Offering, int] = {}
        """Until when EC2 has none of an offering."""
        self.state = SimulatedState(self)
        self._woken: set[str] = set()
        self._queries: dict[str, Query] = {}

    # ---- World ----

    def now(self) -> int:
        """Virtual nanoseconds since the start of the run."""
        return self.now_ns

    def snapshot(self) -> Snapshot:
        """The cluster as decisions see it."""
        return self.state.snapshot(self.now_ns)

    def measure(self, query: str, at_ns: int) -> Result:
        """A PromQL instant query over what has been scraped. Raises InputError where Prometheus answers with one."""
        parsed = self._queries.get(query)
        if parsed is None:
            parsed = self._queries[query] = parse(query)
        return evaluate(parsed, self.store, at_ns)

    def apply_all(self, decisions: Sequence[Decision]) -> list[Outcome]:
        """One after the other."""
        return [self.apply(decision) for decision in decisions]

    def note(self, about: Ref, reason: str, message: str) -> None:
        """A warning among the cluster events."""
        self.events.add(self.now_ns, str(about), "Warning", reason, message)

    def woken(self) -> frozenset[str]:
        """What has changed since the last call."""
        found, self._woken = self._woken, set()
        return frozenset(found)

    def apply(self, decision: Decision) -> Outcome:
        """Check again, then act."""
        overtaken = gate.check(self.state, decision)
        if overtaken is not None:
            return overtaken
        match decision:
            case Bind():
                return self._bind(decision)
            case Scale():
                return self._scale(decision)
            case Launch():
                return self.buy(decision)
            case Return():
                return self._return(decision)
            case Evict():
                return self._evict(decision)
            case Relayout():
                return relayouts.begin(self, decision)
            case Wait():
                self.state.let_wait(decision)
                self.events.add(self.now_ns, str(decision.pod), "Warning", "FailedScheduling", decision.reason.verdict)
                return Applied()

    def _bind(self, decision: Bind) -> Outcome:
        pod = self.pods[decision.pod.namespace, decision.pod.name]
        why = unplaceable(self, pod)
        if why is not None:
            pods.hold(self, pod, why)
            return Refused(why.message)
        try:
            self.assign(pod, self.nodes[decision.node.name], decision.devices)
        except Conflict as conflict:
            return Stale(str(conflict))
        return Applied()

    def assign(self, pod: Pod, node: Node, devices: Sequence[int] | None = None) -> None:
        """The pod is bound to the node, whose kubelet takes it up. Raises Conflict when it does not fit there."""
        row = self.fleet.node_by_name[node.name]
        controller = pod.workload.controller
        if controller is not None:
            controller.before(self, pod)
        self.fleet.bind(pod.row, row, devices)
        self.state.settled(pod.key)
        pod.bound_ns, pod.node = self.now_ns, node.name
        self.fleet.note(row, last_pod_event_ns=self.now_ns)
        pod.held = held(self.fleet, pod.row, gpus=bool(node.gpus))
        if pod.held != Resources():
            self.ledger.allocate(node.name, pod.workload.key, pod.held, self.now_ns)
        if pod.template.spec.volumes:
            claiming.bind(self, pod, self.fleet.node(row).labels)
        self.events.add(self.now_ns, f"Pod {pod.key}", "Normal", "Scheduled", f"assigned to {node.name}")
        if controller is not None:
            controller.after(self, pod)
        self.queue.push(self.now_ns, PodBound(pod))

    def _scale(self, decision: Scale) -> Outcome:
        workload = self.workloads[decision.target.workload]
        for ref in decision.remove:
            if ref.name in workload.pods:
                workload.pods[ref.name].deletion_cost = REMOVE_FIRST
        workload.replicas = decision.replicas
        message = f"from {decision.current} to {decision.replicas}"
        self.events.add(self.now_ns, str(decision.target), "Normal", "ScalingReplicaSet", message)
        pods.reconcile(self, workload)
        return Applied()

    def buy(self, decision: Launch) -> Outcome:
        """Ask the cloud for a node: on its way from now on, or Refused when the cloud has none."""
        name = decision.claim.name
        offering = offering_of(decision)
        if self.out_of_stock.get(offering, 0) > self.now_ns:
            why = f"no {decision.instance_type} ({decision.capacity_type}) in {decision.zone}"
            self.state.refused(offering, self.now_ns)
            self.events.add(self.now_ns, f"NodeClaim {name}", "Warning", SOLD_OUT, why)
            self.wake("offering")
            return Refused(f"{SOLD_OUT}: {why}", SOLD_OUT)
        claim = Claim(decision, self.now_ns)
        self.claims[name] = claim
        self.events.add(self.now_ns, f"NodeClaim {name}", "Normal", "Launched", decision.summary())
        self.queue.push(self.now_ns + self.vary("launch", self.durations.launch_s), NodeRunning(claim))
        self.wake("node")
        return Applied()

    def _return(self, decision: Return) -> Outcome:
        node = self.nodes[decision.node.name]
        verdict = decision.reason.verdict
        nodes.remove_node(self, node, verdict)
        self.events.add(self.now_ns, f"Node {node.name}", "Normal", "DisruptionTerminating", verdict)
        return Applied()

    def _evict(self, decision: Evict) -> Outcome:
        pod = self.pods[decision.pod.namespace, decision.pod.name]
        if self.disruption_budgets:
            budgets = Budgets(self.snapshot())
            budgets.count()
            if forbids := budgets.forbids(pod.row):
                return Refused(f"{decision.pod}: {forbids}", PROTECTED)
        self.state.leaves(decision)
        pods.stop_pod(self, pod)
        pods.replace(self, pod, Cause.EVICTION)
        return Applied()

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
        factor = max(0.5, self.streams.python(f"jitter/{what}").gauss(1.0, self.durations.jitter))
        return ns(seconds * factor)
