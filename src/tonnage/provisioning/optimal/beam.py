"""Valuable patterns of several kinds of nodes at once, found quickly and without proof.

Class by class, the largest pods first, each pattern so far is continued by every number of pods of the class that fits;
of each kind of node the most promising are kept, by what they are worth with the best that the room left could still
hold. That is what the room costs at prices of resources by which no pod is worth more than it takes.
"""

from __future__ import annotations

from collections.abc import Sequence

import highspy
import numpy as np
from numpy.typing import NDArray

from tonnage.highs import Solver
from tonnage.provisioning.optimal.program import INF, NodePattern, Program

_ONE_BY_ONE = 8
"""Up to this many pods of a class every number is tried, of more the half and all that fit."""
_WORTHLESS = 1e-9


class Beam:
    """The kinds of nodes of a program as arrays."""

    def __init__(self, program: Program) -> None:
        self._demand = np.array(program.demand)
        self._weights = np.array(program.weights, dtype=float)
        self._rooms = np.array([one.room for one in program.bins], dtype=float)
        self._counted = np.array([one.supply is not None for one in program.bins], dtype=np.bool_)
        self._admits = np.zeros((len(program.bins), len(program.demand)), dtype=np.bool_)
        for at, one in enumerate(program.bins):
            self._admits[at, list(one.admits)] = True

    def patterns(
        self, values: Sequence[float], prices: Sequence[float], kinds: int, width: int, most: int
    ) -> list[NodePattern]:
        """Up to ``most`` patterns of each of so many ``kinds``, and of as many of those that are counted: the kinds of
        which a node could hold the most for its price at these values of pods, and the most valuable patterns found
        with ``width`` kept at a time. ``prices``: by kind, what its pods have to be worth for it to pay."""
        worth = np.array(values)
        unit = self._unit_prices(worth)
        least = np.array(prices)
        ratio = np.round(self._rooms @ unit / np.maximum(least, _WORTHLESS), 2)
        order = np.lexsort((least, -ratio))
        among = np.concatenate([order[~self._counted[order]][:kinds], order[self._counted[order]][:kinds]])
        row = np.arange(len(among))[:, None]
        left, value = self._rooms[among][:, None, :], np.zeros((len(among), 1))
        steps: list[tuple[int, NDArray[np.intp], NDArray[np.int64]]] = []
        for c in np.argsort(-(self._weights @ unit), kind="stable").tolist():
            if worth[c] <= _WORTHLESS:
                continue
            weight = self._weights[c]
            takes = weight > 0
            fit = np.minimum(np.floor((left[:, :, takes] / weight[takes]).min(axis=2) + 1e-9), self._demand[c])
            fit[~self._admits[among, c]] = 0
            numbers = _numbers(int(fit.max()))
            if len(numbers) == 1:
                continue
            worths = value[:, :, None] + numbers * worth[c]
            score = worths + (left @ unit)[:, :, None] - numbers * float(weight @ unit)
            score = np.where(numbers <= fit[:, :, None], score, -np.inf).reshape(len(among), -1)
            kept = _largest(score, width)
            parent, number = kept // len(numbers), numbers[kept % len(numbers)]
            value = np.take_along_axis(worths.reshape(len(among), -1), kept, axis=1)
            value[np.take_along_axis(score, kept, axis=1) == -np.inf] = -np.inf
            left = left[row, parent] - number[:, :, None] * weight
            steps.append((c, parent, number))
        best = _largest(value, most)
        return [
            NodePattern(int(at), self._counts(steps, n, int(place)))
            for n, at in enumerate(among)
            for place in best[n]
            if value[n, place] > 0
        ]

    def _counts(
        self, steps: Sequence[tuple[int, NDArray[np.intp], NDArray[np.int64]]], row: int, place: int
    ) -> tuple[int, ...]:
        """The pods by class of a pattern, from where it ended back to where it began."""
        counts = [0] * len(self._demand)
        for c, parent, number in reversed(steps):
            counts[c] = int(number[row, place])
            place = int(parent[row, place])
        return tuple(counts)

    def _unit_prices(self, worth: NDArray[np.float64]) -> NDArray[np.float64]:
        """Prices of resources by which the middle of all rooms costs least and no pod is worth more than it takes."""
        room = np.median(self._rooms, axis=0)
        scale = np.maximum(self._weights.max(axis=0), 1.0)
        solver = Solver()
        for dimension in range(len(room)):
            solver.addCol(float(room[dimension] / scale[dimension]), 0.0, INF, 0, [], [])
        for c in np.flatnonzero(worth > 0):
            taken = np.flatnonzero(self._weights[c])
            solver.addRow(float(worth[c]), INF, len(taken), taken.tolist(), (self._weights[c] / scale)[taken].tolist())
        solver.run()
        if solver.getModelStatus() != highspy.HighsModelStatus.kOptimal:
            return np.zeros(len(room))
        found: NDArray[np.float64] = np.array(solver.getSolution().col_value) / scale
        return found


def _numbers(most: int) -> NDArray[np.int64]:
    return np.array(sorted({*range(min(most, _ONE_BY_ONE) + 1), most // 2, most}))


def _largest(score: NDArray[np.float64], count: int) -> NDArray[np.intp]:
    """By row, the places of the largest numbers, the first of equal ones."""
    order: NDArray[np.intp] = np.argsort(-score, axis=1, kind="stable")[:, :count]
    return order
