"""The controllers of the simulated cluster, as a list of loops.

Each adapts a room's ``decide`` to the loop's signature and carries its memory from tick to tick.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from tonnage.decisions import Decision, Ref, Scale, Wait
from tonnage.fleet.snapshot import Snapshot
from tonnage.loops import Loop
from tonnage.objects import core, karpenter
from tonnage.provisioning import disruption, pods
from tonnage.provisioning import karpenter as planner
from tonnage.provisioning.catalogue import Catalogue, OfferingKey
from tonnage.provisioning.nodeclass import NodeStorage
from tonnage.provisioning.plans import PlannedClaim, PlanSettings
from tonnage.scaling import hpa, keda, slo
from tonnage.scaling.replicas import Reading
from tonnage.scheduling import place
from tonnage.simulation.cluster import SimulatedCluster
from tonnage.units import NS_PER_S

BATCH_NS = NS_PER_S
"""Karpenter waits this long for more pending pods before it plans (batchIdleDuration)."""
RETRY_NS = 10 * NS_PER_S
"""Pods that wait are planned for again after this long."""
DISRUPTION_NS = 10 * NS_PER_S
"""Karpenter's disruption loop."""


@dataclass(slots=True)
class Scheduler:
    """Places pending pods whenever a pod or a node changed."""

    cluster: SimulatedCluster
    cache: place.Cache

    def decide(self, snapshot: Snapshot) -> Sequence[Decision]:
        if not snapshot.fleet.pending:
            return ()
        decisions = place.decide(snapshot, cache=self.cache)
        if any(isinstance(decision, Wait) for decision in decisions):
            self.cluster.wake("unschedulable")
        return decisions

    def loop(self) -> Loop:
        return Loop("scheduler", self.decide, wakes_on=frozenset({"pod", "node"}))


@dataclass(slots=True)
class Provisioner:
    """Plans nodes for pods that no node takes, over the nodes that are there and on their way."""

    pools: Sequence[karpenter.NodePool]
    catalogue: Catalogue
    storage: Mapping[str, NodeStorage]
    daemon_sets: Sequence[core.PodSpec]
    claims: dict[str, PlannedClaim] = field(default_factory=dict)
    nominated: frozenset[str] = frozenset()
    launched: int = 0

    def decide(self, snapshot: Snapshot) -> Sequence[Decision]:
        fleet = snapshot.fleet
        waiting = [
            pods.PendingPod(Ref("Pod", s.name, s.namespace, s.uid), pods.PodShape.of(s.spec), s.created_ns)
            for s in (fleet.pod(row).spec for row in fleet.pending)
            if not s.spec.scheduling_gates
        ]
        if not waiting:
            self.nominated = frozenset()
            return ()
        settings = PlanSettings(
            unavailable=frozenset(OfferingKey(*offering) for offering in snapshot.unavailable),
            daemon_sets=tuple(pods.PodShape.of(spec) for spec in self.daemon_sets),
            node_classes=self.storage,
            first_claim=self.launched + 1,
        )
        in_flight = [self.claims[view.name].in_flight(with_pods=False) for view in snapshot.claims]
        nodes = [*self._existing(snapshot), *in_flight]
        plan = planner.plan(waiting, nodes, self.pools, self.catalogue, settings)
        self.nominated = frozenset(n.node.name for n in plan.nominations)
        self.launched += len(plan.launches)
        self.claims |= {claim.ref.name: claim for claim in plan.claims}
        return (*plan.launches, *plan.waits)

    def _existing(self, snapshot: Snapshot) -> list[pods.ExistingNode]:
        fleet = snapshot.fleet
        found = []
        for row in fleet.node_rows():
            node = fleet.node(row)
            if not node.initialized or not fleet.schedulable[row]:
                continue
            free = {name: int(fleet.free[row, c]) for c, name in enumerate(fleet.resources)}
            found.append(
                pods.ExistingNode(
                    ref=Ref("Node", node.spec.name, uid=node.spec.uid),
                    labels=node.labels,
                    free=free,
                    taints=node.taints,
                    node_pool=node.spec.node_pool,
                    capacity=self._capacity(node.spec.instance_type) if node.spec.node_pool else {},
                )
            )
        return found

    def _capacity(self, instance_type: str) -> dict[str, int]:
        return self.catalogue.as_map(self.catalogue.capacity[self.catalogue.index(instance_type)])

    def loop(self) -> Loop:
        return Loop("provisioner", self.decide, RETRY_NS, frozenset({"unschedulable"}), BATCH_NS)


@dataclass(slots=True)
class Disruption:
    """Gives empty nodes back. ``epoch_ns``: the Unix time at which the run starts, for budgets with a schedule."""

    cluster: SimulatedCluster
    pools: Sequence[karpenter.NodePool]
    provisioner: Provisioner
    epoch_ns: int

    def decide(self, snapshot: Snapshot) -> Sequence[Decision]:
        fleet = snapshot.fleet
        states = []
        for row in fleet.node_rows():
            node = fleet.node(row)
            if not node.spec.node_pool:
                continue
            states.append(
                disruption.NodeState(
                    node=Ref("Node", node.spec.name, uid=node.spec.uid),
                    node_pool=node.spec.node_pool,
                    price_micro_usd_per_hour=node.spec.price_micro_usd_per_hour,
                    initialized_ns=self.epoch_ns + node.spec.created_ns if node.initialized else None,
                    pods=len(node.pods - self.cluster.daemon_pods),
                    last_pod_event_ns=self.epoch_ns + node.last_pod_event_ns,
                    ready=bool(fleet.schedulable[row]),
                    nominated=node.spec.name in self.provisioner.nominated,
                )
            )
        return disruption.empty_nodes(states, self.pools, self.epoch_ns + snapshot.now_ns).returns

    def loop(self) -> Loop:
        return Loop("disruption", self.decide, DISRUPTION_NS)


@dataclass(slots=True)
class Autoscalers:
    """The HPA controller and KEDA: every HPA there is, those that KEDA made among them."""

    cluster: SimulatedCluster
    plain: Sequence[hpa.HpaSpec]
    scaled: Sequence[keda.KedaSpec]
    ambiguous: Mapping[str, tuple[str, ...]]
    states: dict[str, hpa.HpaState] = field(default_factory=dict)
    keda_states: dict[str, keda.KedaState] = field(default_factory=dict)

    def sync(self, snapshot: Snapshot) -> Sequence[Decision]:
        """One pass of the HPA controller."""
        decisions: list[Decision] = []
        for spec in self.plain:
            readings = [Reading(error=f"unable to get {metric}: no metrics API serves it") for metric in spec.metrics]
            decisions += self._recommend(snapshot, spec, readings)
        for scaled in self.scaled:
            generated = keda.generated_hpa(scaled)
            workload = snapshot.workloads.get(_key(scaled.target))
            if generated is None or workload is None:
                continue
            name = _key(scaled.scaled_object)
            values = self._values(scaled, snapshot.now_ns)
            served, self.keda_states[name] = keda.serve(
                scaled,
                self.keda_states.get(name, keda.KedaState()),
                values,
                current_replicas=workload.replicas,
                ready_replicas=workload.ready,
            )
            decisions += self._recommend(snapshot, generated, served)
        return decisions

    def _recommend(self, snapshot: Snapshot, spec: hpa.HpaSpec, readings: Sequence[Reading]) -> list[Scale]:
        workload = snapshot.workloads.get(_key(spec.target))
        if workload is None:
            return []
        name = _key(spec.hpa)
        decision, state = hpa.recommend(
            spec,
            self.states.get(name, hpa.HpaState()),
            readings,
            current_replicas=workload.replicas,
            ready_replicas=workload.ready,
            status_replicas=len(workload.pods),
            now_ns=snapshot.now_ns,
            ambiguous_with=self.ambiguous.get(name, ()),
        )
        self.states[name] = state
        inactive = state.condition("ScalingActive")
        if inactive is not None and not inactive.status:
            self.cluster.events.add(snapshot.now_ns, str(spec.hpa), "Warning", inactive.reason, inactive.message)
        return [decision] if decision is not None else []

    def poll(self, spec: keda.KedaSpec, snapshot: Snapshot) -> Sequence[Decision]:
        """One turn of KEDA's own loop for one ScaledObject."""
        workload = snapshot.workloads.get(_key(spec.target))
        if workload is None:
            return ()
        name = _key(spec.scaled_object)
        values = self._values(spec, snapshot.now_ns)
        decision, self.keda_states[name] = keda.poll(
            spec,
            self.keda_states.get(name, keda.KedaState()),
            values,
            replicas=workload.replicas,
            now_ns=snapshot.now_ns,
        )
        return () if decision is None else (decision,)

    def _values(self, spec: keda.KedaSpec, now_ns: int) -> list[keda.TriggerValue]:
        return [keda.measure(trigger, self.cluster.store, now_ns) for trigger in spec.triggers]

    def loops(self) -> list[Loop]:
        loops = [Loop("hpa", self.sync, hpa.SYNC_PERIOD_NS)] if self.plain or self.scaled else []
        for spec in self.scaled:
            loops.append(Loop(f"keda/{spec.scaled_object.name}", partial(self.poll, spec), spec.polling_interval_ns))
        return loops


@dataclass(slots=True)
class SloPlanner:
    """The `slo` policy over all its workloads. ``queries``: (requests received, requests in flight) of each."""

    cluster: SimulatedCluster
    targets: Sequence[slo.Target]
    queries: Mapping[str, tuple[str, str]]
    memory: dict[str, slo.Memory] = field(default_factory=dict)

    def decide(self, snapshot: Snapshot) -> Sequence[Decision]:
        readings = {}
        for target in self.targets:
            received, in_flight = self.queries[target.workload]
            readings[target.workload] = slo.Reading(
                self.cluster.measure(received, snapshot.now_ns).value(),
                self.cluster.measure(in_flight, snapshot.now_ns).value(),
                tuple(self.cluster.workloads[target.workload].cold_starts_ns),
            )
        decisions, self.memory = slo.decide(snapshot, self.targets, readings, self.memory)
        return decisions

    def loop(self) -> Loop:
        return Loop("slo", self.decide, hpa.SYNC_PERIOD_NS)


def _key(ref: Ref) -> str:
    return f"{ref.namespace}/{ref.name}"
