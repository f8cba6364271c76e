"""Which nodes `tonnage plan --consolidate` may give back, by Karpenter's own rules, and what keeps the others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import msgspec

from tonnage.control.running import movable_pods, running_nodes
from tonnage.decisions import Ref
from tonnage.facts import instances
from tonnage.fleet.snapshot import Snapshot
from tonnage.objects import karpenter
from tonnage.provisioning import budgets, consolidation, labels, staying
from tonnage.provisioning.candidates import RunningNode, blocker
from tonnage.provisioning.catalogue import Catalogue
from tonnage.provisioning.claim_nodes import coming_types
from tonnage.provisioning.disruption import consolidate_after_ns
from tonnage.provisioning.optimal.supply import Occupied
from tonnage.provisioning.plans import PlanSettings
from tonnage.provisioning.pods import ExistingNode, PendingPod

NEVER_NS = -(10**19)
"""Long before anything."""


@dataclass(frozen=True, slots=True)
class Going:
    """``occupied``: nodes that may be terminated; ``kept``: those that may not, and why; ``at_once``: by NodePool, how
    many its budgets allow at a time, where they say; ``running``: all nodes, at ``now_ns``."""

    occupied: tuple[Occupied, ...]
    kept: tuple[tuple[Ref, str], ...]
    at_once: dict[str, int]
    running: tuple[RunningNode, ...] = ()
    now_ns: int = 0


def read(
    snapshot: Snapshot, nodes: Sequence[ExistingNode], node_pools: Sequence[karpenter.NodePool], catalogue: Catalogue
) -> Going:
    """Sort the nodes. The budgets of NodePools count as if the hours of their schedules had come."""
    there = {node.ref: node for node in nodes}
    pools = {pool.metadata.name: pool for pool in node_pools}
    coming = coming_types(node_pools, catalogue) if snapshot.fleet.device_claims.claims else None
    running = list(running_nodes(snapshot, movable_pods(snapshot, claims=True, coming=coming), there))
    allowed = {
        (name, why): _allowed(pool, [one for one, _ in running], why)
        for name, pool in pools.items()
        for why in (budgets.EMPTY, consolidation.UNDERUTILIZED)
    }
    occupied, kept = [], []
    for one, node in running:
        price = _price(node.labels, node.spec.instance_type, catalogue)
        why = _kept(snapshot, one, pools, allowed) or ("" if price else "its price is not known")
        if not why and one.ref not in there:
            why = "it takes no pods now"
        if why or price is None:
            kept.append((one.ref, why))
        else:
            pods = tuple(pod.pod for pod in one.pods if not pod.belongs)
            occupied.append(Occupied(node=one.node, pods=pods, micro_usd_per_hour=price))
    at_once: dict[str, int] = {}
    for each in occupied:
        name, most = each.node.node_pool, allowed[each.node.node_pool, _reason(each.pods)][1]
        if most:
            at_once[name] = min(most, at_once.get(name, most))
    return Going(tuple(occupied), tuple(sorted(kept)), at_once, tuple(one for one, _ in running), snapshot.now_ns)


def unconsolidatable(
    going: Going,
    pending: Sequence[PendingPod],
    node_pools: Sequence[karpenter.NodePool],
    catalogue: Catalogue,
    settings: PlanSettings,
) -> dict[Ref, str]:
    """Of the nodes that may be terminated those that Karpenter's single-node consolidation lets be once
    consolidateAfter is over, and why."""
    quiet = [
        msgspec.structs.replace(one, state=msgspec.structs.replace(one.state, last_pod_event_ns=NEVER_NS))
        for one in going.running
    ]
    round_ = consolidation.Round(quiet, pending, node_pools, catalogue, going.now_ns, settings)
    may_go = {one.node.ref for one in going.occupied}
    return {ref: why for ref, why in staying.unconsolidatable(round_).items() if ref in may_go}


def _kept(
    snapshot: Snapshot,
    one: RunningNode,
    pools: Mapping[str, karpenter.NodePool],
    allowed: Mapping[tuple[str, str], tuple[str, int | None]],
) -> str:
    name = one.state.node_pool
    if not name:
        return "it is of no NodePool"
    pool = pools.get(name)
    if pool is None:
        return f"NodePool {name} is not there"
    if pool.is_static:
        return f"NodePool {name} has a fixed number of nodes"
    if why := blocker(one, snapshot.now_ns):
        return why
    for pod in one.pods:
        if pod.claims:
            return f"pod {pod.pod.ref.name} has {pod.claims}"
    if consolidate_after_ns(pool) is None:
        return f"consolidateAfter of NodePool {name} is Never"
    if one.pods and pool.spec.disruption.consolidation_policy == "WhenEmpty":
        return f"consolidationPolicy of NodePool {name} is WhenEmpty, and it has pods"
    because, most = allowed[name, _reason(one.pods)]
    if most == 0:
        return f"the disruption budget of NodePool {name} allows no disruption ({because})"
    fleet = snapshot.fleet
    for pod in one.pods:
        gang = fleet.pod(fleet.pod_by_key[pod.pod.ref.namespace, pod.pod.ref.name]).spec.gang
        if gang:
            return f"pod {pod.pod.ref.name} is of gang {gang}, and would move alone"
    return ""


def _reason(pods: Sequence[object]) -> str:
    """For which reason of a budget a node with these pods would go."""
    return consolidation.UNDERUTILIZED if pods else budgets.EMPTY


def _allowed(pool: karpenter.NodePool, running: Sequence[RunningNode], why: str) -> tuple[str, int | None]:
    """Which budget says how many nodes may go at a time for this reason, and how many; None where none does."""
    own = [one.state for one in running if one.state.node_pool == pool.metadata.name]
    counted = [state for state in own if state.initialized_ns is not None]
    busy = sum(state.deleted or not state.ready for state in counted)
    always = [msgspec.structs.replace(one, schedule=None, duration=None) for one in pool.spec.disruption.budgets]
    found = budgets.allowance(always, len(counted), 0, why)
    return found.because, None if found.nodes is None else max(0, found.nodes - busy)


def _price(own: Mapping[str, str], instance_type: str, catalogue: Catalogue) -> int | None:
    wanted = own.get(labels.ZONE), own.get(labels.CAPACITY_TYPE)
    offered = catalogue.book.offerings(instance_type) if instances.known(instance_type) else ()
    return next((one.micro_usd_per_hour for one in offered if (one.zone, one.capacity_type) == wanted), None)
