"""What is left of a device is worth what the recent mix of pods could make of it: shadow prices of a packing program.

A linear program spreads the mix, scaled up to more than the fleet can hold, over the kinds of nodes so that as much
device time as possible is used. Shares of a device are packed by patterns (multisets of share sizes that fit one
device together), which are generated as they are needed (Gilmore and Gomory, "A linear programming approach to the
cutting-stock problem", 1961). Its duals price one device of each kind, each share size there, and a core and a byte.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import gcd

import highspy
import numpy as np
from numpy.typing import NDArray

from tonnage.fleet.asks import FULL
from tonnage.highs import Solver
from tonnage.scheduling.value.mix import NodeKind, TypicalPod

OVERLOAD = 1.3
"""Demand in the program over what the devices hold: a price shows only where something is short."""
FORCED = 0.9
"""Share of a full load that must be served, class by class: a scheduler does not pick its pods."""
SHORTFALL = 1.0
"""A forced pod that is not served costs this many times the devices it asks for, and its cores at the fleet's devices
per core: enough that it comes before others, and so little that what cannot be served at all does not set prices."""
MOST_ROUNDS = 60
"""Rounds of pattern generation at most; some tens are needed at the sizes seen. Fewer rounds only price worse."""
_INF = highspy.kHighsInf
_EPSILON = 1e-6


@dataclass(frozen=True, slots=True)
class DualPrices:
    """By kind: ``device[k, s]``, the worth in milli-devices of a device with ``s`` steps of ``step`` milli free;
    ``cpu[k]`` of a millicore and ``memory[k]`` of a unit of memory. ``rounds``: of pattern generation."""

    step: int
    device: NDArray[np.float64]
    cpu: NDArray[np.float64]
    memory: NDArray[np.float64]
    rounds: int

    def worth(self, kind: int, milli: int) -> float:
        """The worth of a device of the kind with this many milli free."""
        return float(self.device[kind, milli // self.step])


def price(
    asks: Sequence[TypicalPod], kinds: Sequence[NodeKind], overload: float = OVERLOAD, forced: float = FORCED
) -> DualPrices | None:
    """The duals for this mix on these nodes; None where the program was not solved.

    Raises ValueError when no ask is for devices or no kind has one."""
    if not any(ask.count for ask in asks) or not any(kind.devices for kind in kinds):
        raise ValueError("no devices to price")
    return _Program(asks, kinds, overload, forced).solve()


class _Program:
    """The program in HiGHS. Rows: at most and at least this many of each ask; per kind its cores, memory and devices;
    per kind and share size the shares placed against those that patterns hold."""

    def __init__(self, asks: Sequence[TypicalPod], kinds: Sequence[NodeKind], overload: float, forced: float) -> None:
        self.kinds = kinds
        self.sizes = sorted({a.milli for a in asks if a.count and a.milli < FULL}, reverse=True)
        self.step = gcd(FULL, *self.sizes)
        self._per_kind = 3 + len(self.sizes)
        self._first = 2 * len(asks)
        self._patterns: list[set[tuple[int, ...]]] = [set() for _ in kinds]
        self._highs = Solver()
        capacity = sum(k.nodes * k.devices * FULL for k in kinds)
        scale = capacity / sum(a.weight * a.count * a.milli for a in asks)
        per_core = capacity / max(1, sum(k.nodes * k.cpu for k in kinds))
        for ask in asks:
            self._highs.addRow(-_INF, ask.weight * scale * overload, 0, [], [])
        for ask in asks:
            self._highs.addRow(ask.weight * scale * forced, _INF, 0, [], [])
        for kind in kinds:
            for limit in (kind.cpu, kind.memory, kind.devices):
                self._highs.addRow(-_INF, float(kind.nodes * limit), 0, [], [])
            for _ in self.sizes:
                self._highs.addRow(-_INF, 0.0, 0, [], [])
        for number, ask in enumerate(asks):
            self._add_ask(number, ask, len(asks), SHORTFALL * (ask.count * ask.milli + ask.cpu * per_core))
        for k in range(len(kinds)):
            for pattern in _single(self.sizes):
                self._add_pattern(k, pattern)

    def _add_ask(self, number: int, ask: TypicalPod, asks: int, shortfall: float) -> None:
        self._highs.addCol(shortfall, 0.0, _INF, 1, [asks + number], [1.0])
        for k, kind in enumerate(self.kinds):
            if not kind.takes(ask):
                continue
            row = self._first + k * self._per_kind
            cells = {number: 1.0, asks + number: 1.0, row: float(ask.cpu), row + 1: float(ask.memory)}
            if ask.count and ask.milli == FULL:
                cells[row + 2] = float(ask.count)
            elif ask.count:
                cells[row + 3 + self.sizes.index(ask.milli)] = float(ask.count)
            self._column(-float(ask.count * ask.milli), cells)

    def _add_pattern(self, k: int, pattern: tuple[int, ...]) -> None:
        self._patterns[k].add(pattern)
        row = self._first + k * self._per_kind
        self._column(0.0, {row + 2: 1.0} | {row + 3 + s: -float(n) for s, n in enumerate(pattern) if n})

    def _column(self, cost: float, cells: dict[int, float]) -> None:
        kept = {row: value for row, value in cells.items() if value}
        self._highs.addCol(cost, 0.0, _INF, len(kept), list(kept), list(kept.values()))

    def solve(self) -> DualPrices | None:
        rounds = 0
        while True:
            rounds += 1
            self._highs.run()
            if self._highs.getModelStatus() != highspy.HighsModelStatus.kOptimal:
                return None
            dual = -np.array(self._highs.getSolution().row_dual)[self._first :].reshape(-1, self._per_kind)
            device, chosen = _knapsack(dual[:, 3:], self.sizes, self.step)
            new = [
                (k, pattern)
                for k, pattern in enumerate(_pattern(chosen[k], self.sizes, self.step) for k in range(len(dual)))
                if device[k, -1] > dual[k, 2] + _EPSILON and pattern not in self._patterns[k]
            ]
            if not new or rounds == MOST_ROUNDS:
                break
            for k, pattern in new:
                self._add_pattern(k, pattern)
        device[:, -1] = np.maximum(device[:, -1], dual[:, 2])
        return DualPrices(self.step, np.maximum(device, 0.0), dual[:, 0].clip(0), dual[:, 1].clip(0), rounds)


def _single(sizes: Sequence[int]) -> list[tuple[int, ...]]:
    return [tuple(FULL // size if i == j else 0 for j in range(len(sizes))) for i, size in enumerate(sizes)]


def _knapsack(
    price: NDArray[np.float64], sizes: Sequence[int], step: int
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """By kind and free steps: the best total price of shares that fit, and the share to take first (-1: leave one)."""
    best = np.zeros((len(price), FULL // step + 1))
    chosen = np.full(best.shape, -1, np.int64)
    for room in range(1, best.shape[1]):
        best[:, room] = best[:, room - 1]
        for s, size in enumerate(sizes):
            if size // step <= room:
                worth = best[:, room - size // step] + price[:, s]
                better = worth > best[:, room] + 1e-9
                best[better, room] = worth[better]
                chosen[better, room] = s
    return best, chosen


def _pattern(chosen: NDArray[np.int64], sizes: Sequence[int], step: int) -> tuple[int, ...]:
    pattern, room = [0] * len(sizes), len(chosen) - 1
    while room > 0:
        s = int(chosen[room])
        if s >= 0:
            pattern[s] += 1
        room -= sizes[s] // step if s >= 0 else 1
    return tuple(pattern)
