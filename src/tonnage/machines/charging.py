"""Pods that share devices by one ResourceClaim are charged for a part each, which changes as others come and go."""

from __future__ import annotations

from collections.abc import Iterable

from tonnage.costs.held import held
from tonnage.costs.ledger import Resources
from tonnage.fleet.claim_needs import ClaimKey
from tonnage.machines.objects import SimulatedPod
from tonnage.machines.site import Site


def divide(cluster: Site, keys: Iterable[ClaimKey], but: SimulatedPod) -> None:
    """The users of these claims are others now: ``but`` has come, and is charged already, or has gone."""
    fleet = cluster.fleet
    rows = {row for key in keys for row in fleet.device_claims.users(key)} - {but.row}
    for row in sorted(rows):
        spec = fleet.pod(row).spec
        pod = cluster.pods.get((spec.namespace, spec.name))
        if pod is None or pod.row != row or not pod.node:
            continue
        now = held(fleet, row, gpus=bool(cluster.nodes[pod.node].gpus))
        if now == pod.held:
            continue
        if pod.held != Resources():
            cluster.records.ledger.release(pod.node, pod.workload.key, pod.held, cluster.now_ns)
        pod.held = now
        cluster.records.ledger.allocate(pod.node, pod.workload.key, now, cluster.now_ns)
