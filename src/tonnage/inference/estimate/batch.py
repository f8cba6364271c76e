"""Many cases at once: their figures in columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tonnage.errors import InputError
from tonnage.inference.estimate.case import Figures, Load, check_case, check_load, check_room, figures
from tonnage.inference.estimate.replica import Replica


class Columns(NamedTuple):
    """Cases in columns, each of shape (cases,)."""

    figures: Figures
    concurrency: NDArray[np.float64]
    inputs: NDArray[np.float64]
    outputs: NDArray[np.float64]
    batched: NDArray[np.float64]
    same_length: NDArray[np.float64]


def columns(cases: Sequence[tuple[Replica, Load]]) -> Columns:
    """The columns of ``cases``. Raises InputError as :func:`figures` and :func:`check_load` do."""
    replicas, which = distinct(cases)
    known = np.array([(*figures(one), one.max_num_batched_tokens) for one in replicas])
    loads = np.array(
        [(load.concurrency, load.input_tokens, load.output_tokens, load.same_length) for _, load in cases], np.float64
    )
    if not ((loads[:, :3] >= 1) & (loads[:, :3] < np.inf)).all():
        for _, load in cases:
            check_load(load)
    *numbers, batched = np.ascontiguousarray(known.T[:, which])
    concurrency, inputs, outputs, same_length = np.ascontiguousarray(loads.T)
    return Columns(Figures(*numbers), concurrency, inputs, outputs, batched, same_length)


def check_cases(cases: Sequence[tuple[Replica, Load]]) -> None:
    """Raise InputError as :func:`check_case` does, at the first case that it refuses."""
    if not cases or not _plain(cases):
        for replica, load in cases:
            check_case(replica, load)


def distinct(cases: Sequence[tuple[Replica, Load]]) -> tuple[list[Replica], NDArray[np.intp]]:
    """The replicas of ``cases``, each object once, and which of them each case has, shape (cases,)."""
    places: dict[int, int] = {}
    replicas: list[Replica] = []
    which = []
    for replica, _ in cases:
        place = places.setdefault(id(replica), len(replicas))
        if place == len(replicas):
            replicas.append(replica)
        which.append(place)
    return replicas, np.array(which, np.intp)


def _plain(cases: Sequence[tuple[Replica, Load]]) -> bool:
    """Whether no case is refused."""
    replicas, which = distinct(cases)
    try:
        for replica in replicas:
            check_room(replica)
    except InputError:
        return False
    longest = np.array([one.shape.context_tokens or np.inf for one in replicas])[which]
    loads = np.array([(load.concurrency, load.input_tokens, load.output_tokens) for _, load in cases], np.float64)
    return bool(((loads >= 1) & (loads < np.inf)).all() and (loads[:, 1] + loads[:, 2] <= longest).all())
