"""The port between deciding and doing. A world is where decisions take effect: simulated, or a Kubernetes cluster."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from tonnage.decisions import Decision, Outcome, Ref
from tonnage.fleet.snapshot import Snapshot
from tonnage.metrics.promql import Result


class World(Protocol):
    """What a loop may see and do. Every world implements this, and nothing else reaches a controller."""

    def now(self) -> int:
        """The time in nanoseconds (virtual, or since the Unix epoch)."""
        ...

    def snapshot(self) -> Snapshot:
        """A read-only view of the cluster at this instant."""
        ...

    def apply(self, decision: Decision) -> Outcome:
        """Check the decision's preconditions again, then let it take effect."""
        ...

    def apply_all(self, decisions: Sequence[Decision]) -> list[Outcome]:
        """Apply what was decided together, as if in order; a world may overlap what does not depend on each other."""
        ...

    def measure(self, query: str, at_ns: int) -> Result:
        """The answer to a PromQL instant query; an empty vector is "no data".

        Raises InputError when the query cannot be answered: an error of Prometheus, or no connection."""
        ...

    def note(self, about: Ref, reason: str, message: str, *, warning: bool = True) -> None:
        """Write an event about an object, of type Warning or Normal. It changes nothing."""
        ...

    def woken(self) -> frozenset[str]:
        """The kinds of change (``pod``, ``node``, ``claim``, …) since the last call."""
        ...
