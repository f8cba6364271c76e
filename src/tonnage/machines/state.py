"""What the simulated world knows of its cluster: the state that its machines and API are in."""

from __future__ import annotations

from collections.abc import Mapping

from tonnage.decisions import Instances
from tonnage.fleet.cluster_state import State
from tonnage.fleet.gangs import Gang
from tonnage.fleet.rows import split_key
from tonnage.fleet.snapshot import ClaimView, PodLife, PodView, WorkloadView
from tonnage.machines.objects import SimulatedPod
from tonnage.machines.site import Site
from tonnage.objects.policy import PodDisruptionBudget

_KNOWN = PodLife()


class SimulatedState(State):
    """Implements :class:`tonnage.fleet.cluster_state.State` over a simulated cluster."""

    def __init__(self, cluster: Site) -> None:
        super().__init__(cluster.fleet)
        self._cluster = cluster

    def workloads(self) -> Mapping[str, WorkloadView]:
        return {
            key: WorkloadView(
                w.kind,
                w.namespace,
                w.name,
                w.replicas,
                tuple(_view(p) for p in w.active),
                tuple(w.cold_starts_ns),
            )
            for key, w in self._cluster.workloads.items()
        }

    def claims(self) -> tuple[ClaimView, ...]:
        return tuple(claim.view() for _, claim in sorted(self._cluster.cloud.claims.items()))

    def knows_claim(self, name: str) -> bool:
        return name in self._cluster.cloud.claims

    def last_claim(self) -> int:
        return 0  # nodes that are gone are known: no name comes twice

    def gangs(self) -> Mapping[str, Gang]:
        return self._cluster.declared.gangs

    def done(self) -> Mapping[str, Mapping[str, int]]:
        return {}  # a part of a workload ends as a whole

    def topologies(self) -> Mapping[str, tuple[str, ...]]:
        return self._cluster.declared.topologies

    def disruption_budgets(self) -> tuple[PodDisruptionBudget, ...]:
        return self._cluster.declared.disruption_budgets

    def life(self, pod: str) -> PodLife:
        found = self._cluster.pods.get(split_key(pod))
        return _KNOWN if found is None else _life(found)

    def lives(self) -> Mapping[str, PodLife]:
        return {pod.key: life for pod in self._cluster.pods.values() if (life := _life(pod)) != _KNOWN}

    def relayouts(self) -> Mapping[tuple[str, int], Instances]:
        return {key: change.goal for key, change in self._cluster.gpus.relayouts.items()}

    def fixed(self) -> Mapping[tuple[str, int], str]:
        return {}  # what is in use stays while the GPU around it is partitioned


def _view(pod: SimulatedPod) -> PodView:
    return PodView(
        pod.row,
        pod.namespace,
        pod.name,
        pod.node,
        pod.created_ns,
        pod.bound_ns,
        pod.ready_ns,
        pod.deletion_cost,
    )


def _life(pod: SimulatedPod) -> PodLife:
    """What decisions know of the pod lifecycle beside what the fleet says."""
    controller = pod.workload.controller
    return PodLife(
        started_ns=pod.started_ns,
        saved_ns=controller.saved_ns(pod) if controller is not None else 0,
        ready=pod.ready_ns is not None or pod.bound_ns is None,
        leaving=pod.terminating,
    )
