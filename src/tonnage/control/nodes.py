"""Launches nodes for unschedulable pods."""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from tonnage.control.choices import CLUSTER_AUTOSCALER, KARPENTER
from tonnage.control.loops import Loop, Taken
from tonnage.control.running import IGNORED
from tonnage.control.scheduler import WAITS
from tonnage.control.world import World
from tonnage.decisions import SOLD_OUT, Applied, Decision, Launch, Reason, Ref, Refused, Wait
from tonnage.facts.labels import DRA_PLUGIN, GPU, MIG_RELAYOUT
from tonnage.fleet import claimed_gpus
from tonnage.fleet.claim_needs import ClaimKey
from tonnage.fleet.claim_plans import ComingTypes, as_planned, named_claims
from tonnage.fleet.snapshot import Snapshot
from tonnage.fleet.state import Fleet
from tonnage.objects import core, karpenter
from tonnage.partitioning.node_cuts import OWN, Configurations
from tonnage.provisioning import headroom, pods
from tonnage.provisioning.catalogue import Catalogue, OfferingKey
from tonnage.provisioning.claim_nodes import coming_types, free_devices, free_of
from tonnage.provisioning.cluster_autoscaler.options import DEFAULTS, AutoscalingOptions
from tonnage.provisioning.devices import FreeDevices, beyond_counting
from tonnage.provisioning.nodeclass import NodeStorage
from tonnage.provisioning.on_its_way import on_its_way
from tonnage.provisioning.plans import Plan, PlanSettings
from tonnage.provisioning.reserving import left
from tonnage.scheduling.filters import SchedulerFilters
from tonnage.units import NS_PER_S

PROVISIONER = "provisioner"
BATCH_NS = NS_PER_S
"""Karpenter waits this long for more pending pods before it plans (batchIdleDuration)."""
RETRY_NS = 10 * NS_PER_S
"""Pending pods are planned for again after this long."""
DISRUPTION_NS = 10 * NS_PER_S
"""Karpenter's disruption loop."""

_NUMBERED = re.compile(r"\d{5,9}")


@dataclass(frozen=True, slots=True)
class Pools:
    """The NodePools, the storage of their EC2NodeClasses by name, the pods of DaemonSets, the configurations that
    labels of nodes may name, as their GPUs are partitioned, the options of the policy ``cluster-autoscaler``, and
    CapacityBuffers, whose room is launched by the other policies."""

    node_pools: tuple[karpenter.NodePool, ...] = ()
    storage: Mapping[str, NodeStorage] = field(default_factory=dict)
    daemon_sets: tuple[core.PodSpec, ...] = ()
    configurations: Configurations = OWN
    autoscaler: AutoscalingOptions = DEFAULTS
    buffers: tuple[headroom.Buffer, ...] = ()

    @property
    def by_name(self) -> dict[str, karpenter.NodePool]:
        """The NodePools by name."""
        return {pool.name: pool for pool in self.node_pools}

    def plan_settings(self, unavailable: frozenset[OfferingKey] = frozenset(), first_claim: int = 1) -> PlanSettings:
        """How to plan with them."""
        return PlanSettings(
            unavailable=unavailable,
            daemon_sets=tuple(pods.PodShape.of(spec) for spec in self.daemon_sets),
            node_classes=self.storage,
            first_claim=first_claim,
            configurations=self.configurations,
        )


@dataclass(slots=True)
class Provisioner:
    """Plans nodes for unschedulable pods, over the nodes that are there and on their way, and passes over those
    that a GPU whose MIG layout is being changed will take.

    What it has launched is read from the world's NodeClaims: nothing is lost when it restarts. ``buffered``: nodes on
    which the last plan has put pods of CapacityBuffers. ``launched`` only keeps names from being used twice.
    ``policy``: one of :data:`~tonnage.control.choices.PROVISIONING`. ``epoch_ns`` is added to the world's times to make
    them Unix times: capacity blocks end at one.
    """

    catalogue: Catalogue
    pools: Callable[[], Pools]
    nominated: frozenset[str] = frozenset()
    buffered: frozenset[str] = frozenset()
    launched: int = 0
    _filters: SchedulerFilters | None = None
    _seen: frozenset[str] = frozenset()
    policy: str = KARPENTER
    epoch_ns: int = 0

    def decide(self, world: World) -> Sequence[Decision]:
        """A Launch for each node to launch, and a Wait for each pod that no node could ever take."""
        from tonnage.partitioning import adapt  # whoever states NodePools does not plan yet

        snapshot = world.snapshot()
        fleet = snapshot.fleet
        self._filters = SchedulerFilters.of(fleet, self._filters)
        seated = adapt.seated(snapshot, self._filters)
        self.nominated = frozenset(seated.values())
        serves = self.policy != KARPENTER
        pools = self.pools()
        coming = coming_of(fleet, pools, self.catalogue) if serves else None
        waiting = pending_pods(fleet, seated, claims=serves, coming=coming)
        planned = {one.ref for one in waiting}
        unplanned = [
            wait
            for wait in not_planned(fleet, planned, NO_TEMPLATE if serves else IGNORED)
            if fleet.pod_by_key[wait.pod.namespace, wait.pod.name] not in seated
        ]
        virtual = self.virtual_pods(snapshot, pools)
        self.buffered = frozenset()
        if not waiting and not virtual:
            return unplanned
        settings = pools.plan_settings(
            frozenset(OfferingKey(*offering) for offering in snapshot.unavailable),
            self.next_number(snapshot),
        )
        there = (fleet.node(row) for row in fleet.node_rows())
        self._seen |= {node.spec.node_pool for node in there if node.initialized}
        waiting += virtual
        parts = any(beyond_counting(pod.shape.ask) for pod in waiting)
        in_flight = [on_its_way(claim.launch, pools.configurations, parts=parts) for claim in snapshot.claims]
        nodes = [*existing_nodes(fleet, self.catalogue, parts=parts), *in_flight]
        settings = msgspec.structs.replace(
            settings,
            bound=bound_pods(fleet),
            namespaces=namespaces(fleet),
            seen_groups=self._seen,
            reservations=left(
                self.catalogue.book.reservations, (one.labels for one in nodes), self.epoch_ns + snapshot.now_ns
            ),
        )
        plan = self._plan(snapshot, waiting, nodes, pools, settings)
        room = {pod.ref for pod in virtual}
        self.nominated |= {n.node.name for n in plan.nominations if n.pod not in room}
        self.buffered = frozenset(n.node.name for n in plan.nominations if n.pod in room)
        return (*plan.launches, *(wait for wait in plan.waits if wait.pod not in room), *unplanned)

    def virtual_pods(self, snapshot: Snapshot, pools: Pools) -> list[pods.PendingPod]:
        """The pods of CapacityBuffers, for which room is kept by all policies but the Cluster Autoscaler's."""
        if self.policy == CLUSTER_AUTOSCALER or not pools.buffers:
            return []
        replicas = {key: workload.replicas for key, workload in snapshot.workloads.items()}
        return headroom.virtual_pods(pools.buffers, replicas, snapshot.now_ns)

    def _plan(
        self,
        snapshot: Snapshot,
        waiting: Sequence[pods.PendingPod],
        nodes: Sequence[pods.ExistingNode],
        pools: Pools,
        settings: PlanSettings,
    ) -> Plan:
        node_pools = pools.node_pools
        if self.policy == KARPENTER:
            from tonnage.provisioning import karpenter as planner

            return planner.plan(waiting, nodes, node_pools, self.catalogue, settings)
        if self.policy == CLUSTER_AUTOSCALER:
            from tonnage.provisioning.cluster_autoscaler import scale_up

            return scale_up.plan(waiting, nodes, node_pools, self.catalogue, settings, pools.autoscaler, loops=1)
        from tonnage.provisioning.optimal import plan as optimal  # its solver takes a while to load

        gangs = waiting_gangs(snapshot, {pod.ref for pod in waiting})
        minima = gang_minima(snapshot, gangs)
        found = optimal.plan(waiting, nodes, node_pools, self.catalogue, settings, gangs=gangs, minima=minima)
        return found.plan

    def next_number(self, snapshot: Snapshot) -> int:
        """The number of the next NodeClaim."""
        return max(self.launched, snapshot.last_claim, _last_number(snapshot)) + 1

    def learn(self, taken: Taken) -> None:
        """A number is used up once its node was asked for. Where nobody knows whether it was, it is not: the same name
        comes again, and launches nothing if it was there already."""
        for decision, outcome in taken:
            asked = isinstance(outcome, Applied) or (isinstance(outcome, Refused) and outcome.code == SOLD_OUT)
            if isinstance(decision, Launch) and asked:
                self.launched = max(self.launched, number_in(decision.claim.name, decision.node_pool))

    def loop(self) -> Loop:
        """Every ten seconds, and a second after the scheduler has let a pod wait or an offering has run out."""
        wakes_on = frozenset({WAITS, "offering"})
        return Loop(PROVISIONER, self.decide, RETRY_NS, wakes_on, BATCH_NS, self.learn)


NO_TEMPLATE = "ResourceClaims for devices that no node has which could be launched, or that have devices already"
SHARED = "a pending pod that names the same ResourceClaim goes before it, and it goes where that goes"


def coming_of(fleet: Fleet, pools: Pools, catalogue: Catalogue) -> ComingTypes | None:
    """Of which nodes with a DRA driver the NodePools could be asked; None where there are no claims."""
    return coming_types(pools.node_pools, catalogue) if fleet.device_claims.claims else None


def pending_pods(
    fleet: Fleet, seated: Container[int] = (), *, claims: bool = True, coming: ComingTypes | None = None
) -> list[pods.PendingPod]:
    """The pods for which nodes are planned, those of one class with one shape; of those that name one claim the first
    alone, as the others go where that goes. ``seated``: rows of pods that have a place in view; ``claims``: whether
    nodes are planned for ResourceClaims; ``coming``: of which nodes could be asked."""
    waiting, shapes = [], dict[int, pods.PodShape | None]()
    named = set[ClaimKey]()
    for row in fleet.pending:
        pod = fleet.pod(row)
        s = pod.spec
        if s.spec.scheduling_gates or s.daemon or row in seated or s.volumes.waits:
            continue
        if s.spec.resource_claims and (not claims or s.claims.waits):
            continue
        if pod.class_id not in shapes:
            spec = as_planned(s, fleet.device_claims, coming)
            shapes[pod.class_id] = pods.PodShape.of(spec, s.annotations) if spec is not None else None
        shape, shared = shapes[pod.class_id], named_claims(s, fleet.device_claims)
        if shape is not None and named.isdisjoint(shared):
            named.update(shared)
            own = fleet.classes.rows[pod.class_id].labels
            waiting.append(pods.PendingPod(s.ref, shape, s.created_ns, own))
    return waiting


def not_planned(fleet: Fleet, planned: Container[Ref], why: str) -> list[Wait]:
    """The pods with ResourceClaims that wait and for which no node is planned."""
    claiming = [one for one in (fleet.pod(row).spec for row in fleet.pending) if one.spec.resource_claims]
    known = fleet.device_claims
    first = {key for one in claiming if one.ref in planned for key in named_claims(one, known)}
    return [
        Wait(one.ref, Reason(why if first.isdisjoint(named_claims(one, known)) else SHARED), by="provisioner")
        for one in claiming
        if not (one.spec.scheduling_gates or one.claims.waits) and one.ref not in planned
    ]


def without_claims(
    waiting: Iterable[pods.PendingPod],
    nodes: Iterable[pods.ExistingNode],
    node_pools: Iterable[karpenter.NodePool],
    catalogue: Catalogue,
    settings: PlanSettings,
) -> Plan:
    """Karpenter's plan for pending pods: those with ResourceClaims it ignores."""
    from tonnage.provisioning import karpenter as planner

    listed = list(waiting)
    found = planner.plan([pod for pod in listed if not pod.shape.claims], nodes, node_pools, catalogue, settings)
    ignored = (Wait(pod.ref, Reason(IGNORED), "provisioner") for pod in listed if pod.shape.claims)
    return msgspec.structs.replace(found, waits=tuple(sorted((*found.waits, *ignored), key=lambda one: one.pod)))


def waiting_gangs(snapshot: Snapshot, waiting: Container[Ref]) -> dict[str, tuple[Ref, ...]]:
    """Gangs of which fewer pods are bound than they need, with their pods that wait for nodes."""
    fleet = snapshot.fleet
    found = {}
    for key, gang in snapshot.gangs.items():
        members = [fleet.pod(row) for row in fleet.gang_pods.get(key, ())]
        refs = tuple(sorted(pod.spec.ref for pod in members if pod.spec.ref in waiting))
        if refs and sum(pod.node >= 0 for pod in members) < gang.min_member:
            found[key] = refs
    return found


def gang_minima(snapshot: Snapshot, gangs: Mapping[str, Sequence[Ref]]) -> dict[str, int]:
    """Of how many of its waiting pods a gang needs a place, where it does without some; gangs with subgroups need all
    of theirs."""
    found = {}
    for key, refs in gangs.items():
        members = snapshot.fleet.gang_pods.get(key, ())
        there = sum(snapshot.fleet.pod(row).node >= 0 for row in members)
        if not snapshot.gangs[key].subgroups:
            found[key] = min(len(refs), snapshot.gangs[key].min_member - there)
    return found


def existing_nodes(fleet: Fleet, catalogue: Catalogue, *, parts: bool = False) -> list[pods.ExistingNode]:
    """The nodes that are there and take pods, with what is free of them. ``parts``: some pods ask for parts of
    devices."""
    found = []
    for row in fleet.node_rows():
        node = fleet.node(row)
        if not node.initialized or not fleet.schedulable[row]:
            continue
        counted = (fleet.free[row] - fleet.uncounted[row]).tolist()
        free = dict(zip(fleet.resources, counted, strict=False))
        devices = FreeDevices.of_node(fleet, row) if parts or fleet.cards.special[row] else None
        labels = node.labels
        if GPU in fleet.served(row) and (gpus := claimed_gpus.free(fleet, row)) is not None:
            free[GPU] = gpus
        if fleet.device_claims.slices and (claimed := free_devices(fleet, row, parts=parts)) is not None:
            devices, of_parts = claimed, free_of(claimed)
            if len(of_parts) > 1:
                labels = {**labels, DRA_PLUGIN: "true", MIG_RELAYOUT: "true"}
            free = {**of_parts, **free}
        found.append(
            pods.ExistingNode(
                ref=Ref("Node", node.spec.name, uid=node.spec.uid),
                labels=labels,
                free=free,
                taints=node.taints,
                node_pool=node.spec.node_pool,
                capacity=catalogue.capacity_of(node.spec.instance_type) if node.spec.node_pool else {},
                deleted=node.leaving,
                devices=devices,
            )
        )
    return found


def bound_pods(fleet: Fleet) -> tuple[pods.BoundPod, ...]:
    """The pods on nodes, as far as rules about other pods see them; those that are leaving are left out."""
    found = []
    for class_id, on_nodes in sorted(fleet.bound.items()):
        one = fleet.classes.rows[class_id]
        affinity = one.spec.affinity
        leaving = fleet.leaving.get(class_id, {})
        for row, count in sorted(on_nodes.items()):
            if staying := count - leaving.get(row, 0):
                away = affinity.pod_anti_affinity if affinity else None
                name, tolerations = fleet.node(row).spec.name, tuple(one.spec.tolerations)
                found.append(pods.BoundPod(one.namespace, name, one.labels, away, staying, tolerations))
    return tuple(found)


def namespaces(fleet: Fleet) -> dict[str, dict[str, str]]:
    """Labels of the namespaces that have pods, by name."""
    return {name: fleet.namespaces.labels(name) for name in sorted({one.namespace for one in fleet.classes.rows})}


def _last_number(snapshot: Snapshot) -> int:
    """The highest number in the name of a NodeClaim or a launched node."""
    fleet = snapshot.fleet
    bought = ((n.spec.name, n.spec.node_pool) for n in map(fleet.node, fleet.node_rows()) if n.spec.node_pool)
    claims = ((claim.name, claim.launch.node_pool) for claim in snapshot.claims)
    return max((number_in(name, pool) for name, pool in (*bought, *claims)), default=0)


def number_in(name: str, pool: str) -> int:
    """The number of a NodeClaim that a plan named for this NodePool; 0 for any other name."""
    head, _, number = name.rpartition("-")
    return int(number) if head == pool and _NUMBERED.fullmatch(number) else 0
