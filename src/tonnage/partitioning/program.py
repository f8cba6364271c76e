"""The integer program of a fleet's plan: how many cards of each group take which pattern, and who gets what they offer.

Cards that are alike (model, what runs, what is in use, price) are one group, so a program has a row a group and not a
card. The linear relaxation is solved first; a basic solution of it splits hardly more groups than there are profiles
asked for. All whole parts are kept, and the rest is solved exactly as an integer program. What the relaxation reaches
bounds what any plan can, so the answer comes with its gap.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from tonnage.partitioning.patterns import Pattern

if TYPE_CHECKING:
    import highspy

EXACT_COLUMNS = 1_000
"""Programs with up to this many patterns are solved as a whole."""
NODES = 2_000
"""Nodes of the search tree, after which the best plan so far is taken: a count and not a time, so that a plan does not
depend on the machine."""


@dataclass(frozen=True, slots=True)
class GpuGroup:
    """``count`` cards of the model ``model`` that can take these patterns; ``Pattern.offers`` follows ``offered``."""

    model: str
    offered: tuple[str, ...]
    count: int
    patterns: Sequence[Pattern]


@dataclass(frozen=True, slots=True)
class Class:
    """``count`` demands of one kind. ``takes``: the (model, profile) that serve one; ``value``: what one is worth."""

    count: int
    value: float
    takes: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class LayoutSolution:
    """``cards``: by group, cards by pattern (the others stay). ``served``: by class, how many by what it takes.

    ``worth``: the objective reached; ``bound``: no plan reaches more."""

    cards: list[list[int]]
    served: list[list[int]]
    worth: float
    bound: float


@dataclass(frozen=True, slots=True)
class _Columns:
    """The matrix. Columns: patterns group by group, then what serves class by class. Rows: cards of each group, demands
    of each class, instances of each (model, profile). Every row is at most ``limits``."""

    gains: NDArray[np.float64]
    most: NDArray[np.float64]
    limits: NDArray[np.float64]
    starts: NDArray[np.int32]
    rows: NDArray[np.int32]
    values: NDArray[np.float64]
    groups: NDArray[np.int64]
    """Group of each pattern's column."""


def solve(groups: Sequence[GpuGroup], classes: Sequence[Class]) -> LayoutSolution:
    """Cards and demands so that the value served less the patterns' prices is as large as can be.

    Exact for programs of up to :data:`EXACT_COLUMNS` patterns that the search finishes within :data:`NODES` nodes."""
    columns = _columns(groups, classes)
    width = len(columns.groups)
    if width > EXACT_COLUMNS:
        relaxed, bound = _run(columns, np.zeros_like(columns.most), columns.most, whole=False)
        least, most = _kept(columns, relaxed)
        found, _ = _run(columns, least, most, whole=True)
    else:
        found, bound = _run(columns, np.zeros_like(columns.most), columns.most, whole=True)
    numbers = np.rint(found).astype(int).tolist()
    cards, at = [], 0
    for group in groups:
        cards.append(numbers[at : at + len(group.patterns)])
        at += len(group.patterns)
    served = []
    for one in classes:
        served.append(numbers[at : at + len(one.takes)])
        at += len(one.takes)
    return LayoutSolution(cards, served, float(columns.gains @ np.rint(found)), bound)


def _columns(groups: Sequence[GpuGroup], classes: Sequence[Class]) -> _Columns:
    pools = {key: i for i, key in enumerate(sorted({key for one in classes for key in one.takes}))}
    first_class, first_pool = len(groups), len(groups) + len(classes)
    gains, most, starts, rows, values = [], [], [0], [], []
    group_of = []
    for number, group in enumerate(groups):
        pool_rows = [pools.get((group.model, name)) for name in group.offered]
        for pattern in group.patterns:
            gains.append(-pattern.price)
            most.append(group.count)
            group_of.append(number)
            rows.append(number)
            values.append(1.0)
            for pool, count in zip(pool_rows, pattern.offers, strict=True):
                if pool is not None and count:
                    rows.append(first_pool + pool)
                    values.append(-float(count))
            starts.append(len(rows))
    for number, one in enumerate(classes):
        for key in one.takes:
            gains.append(one.value)
            most.append(one.count)
            rows += [first_class + number, first_pool + pools[key]]
            values += [1.0, 1.0]
            starts.append(len(rows))
    limits = [*(group.count for group in groups), *(one.count for one in classes), *(0 for _ in pools)]
    return _Columns(
        np.array(gains, dtype=float),
        np.array(most, dtype=float),
        np.array(limits, dtype=float),
        np.array(starts, dtype=np.int32),
        np.array(rows, dtype=np.int32),
        np.array(values, dtype=float),
        np.array(group_of, dtype=np.int64),
    )


def _kept(columns: _Columns, relaxed: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Bounds that keep the whole part of each pattern's cards; open are the groups that the relaxation splits, and all
    of who gets what."""
    width = len(columns.groups)
    least, most = np.zeros_like(columns.most), columns.most.copy()
    whole = np.floor(relaxed[:width] + 1e-6)
    split = np.abs(relaxed[:width] - np.rint(relaxed[:width])) > 1e-6
    open_groups = np.zeros(int(columns.groups.max(initial=-1)) + 1, dtype=bool)
    open_groups[columns.groups[split]] = True
    least[:width] = whole
    most[:width] = np.where(open_groups[columns.groups], columns.most[:width], whole)
    return least, most


def _run(
    columns: _Columns, least: NDArray[np.float64], most: NDArray[np.float64], *, whole: bool
) -> tuple[NDArray[np.float64], float]:
    """The best point within these bounds, and what no point within them exceeds."""
    import highspy

    from tonnage.highs import Solver

    if not len(columns.gains):
        return np.zeros(0), 0.0

    solver = Solver(**_OPTIONS)
    solver.passModel(_model(highspy, columns, least, most, whole))
    solver.run()
    status = solver.getModelStatus()
    if status not in (highspy.HighsModelStatus.kOptimal, highspy.HighsModelStatus.kSolutionLimit):
        raise RuntimeError(f"HiGHS ended with {solver.modelStatusToString(status)}")
    point = np.array(solver.getSolution().col_value)
    bound = solver.getInfo().mip_dual_bound if whole else solver.getInfo().objective_function_value
    return point, float(bound)


_OPTIONS: dict[str, Any] = {
    "random_seed": 0,
    "mip_rel_gap": 0.0,
    "mip_abs_gap": 0.4,
    "mip_max_nodes": NODES,
}


def _model(
    solver: Any, columns: _Columns, least: NDArray[np.float64], most: NDArray[np.float64], whole: bool
) -> highspy.HighsLp:
    model: highspy.HighsLp = solver.HighsLp()
    model.num_col_, model.num_row_ = len(columns.gains), len(columns.limits)
    model.sense_ = solver.ObjSense.kMaximize
    model.col_cost_, model.col_lower_, model.col_upper_ = columns.gains, least, most
    model.row_lower_, model.row_upper_ = np.full(len(columns.limits), -solver.kHighsInf), columns.limits
    model.a_matrix_.format_ = solver.MatrixFormat.kColwise
    model.a_matrix_.start_, model.a_matrix_.index_, model.a_matrix_.value_ = (
        columns.starts,
        columns.rows,
        columns.values,
    )
    if whole:
        model.integrality_ = [solver.HighsVarType.kInteger] * len(columns.gains)
    return model
