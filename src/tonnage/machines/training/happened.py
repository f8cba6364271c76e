"""What happens to training workloads: what they do and from when on, and why their pods fail."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from msgspec import Struct

from tonnage.machines.events import Later
from tonnage.machines.site import Site
from tonnage.machines.training.part import PartState
from tonnage.workloads.failures import Cause


@dataclass(slots=True)
class StateSpan:
    """What a workload was doing from ``start_ns`` on."""

    start_ns: int
    state: PartState


class Failure(Struct, frozen=True):
    """Why pods fail. ``exit_code`` counts where a container ended."""

    cause: Cause
    exit_code: int

    def says(self, names: Sequence[str]) -> str:
        """What happened to the pods of these names."""
        if self.cause.is_exit:
            end = f"exited with code {self.exit_code}" + (", out of memory" if self.cause is Cause.OOM else "")
        else:
            end = "lost its node" if self.cause is Cause.NODE else "was evicted"
        return f"{', '.join(names)} {end}"


@dataclass(slots=True)
class Then:
    """What a workload does later."""

    do: Callable[[Site], None]

    def handle(self, cluster: Site) -> Later:
        self.do(cluster)
        return ()
