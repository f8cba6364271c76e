"""Fewer and cheaper nodes for pods that run: m nodes give way to n, where that saves more than the moves cost.

Each node that may go back either stays with all of its pods, and then has its free room for others, or goes back, and
each of its pods moves. The same program as that of :mod:`plan` decides, with the price of a node that stays and that
of each move in it.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from tonnage.decisions import Ref
from tonnage.objects import karpenter
from tonnage.provisioning import karpenter as planner
from tonnage.provisioning.catalogue import Catalogue
from tonnage.provisioning.optimal.plan import Planning, price
from tonnage.provisioning.optimal.program import Effort
from tonnage.provisioning.optimal.ruled import not_weighed
from tonnage.provisioning.optimal.supply import Occupied
from tonnage.provisioning.plans import Plan, PlanSettings
from tonnage.provisioning.pods import ExistingNode, PendingPod
from tonnage.units import usd


class Replan(msgspec.Struct, frozen=True, kw_only=True):
    """``plan``: new nodes, and pods on those that stay; ``returned``: nodes that go back once their pods have moved;
    ``moves``: how many pods that is. Micro-USD an hour: ``before``, of the nodes that might have gone back, ``after``,
    of those that stay and of new ones, and ``bound``: no plan costs less with its moves. ``fixed``: nodes that
    stay in any case, by what patterns do not express of a pod on them."""

    plan: Plan
    returned: tuple[Ref, ...]
    moves: int
    before: int
    after: int
    bound: int
    fixed: dict[Ref, str] = {}


def replan(
    occupied: Iterable[Occupied],
    pods: Iterable[PendingPod],
    nodes: Iterable[ExistingNode],
    node_pools: Iterable[karpenter.NodePool],
    catalogue: Catalogue,
    settings: PlanSettings | None = None,
    *,
    micro_usd_per_move: int = 0,
    effort: Effort | None = None,
) -> Replan:
    """Plan nodes for pending pods and for those of nodes that may go back. ``nodes``: those that stay in any case;
    ``micro_usd_per_move``: what a move must save an hour. Pods that patterns do not express keep their nodes."""
    listed = sorted(occupied, key=lambda one: one.node.ref)
    settings = settings or PlanSettings()
    waiting = list(pods)
    names = not_weighed([*waiting, *(pod for one in listed for pod in one.pods)], settings)
    held = set(names)
    fixed = [one for one in listed if any(pod.ref in held for pod in one.pods)]
    free = tuple(one for one in listed if one not in fixed)
    said = {one.node.ref: pod for one in fixed for pod in one.pods if pod.ref in held}
    why = {ref: f"pod {pod.ref.name} carries {', '.join(names[pod.ref])}" for ref, pod in said.items()}
    planning = Planning(
        sorted(waiting, key=planner.queue_key),
        [*nodes, *(one.node for one in listed)],
        list(node_pools),
        catalogue,
        settings,
        {},
        effort or Effort(),
        free,
        usd(micro_usd_per_move),
    )
    base = planning.karpenter(planning.pods)
    found = planning.found(base, held & {pod.ref for pod in waiting}, set())
    before = sum(one.micro_usd_per_hour for one in listed)
    returned = [one for one in free if one.node.ref not in found.stay]
    after = before - sum(one.micro_usd_per_hour for one in returned) + price(found.plan)
    moves = sum(len(one.pods) for one in returned)
    placed = {ref for claim in found.plan.claims for ref in claim.pods} | {one.pod for one in found.plan.nominations}
    homeless = any(pod.ref not in placed for one in returned for pod in one.pods)
    if homeless or after + moves * micro_usd_per_move > before + price(base):
        return Replan(plan=base, returned=(), moves=0, before=before, after=before + price(base), bound=0, fixed=why)
    return Replan(
        plan=found.plan,
        returned=tuple(one.node.ref for one in returned),
        moves=moves,
        before=before,
        after=after,
        bound=found.bound + sum(one.micro_usd_per_hour for one in fixed),
        fixed=why,
    )
