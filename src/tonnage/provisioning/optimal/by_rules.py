"""Plans in which pods with rules about other pods stand where these rules allow it, and not where Karpenter puts them.

The cheapest patterns without these rules say how many pods of which size a node holds, and what no plan costs less
than. Which pods those are follows from the rules (:mod:`guided`). Pods for which no such node has a place are planned
again by themselves, and what is left in the end goes where Karpenter's order puts it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple

from tonnage.decisions import Ref
from tonnage.provisioning import karpenter as planner
from tonnage.provisioning.optimal import relaxed
from tonnage.provisioning.optimal.arguments import PlanArguments
from tonnage.provisioning.optimal.guided import Guided
from tonnage.provisioning.optimal.round import PackingRound
from tonnage.provisioning.packing import buy
from tonnage.provisioning.plans import Plan
from tonnage.provisioning.reserving import with_reserved
from tonnage.units import usd

_ROUNDS = 4
"""How often pods without a place are planned again by themselves."""


class RuledPlan(NamedTuple):
    """``bound``: what no plan of the pods costs less than, micro-USD an hour, however it follows the rules; 0 where
    that is not known. ``plan``: one that follows them; None where there is none of this kind."""

    bound: int
    plan: Plan | None


def plan(given: PlanArguments, best: Plan, base: Plan) -> RuledPlan:
    """A plan of the pods that ``best``, the best plan so far, places. ``base``: Karpenter's."""
    placed = set(best.placed())
    pods = [pod for pod in given.pods if pod.ref in placed]
    around = _round(given, best, base, placed)
    bound, targets = around.targets()
    if given.settings.reservations or any(pod.shape.unplanned for pod in pods):
        return RuledPlan(bound, None)
    packer = planner.packer(given.nodes, given.node_pools, given.catalogue, given.settings)
    guided = Guided(packer, packer.queue(pods))
    for _ in range(_ROUNDS):
        before = len(guided.left())
        guided.fill(around.classes, targets)
        left = {pod.ref for pod, _ in guided.left()}
        if not left or len(left) == before:
            break
        around = _round(given, best, base, left, packer.remaining)
        _, targets = around.targets()
    found = buy(guided.finish(), given.settings)
    whole = given.torn(found) <= {wait.pod for wait in found.waits}
    return RuledPlan(bound, found if whole and _within_limits(given, found) else None)


def _round(
    given: PlanArguments,
    best: Plan,
    base: Plan,
    refs: Collection[Ref],
    remaining: Mapping[str, Mapping[str, int]] | None = None,
) -> PackingRound:
    """These pods without their rules; where ``remaining`` is what is left of the limits, on new nodes alone."""
    catalogue = with_reserved(given.catalogue, given.settings.reservations)
    templates = given.templates(catalogue)
    classes = given.classes(catalogue, templates)
    pods = [pod for pod in given.pods if pod.ref in refs]
    classes.add(relaxed.without_rules(pods), {}, apart=relaxed.apart(pods))
    both = Plan((), best.claims + base.claims, best.nominations + base.nominations, (), {})
    classes.settle(both, {node.ref: node for node in given.nodes})
    return PackingRound(
        classes.all(),
        classes,
        templates,
        given.remaining(templates, []) if remaining is None else remaining,
        [node for node in given.nodes if not node.deleted] if remaining is None else [],
        relaxed.of(best, classes),
        given.market(catalogue),
        given.effort,
        usd(best.micro_usd_per_hour),
        reservations=given.settings.reservations,
    )


def _within_limits(given: PlanArguments, found: Plan) -> bool:
    left = given.remaining(given.templates(given.catalogue), found.claims)
    return all(amount >= 0 for amounts in left.values() for amount in amounts.values())
