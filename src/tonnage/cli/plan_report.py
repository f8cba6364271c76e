"""The JSON of `tonnage plan`: one plan a policy, and what makes the difference."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

from tonnage.cli.plan_input import PlanInput
from tonnage.cli.plan_occupied import Going
from tonnage.control.choices import OPTIMAL
from tonnage.decisions import Finding, Launch, Ref
from tonnage.facts.price_book import ON_DEMAND, RESERVED, PriceBook
from tonnage.provisioning.optimal.difference import NodeChange, difference
from tonnage.provisioning.optimal.plan import OptimalPlan, price
from tonnage.provisioning.optimal.replan import Replan
from tonnage.provisioning.plans import Plan
from tonnage.units import usd

SCHEMA = "tonnage.dev/plan/v1"


class NewNode(msgspec.Struct, frozen=True):
    """A node to launch. ``instance_types``: those that EC2 may choose from, cheapest first. Amounts: cpu in millicores,
    memory and storage in bytes, all else in units. ``paid_usd_per_hour``: of a node in a capacity reservation, what its
    instance costs on demand, whether it is used or not: the node adds nothing to that."""

    name: str
    node_pool: str
    instance_type: str
    zone: str
    capacity_type: str
    usd_per_hour: float
    paid_usd_per_hour: float | None
    instance_types: tuple[str, ...]
    requests: dict[str, int]
    daemons: dict[str, int]
    allocatable: dict[str, int]
    pods: tuple[str, ...]


class NodePods(msgspec.Struct, frozen=True):
    """Pods that a node takes which is there."""

    node: str
    pods: tuple[str, ...]


class Unplaceable(msgspec.Struct, frozen=True):
    """Unschedulable pods, and why: ``why`` in general, ``node_pools`` for each NodePool or
    node group."""

    why: str
    node_pools: dict[str, str]
    pods: tuple[str, ...]


class PolicyPlan(msgspec.Struct, frozen=True):
    """One policy's plan. ``usd_per_hour``: of the new nodes, those that static NodePools launch among them;
    ``bound_usd_per_hour``: no plan of these pods costs less, and ``gap`` the part by which one could; both null but for
    optimal. ``karpenter_way``: constraints that the optimum does not express, with how many pods carry each: these,
    ``karpenter_way_pods`` in all, are placed as Karpenter does, and ``karpenter_way_bound_usd_per_hour``: no plan costs
    less that places them there."""

    policy: str
    usd_per_hour: float
    bound_usd_per_hour: float | None
    gap: float | None
    nodes: tuple[NewNode, ...]
    existing: tuple[NodePods, ...]
    unplaceable: tuple[Unplaceable, ...]
    karpenter_way: dict[str, int]
    karpenter_way_pods: int
    karpenter_way_bound_usd_per_hour: float | None = None


class Saving(msgspec.Struct, frozen=True):
    """``before`` (karpenter) gives way to ``after`` (optimal); ``usd_per_hour`` is after less before."""

    before: dict[str, int]
    after: dict[str, int]
    usd_per_hour: float
    text: str


class KeptNodes(msgspec.Struct, frozen=True):
    """Nodes that are not terminated whatever it saves, and why."""

    why: str
    nodes: tuple[str, ...]


class Consolidation(msgspec.Struct, frozen=True):
    """``returned``: nodes that go back once their pods, ``moves`` of them, have moved, and ``plan`` for these and those
    that wait. ``before`` and ``after`` are of the nodes that might go back and of new ones, ``bound`` with the price of
    the moves. ``kept``: nodes that may not go back; ``at_once``: by NodePool, how many nodes its disruption budgets
    let go at a time. ``unconsolidatable``: nodes that may and that Karpenter would leave, by the message of its event
    Unconsolidatable."""

    returned: tuple[str, ...]
    moves: int
    before_usd_per_hour: float
    after_usd_per_hour: float
    bound_usd_per_hour: float
    plan: PolicyPlan
    kept: tuple[KeptNodes, ...]
    at_once: dict[str, int]
    unconsolidatable: tuple[KeptNodes, ...]


class LeftOut(msgspec.Struct, frozen=True):
    """Pods that karpenter places and optimal does not, of one ``gang`` if it is not empty."""

    gang: str
    pods: tuple[str, ...]


class PlanReport(msgspec.Struct, frozen=True):
    """What `tonnage plan -o json` prints. ``difference`` adds up to that of the two plans; empty for one plan. It is no
    saving where optimal has ``left_out`` pods."""

    schema: str
    pods: int
    prices_as_of: str
    region: str
    plans: tuple[PolicyPlan, ...]
    difference: tuple[Saving, ...]
    left_out: tuple[LeftOut, ...]
    consolidation: Consolidation | None
    findings: tuple[Finding, ...]


def report(
    given: PlanInput,
    karpenter: Plan | None,
    optimal: OptimalPlan | None,
    replanned: Replan | None = None,
    like: str = "karpenter",
    unconsolidatable: Mapping[Ref, str] = {},
) -> PlanReport:
    """Of the plans that were made. ``like``: whose ``karpenter`` is; ``unconsolidatable``: nodes that Karpenter would
    leave, and why."""
    plans = []
    if karpenter is not None:
        plans.append(_policy(like, karpenter, None, given.catalogue.book, given))
    if optimal is not None:
        plans.append(_policy(OPTIMAL, optimal.plan, optimal, given.catalogue.book, given))
    changes = difference(karpenter, optimal.plan, given.pods) if karpenter is not None and optimal is not None else ()
    book = given.catalogue.book
    return PlanReport(
        SCHEMA,
        len(given.pods) + len(given.stuck),
        book.as_of,
        book.region,
        tuple(plans),
        tuple(map(_saving, changes)),
        () if karpenter is None or optimal is None else tuple(_left_out(karpenter, optimal.plan, given.gangs)),
        None if replanned is None else _consolidation(replanned, given.going, unconsolidatable, given.catalogue.book),
        given.findings,
    )


def _policy(
    name: str, plan: Plan, optimal: OptimalPlan | None, book: PriceBook, given: PlanInput | None = None
) -> PolicyPlan:
    in_reservations = sum(one.price_micro_usd_per_hour for one in plan.launches if one.capacity_type == RESERVED)
    new = price(plan) - in_reservations  # what orders them is no price that anybody pays
    fixed = given.static if given is not None else Plan((), (), (), (), {})
    nodes = tuple(
        NewNode(
            claim.ref.name,
            claim.node_pool,
            launch.instance_type,
            launch.zone,
            launch.capacity_type,
            0.0 if launch.capacity_type == RESERVED else usd(launch.price_micro_usd_per_hour),
            _paid(launch, book),
            claim.instance_types,
            claim.requests,
            launch.daemons,
            launch.allocatable,
            _names(claim.pods),
        )
        for claim, launch in zip(fixed.claims + plan.claims, fixed.launches + plan.launches, strict=True)
    )
    on: dict[Ref, list[Ref]] = {}
    for one in plan.nominations:
        on.setdefault(one.node, []).append(one.pod)
    return PolicyPlan(
        name,
        usd(price(fixed) + new),
        None if optimal is None else usd(price(fixed) + min(new, optimal.bound_micro_usd_per_hour)),
        None if optimal is None else optimal.gap,
        nodes,
        tuple(NodePods(node.name, _names(pods)) for node, pods in sorted(on.items())),
        tuple(_unplaceable(plan, () if given is None else given.stuck)),
        {} if optimal is None else optimal.kept,
        0 if optimal is None else optimal.held,
        None if optimal is None else usd(price(fixed) + min(new, optimal.held_bound_micro_usd_per_hour)),
    )


def _paid(launch: Launch, book: PriceBook) -> float | None:
    if launch.capacity_type != RESERVED:
        return None
    offers = {(one.zone, one.capacity_type): one for one in book.offerings(launch.instance_type)}
    known = offers.get((launch.zone, ON_DEMAND))
    return None if known is None else usd(known.micro_usd_per_hour)


def _left_out(before: Plan, after: Plan, gangs: Mapping[str, Sequence[Ref]]) -> Iterator[LeftOut]:
    gang_of = {ref: name for name, refs in gangs.items() for ref in refs}
    alike: dict[str, list[Ref]] = {}
    for ref in sorted(_placed(before) - _placed(after)):
        alike.setdefault(gang_of.get(ref, ""), []).append(ref)
    for gang, refs in sorted(alike.items()):
        yield LeftOut(gang, _names(refs))


def _placed(plan: Plan) -> set[Ref]:
    return {ref for claim in plan.claims for ref in claim.pods} | {one.pod for one in plan.nominations}


def _consolidation(of: Replan, going: Going, unconsolidatable: Mapping[Ref, str], book: PriceBook) -> Consolidation:
    returned = tuple(sorted(ref.name for ref in of.returned))
    plan = _policy(OPTIMAL, of.plan, None, book)
    return Consolidation(
        returned,
        of.moves,
        usd(of.before),
        usd(of.after),
        usd(of.bound),
        plan,
        _alike((*going.kept, *of.fixed.items())),
        going.at_once,
        _alike(unconsolidatable.items()),
    )


def _alike(told: Iterable[tuple[Ref, str]]) -> tuple[KeptNodes, ...]:
    by_why: dict[str, list[str]] = {}
    for ref, why in told:
        by_why.setdefault(why, []).append(ref.name)
    return tuple(KeptNodes(why, tuple(sorted(names))) for why, names in sorted(by_why.items()))


def _unplaceable(plan: Plan, stuck: Sequence[tuple[Ref, str]]) -> list[Unplaceable]:
    alike: dict[tuple[str, tuple[tuple[str, str], ...]], list[Ref]] = {}
    for wait in plan.waits:
        pools = tuple((_bare(one.name), one.why) for one in wait.reason.alternatives)
        alike.setdefault((wait.reason.verdict, pools), []).append(wait.pod)
    for pod, why in stuck:
        alike.setdefault((why, ()), []).append(pod)
    return [Unplaceable(why, dict(pools), _names(pods)) for (why, pools), pods in alike.items()]


def _bare(name: str) -> str:
    return name.removeprefix("NodePool ").removeprefix("node group ")


def _names(pods: Sequence[Ref]) -> tuple[str, ...]:
    return tuple(f"{pod.namespace}/{pod.name}" for pod in sorted(pods))


def _saving(change: NodeChange) -> Saving:
    before, after = (
        {one.text().partition(" × ")[2]: one.count for one in side} for side in (change.before, change.after)
    )
    return Saving(before, after, usd(change.micro_usd_per_hour), change.text())
