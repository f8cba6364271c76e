"""Binding: a pod is given its node, devices and volumes, and the bill begins."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tonnage.costs.held import held
from tonnage.costs.ledger import Resources
from tonnage.fleet.claim_needs import ClaimKey
from tonnage.machines import claiming
from tonnage.machines.charging import divide
from tonnage.machines.objects import SimulatedNode, SimulatedPod
from tonnage.machines.site import Site
from tonnage.objects.dra import AllocationResult


def assign(
    cluster: Site,
    pod: SimulatedPod,
    node: SimulatedNode,
    devices: Sequence[int] | None = None,
    allocations: Mapping[ClaimKey, AllocationResult] | None = None,
) -> None:
    """The pod is bound to the node, whose kubelet takes it up; its ResourceClaims are allocated, as given where they
    are, and reserved for it. Raises Conflict when it does not fit there."""
    row = cluster.fleet.node_by_name[node.name]
    controller = pod.workload.controller
    if controller is not None:
        controller.before(cluster, pod)
    cluster.fleet.bind(pod.row, row, devices, allocations=allocations)
    cluster.fleet.device_claims.reserve(pod.row, pod.name, pod.uid)
    cluster.state.settled(pod.key)
    pod.bound_ns, pod.node = cluster.now_ns, node.name
    cluster.fleet.note(row, last_pod_event_ns=cluster.now_ns)
    divide(cluster, cluster.fleet.device_claims.used_by(pod.row), pod)
    pod.held = held(cluster.fleet, pod.row, gpus=bool(node.gpus))
    if pod.held != Resources():
        cluster.records.ledger.allocate(node.name, pod.workload.key, pod.held, cluster.now_ns)
    if pod.template.spec.volumes:
        claiming.bind(cluster, pod, cluster.fleet.node(row).labels)
    cluster.events.add(cluster.now_ns, f"Pod {pod.key}", "Normal", "Scheduled", f"assigned to {node.name}")
    if controller is not None:
        controller.after(cluster, pod)
    cluster.taken_up(pod)
