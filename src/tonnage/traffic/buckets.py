"""What the buckets of a Prometheus histogram say of a distribution: quantiles and shares, with what they leave open."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

_LEAST_PLACE, _MOST_PLACE = 0.05, 0.95


class Buckets(Struct, frozen=True):
    """A histogram: ``counts[i]`` observations above ``edges[i]`` and up to ``edges[i + 1]``, in its own unit; ``total``
    is the sum of all observations, None where it is not known. The last edge is finite: the caller knows, or assumes,
    what lies beyond the last edge that was exposed."""

    edges: tuple[float, ...]
    counts: tuple[float, ...]
    total: float | None = None

    @property
    def number(self) -> float:
        """How many observations there are."""
        return sum(self.counts)

    @property
    def mean(self) -> float:
        """Of the observations; where their sum is not known, as if each lay in the middle of its bucket."""
        if self.total is not None:
            return self.total / self.number
        middles = [(low + high) / 2 for low, high in zip(self.edges, self.edges[1:], strict=False)]
        return sum(count * at for count, at in zip(self.counts, middles, strict=True)) / self.number

    def quantiles(self, levels: Sequence[float]) -> NDArray[np.float64]:
        """The values at these levels from 0 to 1, in ascending order.

        Within a bucket observations are spread by a power law, the same for all buckets, with which they have the mean
        that was counted."""
        counts = np.array(self.counts)
        lows, widths = np.array(self.edges[:-1]), np.diff(np.array(self.edges))
        shares = counts / counts.sum()
        place = (self.mean - float(shares @ lows)) / float(shares @ widths)
        power = 1 / min(max(place, _LEAST_PLACE), _MOST_PLACE) - 1
        reached = np.concatenate(([0.0], np.cumsum(shares)))
        wanted = np.array(levels) * reached[-1]
        filled = np.flatnonzero(shares)
        bucket = np.clip(np.searchsorted(reached, wanted, side="left") - 1, filled[0], filled[-1])
        inside = np.clip((wanted - reached[bucket]) / np.maximum(shares[bucket], 1e-12), 0.0, 1.0)
        found: NDArray[np.float64] = lows[bucket] + widths[bucket] * inside**power
        return found

    def share_within(self, limit: float) -> tuple[float, float]:
        """The least and the most share of observations that can be up to ``limit``: they differ within its bucket."""
        least = most = 0.0
        for low, high, count in zip(self.edges, self.edges[1:], self.counts, strict=False):
            least += count * (high <= limit)
            most += count * (low < limit)
        return least / self.number, most / self.number


def of_cumulative(bounds: dict[float, float], total: float | None, *, lowest: float, beyond: float) -> Buckets | None:
    """From cumulative counts by upper edge (``le``), as PromQL gives them; None without observations.

    ``lowest``: the lower edge of the first bucket. ``beyond``: what no observation exceeds, where the last finite edge
    is below that. Counts that fall from an edge to the next, as those of targets scraped at different times may, are
    held."""
    finite = sorted(edge for edge in bounds if math.isfinite(edge))
    counts, edges, before = [], [lowest], 0.0
    for edge in finite:
        reached = max(before, bounds[edge])
        counts.append(reached - before)
        edges.append(edge)
        before = reached
    more = max(0.0, bounds.get(math.inf, before) - before)
    if more:
        edges.append(max(beyond, edges[-1] * 1.001))
        counts.append(more)
    if sum(counts) <= 0:
        return None
    return Buckets(tuple(edges), tuple(counts), total if total is None or total > 0 else None)
