"""What a policy that sets replicas is told of a workload: what it may do, and what was measured."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from tonnage.units import NS_PER_S

Sized: TypeAlias = Callable[[float], tuple[float, float]]
"""(capacity, concurrency) of a replica that finds this share of each prompt, 0 to below 1, in its cache."""


@dataclass(frozen=True, slots=True)
class Target:
    """One workload under a policy.

    ``capacity``: requests per second that a replica serves within the SLO; ``concurrency``: what it then has in flight.
    ``prior_cold_start_ns`` stands in until one was measured. ``gpus``: devices of one replica.

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


@dataclass(frozen=True, slots=True)
class Reading:
    """What was measured now: all requests received, requests in flight, recent cold starts. None is no data.

    ``asked``: prompt tokens that engines lately looked for in their caches; ``found``: those that were there.
    """

    received: float | None
    in_flight: float | None
    cold_starts_ns: tuple[int, ...] = ()
    asked: float | None = None
    found: float | None = None
