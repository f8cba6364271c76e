"""What `tonnage plan` prints for people: at most 80 columns."""

from __future__ import annotations

from collections.abc import Sequence

from tonnage.cli import output, terminal
from tonnage.cli.lines import say
from tonnage.cli.plan_report import Consolidation, NewNode, NodePods, PlanReport, PolicyPlan, Unplaceable
from tonnage.control.choices import CLUSTER_AUTOSCALER, OPTIMAL

_PODS, _REASONS = 3, 8
"""Pods of a row, and reasons of unschedulable pods, that are shown; the rest is counted."""
_PROVED = 5e-5
"""A smaller gap is none: less than a hundredth of a per cent."""


def show(report: PlanReport, *, quiet: bool) -> None:
    """The plans, what makes the difference, unschedulable pods, and what was assumed."""
    if not report.pods:
        say("No pods are pending")
    nobody = {pod for one in report.plans[-1].unplaceable for pod in one.pods}
    for plan in report.plans:
        if report.pods or plan.nodes:
            _plan(plan, [one for one in plan.unplaceable if not nobody.issuperset(one.pods)])
    if report.difference or report.left_out:
        terminal.echo("karpenter → optimal")
        for change in report.difference:
            say(change.text, "    ", "  ")
        total = report.plans[1].usd_per_hour - report.plans[0].usd_per_hour
        for left in report.left_out:
            of = f" of gang {left.gang}" if left.gang else ""
            say(f"leaves {_count(len(left.pods), 'pod')}{of} unschedulable", "    ", "  ")
        fewer = sum(len(left.pods) for left in report.left_out)
        no_saving = f" for {_count(fewer, 'pod')} fewer: no saving" if fewer else ""
        say(f"together: {'−' if total < 0 else '+'}{abs(total):.2f} $/h{no_saving}", "    ", "  ")
        terminal.echo()
    if report.consolidation is not None:
        _consolidation(report.consolidation)
    for one in report.plans[-1].unplaceable[:_REASONS]:
        _unplaceable(one, _pool_word(report.plans[-1]))
    more = len(report.plans[-1].unplaceable) - _REASONS
    if more > 0:
        say(f"{more} more reasons (-o json has them)")
    if report.pods or report.plans[-1].nodes:
        say(f"Prices: {report.region}, {report.prices_as_of or 'no date'}")
    if report.findings and not quiet:
        terminal.echo()
        output.print_findings(report.findings, output.console(), limit=len(report.findings))


def _plan(plan: PolicyPlan, left: Sequence[Unplaceable]) -> None:
    """``left``: pods that it leaves unschedulable and another plan places."""
    say(f"{plan.policy}: {_price(plan)}", "  ")
    _places(plan)
    for one in left:
        say(f"leaves {_pods(one.pods)}: {one.why}", "    ", "  ")
    if plan.policy == OPTIMAL and plan.karpenter_way:
        say(_karpenter_way(plan), "    ", "  ")
    terminal.echo()


def _places(plan: PolicyPlan) -> None:
    """New nodes with their pods, those alike in a row, and pods on nodes that are there."""
    alike: dict[tuple[object, ...], list[NewNode]] = {}
    for node in plan.nodes:
        key = (node.instance_type, node.capacity_type, node.zone, node.node_pool, len(node.pods), _kinds(node.pods))
        alike.setdefault(key, []).append(node)
    for members in alike.values():
        _nodes(members, _pool_word(plan))
    for group in _standing(plan.existing):
        pods = tuple(pod for one in group for pod in one.pods)
        say(f"on {_listed([one.node for one in group])}: {_pods(pods)}", "    ", "  ")


def _consolidation(found: Consolidation) -> None:
    if not found.returned:
        if not found.before_usd_per_hour and not found.kept:
            say("consolidate: no nodes are there (add them and the pods on them, with --existing)")
        elif found.before_usd_per_hour:
            say(f"consolidate: no nodes could be terminated for less (${found.before_usd_per_hour:.2f} an hour)")
        else:
            say("consolidate: no nodes may be terminated")
        _kept(found)
        terminal.echo()
        return
    after = f" once {_count(found.moves, 'pod')} moved" if found.moves else ""
    saved = found.before_usd_per_hour - found.after_usd_per_hour
    say(
        f"consolidate: {_count(len(found.returned), 'node')} could be terminated{after}: "
        f"{_listed(found.returned)}; ${found.before_usd_per_hour:.2f} → ${found.after_usd_per_hour:.2f} an hour, "
        f"{'−' if saved >= 0 else '+'}{abs(saved):.2f} $/h",
        "  ",
    )
    for name, most in found.at_once.items():
        if most < len(found.returned):
            say(f"NodePool {name} allows {_count(most, 'disruption')} at a time", "    ", "  ")
    _places(found.plan)
    _kept(found)
    terminal.echo()


def _kept(found: Consolidation) -> None:
    for one in found.kept[:_REASONS]:
        say(f"stays: {_count(len(one.nodes), 'node')}: {_listed(one.nodes)}: {one.why}", "    ", "  ")
    if len(found.kept) > _REASONS:
        say(f"{len(found.kept) - _REASONS} more reasons (-o json has them)", "    ", "  ")
    for one in found.unconsolidatable[:_REASONS]:
        count = _count(len(one.nodes), "node")
        say(f"karpenter leaves {count}: {_listed(one.nodes)}: Unconsolidatable: {one.why}", "    ", "  ")


def _price(plan: PolicyPlan) -> str:
    if not plan.nodes:
        return "no new nodes"
    text = f"${plan.usd_per_hour:.2f} an hour for {_count(len(plan.nodes), 'new node')}"
    if plan.gap is None:
        return text
    if not plan.bound_usd_per_hour:
        return f"{text}; placed as Karpenter does" if plan.karpenter_way else text
    return f"{text}; {_bound(plan.usd_per_hour, plan.bound_usd_per_hour, 'plan')}"


def _bound(price: float, bound: float, which: str) -> str:
    gap = (price - bound) / price
    if gap < _PROVED:
        return f"no {which} is cheaper"
    return f"any {which} costs ${bound:.2f} or more (gap {100 * gap:.2g} %)"


def _karpenter_way(plan: PolicyPlan) -> str:
    """Which pods are where Karpenter puts them, and what the others could save."""
    said = ", ".join(f"{name} ({count} pods)" for name, count in plan.karpenter_way.items())
    placed = sum(len(one.pods) for one in plan.nodes) + sum(len(one.pods) for one in plan.existing)
    text = f"placed as Karpenter does: pods with {said}"
    bound = plan.karpenter_way_bound_usd_per_hour
    if bound is None or not plan.nodes or plan.karpenter_way_pods >= placed or plan.gap is None or plan.gap < _PROVED:
        return text
    return f"{text}; {_bound(plan.usd_per_hour, bound, 'plan that leaves them there')}"


def _nodes(members: Sequence[NewNode], pool: str) -> None:
    one = members[0]
    each = _count(len(one.pods), "pod")
    dollars = sum(node.usd_per_hour for node in members)
    where = f"{one.capacity_type}, {one.zone}, {pool} {one.node_pool}"
    pods = tuple(pod for node in members for pod in node.pods)
    holds = f"{each} each" if len(members) > 1 else each
    paid = sum(node.paid_usd_per_hour or 0.0 for node in members)
    costs = f"${dollars:.2f}" + (f" more than the reservation's ${paid:.2f}" if paid else "")
    say(f"{len(members)} × {one.instance_type}  {costs}  {where}", "    ", "  ")
    say(f"{holds}: {_listed(pods)}" if pods else "as its static NodePool says", "      ", "    ")


def _standing(existing: Sequence[NodePods]) -> list[list[NodePods]]:
    alike: dict[tuple[str, ...], list[NodePods]] = {}
    for one in existing:
        alike.setdefault(_kinds(one.pods), []).append(one)
    return list(alike.values())


def _kinds(pods: Sequence[str]) -> tuple[str, ...]:
    """What the pods are called without their numbers: those of one workload are alike."""
    return tuple(sorted({pod.rpartition("-")[0] or pod for pod in pods}))


def _pool_word(plan: PolicyPlan) -> str:
    return "node group" if plan.policy == CLUSTER_AUTOSCALER else "NodePool"


def _unplaceable(one: Unplaceable, pool: str) -> None:
    say(f"unschedulable: {_pods(one.pods)}: {one.why}", "  ")
    for name, why in one.node_pools.items():
        say(f"{pool} {name}: {why}", "    ", "  ")
    terminal.echo()


def _pods(pods: Sequence[str]) -> str:
    return f"{_count(len(pods), 'pod')}: {_listed(pods)}"


def _listed(names: Sequence[str]) -> str:
    more = len(names) - _PODS
    return ", ".join(names[:_PODS]) + (f" and {more} more" if more > 0 else "")


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"
