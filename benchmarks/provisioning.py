"""Node plans: the optimal policy beside Karpenter's order and an exact optimum, each plan checked by itself."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterable

from benchmarks import provisioning_large as large
from benchmarks import provisioning_mixes as mixes
from benchmarks.common import Options, Report
from benchmarks.provisioning_check import violations
from benchmarks.provisioning_mixes import Mix
from benchmarks.provisioning_oracle import cheapest
from benchmarks.provisioning_real import PROGRAM, real_plan
from tonnage.control.replanning import replanned
from tonnage.objects.karpenter import NodePool
from tonnage.provisioning import karpenter
from tonnage.provisioning.catalogue import Catalogue
from tonnage.provisioning.consolidation import Gates, Round
from tonnage.provisioning.optimal import plan as planning
from tonnage.provisioning.optimal.plan import OptimalPlan, price
from tonnage.provisioning.plans import Plan, PlanSettings
from tonnage.provisioning.pods import PendingPod

SEEDS = (7, 7)
MOST_ROUNDS = 20


def run(options: Options) -> Report:
    """60 plain mixes and 60 hard ones for each seed; ten of each of one seed with ``quick``."""
    report = Report("provisioning", ("mixes", "measurement", "mean", "worst", "unit"))
    first, last = _seeds(options.own.get("seeds", ""))
    count = 10 if options.quick else mixes.COUNT
    catalogue = Catalogue.load()
    seeds = range(first, last + 1)
    _plain(report, catalogue, (mix for seed in seeds for mix in mixes.plain(seed, count)))
    _hard(report, catalogue, (mix for seed in seeds for mix in mixes.hard(seed, count)))
    _large(report, large.PODS // 10 if options.quick else large.PODS, real=not options.quick)
    _consolidated(report, catalogue, large.NODES // 10 if options.quick else large.NODES)
    report.notes.append(
        "seconds are processor time of a plan, Karpenter's beside it included; the oracle and the checker share no "
        "code with the planner; karpenter is run again over what it launched until it launches no more"
    )
    return report


def _seeds(written: str) -> tuple[int, int]:
    if not written:
        return SEEDS
    first, _, last = written.partition("-")
    return int(first), int(last or first)


def _plain(report: Report, catalogue: Catalogue, chosen: Iterable[Mix]) -> None:
    to_optimum, to_karpenter, gaps, seconds, wrong = [], [], [], [], 0
    for mix in chosen:
        optimum = cheapest(mix.groups, catalogue.book)
        if optimum is None:
            continue
        took, found = _planned(mix, catalogue)
        wrong += _wrong(mix, catalogue, found)
        seconds.append(took)
        gaps.append(found.gap)
        to_optimum.append(found.micro_usd_per_hour / 1e6 / optimum)
        to_karpenter.append(found.micro_usd_per_hour / price(found.karpenter))
    name = f"plain, {len(gaps)}"
    _row(report, name, "price to the exact optimum", to_optimum, "x")
    _row(report, name, "price to Karpenter's", to_karpenter, "x")
    _row(report, name, "proved gap", gaps, "of the price")
    _row(report, name, "time", seconds, "s")
    report.bar("plain-to-optimum", max(to_optimum), "<=", 1.01, "x", "result")
    report.bar("plain-to-karpenter", max(to_karpenter), "<=", 1.0, "x", "result")
    report.bar("plain-gap", max(gaps), "<=", 0.01, "of the price", "result")
    report.bar("plain-seconds", max(seconds), "<=", 1.0, "s", "cost")
    report.bar("plain-violations", float(wrong), "==", 0.0, "violations", "result")


def _hard(report: Report, catalogue: Catalogue, chosen: Iterable[Mix]) -> None:
    to_karpenter, gaps, seconds, wrong, fewer = [], [], [], 0, 0
    for mix in chosen:
        took, found = _planned(mix, catalogue)
        wrong += _wrong(mix, catalogue, found)
        seconds.append(took)
        gaps.append(found.gap)
        settled, paid = _settled(mix, catalogue)
        left = len(found.plan.waits)
        fewer += left > settled and not found.gangs
        if left == settled and paid:
            to_karpenter.append(found.micro_usd_per_hour / paid)
    name = f"hard, {len(gaps)}"
    _row(report, name, "price to Karpenter's", to_karpenter, "x")
    _row(report, name, "proved gap", gaps, "of the price")
    _row(report, name, "time", seconds, "s")
    report.bar("hard-to-karpenter", max(to_karpenter), "<=", 1.0, "x", "result")
    report.bar("hard-fewer-placed", float(fewer), "==", 0.0, "mixes", "result")
    report.bar("hard-gap", max(gaps), "<=", 0.03, "of the price", "result")
    report.bar("hard-seconds", max(seconds), "<=", 2.0, "s", "cost")
    report.bar("hard-violations", float(wrong), "==", 0.0, "violations", "result")


def _large(report: Report, count: int, *, real: bool) -> None:
    """The first plan of many pods with spread and affinity, among 400 instance types, and the cheapest one found."""
    market, pods = large.market(), large.diverse(count)
    pool = large.node_pool(limits={"cpu": "10000000", "memory": "10000000Gi"})
    begun = time.process_time()
    found = karpenter.plan(pods, [], [pool], market)
    took = time.process_time() - begun
    name = f"{count:,} pods"
    _row(report, name, "Karpenter's order: time", [took], "s")
    _row(report, name, "Karpenter's order: nodes", [len(found.launches)], "nodes")
    _row(report, name, "Karpenter's order: unschedulable pods", [len(found.waits)], "pods")
    report.bar("large-waiting", len(found.waits), "==", 0, "pods", "result")
    report.bar("large-seconds", took, "<=", 4.0, "s", "cost")
    begun = time.process_time()
    best = planning.plan(pods, [], [pool], market)
    took = time.process_time() - begun
    wrong = list(violations(best.plan, pods, [], [pool], {one.name: one for one in market.types}, market.book))
    print(*wrong[:10], sep="\n", end="\n" if wrong else "")
    _row(report, name, "optimal: time, with Karpenter's order and the bound", [took], "s")
    _row(report, name, "optimal: price to Karpenter's order", [price(best.plan) / price(best.karpenter)], "ratio")
    _row(report, name, "optimal: proved gap", [best.gap], "of the price")
    report.bar("large-left-out", len(best.plan.waits), "==", 0, "pods", "result")
    report.bar("large-violations", len(wrong), "==", 0, "violations", "result")
    report.bar("large-dearer", price(best.plan) - price(best.karpenter), "<=", 0, "µ$/h", "result")
    report.bar("large-gap", best.gap, "<=", 0.05, "of the price", "result")
    if real:
        _beside_karpenter(report, name, pods, pool, market, price(best.plan))


def _beside_karpenter(
    report: Report, name: str, pods: list[PendingPod], pool: NodePool, market: Catalogue, ours: int
) -> None:
    """The same pods by Karpenter's own scheduler, which takes minutes. ``ours``: the price, micro-USD an hour."""
    real = real_plan(sorted(pods, key=karpenter.queue_key), pool, market)
    if real is None:
        report.notes.append(f"Karpenter's own scheduler is left out: no {PROGRAM}, which `make e2e-build` builds")
        return
    _row(report, name, "Karpenter itself: time", [real.seconds], "s")
    _row(report, name, "Karpenter itself: nodes", [real.nodes], "nodes")
    _row(report, name, "optimal: price to Karpenter itself", [ours / real.micro_usd_per_hour], "ratio")
    report.bar("large-real-waiting", real.waiting, "==", 0, "pods", "result")
    report.bar("large-dearer-than-real", ours - real.micro_usd_per_hour, "<=", 0, "µ$/h", "result")


def _consolidated(report: Report, catalogue: Catalogue, count: int) -> None:
    """What either policy would do next with many underused nodes."""
    nodes = large.cluster(catalogue, count)
    pool = large.node_pool(
        requirements=[{"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["on-demand"]}],
        disruption={"consolidateAfter": "0s", "budgets": [{"nodes": "100%"}]},
    )
    name = f"{count:,} nodes, {sum(len(one.pods) for one in nodes):,} pods"
    for policy in ("karpenter", "optimal"):
        one = Round(nodes, (), [pool], catalogue, large.NOW_NS, PlanSettings(), Gates())
        begun = time.process_time()
        if policy == "karpenter":
            proposal = one.proposal()
            command = None if proposal is None else one.command(proposal)
        else:
            command = replanned(one)
        took = time.process_time() - begun
        assert command is not None, "nodes that are a quarter used can be consolidated"
        report.bar(f"consolidation-{policy}-seconds", took, "<=", 10.0, "s", "cost")
        _row(report, name, f"consolidation, {policy}: time", [took], "s")
        _row(report, name, f"consolidation, {policy}: nodes that go", [len(command.nodes)], "nodes")
        _row(report, name, f"consolidation, {policy}: saves", [command.saves_micro_usd_per_hour / 1e6], "$/h")


def _planned(mix: Mix, catalogue: Catalogue) -> tuple[float, OptimalPlan]:
    start = time.process_time()
    found = planning.plan(mix.pods, [], mix.pools, catalogue, mix.settings, gangs=mix.gangs)
    return time.process_time() - start, found


def _settled(mix: Mix, catalogue: Catalogue) -> tuple[int, int]:
    """Karpenter's rounds until nothing more is launched: how many pods wait in the end, and what its nodes cost."""
    nodes, paid, waiting = [], 0, list(mix.pods)
    for _ in range(MOST_ROUNDS):
        plan: Plan = karpenter.plan(waiting, nodes, mix.pools, catalogue, mix.settings)
        paid += price(plan)
        nodes += [claim.in_flight() for claim in plan.claims]
        left = {wait.pod for wait in plan.waits}
        if not plan.claims:
            return len(left), paid
        waiting = [pod for pod in waiting if pod.ref in left]
    return len(waiting), paid


def _wrong(mix: Mix, catalogue: Catalogue, found: OptimalPlan) -> int:
    types = {one.name: one for one in catalogue.types}
    settings, gangs = mix.settings, mix.gangs
    said = list(
        violations(
            found.plan, mix.pods, [], mix.pools, types, catalogue.book, daemon_sets=settings.daemon_sets, gangs=gangs
        )
    )
    for one in said:
        print(f"{mix.name}: {one}")
    return len(said)


def _row(report: Report, name: str, what: str, values: list[float], unit: str) -> None:
    report.row(mixes=name, measurement=what, mean=statistics.fmean(values), worst=max(values), unit=unit)
