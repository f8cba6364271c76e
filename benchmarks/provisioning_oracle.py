"""The cheapest nodes for a plain mix, exactly: an integer program over every maximal pattern of every instance type.

Nothing of the planner is used, only the tables of sizes and prices that it reads."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import highspy
import numpy as np

from benchmarks.provisioning_mixes import Group
from tonnage.facts import instances
from tonnage.facts.prices import PriceBook
from tonnage.highs import Solver

MIB = 1 << 20
_INF = float("inf")


def cheapest(groups: Sequence[Group], book: PriceBook) -> float | None:
    """USD per hour of the cheapest on-demand nodes for these pods; None where one of them fits no type."""
    columns: dict[tuple[int, ...], float] = {}
    for one in instances.all():
        prices = [o.micro_usd_per_hour for o in book.offerings(one.name) if o.capacity_type == "on-demand"]
        if one.resource != "nvidia.com/gpu" or one.arch != "amd64" or not prices:
            continue
        for pattern in maximal(one, groups):
            price = min(prices) / 1e6
            if columns.get(pattern, _INF) > price:
                columns[pattern] = price
    if any(all(pattern[at] == 0 for pattern in columns) for at in range(len(groups))):
        return None
    return _solved(list(columns), list(columns.values()), [group.count for group in groups])


def maximal(of: instances.InstanceType, groups: Sequence[Group]) -> list[tuple[int, ...]]:
    """Every pattern on one node of the type to which no further pod can be added."""
    room = (of.resource_count, of.allocatable_cpu_milli, of.allocatable_memory_mib, of.max_pods)
    weights = [(g.gpus, g.cpu, g.memory, 1) if of.accelerator_name in g.names else None for g in groups]

    def fill(at: int, left: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
        if at == len(groups):
            yield ()
            return
        weight = weights[at]
        most = 0 if weight is None else min(groups[at].count, *(h // w for h, w in zip(left, weight, strict=True) if w))
        for count in range(most + 1):
            rest = left if weight is None else tuple(h - count * w for h, w in zip(left, weight, strict=True))
            for others in fill(at + 1, rest):
                yield (count, *others)

    every = set(fill(0, room))
    grown = lambda p, at: (*p[:at], p[at] + 1, *p[at + 1 :])  # noqa: E731
    return [p for p in every if any(p) and not any(grown(p, at) in every for at in range(len(p)))]


def _solved(patterns: Sequence[tuple[int, ...]], prices: Sequence[float], demand: Sequence[int]) -> float:
    solver = Solver(mip_rel_gap=1e-6)
    for count in demand:
        solver.addRow(float(count), _INF, 0, [], [])
    for pattern, price in zip(patterns, prices, strict=True):
        cells = [(at, float(n)) for at, n in enumerate(pattern) if n]
        solver.addCol(price, 0.0, _INF, len(cells), [at for at, _ in cells], [n for _, n in cells])
    numbers = np.arange(len(patterns), dtype=np.int32)
    whole = np.array([highspy.HighsVarType.kInteger] * len(patterns))
    solver.changeColsIntegrality(len(patterns), numbers, whole)
    solver.run()
    assert solver.getModelStatus() == highspy.HighsModelStatus.kOptimal
    return float(solver.getInfo().objective_function_value)
