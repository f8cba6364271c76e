"""A fleet's plan as one plain integer program over every placement on every card, solved by HiGHS within a time limit.

It shares nothing with the planner but the table of profiles and what a plan is worth: a variable for each card, profile
and start, and a row for each memory slice of each card. Cards that are alike are not grouped.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import highspy

from tonnage.facts import mig
from tonnage.partitioning.fleet_plan import Demand, FleetPlan, PlannedGpu
from tonnage.partitioning.patterns import Prices


@dataclass(frozen=True, slots=True)
class Optimum:
    """The best plan found: slices and demands served (weighted), the price of the change, and of worth (as the planner
    counts it) what was found and what no plan exceeds. ``finished``: the two meet."""

    slices: float
    demands: float
    price: float
    worth: float
    bound: float
    finished: bool


@dataclass
class _Rows:
    """A program under construction, column by column."""

    gains: list[float] = field(default_factory=list)
    least: list[float] = field(default_factory=list)
    most: list[float] = field(default_factory=list)
    entries: list[list[tuple[int, float]]] = field(default_factory=list)
    limits: list[float] = field(default_factory=list)

    def row(self, limit: float) -> int:
        self.limits.append(limit)
        return len(self.limits) - 1

    def column(self, gain: float, most: float, entries: list[tuple[int, float]], least: float = 0.0) -> int:
        self.gains.append(gain)
        self.least.append(least)
        self.most.append(most)
        self.entries.append(entries)
        return len(self.gains) - 1


def slices_of(gpu: str, profile: str) -> int:
    """Memory slices of an instance, in eighths of a card."""
    one = mig.get(gpu, profile)
    return 8 * one.memory_slices // one.of_memory_slices


def profile_of(gpu: str, demand: Demand) -> str:
    """The profile of a model that serves the demand; empty: none."""
    for one in mig.profiles(gpu, plain=False) if demand.profile else mig.profiles(gpu):
        if demand.profile:
            if one.name == demand.profile:
                return one.name
        elif (one.memory_mib or 0) >= demand.memory_mib and one.compute_slices >= demand.compute:
            return one.name
    return ""


def worths(cards: Sequence[PlannedGpu], demands: Sequence[Demand]) -> list[tuple[float, float]]:
    """(slices, demands) that serving one of each demand counts, weighted; zeros where no card can."""
    models = sorted({card.on.gpu for card in cards})
    found = []
    for demand in demands:
        sizes = [slices_of(gpu, name) for gpu in models if (name := profile_of(gpu, demand))]
        found.append((demand.weight * min(sizes), demand.weight) if sizes else (0.0, 0.0))
    return found


def reached(
    plan: FleetPlan, cards: Sequence[PlannedGpu], demands: Sequence[Demand], prices: Prices
) -> tuple[float, float, float]:
    """(slices, demands, price) of a plan, counted from its layouts and not as the planner counted."""
    each = worths(cards, demands)
    slices = sum(value * n for (value, _), n in zip(each, plan.served, strict=True))
    count = sum(value * n for (_, value), n in zip(each, plan.served, strict=True))
    price = 0.0
    for one in plan.cards:
        before, after = set(one.card.running), set(one.change.after)
        assert set(one.card.busy) <= after
        price += prices.destroyed * len(before - after) + prices.created * len(after - before)
        price += prices.cut * (not before and bool(after))
        if not one.card.busy and one.serves:
            price += prices.dollar * one.card.micro_usd_per_hour / 1e6
    return slices, count, price


def optimum(
    cards: Sequence[PlannedGpu], demands: Sequence[Demand], prices: Prices, scale: float, each: float, seconds: float
) -> Optimum:
    """The best plan that the solver finds in ``seconds``. A demand is worth ``scale`` times (its slices + ``each``)."""
    rows = _Rows()
    pools: dict[tuple[str, str], int] = {}
    for card in cards:
        _card(rows, card, pools, prices)
    counted: dict[tuple[float, float, tuple[tuple[str, str], ...]], int] = {}
    models = sorted({card.on.gpu for card in cards})
    for demand, (slices, one) in zip(demands, worths(cards, demands), strict=True):
        takes = tuple((gpu, name) for gpu in models if (name := profile_of(gpu, demand)))
        if takes:
            counted[slices, one, takes] = counted.get((slices, one, takes), 0) + demand.count
    served: dict[int, tuple[float, float]] = {}
    for (slices, one, takes), count in sorted(counted.items()):
        row = rows.row(count)
        for key in takes:
            gain = scale * (slices + each * one)
            served[rows.column(gain, count, [(row, 1.0), (_pool(rows, pools, key), 1.0)])] = slices, one
    base = sum(prices.destroyed * (len(card.running) - len(card.busy)) for card in cards)
    solver = _solve(rows, seconds)
    point = solver.getSolution().col_value
    amounts = [(slices * point[at], one * point[at]) for at, (slices, one) in served.items()]
    worth = sum(gain * value for gain, value in zip(rows.gains, point, strict=True)) - base
    price = sum(scale * (a + each * b) for a, b in amounts) - worth
    finished = solver.getModelStatus() == highspy.HighsModelStatus.kOptimal
    bound = solver.getInfo().mip_dual_bound - base
    return Optimum(sum(a for a, _ in amounts), sum(b for _, b in amounts), price, worth, bound, finished)


def _pool(rows: _Rows, pools: dict[tuple[str, str], int], key: tuple[str, str]) -> int:
    if key not in pools:
        pools[key] = rows.row(0.0)
    return pools[key]


def _card(rows: _Rows, card: PlannedGpu, pools: dict[tuple[str, str], int], prices: Prices) -> None:
    """Every placement of a card. Keeping an idle instance wins back what destroying it costs."""
    gpu, busy, running = card.on.gpu, set(card.busy), set(card.running)
    table = mig.profiles(gpu, plain=False)
    slices = [rows.row(1.0) for _ in range(table[0].of_memory_slices)]
    media = rows.row(1.0)
    cut = rows.column(-prices.cut, 1.0, []) if not running else -1
    use = rows.column(-prices.dollar * card.micro_usd_per_hour / 1e6, 1.0, [])
    for one in table:
        offers: list[int] = []
        for start in one.starts:
            there = (start, one.name) in {(p.start, p.profile) for p in running}
            held = (start, one.name) in {(p.start, p.profile) for p in busy}
            entries = [(slices[at], 1.0) for at in range(start, start + one.memory_slices)]
            if "+me" in one.name:
                entries.append((media, 1.0))
            gain = 0.0 if held else prices.destroyed if there else -prices.created
            column = rows.column(gain, 1.0, entries, least=1.0 if held else 0.0)
            if not held:
                offers.append(column)
            if cut >= 0:
                row = rows.row(0.0)
                rows.entries[column].append((row, 1.0))
                rows.entries[cut].append((row, -1.0))
        if not busy and card.micro_usd_per_hour:
            given = rows.column(0.0, len(offers), [(_pool(rows, pools, (gpu, one.name)), -1.0)])
            most, row = rows.row(0.0), rows.row(0.0)
            rows.entries[given] += [(most, 1.0), (row, 1.0)]
            rows.entries[use].append((row, -float(len(offers))))
            for column in offers:
                rows.entries[column].append((most, -1.0))
        else:
            for column in offers:
                rows.entries[column].append((_pool(rows, pools, (gpu, one.name)), -1.0))


class _Silent(highspy.Highs):
    def enableCallbacks(self) -> None:
        self.setOptionValue("output_flag", False)


def _solve(rows: _Rows, seconds: float) -> highspy.Highs:
    model = highspy.HighsLp()
    model.num_col_, model.num_row_ = len(rows.gains), len(rows.limits)
    model.sense_ = highspy.ObjSense.kMaximize
    model.col_cost_, model.col_lower_, model.col_upper_ = rows.gains, rows.least, rows.most
    model.row_lower_, model.row_upper_ = [-highspy.kHighsInf] * len(rows.limits), rows.limits
    starts, index, value = [0], [], []
    for column in rows.entries:
        index += [row for row, _ in column]
        value += [number for _, number in column]
        starts.append(len(index))
    model.a_matrix_.format_ = highspy.MatrixFormat.kColwise
    model.a_matrix_.start_, model.a_matrix_.index_, model.a_matrix_.value_ = starts, index, value
    model.integrality_ = [highspy.HighsVarType.kInteger] * len(rows.gains)
    solver = _Silent()
    solver.setOptionValue("time_limit", seconds)
    solver.setOptionValue("mip_rel_gap", 0.0)
    solver.passModel(model)
    solver.run()
    return solver
