"""The label sets of a fleet as columns of numbers: each key is looked up once a set, whoever asks for it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.int64]


@dataclass(slots=True)
class _Column:
    values: list[str] = field(default_factory=list)
    ids: dict[str, int] = field(default_factory=dict)
    numbers: list[int] = field(default_factory=list)
    array: Numbers = field(default_factory=lambda: np.zeros(0, np.int64))


class LabelColumns:
    """``sets``: labels by number of the set; it only ever grows."""

    def __init__(self, sets: Sequence[Mapping[str, str]]) -> None:
        self._sets = sets
        self._columns: dict[str, _Column] = {}

    def of(self, key: str) -> tuple[Numbers, list[str]]:
        """(by label set the number of its value, -1 where it has none; the values by number, in the order in which
        sets first had them)."""
        column = self._columns.get(key)
        if column is None:
            column = self._columns[key] = _Column()
        if len(column.numbers) < len(self._sets):
            ids, numbers = column.ids, column.numbers
            for labels in self._sets[len(numbers) :]:
                value = labels.get(key)
                numbers.append(-1 if value is None else ids.setdefault(value, len(ids)))
            column.values, column.array = list(ids), np.array(numbers, np.int64)
        return column.array, column.values


def alike(columns: Sequence[Numbers], size: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Of ``size`` places those where all columns say the same get one number, in the order of first places: (first
    place of each number, number by place)."""
    ids: NDArray[np.intp] = np.zeros(size, np.intp)
    first: NDArray[np.intp] = np.zeros(min(size, 1), np.intp)
    for column in columns:
        width = int(column.max(initial=-1)) + 2
        _, first, ids = np.unique(ids * width + column + 1, return_index=True, return_inverse=True)
    order = np.argsort(first)
    rank = np.empty(len(first), np.intp)
    rank[order] = np.arange(len(first))
    return first[order], rank[ids]
