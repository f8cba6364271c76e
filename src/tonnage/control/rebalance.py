"""Moves pods off spot nodes that have a rebalance recommendation, before they are interrupted: the room first, then the
pods, one of a workload at a time.

Karpenter writes an event and does nothing more (aws/karpenter-provider-aws, interruption controller). That the
recommendation is known here takes the AWS Node Termination Handler, which taints the node
(``enableRebalanceMonitoring``, ``taintNode``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from tonnage.control.choices import KARPENTER
from tonnage.control.loops import Loop
from tonnage.control.nodes import (
    Provisioner,
    bound_pods,
    existing_nodes,
    namespaces,
    pending_pods,
)
from tonnage.control.world import World
from tonnage.decisions import Decision, Evict, Reason, Ref
from tonnage.fleet.snapshot import Snapshot
from tonnage.fleet.volumes import folded
from tonnage.provisioning import karpenter, pods
from tonnage.provisioning.catalogue import OfferingKey
from tonnage.provisioning.labels import REBALANCE_TAINT, SPOT
from tonnage.provisioning.on_its_way import on_its_way
from tonnage.provisioning.plans import Plan
from tonnage.units import NS_PER_S

REBALANCE_NS = 10 * NS_PER_S
_WHY = Reason("its spot node has a rebalance recommendation, and another node has room")


@dataclass(slots=True)
class Rebalance:
    """Launches nodes for the pods of nodes that EC2 is likely to take back, and evicts them once there is room.
    ``provisioner``: whose NodePools and numbers of NodeClaims these are."""

    provisioner: Provisioner

    def decide(self, world: World) -> Sequence[Decision]:
        """A Launch for each node that these pods need beside what is there and on its way, and an Evict for each pod
        that a node has room for now, as long as all other pods of its workload are ready."""
        snapshot = world.snapshot()
        at_risk = _at_risk(snapshot)
        if not at_risk:
            return ()
        movable = _movable(snapshot, at_risk)
        plan = self._plan(snapshot, at_risk, movable)
        wanted = {pod.ref for pod in movable}
        decisions: list[Decision] = list(plan.launches)
        ready = {one.spec.name for one in map(snapshot.fleet.node, snapshot.fleet.node_rows()) if one.initialized}
        moving: set[str] = set()
        for one in plan.nominations:
            if one.pod not in wanted or one.node.kind != "Node" or one.node.name not in ready:
                continue
            workload = _workload(snapshot, one.pod)
            if workload and workload not in moving and _whole(snapshot, workload):
                moving.add(workload)
                decisions.append(Evict(one.pod, _WHY))
        return decisions

    def _plan(self, snapshot: Snapshot, at_risk: frozenset[str], movable: Sequence[pods.PendingPod]) -> Plan:
        fleet, pools = snapshot.fleet, self.provisioner.pools()
        there = (fleet.node(fleet.node_by_name[name]).spec for name in at_risk)
        kinds = {(one.instance_type, one.zone) for one in there}
        unavailable = {OfferingKey(*offering) for offering in snapshot.unavailable}
        unavailable |= {OfferingKey(name, zone, SPOT) for name, zone in kinds}  # what is there may be next
        settings = pools.plan_settings(frozenset(unavailable), self.provisioner.next_number(snapshot))
        settings = msgspec.structs.replace(settings, bound=bound_pods(fleet), namespaces=namespaces(fleet))
        standing = existing_nodes(fleet, self.provisioner.catalogue)
        nodes = [node for node in standing if node.ref.name not in at_risk]
        nodes += [on_its_way(claim.launch, pools.configurations) for claim in snapshot.claims]
        waiting = [*pending_pods(fleet, claims=self.provisioner.policy != KARPENTER), *movable]
        return karpenter.plan(waiting, nodes, pools.node_pools, self.provisioner.catalogue, settings)

    def loop(self) -> Loop:
        """Every ten seconds, and when a node changes."""
        learn = self.provisioner.learn
        return Loop("rebalance", self.decide, REBALANCE_NS, frozenset({"node"}), learn=learn)


def _at_risk(snapshot: Snapshot) -> frozenset[str]:
    """Names of the spot nodes with a recommendation that are not being drained."""
    fleet = snapshot.fleet
    nodes = (fleet.node(row) for row in fleet.node_rows())
    return frozenset(
        node.spec.name
        for node in nodes
        if not node.leaving and node.spec.capacity_type == SPOT and any(t.key == REBALANCE_TAINT for t in node.taints)
    )


def _movable(snapshot: Snapshot, at_risk: frozenset[str]) -> list[pods.PendingPod]:
    """The pods on these nodes that another may replace: those of a workload that serves, not in a gang, which goes on
    from its checkpoint when it has to."""
    fleet, found = snapshot.fleet, []
    for name in sorted(at_risk):
        for row in sorted(fleet.node(fleet.node_by_name[name]).pods):
            spec = fleet.pod(row).spec
            if spec.daemon or spec.gang or spec.spec.resource_claims or not _workload(snapshot, spec.ref):
                continue
            shape = pods.PodShape.of(folded(spec.spec, spec.volumes), spec.annotations)
            labels = fleet.classes.rows[fleet.pod(row).class_id].labels
            found.append(pods.PendingPod(spec.ref, shape, spec.created_ns, labels))
    return found


def _workload(snapshot: Snapshot, pod: Ref) -> str:
    """The workload of which this is a pod that is not being deleted; empty where there is none."""
    for key, workload in snapshot.workloads.items():
        if workload.namespace == pod.namespace and any(one.name == pod.name for one in workload.pods):
            return key
    return ""


def _whole(snapshot: Snapshot, workload: str) -> bool:
    """Whether all of a workload's replicas are there and ready."""
    view = snapshot.workloads[workload]
    return len(view.pods) >= view.replicas and all(pod.ready_ns is not None for pod in view.pods)
