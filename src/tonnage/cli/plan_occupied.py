"""Which nodes `tonnage plan --consolidate` may give back, by Karpenter's own rules, and what keeps the others."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import msgspec

from tonnage.decisions import Ref
from tonnage.facts import instances
from tonnage.fleet.rows import NodeRow
from tonnage.fleet.snapshot import Snapshot
from tonnage.fleet.volumes import folded
from tonnage.objects import karpenter
from tonnage.provisioning import budgets, consolidation, labels
from tonnage.provisioning.candidates import MovablePod, RunningNode, blocker
from tonnage.provisioning.catalogue import Catalogue
from tonnage.provisioning.disruption import NodeState, consolidate_after_ns
from tonnage.provisioning.optimal.supply import Occupied
from tonnage.provisioning.pods import ExistingNode, PendingPod, PodShape
from tonnage.scheduling.budgets import Budgets


@dataclass(frozen=True, slots=True)
class Going:
    """``occupied``: nodes that may go back; ``kept``: those that may not, and why; ``at_once``: by NodePool, how many
    its budgets let go at a time, where they say."""

    occupied: tuple[Occupied, ...]
    kept: tuple[tuple[Ref, str], ...]
    at_once: dict[str, int]


def read(
    snapshot: Snapshot, nodes: Sequence[ExistingNode], node_pools: Sequence[karpenter.NodePool], catalogue: Catalogue
) -> Going:
    """Sort the nodes. The budgets of NodePools count as if the hours of their schedules had come."""
    there = {node.ref: node for node in nodes}
    pools = {pool.metadata.name: pool for pool in node_pools}
    running = list(_running(snapshot, there))
    allowed = {name: _allowed(pool, [one for one, _ in running]) for name, pool in pools.items()}
    occupied, kept = [], []
    for one, node in running:
        price = _price(node.labels, node.spec.instance_type, catalogue)
        why = _kept(snapshot, one, pools, allowed) or ("" if price else "its price is not known")
        if not why and one.ref not in there:
            why = "it takes no pods now"
        if why or price is None:
            kept.append((one.ref, why))
        else:
            pods = tuple(pod.pod for pod in one.pods)
            occupied.append(Occupied(node=one.node, pods=pods, micro_usd_per_hour=price))
    at_once = {name: most for name, (_, most) in allowed.items() if most}
    return Going(tuple(occupied), tuple(sorted(kept)), at_once)


def _running(snapshot: Snapshot, there: Mapping[Ref, ExistingNode]) -> Iterator[tuple[RunningNode, NodeRow]]:
    fleet = snapshot.fleet
    evictions = Budgets(snapshot)
    evictions.count()
    shapes: dict[int, PodShape] = {}
    on: dict[int, list[MovablePod]] = {}
    for row, pod in enumerate(fleet.pods):
        if pod is None or pod.node < 0 or pod.spec.daemon:
            continue
        spec, of = pod.spec, pod.class_id
        if of not in shapes:
            shapes[of] = PodShape.of(folded(spec.spec, spec.volumes), spec.annotations)
        names = tuple(snapshot.disruption_budgets[number].name for number in evictions.of(row))
        on.setdefault(pod.node, []).append(
            MovablePod(
                pod=PendingPod(spec.ref, shapes[of], spec.created_ns, fleet.classes.rows[of].labels),
                priority=spec.priority,
                do_not_disrupt=spec.annotations.get(karpenter.DO_NOT_DISRUPT, ""),
                started_ns=snapshot.life(pod.key).started_ns,
                budgets=names,
                blocked=bool(evictions.forbids(row)),
            )
        )
    for row in fleet.node_rows():
        node = fleet.node(row)
        ref = Ref("Node", node.spec.name, uid=node.spec.uid)
        state = NodeState(
            node=ref,
            node_pool=node.spec.node_pool,
            price_micro_usd_per_hour=0,
            initialized_ns=node.spec.created_ns if node.initialized else None,
            ready=bool(fleet.schedulable[row]),
            deleted=node.leaving,
            do_not_disrupt=node.do_not_disrupt,
        )
        bare = ExistingNode(ref=ref, labels=node.labels, free={})
        yield RunningNode(state=state, node=there.get(ref, bare), pods=tuple(on.get(row, ()))), node


def _kept(
    snapshot: Snapshot,
    one: RunningNode,
    pools: Mapping[str, karpenter.NodePool],
    allowed: Mapping[str, tuple[str, int | None]],
) -> str:
    name = one.state.node_pool
    if not name:
        return "it is of no NodePool"
    pool = pools.get(name)
    if pool is None:
        return f"NodePool {name} is not there"
    if pool.spec.replicas is not None:
        return f"NodePool {name} has a fixed number of nodes"
    if why := blocker(one, snapshot.now_ns):
        return why
    if consolidate_after_ns(pool) is None:
        return f"consolidateAfter of NodePool {name} is Never"
    if one.pods and pool.spec.disruption.consolidation_policy == "WhenEmpty":
        return f"consolidationPolicy of NodePool {name} is WhenEmpty, and it has pods"
    because, most = allowed[name]
    if most == 0:
        return f"the disruption budget of NodePool {name} lets no node go ({because})"
    fleet = snapshot.fleet
    for pod in one.pods:
        gang = fleet.pod(fleet.pod_by_key[pod.pod.ref.namespace, pod.pod.ref.name]).spec.gang
        if gang:
            return f"pod {pod.pod.ref.name} is of gang {gang}, and would move alone"
    return ""


def _allowed(pool: karpenter.NodePool, running: Sequence[RunningNode]) -> tuple[str, int | None]:
    """Which budget says how many nodes may go at a time, and how many; None where none does."""
    own = [one.state for one in running if one.state.node_pool == pool.metadata.name]
    counted = [state for state in own if state.initialized_ns is not None]
    busy = sum(state.deleted or not state.ready for state in counted)
    always = [msgspec.structs.replace(one, schedule=None, duration=None) for one in pool.spec.disruption.budgets]
    found = budgets.allowance(always, len(counted), 0, consolidation.UNDERUTILIZED)
    return found.because, None if found.nodes is None else max(0, found.nodes - busy)


def _price(own: Mapping[str, str], instance_type: str, catalogue: Catalogue) -> int | None:
    wanted = own.get(labels.ZONE), own.get(labels.CAPACITY_TYPE)
    offered = catalogue.book.offerings(instance_type) if instances.known(instance_type) else ()
    return next((one.micro_usd_per_hour for one in offered if (one.zone, one.capacity_type) == wanted), None)
