"""Why nodes stay: what keeps each from being consolidated alone, in the words of Karpenter's events.

Source: kubernetes-sigs/karpenter pkg/controllers/disruption (consolidation.go, types.go, events), messages of the
events Unconsolidatable and DisruptionBlocked.
"""

from __future__ import annotations

from tonnage.decisions import Ref
from tonnage.objects import karpenter
from tonnage.provisioning.candidates import Candidate, RunningNode, blocker
from tonnage.provisioning.consolidation import Round
from tonnage.provisioning.disruption import consolidate_after_ns


def unconsolidatable(one: Round) -> dict[Ref, str]:
    """By node of a NodePool why it stays; those that could go, and those without pods, are left out."""
    pools = {pool.name: pool for pool in one.node_pools}
    free = {each.node.ref: each for each in one.graceful}
    found = {}
    for node in one.nodes:
        pool = pools.get(node.state.node_pool)
        if pool is None or node.state.initialized_ns is None or node.state.deleted:
            continue
        candidate = free.get(node.ref)
        why = _fixed(one, node, pool, candidate)
        if not why and candidate is not None and not candidate.empty:
            alone = one.alone(candidate)
            why = alone if isinstance(alone, str) else ""
        if why:
            found[node.ref] = why
    return found


def _fixed(one: Round, node: RunningNode, pool: karpenter.NodePool, candidate: Candidate | None) -> str:
    """What keeps a node wherever its pods could go; empty: nothing."""
    if pool.is_static:
        return f'NodePool "{pool.name}" is static'
    if candidate is None:
        return f"Cannot disrupt Node: {blocker(node, one.now_ns)}"
    if consolidate_after_ns(pool) is None:
        return f'NodePool "{pool.name}" has consolidation disabled'
    if not candidate.consolidatable:
        return f"consolidateAfter of NodePool {pool.name}, {pool.spec.disruption.consolidate_after}, is not over"
    if not candidate.empty and pool.spec.disruption.consolidation_policy == "WhenEmpty":
        return f'NodePool "{pool.name}" has non-empty consolidation disabled'
    if not candidate.known or candidate.instance_type not in one.catalogue.names:
        return f'Instance Type "{candidate.instance_type}" not found'
    return ""
