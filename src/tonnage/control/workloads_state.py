"""What is known of a cluster of which somebody else has all but the workloads: a past one, another simulator's."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tonnage.decisions import Instances
from tonnage.fleet.cluster_state import State
from tonnage.fleet.gangs import Gang
from tonnage.fleet.snapshot import ClaimView, PodLife, WorkloadView
from tonnage.fleet.state import Fleet
from tonnage.objects.policy import PodDisruptionBudget


class WorkloadsState(State):
    """Only the workloads are known, and their pods."""

    def __init__(self, fleet: Fleet, workloads: Callable[[], Mapping[str, WorkloadView]]) -> None:
        super().__init__(fleet)
        self._workloads = workloads

    def workloads(self) -> Mapping[str, WorkloadView]:
        return self._workloads()

    def claims(self) -> tuple[ClaimView, ...]:
        return ()

    def knows_claim(self, name: str) -> bool:
        return False

    def last_claim(self) -> int:
        return 0

    def gangs(self) -> Mapping[str, Gang]:
        return {}

    def done(self) -> Mapping[str, Mapping[str, int]]:
        return {}

    def topologies(self) -> Mapping[str, tuple[str, ...]]:
        return {}

    def disruption_budgets(self) -> tuple[PodDisruptionBudget, ...]:
        return ()

    def life(self, pod: str) -> PodLife:
        return PodLife()

    def lives(self) -> Mapping[str, PodLife]:
        return {}

    def relayouts(self) -> Mapping[tuple[str, int], Instances]:
        return {}

    def fixed(self) -> Mapping[tuple[str, int], str]:
        return {}
