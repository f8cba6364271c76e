"""Many cases at once: their figures in columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tonnage.inference.estimate.case import Figures, Load, Replica, check_load, figures


class Columns(NamedTuple):
    """Cases in columns, each of shape (cases,)."""

    figures: Figures
    concurrency: NDArray[np.float64]
    inputs: NDArray[np.float64]
    outputs: NDArray[np.float64]
    batched: NDArray[np.float64]


def columns(cases: Sequence[tuple[Replica, Load]]) -> Columns:
    """The columns of ``cases``. Raises InputError as :func:`figures` and :func:`check_load` do."""
    numbers = np.empty((len(cases), len(Figures._fields) + 4))
    for index, (replica, load) in enumerate(cases):
        check_load(load)
        numbers[index] = (
            *figures(replica),
            load.concurrency,
            load.input_tokens,
            load.output_tokens,
            replica.max_num_batched_tokens,
        )
    across = np.ascontiguousarray(numbers.T)
    return Columns(Figures(*across[:-4]), *across[-4:])
