"""What a policy that sets replicas is told of a workload: what it may do, and what was measured."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import ceil, sqrt
from typing import TypeAlias

from tonnage.units import NS_PER_S

Sized: TypeAlias = Callable[[float], tuple[float, float]]
"""(capacity, concurrency) of a replica that finds this share of each prompt, 0 to below 1, in its cache."""


PAIR, POOL = 2, 8
"""Replicas that share the arrivals when one replica's capacity is found: fewer carry less each, more carry more."""


@dataclass(frozen=True, slots=True)
class Target:
    """One workload under a policy.

    ``capacity``: requests per second that a replica serves within the SLO; ``concurrency``: what it then has in flight.
    ``prior_cold_start_ns`` stands in until one was measured. ``gpus``: devices of one replica.

    ``pair_capacity``: the capacity where two replicas share the arrivals, 0 where it is not known; ``capacity`` is for
    ``POOL`` of them and more.

    ``new_node_ns``: what a replica takes to serve where each needs a node to be launched first; 0 where there are nodes
    of a fixed fleet, on which the next one may start at once.

    ``sized`` gives the first two where caches help; None: they stay as they are. ``reuse``: the share they are for.
    """

    workload: str
    capacity: float
    concurrency: float
    minimum: int
    maximum: int
    prior_cold_start_ns: int
    hold_ns: int = 180 * NS_PER_S
    drain_ns: int = 240 * NS_PER_S
    z: float = 1.0
    gpus: int = 1
    sized: Sized | None = None
    reuse: float = 0.0
    pair_capacity: float = 0.0
    new_node_ns: int = 0

    @property
    def far(self) -> bool:
        """Whether every replica more needs a new node, so that help takes long to come."""
        return self.new_node_ns > 0

    def needed(self, rate: float) -> int:
        """The fewest replicas that serve this many requests per second within the SLO."""
        count = max(1, ceil(rate / self.capacity - 1e-9))
        while count < self.maximum and count * self.capacity_of(count) < rate - 1e-9:
            count += 1
        return count if rate > 0 else 0

    def capacity_of(self, replicas: int) -> float:
        """Requests per second of each of so many replicas: a constant less what falls with the root of their number
        (square-root staffing: Halfin and Whitt 1981), through the capacities at ``PAIR`` and at ``POOL`` replicas."""
        if not 0 < self.pair_capacity < self.capacity or replicas >= POOL:
            return self.capacity
        loss = (self.capacity - self.pair_capacity) / (1 / sqrt(PAIR) - 1 / sqrt(POOL))
        return max(self.capacity + loss * (1 / sqrt(POOL) - 1 / sqrt(replicas)), self.capacity / POOL)


@dataclass(frozen=True, slots=True)
class TrafficReading:
    """What was measured now: all requests received, requests in flight, recent cold starts. None is no data.

    ``asked``: prompt tokens that engines lately looked for in their caches; ``found``: those that were there.
    ``age_ns``: how long ago the requests received were counted.
    """

    received: float | None
    in_flight: float | None
    cold_starts_ns: tuple[int, ...] = ()
    asked: float | None = None
    found: float | None = None
    age_ns: int = 0
