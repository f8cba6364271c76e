"""The program over the patterns known so far, in HiGHS: its relaxation with prices of pods, and whole numbers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import highspy
import numpy as np
from msgspec import Struct

from tonnage.highs import Solver
from tonnage.provisioning.optimal.program import INF, NodePattern, Program

_WHOLE = 0.5
"""More than this of a column that is 0 or 1 is 1."""
_ABSOLUTE = 1e-6
"""USD per hour that do not matter."""


class Duals(Struct, frozen=True):
    """Prices at the optimum of the relaxation. ``pods``: of covering one pod more, by class; ``limits``: of one unit of
    a limit (≤ 0); ``supply``: of one more node of a kind (≤ 0), by index of the kind. ``value``: the optimum."""

    value: float
    pods: tuple[float, ...]
    limits: tuple[float, ...]
    supply: dict[int, float]

    def left(self, program: Program, at: int) -> float:
        """What the pods of a pattern must be worth for a node of this kind to pay: its price, with that of the limits
        that it takes and of its scarcity, less the pods that it holds."""
        of = program.bins[at]
        taken = sum(self.limits[row] * amount for row, amount in of.charges)
        held = sum(self.pods[c] * n for c, n in enumerate(of.holds) if n)
        return of.price - taken - self.supply.get(at, 0.0) - held


class Whole(Struct, frozen=True):
    """``chosen``: how often each column is taken; ``left_out``: pods by class; ``cost`` with their price; ``bound``:
    what no choice among these columns is below."""

    chosen: tuple[tuple[NodePattern, int], ...]
    left_out: tuple[int, ...]
    cost: float
    bound: float


class Master:
    """Rows: pods by class, limits, supply of kinds that are counted. Columns: pods left out, then patterns."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.columns: list[NodePattern] = []
        self._known: set[NodePattern] = set()
        self._classes = len(program.demand)
        counted = [at for at, one in enumerate(program.bins) if one.supply is not None]
        self._supply = {at: self._classes + len(program.limits) + row for row, at in enumerate(counted)}
        self._in_gang = {c for gang in program.gangs for c in gang}
        self._left = [
            *((program.missing, {c: 1.0}, float(program.demand[c])) for c in self._alone()),
            *(
                (
                    program.missing * sum(program.demand[c] for c in gang),
                    {c: float(program.demand[c]) for c in gang},
                    1.0,
                )
                for gang in program.gangs
            ),
        ]
        self._solver = Solver(random_seed=0)
        for demand in program.demand:
            self._solver.addRow(float(demand), INF, 0, [], [])
        for limit in program.limits:
            self._solver.addRow(-INF, limit, 0, [], [])
        for at in counted:
            self._solver.addRow(-INF, float(program.bins[at].supply or 0), 0, [], [])
        for cost, cells, _ in self._left:
            self._solver.addCol(cost, 0.0, INF, len(cells), list(cells), list(cells.values()))

    def add(self, columns: Iterable[NodePattern]) -> int:
        """Patterns that are not known yet; how many there were."""
        new = 0
        for column in columns:
            if column in self._known:
                continue
            self._known.add(column)
            self.columns.append(column)
            cells = self._cells(column)
            cost = self.program.cost(column)
            self._solver.addCol(cost, 0.0, INF, len(cells), list(cells), list(cells.values()))
            new += 1
        return new

    def relaxed(self) -> Duals:
        """The optimum in fractions of nodes."""
        self._solver.run()
        status = self._solver.getModelStatus()
        if status != highspy.HighsModelStatus.kOptimal:
            raise RuntimeError(f"HiGHS ended with {self._solver.modelStatusToString(status)}")
        dual = list(self._solver.getSolution().row_dual)
        first = self._classes + len(self.program.limits)
        return Duals(
            float(self._solver.getInfo().objective_function_value),
            tuple(max(0.0, one) for one in dual[: self._classes]),
            tuple(min(0.0, one) for one in dual[self._classes : first]),
            {at: min(0.0, dual[row]) for at, row in self._supply.items()},
        )

    def fractions(self) -> list[tuple[NodePattern, float]]:
        """The patterns that the relaxation uses, and of how many nodes each."""
        point = list(self._solver.getSolution().col_value)[len(self._left) :]
        return [(one, n) for one, n in zip(self.columns, point, strict=True) if n > _ABSOLUTE]

    def whole(self, columns: Sequence[NodePattern], start: Sequence[tuple[NodePattern, int]], nodes: int) -> Whole:
        """The best whole numbers of these columns that branch and bound finds with ``nodes`` nodes, at least as good as
        ``start`` (whose columns are among them)."""
        program, left = self.program, self._left
        costs = np.array([*(one[0] for one in left), *(program.cost(one) for one in columns)])
        most = [one[2] for one in left]
        for column in columns:
            supply = program.bins[column.bin].supply
            needed = sum(program.demand) if supply is None else supply
            most.append(float(needed))
        cells = [*(one[1] for one in left), *map(self._cells, columns)]
        model = self._model(costs, np.array(most), cells)
        solver = Solver(random_seed=0, mip_rel_gap=0.0, mip_abs_gap=_ABSOLUTE, mip_max_nodes=nodes)
        solver.passModel(model)
        solver.run()
        status, info = solver.getModelStatus(), solver.getInfo()
        if status not in (highspy.HighsModelStatus.kOptimal, highspy.HighsModelStatus.kSolutionLimit):
            raise RuntimeError(f"HiGHS ended with {solver.modelStatusToString(status)}")
        found = self._point(columns, start)
        if info.primal_solution_status == highspy.SolutionStatus.kSolutionStatusFeasible:
            point = np.rint(np.array(solver.getSolution().col_value))
            found = point if costs @ point < costs @ found else found
        chosen = tuple((one, int(n)) for one, n in zip(columns, found[len(left) :], strict=True) if n > _WHOLE)
        bound = min(float(info.mip_dual_bound), float(costs @ found))
        return Whole(chosen, self._left_out(found), float(costs @ found), bound)

    def _alone(self) -> list[int]:
        return [c for c in range(self._classes) if c not in self._in_gang]

    def _cells(self, column: NodePattern) -> dict[int, float]:
        of = self.program.bins[column.bin]
        cells = {c: float(n) for c, n in enumerate(self.program.covers(column)) if n}
        for row, amount in of.charges:
            cells[self._classes + row] = amount
        if column.bin in self._supply:
            cells[self._supply[column.bin]] = 1.0
        return cells

    def _model(self, costs: np.ndarray, most: np.ndarray, cells: Sequence[dict[int, float]]) -> highspy.HighsLp:
        program = self.program
        supply = [float(program.bins[at].supply or 0) for at in self._supply]
        model = highspy.HighsLp()
        free = [-INF] * (len(program.limits) + len(supply))
        model.num_col_, model.num_row_ = len(costs), self._classes + len(free)
        model.col_cost_, model.col_lower_, model.col_upper_ = costs, np.zeros(len(costs)), most
        model.row_lower_ = np.array([*map(float, program.demand), *free])
        model.row_upper_ = np.array([*([INF] * self._classes), *program.limits, *supply])
        model.a_matrix_.format_ = highspy.MatrixFormat.kColwise
        starts = np.cumsum([0, *(len(one) for one in cells)])
        model.a_matrix_.start_ = starts.astype(np.int32)
        model.a_matrix_.index_ = np.array([row for one in cells for row in one], dtype=np.int32)
        model.a_matrix_.value_ = np.array([value for one in cells for value in one.values()], dtype=float)
        model.integrality_ = [highspy.HighsVarType.kInteger] * len(costs)
        return model

    def _point(self, columns: Sequence[NodePattern], chosen: Sequence[tuple[NodePattern, int]]) -> np.ndarray:
        """These columns as a point of the whole program, with the pods that they do not cover left out."""
        program = self.program
        point = np.zeros(len(self._left) + len(columns))
        place = {one: at for at, one in enumerate(columns)}
        open_ = list(program.demand)
        for column, count in chosen:
            point[len(self._left) + place[column]] += count
            for c, n in enumerate(program.covers(column)):
                open_[c] -= n * count
        for at, (_, cells, _) in enumerate(self._left):
            missing = [max(0, open_[c]) for c in cells]
            point[at] = float(any(missing)) if at >= len(self._alone()) else float(missing[0])
        return point

    def _left_out(self, point: np.ndarray) -> tuple[int, ...]:
        found = [0] * self._classes
        for at, (_, cells, _) in enumerate(self._left):
            for c, amount in cells.items():
                found[c] += round(point[at] * amount)
        return tuple(found)
