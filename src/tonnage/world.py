"""The port between deciding and doing. A world is where decisions take effect: simulated, or a Kubernetes cluster."""

from __future__ import annotations

from typing import Protocol

from tonnage.decisions import Decision, Outcome
from tonnage.fleet.snapshot import Snapshot
from tonnage.metrics.promql import Vector


class World(Protocol):
    """What a loop may see and do. Both worlds implement this, and nothing else reaches a controller."""

    def now(self) -> int:
        """The time in nanoseconds (virtual or since the epoch)."""
        ...

    def snapshot(self) -> Snapshot:
        """A read-only view of the cluster at this instant."""
        ...

    def apply(self, decision: Decision) -> Outcome:
        """Check the decision's preconditions again, then let it take effect."""
        ...

    def measure(self, query: str, at_ns: int) -> Vector:
        """The value of a PromQL instant query; an empty vector is "no data"."""
        ...
