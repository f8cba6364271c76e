"""The cheapest set of nodes for pending pods, with a proved gap: `optimal` beside Karpenter's order.

What patterns do not express (topology spread, pod affinity, shares of devices) keeps its pods, and all that stand on
nodes with them, where :func:`tonnage.provisioning.karpenter.plan` puts them, and the answer says so. All else is placed
again: on nodes that are there at no price, on new ones at that of the cheapest offering. Limits of NodePools count what
is launched; a NodePool of lower weight is used for a class of pods only where Karpenter had to; gangs are planned all
or none; pods are relaxed no further than Karpenter's plan relaxes them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import msgspec

from tonnage.decisions import Launch, Reason, Ref, Wait
from tonnage.objects import karpenter
from tonnage.provisioning import karpenter as planner
from tonnage.provisioning.catalogue import Catalogue
from tonnage.provisioning.labels import RESERVED
from tonnage.provisioning.optimal import by_rules
from tonnage.provisioning.optimal.arguments import PlanArguments
from tonnage.provisioning.optimal.program import Effort
from tonnage.provisioning.optimal.round import PackingRound, RoundResult
from tonnage.provisioning.optimal.ruled import not_weighed
from tonnage.provisioning.optimal.supply import Occupied
from tonnage.provisioning.plans import Nomination, Plan, PlannedClaim, PlanSettings
from tonnage.provisioning.pods import ExistingNode, PendingPod
from tonnage.units import usd

NOT_WHOLE = "its gang is planned all or nothing, and not all of its pods fit"
BESIDE = "a node or gang shared with such pods"
"""What a pod is said to be that stays where Karpenter puts it because of others there."""
IN_RESERVATION = "a capacity reservation"
"""What a pod has whose node Karpenter launches in one: paid for in any case, it is the cheapest there is."""
LEFT_OUT = "the limits of the NodePools leave no room for it"


class OptimalPlan(msgspec.Struct, frozen=True, kw_only=True):
    """``plan``: what to launch; ``karpenter``: what Karpenter would. ``bound_micro_usd_per_hour``: no plan that places
    these pods costs less, wherever it puts them; 0 where that is not known. ``kept``: per kind of constraint that
    patterns do not express, how many pods carry it, and how many stand with such pods; ``held``: how many pods that is
    in all, which are where Karpenter puts them. ``held_bound_micro_usd_per_hour``: no plan costs less that leaves them
    there and places as many of the others. ``gangs``: those that wait, as not all of one has a place.
    """

    plan: Plan
    karpenter: Plan
    bound_micro_usd_per_hour: int
    held_bound_micro_usd_per_hour: int
    kept: dict[str, int] = {}
    held: int = 0
    gangs: tuple[str, ...] = ()

    @property
    def micro_usd_per_hour(self) -> int:
        """What the new nodes cost."""
        return price(self.plan)

    @property
    def gap(self) -> float:
        """The part of the price by which a better plan could be cheaper, at most."""
        return self._part(self.bound_micro_usd_per_hour)

    @property
    def held_gap(self) -> float:
        """The same for plans that leave the pods that are held where Karpenter puts them."""
        return self._part(self.held_bound_micro_usd_per_hour)

    def _part(self, bound: int) -> float:
        total = self.micro_usd_per_hour
        return (total - bound) / total if total else 0.0


def _reserved(claim: PlannedClaim) -> bool:
    return claim.offering.capacity_type == RESERVED


def price(plan: Plan) -> int:
    """What the nodes that a plan launches cost, micro-USD an hour."""
    return sum(launch.price_micro_usd_per_hour for launch in plan.launches)


def plan(
    pods: Iterable[PendingPod],
    nodes: Iterable[ExistingNode],
    node_pools: Iterable[karpenter.NodePool],
    catalogue: Catalogue,
    settings: PlanSettings | None = None,
    *,
    gangs: Mapping[str, Collection[Ref]] | None = None,
    minima: Mapping[str, int] | None = None,
    effort: Effort | None = None,
) -> OptimalPlan:
    """Plan nodes for pending pods; the arguments are those of :func:`tonnage.provisioning.karpenter.plan`, whose plan
    it never exceeds in price where both place the same pods. ``gangs``: pods that are placed all or none, by name;
    ``minima``: of how many of them that holds, where not of all.

    Raises :class:`~tonnage.errors.InputError` for a requirement that cannot be read.
    """
    planning = Planning(
        sorted(pods, key=planner.queue_key),
        list(nodes),
        list(node_pools),
        catalogue,
        settings or PlanSettings(),
        dict(gangs or {}),
        effort or Effort(),
    )
    return planning.by_minima(minima or {})


class BoundedPlan(msgspec.Struct, frozen=True):
    """``plan`` and its ``bound``, micro-USD an hour; ``stay``: nodes that might have gone back and do not. Where there
    are ``misfits``, pods that do not fit together although their numbers do, it is no plan. ``held``: pods
    that are where Karpenter puts them."""

    plan: Plan
    bound: int
    stay: tuple[Ref, ...] = ()
    misfits: frozenset[Ref] = frozenset()
    held: frozenset[Ref] = frozenset()


@dataclass(slots=True)
class Planning(PlanArguments):
    """``occupied``: nodes of ``nodes`` that may go back; ``fare``: USD per hour for moving one of their pods."""

    occupied: tuple[Occupied, ...] = ()
    fare: float = 0.0

    def by_minima(self, minima: Mapping[str, int]) -> OptimalPlan:
        """:meth:`run`, with those of a gang beyond its minimum placed one by one, and none of them without it."""
        whole = dict(self.gangs)
        loose = {name: most for name, most in minima.items() if most < len(whole.get(name, ()))}
        if not loose:
            return self.run()
        waiting = {wait.pod for wait in self.karpenter(self.pods).waits}
        for name, most in loose.items():
            self.gangs[name] = sorted(whole[name], key=lambda ref: (ref in waiting, ref))[: max(1, most)]
        left: dict[Ref, PendingPod] = {}
        while True:
            made = self.run()
            waiting = {wait.pod for wait in made.plan.waits}
            without = {ref for name in loose if waiting & set(self.gangs[name]) for ref in whole[name]}
            more = {pod.ref: pod for pod in self.pods if pod.ref in without}
            if not without - waiting - set(left):
                break
            left |= more
            self.pods = [pod for pod in self.pods if pod.ref not in left]
            self.gangs = {name: refs for name, refs in self.gangs.items() if not left.keys() & set(refs)}
            loose = {name: most for name, most in loose.items() if name in self.gangs}
        if not left:
            return made
        waits = (*made.plan.waits, *(Wait(ref, Reason(NOT_WHOLE), "provisioner") for ref in left))
        plan_ = msgspec.structs.replace(made.plan, waits=tuple(sorted(waits, key=lambda one: one.pod)))
        names = {name for name, refs in whole.items() if left.keys() & set(refs)}
        return msgspec.structs.replace(
            made,
            plan=plan_,
            karpenter=self.karpenter(sorted((*self.pods, *left.values()), key=planner.queue_key)),
            gangs=tuple(sorted({*made.gangs, *names})),
        )

    def run(self) -> OptimalPlan:
        """The best of what was found and of Karpenter's own plan, gangs in part left out of it."""
        whole = self.karpenter(self.pods)
        torn = self.torn(whole)
        base = self.karpenter([pod for pod in self.pods if pod.ref not in torn]) if torn else whole
        names = not_weighed(self.pods, self.settings)
        names |= {ref: (IN_RESERVATION,) for claim in base.claims if _reserved(claim) for ref in claim.pods}
        found = self.found(base, set(names), torn)
        waits = {wait.pod: wait.reason for plan in (whole, base) for wait in plan.waits}
        kept = dict(sorted(Counter(name for of in names.values() for name in of).items()))
        if beside := found.held - set(names):
            kept[BESIDE] = len(beside)
        best = min((found.plan, base), key=lambda one: (-_placed(one), price(one)))
        held = found.held | set(names)
        least = bound = min(found.bound, price(best))
        if held:
            ruled = by_rules.plan(self, best, base)
            bound = min(ruled.bound, bound)
            if ruled.plan is not None and (-_placed(ruled.plan), price(ruled.plan)) < (-_placed(best), price(best)):
                best, kept, held, least = ruled.plan, {}, frozenset(), bound
        best = msgspec.structs.replace(best, waits=tuple(self._waits(best, waits)), unplanned=whole.unplanned)
        return OptimalPlan(
            plan=best,
            karpenter=whole,
            bound_micro_usd_per_hour=bound,
            held_bound_micro_usd_per_hour=least,
            kept=kept,
            held=len(held),
            gangs=tuple(sorted(self._gangs_of({wait.pod for wait in best.waits}))),
        )

    def found(self, base: Plan, held: set[Ref], torn: set[Ref]) -> BoundedPlan:
        """The best plan with the pods that are ``held`` where ``base`` puts them. ``torn``: pods of gangs that have no
        place there."""
        held = set(held)
        while True:
            self._hold_gangs(base, held, torn)
            one = self._with(base, held, torn)
            if not one.misfits:
                return one
            held |= one.misfits  # what the numbers allow, devices do not: these pods go Karpenter's way

    def _hold_gangs(self, base: Plan, held: set[Ref], torn: set[Ref]) -> None:
        """Let the rest of a gang stay too where some of it does."""
        while True:
            nodes = {one.node for one in base.nominations if one.pod in held}
            stays = {ref for one in base.claims if held & set(one.pods) for ref in one.pods}
            stays |= {one.pod for one in base.nominations if one.node in nodes}
            more = {ref for name in self._gangs_of(stays) for ref in self.gangs[name]} - held - torn
            if not more:
                return
            held |= more

    def _with(self, base: Plan, held: set[Ref], torn: set[Ref]) -> BoundedPlan:
        stuck = {ref for ref in torn if self._gangs_of({ref}) & self._gangs_of(held)}
        claims = {one.ref: one for one in base.claims if held & set(one.pods)}
        nodes = {one.node for one in base.nominations if one.pod in held}
        nominations = [one for one in base.nominations if one.node in nodes]
        stays = held | stuck | {ref for one in claims.values() for ref in one.pods} | {one.pod for one in nominations}
        gang_of = {ref: name for name, refs in self.gangs.items() for ref in refs}
        templates = self.templates(self.catalogue)
        classes = self.classes(self.catalogue, templates)
        classes.add((pod for pod in self.pods if pod.ref not in stays), gang_of)
        occupied = [one for one in self.occupied if one.node.ref not in nodes and not _any(one, held)]
        classes.add((pod for one in occupied for pod in one.pods), {}, moving=True)
        started = Plan(
            launches=(),
            claims=tuple(one for one in base.claims if one.ref not in claims),
            nominations=tuple(one for one in base.nominations if one.node not in nodes),
            waits=tuple(one for one in base.waits if one.pod not in stays),
            unplanned={},
        )
        running = tuple(Nomination(pod.ref, one.node.ref) for one in occupied for pod in one.pods)
        there = msgspec.structs.replace(started, nominations=(*started.nominations, *running))
        classes.settle(there, {node.ref: node for node in self.nodes})
        apart = nodes | {one.node.ref for one in occupied}
        around = PackingRound(
            classes.all(),
            classes,
            templates,
            self.remaining(templates, list(claims.values())),
            [node for node in self.nodes if node.ref not in apart and not node.deleted],
            started,
            self.market(self.catalogue),
            self.effort,
            usd(price(base) + sum(one.micro_usd_per_hour for one in occupied)),
            occupied,
            self.fare,
        )
        answer = around.solve()
        if around.misfits:
            return BoundedPlan(base, 0, (), frozenset(around.misfits))
        kept = [
            (claim, launch) for claim, launch in zip(base.claims, base.launches, strict=True) if claim.ref in claims
        ]
        constant = sum(launch.price_micro_usd_per_hour for _, launch in kept)
        plan = self._named(kept, nominations, answer, [ref for ref in base.order if ref in stays])
        bound = [one for one in self.occupied if one not in occupied]
        return BoundedPlan(
            plan,
            constant + answer.bound_micro_usd_per_hour + sum(one.micro_usd_per_hour for one in bound),
            (*answer.stay, *(one.node.ref for one in bound)),
            held=frozenset(stays - stuck),
        )

    def _named(
        self,
        kept: Sequence[tuple[PlannedClaim, Launch]],
        nominations: Sequence[Nomination],
        answer: RoundResult,
        before: Sequence[Ref],
    ) -> Plan:
        """The plan of what stays and what is new, NodeClaims numbered in this order. ``before``: in which order pods
        were placed that stay."""
        claims: list[PlannedClaim] = []
        launches: list[Launch] = []
        for claim, launch in kept:
            ref = Ref("NodeClaim", self._name(claim.node_pool, len(claims)))
            claims.append(msgspec.structs.replace(claim, ref=ref))
            launches.append(msgspec.structs.replace(launch, claim=ref))
        for one in answer.made:
            claim, launch = one.named(self._name(one.load.template.name, len(claims)))
            claims.append(claim)
            launches.append(launch)
        found = Plan(tuple(launches), tuple(claims), (*nominations, *answer.nominations), (), {})
        placed = set(found.placed())
        order = dict.fromkeys((*(ref for ref in before if ref in placed), *found.placed()))
        return msgspec.structs.replace(found, order=tuple(order))

    def _name(self, node_pool: str, number: int) -> str:
        return f"{node_pool}-{self.settings.first_claim + number:05d}"

    def _waits(self, best: Plan, known: Mapping[Ref, Reason]) -> Iterator[Wait]:
        """The unschedulable pods, each with Karpenter's reason where that has one."""
        placed = {ref for claim in best.claims for ref in claim.pods} | {one.pod for one in best.nominations}
        in_gang = {ref for refs in self.gangs.values() for ref in refs}
        for ref in sorted(pod.ref for pod in self.pods if pod.ref not in placed):
            yield Wait(ref, known.get(ref, Reason(NOT_WHOLE if ref in in_gang else LEFT_OUT)), "provisioner")

    def _gangs_of(self, refs: set[Ref]) -> set[str]:
        return {name for name, members in self.gangs.items() if refs & set(members)}


def _any(one: Occupied, held: set[Ref]) -> bool:
    return any(pod.ref in held for pod in one.pods)


def _placed(plan: Plan) -> int:
    return len(plan.nominations) + sum(len(claim.pods) for claim in plan.claims)
