"""The policies that set replicas, by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from tonnage.decisions import Scale
from tonnage.fleet.snapshot import Snapshot
from tonnage.scaling.target import Target, TrafficReading
from tonnage.scaling.waiting import Seats

ReplicaPolicy: TypeAlias = Callable[
    [Snapshot, Sequence[Target], Mapping[str, TrafficReading], Mapping[str, Any], Seats],
    tuple[list[Scale], dict[str, Any]],
]
"""A snapshot, the targets of the policy's workloads, what was measured of each and what the policy remembers of each
(both by workload, empty at first), and what the scheduler would do → Scale decisions for all of them together, and what
is to be remembered. What is remembered is the policy's own; nobody else looks at more of it than ``reason``, the Reason
of the last tick, where it has one. A reading of None is "no data"."""


def _slo(
    snapshot: Snapshot,
    targets: Sequence[Target],
    readings: Mapping[str, TrafficReading],
    memory: Mapping[str, Any],
    seats: Seats,
) -> tuple[list[Scale], dict[str, Any]]:
    """Loaded when it first decides: the names are for everybody."""
    from tonnage.scaling import slo

    return slo.decide(snapshot, targets, readings, memory, seats)


POLICIES: dict[str, ReplicaPolicy] = {
    "slo": _slo,
}
"""``slo``: as many replicas as the demand needs by the time they can serve, at the least cost."""

BY_MANIFESTS = "manifests"
"""Beside these, in a scenario: the HPAs and ScaledObjects of its manifests set the replicas."""
