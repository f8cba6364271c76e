"""MIG: decisions a second of the public `fits`, and fleet plans beside an integer program over every placement."""

from __future__ import annotations

import random

from benchmarks.common import Options, Report, timed
from benchmarks.partitioning_oracle import optimum, profile_of, reached, worths
from tonnage.partitioning.fit import fits
from tonnage.partitioning.fleet_plan import Demand, PlannedGpu, plan
from tonnage.partitioning.layouts import Layout, card, feasible, mask_of, profile_names, resource
from tonnage.partitioning.patterns import Prices

SECONDS = 60.0
_EACH = 0.02
"""What the planner counts for a demand beside its slices."""


def run(options: Options) -> Report:
    """Fit decisions, then plans of 1,000 cards and 5,000 demands on three fixed fleets."""
    report = Report("partitioning", ("measurement", "value", "unit", "remark"))
    _fits(report, 20_000 if options.quick else 200_000)
    size, seconds = (100, 10.0) if options.quick else (1_000, SECONDS)
    for name in FLEETS:
        _plan(report, name, size, seconds, bars=not options.quick)
    report.notes.append(
        "slices: memory slices served in eighths of a card, times weight; the oracle has a variable for each card, "
        "profile and start, and nothing of the planner's but the table of profiles"
    )
    report.notes.append(
        "one by one: each demand in turn on the first card that has room, at the start that leaves most"
    )
    return report


def _fits(report: Report, count: int) -> None:
    """Random feasible layouts of an H100 and random profiles."""
    on, rng = card("h100"), random.Random("partitioning/fits")
    layouts = list(feasible(on, profile_names(on, plain=False)).values())
    names = profile_names(on, plain=False)
    asked = [(rng.choice(layouts), rng.choice(names)) for _ in range(count)]

    def decide() -> int:
        return sum(fits(on, layout, name) is not None for layout, name in asked)

    seconds, yes = timed(decide, repeat=3)
    report.row(measurement="fits, H100", value=count / seconds, unit="decisions/s", remark=f"{yes} of {count} fit")
    report.bar("fit-decisions", count / seconds, ">=", 200_000, "/s", "cost")


FLEETS = {
    "one model": (("h100",), 0.0),
    "four models": (("h100", "a100-80", "h200", "a30"), 0.0),
    "needs, weights, prices": (("h100", "h200", "b200"), 0.5),
}
"""Models of each fleet, and the part of its demands that name memory and compute and not a profile."""
_USD = {"h100": 6_880_000, "h200": 7_910_000, "b200": 14_240_000}
"""Round prices of the third fleet's cards, in micro-USD an hour: what they are does not matter here."""


def fleet(name: str, size: int) -> tuple[list[PlannedGpu], list[Demand]]:
    """``size`` cards, a third of them with instances in use, another third with idle ones; five demands a card."""
    models, needs = FLEETS[name]
    rng = random.Random(f"partitioning/{name}")
    kinds = {gpu: [layout for layout in feasible(card(gpu)).values() if layout] for gpu in models}
    cards = []
    for number in range(size):
        gpu = rng.choice(models)
        running: Layout = rng.choice(kinds[gpu]) if number % 3 else ()
        busy = tuple(one for one in running if rng.random() < 0.5) if number % 3 == 1 else ()
        busy = busy or (running[:1] if number % 3 == 1 else ())
        price = _USD[gpu] if needs else 0
        cards.append(PlannedGpu(f"gpu-{number:04d}", card(gpu), running, busy, micro_usd_per_hour=price))
    profiles = [one for gpu in models for one in profile_names(card(gpu))]
    small = [one for one in profiles if one.startswith(("1g", "2g"))]
    demands = []
    for number in range(5 * size):
        demand = f"demand-{number:04d}"
        if rng.random() < needs:
            memory, compute = rng.choice((4_000, 12_000, 18_000, 30_000, 60_000)), rng.choice((0, 1, 1, 2, 3))
            weight = rng.choice((1.0, 1.0, 1.0, 3.0))
            demands.append(Demand(demand, 1, memory_mib=memory, compute=compute, weight=weight))
        else:
            demands.append(Demand(demand, 1, rng.choice(small if rng.random() < 0.7 else profiles)))
    return cards, demands


def _plan(report: Report, name: str, size: int, limit: float, *, bars: bool) -> None:
    cards, demands = fleet(name, size)
    prices = Prices()
    seconds, found = timed(lambda: plan(cards, demands), repeat=3)
    slices, count, price = reached(found, cards, demands, prices)
    smallest = min(s + _EACH * d for s, d in worths(cards, demands) if s)
    scale = 1_000.0 / smallest
    worth = scale * (slices + _EACH * count) - price
    took, best = timed(lambda: optimum(cards, demands, prices, scale, _EACH, limit))
    title = f"{name}, {size} cards"
    in_use = sum(bool(one.busy) for one in cards)
    report.row(
        measurement=f"{title}: plan",
        value=seconds,
        unit="s",
        remark=f"{in_use} with slices in use, {len(demands)} demands",
    )
    ours = f"{sum(found.served)} demands, {found.destroyed} destroyed, {found.created} created, {found.cut} cut"
    report.row(measurement=f"{title}: plan", value=slices, unit="slices", remark=ours)
    state = "proved optimal" if best.finished else f"stopped, bound {best.bound / scale:.6g}"
    report.row(measurement=f"{title}: oracle", value=best.slices, unit="slices", remark=f"{took:.1f} s, {state}")
    report.row(
        measurement=f"{title}: one by one", value=_one_by_one(cards, demands), unit="slices", remark="no look-ahead"
    )
    key = name.replace(", ", "-").replace(" ", "-")
    report.bar(f"plan-worth-of-oracle-{key}", worth / best.worth, ">=", 0.98, "x", "result")
    report.bar(f"plan-worth-of-bound-{key}", worth / best.bound, ">=", 0.98, "x", "result")
    if bars:
        report.bar(f"plan-seconds-{key}", seconds, "<=", 5.0, "s", "cost")


def _one_by_one(cards: list[PlannedGpu], demands: list[Demand]) -> float:
    """Slices served when idle instances are taken down first, and each demand then placed as it comes."""
    masks = [mask_of(one.on, one.busy) for one in cards]
    models = {one.on.gpu: one.on for one in cards}
    slices = 0.0
    for demand, (value, _) in zip(demands, worths(cards, demands), strict=True):
        names = {gpu: name for gpu in models if (name := profile_of(gpu, demand))}
        wanted = {gpu: resource(models[gpu], name) for gpu, name in names.items()}
        for at, one in enumerate(cards):
            start = one.on.best_start(masks[at], wanted[one.on.gpu]) if one.on.gpu in wanted else None
            if start is not None:
                masks[at] |= one.on.span(wanted[one.on.gpu], start)
                slices += value
                break
    return slices
