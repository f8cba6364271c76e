"""World 1. Holds the simulated API and its machines, and lets decisions take effect after checking them again."""

from __future__ import annotations

from collections.abc import Sequence

from tonnage.costs.held import held
from tonnage.costs.ledger import Ledger, Resources
from tonnage.decisions import (
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
from tonnage.fleet.gangs import Gang
from tonnage.fleet.snapshot import PodLife, PodView, Snapshot, WorkloadView
from tonnage.fleet.state import Conflict, Fleet
from tonnage.metrics.promql import Query, Result, evaluate, parse
from tonnage.metrics.store import SeriesStore
from tonnage.objects import core, selectors
from tonnage.objects.policy import PodDisruptionBudget
from tonnage.scheduling.view import CORDON
from tonnage.simulation import nodes, pods, relayouts
from tonnage.simulation.events import Queue
from tonnage.simulation.life import NodeRunning, PodBound
from tonnage.simulation.mirror import Mirror, Unseen
from tonnage.simulation.objects import Claim, EventLog, Node, Offering, Pod, Workload
from tonnage.simulation.physics import Physics
from tonnage.simulation.rng import Streams
from tonnage.simulation.serving import Service
from tonnage.simulation.sharing import Sharing
from tonnage.simulation.training.workload import Training
from tonnage.units import NS_PER_S, ns
from tonnage.workloads.failures import Cause

UNAVAILABLE_NS = 180 * NS_PER_S
"""For so long Karpenter does not ask again for an offering of which EC2 had none.

Source: aws/karpenter-provider-aws pkg/cache/cache.go, UnavailableOfferingsTTL.
"""

REMOVE_FIRST = -100
"""The deletion cost of pods that a decision wants removed; others have 0."""


class SimulatedCluster:
    """The simulated world. Implements :class:`tonnage.world.World`."""

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
        self.training: dict[str, Training] = {}
        self.gangs: dict[str, Gang] = {}
        """Those of the workloads that there are now."""
        self.nominations: dict[str, str] = {}
        """Pod that is pending, or leaves as it is moved → node on which the scheduler keeps room for it."""
        self.topologies: dict[str, tuple[str, ...]] = {}
        self.disruption_budgets: tuple[PodDisruptionBudget, ...] = ()
        self.daemon_sets: list[tuple[str, str, core.PodTemplateSpec]] = []
        self.services: list[Service] = []
        self.nodes: dict[str, Node] = {}
        self.pods: dict[tuple[str, str], Pod] = {}
        self.claims: dict[str, Claim] = {}
        self.relayouts: dict[tuple[str, int], relayouts.Change] = {}
        """GPUs that are being cut otherwise, by the node's name and the index."""
        self.out_of_stock: dict[Offering, int] = {}
        """Until when EC2 has none of an offering."""
        self.unavailable: dict[Offering, int] = {}
        """Until when an offering counts as out of stock, because a launch of it was refused."""
        self._woken: set[str] = set()
        self._queries: dict[str, Query] = {}

    # ---- World ----

    def now(self) -> int:
        """Virtual nanoseconds since the start of the run."""
        return self.now_ns

    def snapshot(self) -> Snapshot:
        """The cluster as decisions see it."""
        views = {
            key: WorkloadView(
                "Deployment",
                w.namespace,
                w.name,
                w.replicas,
                tuple(_view(p) for p in w.active),
                tuple(w.cold_starts_ns),
            )
            for key, w in self.workloads.items()
        }
        claims = tuple(claim.view() for _, claim in sorted(self.claims.items()))
        unavailable = frozenset(o for o, until_ns in self.unavailable.items() if until_ns > self.now_ns)
        return Snapshot(
            self.now_ns,
            self.fleet,
            views,
            claims,
            unavailable,
            gangs=self.gangs,
            topologies=self.topologies,
            disruption_budgets=self.disruption_budgets,
            lives={pod.key: life for pod in self.pods.values() if (life := _life(pod)) != _KNOWN},
            nominations=self.nominations,
            relayouts={key: change.goal for key, change in self.relayouts.items()},
        )

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
        match decision:
            case Bind():
                return self._bind(decision)
            case Scale():
                return self._scale(decision)
            case Launch():
                return self._launch(decision)
            case Return():
                return self._return(decision)
            case Evict():
                return self._evict(decision)
            case Relayout():
                return relayouts.begin(self, decision)
            case Wait():
                self._nominate(decision)
                self.events.add(self.now_ns, str(decision.pod), "Warning", "FailedScheduling", decision.reason.verdict)
                return Applied()

    def _nominate(self, decision: Wait) -> None:
        """What a scheduler lets a pod wait for replaces what it waited for before."""
        key = f"{decision.pod.namespace}/{decision.pod.name}"
        if decision.by == "scheduler":
            self.nominations.pop(key, None)
            if decision.nominated:
                self.nominations[key] = decision.nominated

    def _bind(self, decision: Bind) -> Outcome:
        pod = self.pods.get((decision.pod.namespace, decision.pod.name))
        if pod is None or pod.uid != decision.pod.uid or pod.terminating:
            return Stale(f"{decision.pod} is gone")
        node = self.nodes.get(decision.node.name)
        row = self.fleet.node_by_name.get(decision.node.name)
        if node is None or row is None or node.uid != decision.node.uid:
            return Stale(f"node {decision.node.name} is gone")
        tolerations = pod.template.spec.tolerations
        if node.leaving and not selectors.tolerates(tolerations, CORDON):
            return Stale(f"node {decision.node.name} takes no pods any more")
        try:
            self.assign(pod, node, decision.devices)
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
        self.nominations.pop(pod.key, None)
        pod.bound_ns, pod.node = self.now_ns, node.name
        self.fleet.node(row).last_pod_event_ns = self.now_ns
        pod.held = held(self.fleet, pod.row, gpus=bool(node.gpus))
        if pod.held != Resources():
            self.ledger.allocate(node.name, pod.workload.key, pod.held, self.now_ns)
        self.events.add(self.now_ns, f"Pod {pod.key}", "Normal", "Scheduled", f"assigned to {node.name}")
        if controller is not None:
            controller.after(self, pod)
        self.queue.push(self.now_ns, PodBound(pod))

    def _scale(self, decision: Scale) -> Outcome:
        workload = self.workloads.get(f"{decision.target.namespace}/{decision.target.name}")
        if workload is None:
            return Stale(f"{decision.target} is gone")
        if workload.replicas != decision.current:
            return Stale(f"{decision.target} has {workload.replicas} replicas, not {decision.current}")
        for ref in decision.remove:
            if ref.name in workload.pods:
                workload.pods[ref.name].deletion_cost = REMOVE_FIRST
        workload.replicas = decision.replicas
        message = f"from {decision.current} to {decision.replicas}"
        self.events.add(self.now_ns, str(decision.target), "Normal", "ScalingReplicaSet", message)
        pods.reconcile(self, workload)
        return Applied()

    def _launch(self, decision: Launch) -> Outcome:
        name = decision.claim.name
        if name in self.claims or name in self.nodes:
            return Stale(f"NodeClaim {name} exists")
        return self.buy(decision)

    def buy(self, decision: Launch) -> Outcome:
        """Ask the cloud for a node: on its way from now on, or Refused when the cloud has none."""
        name = decision.claim.name
        offering = (decision.instance_type, decision.zone, decision.capacity_type)
        if self.out_of_stock.get(offering, 0) > self.now_ns:
            why = f"no {decision.instance_type} ({decision.capacity_type}) in {decision.zone}"
            self.unavailable[offering] = self.now_ns + UNAVAILABLE_NS
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
        node = self.nodes.get(decision.node.name)
        row = self.fleet.node_by_name.get(decision.node.name)
        if node is None or row is None or node.uid != decision.node.uid:
            return Stale(f"node {decision.node.name} is gone")
        if node.ready_ns is None or self.fleet.workload_pods(row):
            return Stale(f"node {node.name} is not empty and initialised")
        verdict = decision.reason.verdict
        nodes.remove_node(self, node, verdict)
        self.events.add(self.now_ns, f"Node {node.name}", "Normal", "DisruptionTerminating", verdict)
        return Applied()

    def _evict(self, decision: Evict) -> Outcome:
        pod = self.pods.get((decision.pod.namespace, decision.pod.name))
        if pod is None or pod.terminating or decision.pod.uid not in ("", pod.uid):
            return Stale(f"{decision.pod} is gone")
        if decision.to:
            self.nominations[pod.key] = decision.to
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


def _view(pod: Pod) -> PodView:
    return PodView(
        pod.row,
        pod.namespace,
        pod.name,
        pod.node,
        pod.created_ns,
        pod.bound_ns,
        pod.ready_ns,
        pod.deletion_cost,
    )


_KNOWN = PodLife()


def _life(pod: Pod) -> PodLife:
    """What decisions know of a pod's life beside what the fleet says."""
    controller = pod.workload.controller
    return PodLife(
        started_ns=pod.started_ns if controller is not None else None,
        saved_ns=controller.saved_ns(pod) if controller is not None else 0,
        ready=pod.ready_ns is not None or pod.bound_ns is None,
        leaving=pod.terminating,
    )
