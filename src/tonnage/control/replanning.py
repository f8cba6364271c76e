"""Fewer and cheaper nodes by the ``optimal`` policy: m give way to n where that saves more than the moves cost."""

from __future__ import annotations

from tonnage.decisions import Ref
from tonnage.provisioning import consolidation
from tonnage.provisioning.consolidation import Command, Round
from tonnage.provisioning.optimal.program import Effort
from tonnage.provisioning.optimal.replan import replan
from tonnage.provisioning.optimal.supply import Occupied

MICRO_USD_PER_MOVE = 10_000
"""What moving a pod has to save, per hour."""


def replanned(one: Round, effort: Effort | None = None, micro_usd_per_move: int = MICRO_USD_PER_MOVE) -> Command | None:
    """The empty and drifted nodes as Karpenter has them; else the nodes that go back by the cheapest plan for the pods
    of all that may, within the budgets."""
    first = one.first()
    if first is not None:
        return one.command(first)
    budget = one.budget(consolidation.UNDERUTILIZED)
    going = []
    for each in one.candidates_of(consolidation.MULTI_NODE):
        held = len(each.moving) < sum(not pod.belongs for pod in each.node.pods)
        held = held or any(pod.claims for pod in each.moving)
        if budget[each.pool.metadata.name] > 0 and each.price and not held:
            budget[each.pool.metadata.name] -= 1
            going.append(each)
    if not going:
        return None
    free = {each.node.ref for each in going}
    occupied = [
        Occupied(node=each.node.node, pods=tuple(pod.pod for pod in each.moving), micro_usd_per_hour=each.price)
        for each in going
    ]
    staying = [each.node for each in one.nodes if each.ref not in free and not each.state.deleted]
    found = replan(
        occupied,
        one.pending,
        [node for node in staying if node.initialized],
        one.node_pools,
        one.catalogue,
        one.settings_with_bound(free),
        micro_usd_per_move=micro_usd_per_move,
        effort=effort,
    )
    if not found.returned:
        return None
    gone: set[Ref] = set(found.returned)
    prices = sum(each.price for each in going if each.node.ref in gone)
    saves = prices - sum(launch.price_micro_usd_per_hour for launch in found.plan.launches)
    return Command(
        reason=consolidation.UNDERUTILIZED,
        method=consolidation.REPLAN,
        nodes=tuple(sorted(gone)),
        claims=found.plan.claims,
        launches=found.plan.launches,
        saves_micro_usd_per_hour=saves,
    )
