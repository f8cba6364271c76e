"""Requests over time from what engines and gateways count: counters, and gauges of what is in flight."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from tonnage.metrics.store import Series

Curve = NDArray[np.float64]


def growth(series: Iterable[Series], edges_ns: Sequence[int], first_ns: int) -> Curve:
    """How much counters have grown together from the first of ``edges_ns`` to each of them.

    A counter that falls has begun again from zero (its process has restarted). One whose first sample is later than
    ``first_ns``, when samples begin at all, has begun at zero a scrape before: all that it counts is growth. Between
    samples growth is even; after its last sample a series grows no more.
    """
    total = np.zeros(len(edges_ns))
    for one in series:
        times, values = np.array(one.times, np.float64), np.array(one.values)
        steps = np.diff(values)
        grown = np.concatenate(([0.0], np.cumsum(np.where(steps < 0, values[1:], steps))))
        total += _at(edges_ns, *_from_zero(times, grown, float(values[0]), first_ns))
    return total


def change(series: Iterable[Series], edges_ns: Sequence[int], first_ns: int) -> Curve:
    """How much gauges have changed together since the first of ``edges_ns``. A series that ends keeps its last value:
    what was in flight at a pod that is gone had come all the same."""
    total = np.zeros(len(edges_ns))
    for one in series:
        times, values = np.array(one.times, np.float64), np.array(one.values)
        total += _at(edges_ns, *_from_zero(times, values - values[0], float(values[0]), first_ns))
    return total


def _from_zero(times: Curve, grown: Curve, began: float, first_ns: int) -> tuple[Curve, Curve]:
    """The curve of a series with its growth up to its first sample, where it began after the others."""
    if times[0] <= first_ns:
        return times, grown
    scrape = float(np.median(np.diff(times))) if len(times) > 1 else 0.0
    return np.concatenate(([times[0] - scrape], times)), np.concatenate(([0.0], grown + began))


def _at(edges_ns: Sequence[int], times: Curve, grown: Curve) -> Curve:
    found: Curve = np.interp(np.array(edges_ns, np.float64), times, grown)
    found -= found[0]
    return found
