"""World 1: lets decisions take effect on simulated machines, after checking them again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tonnage import gate
from tonnage.decisions import (
    PROTECTED,
    REMOVE_FIRST,
    SOLD_OUT,
    Applied,
    Bind,
    Decision,
    Disrupt,
    Evict,
    Keep,
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
from tonnage.fleet.claim_needs import ClaimKey
from tonnage.fleet.cluster_state import offering_of
from tonnage.fleet.snapshot import Snapshot
from tonnage.fleet.state import Conflict
from tonnage.machines import binding, nodes, pods
from tonnage.machines.blocked import unplaceable
from tonnage.machines.life import NodeRunning, PodBound
from tonnage.machines.objects import SimulatedNode, SimulatedNodeClaim, SimulatedPod
from tonnage.machines.physics import Physics
from tonnage.machines.site import Site
from tonnage.machines.state import SimulatedState
from tonnage.machines.training.workload import Training
from tonnage.metrics.promql import Query, Result, evaluate, parse
from tonnage.objects.dra import AllocationResult
from tonnage.rng import Streams
from tonnage.scheduling.budgets import Budgets
from tonnage.workloads.failures import Cause


class SimulatedCluster(Site):
    """The simulated world. Implements :class:`tonnage.control.world.World`."""

    def __init__(self, physics: Physics, streams: Streams) -> None:
        super().__init__(physics, streams)
        self.training: dict[str, Training] = {}
        self.state = SimulatedState(self)
        self._queries: dict[str, Query] = {}
        self.epoch_ns = 0
        """The Unix time at which the run starts, for queries that ask for the time of day."""

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
        return evaluate(parsed, self.records.store, at_ns, epoch_ns=self.epoch_ns)

    def apply_all(self, decisions: Sequence[Decision]) -> list[Outcome]:
        """One after the other."""
        return [self.apply(decision) for decision in decisions]

    def note(self, about: Ref, reason: str, message: str, *, warning: bool = True) -> None:
        """One of the cluster events."""
        self.events.add(self.now_ns, str(about), "Warning" if warning else "Normal", reason, message)

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
            case Disrupt():
                nodes.taint_node(self, self.nodes[decision.node.name], decision.reason.verdict)
                return Applied()
            case Keep():
                nodes.untaint_node(self, self.nodes[decision.node.name], decision.reason.verdict)
                return Applied()
            case Return():
                return self._return(decision)
            case Evict():
                return self._evict(decision)
            case Relayout():
                from tonnage.machines import relayouts  # for fleets with MIG alone

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
            given = {(one.claim.namespace, one.claim.name): one.allocation for one in decision.claims}
            self.assign(pod, self.nodes[decision.node.name], decision.devices, given)
        except Conflict as conflict:
            return Stale(str(conflict))
        return Applied()

    def assign(
        self,
        pod: SimulatedPod,
        node: SimulatedNode,
        devices: Sequence[int] | None = None,
        allocations: Mapping[ClaimKey, AllocationResult] | None = None,
    ) -> None:
        """See :func:`tonnage.machines.binding.assign`."""
        binding.assign(self, pod, node, devices, allocations)

    def taken_up(self, pod: SimulatedPod) -> None:
        """The kubelet pulls its image next."""
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
        if self.cloud.out_of_stock.get(offering, 0) > self.now_ns:
            why = f"no {decision.instance_type} ({decision.capacity_type}) in {decision.zone}"
            self.state.refused(offering, self.now_ns)
            self.events.add(self.now_ns, f"NodeClaim {name}", "Warning", SOLD_OUT, why)
            self.wake("offering")
            return Refused(f"{SOLD_OUT}: {why}", SOLD_OUT)
        claim = SimulatedNodeClaim(decision, self.now_ns)
        self.cloud.claims[name] = claim
        self.events.add(self.now_ns, f"NodeClaim {name}", "Normal", "Launched", decision.summary())
        self.queue.push(self.now_ns + self.vary("launch", self.physics.durations.launch_s), NodeRunning(claim))
        self.wake("node")
        return Applied()

    def _return(self, decision: Return) -> Outcome:
        node = self.nodes[decision.node.name]
        verdict = decision.reason.verdict
        if decision.drained:
            nodes.lose_pods(self, node)
        nodes.remove_node(self, node, verdict)
        self.events.add(self.now_ns, f"Node {node.name}", "Normal", "DisruptionTerminating", verdict)
        return Applied()

    def _evict(self, decision: Evict) -> Outcome:
        pod = self.pods[decision.pod.namespace, decision.pod.name]
        if self.declared.disruption_budgets and not decision.forced:
            budgets = Budgets(self.snapshot())
            budgets.count()
            if forbids := budgets.forbids(pod.row):
                return Refused(f"{decision.pod}: {forbids}", PROTECTED)
        self.state.leaves(decision)
        pods.stop_pod(self, pod)
        pods.replace(self, pod, Cause.EVICTION)
        return Applied()

    def account_busy(self) -> None:
        """Tell the ledger how long each pod's devices were busy; engines must be settled."""
        for pod in self.pods.values():
            pods.account(self, pod)
        for training in self.training.values():
            training.settle(self.now_ns)
