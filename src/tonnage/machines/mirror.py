"""How the simulated machines show themselves to others: every change to a node or a pod is told once it is made.

In the simulated world nobody listens. Behind a Kubernetes API (:mod:`tonnage.hollow`) each call becomes a write.
"""

from __future__ import annotations

from typing import Any, Protocol

from tonnage.fleet.state import FleetPod
from tonnage.machines.objects import SimulatedNode, SimulatedNodeClaim, SimulatedPod, WorkloadController


class Mirror(Protocol):
    """Told of changes after they were made."""

    def pod_created(self, pod: SimulatedPod) -> None:
        """A workload made a pod."""
        ...

    def daemon_created(self, spec: FleetPod, node: SimulatedNode) -> None:
        """A DaemonSet's pod stands on a node."""
        ...

    def pod_changed(self, pod: SimulatedPod) -> None:
        """Its container started, it became Ready, or a checkpoint of its work was written."""
        ...

    def pod_failing(self, pod: SimulatedPod, reason: str, message: str) -> None:
        """Its container cannot start."""
        ...

    def pod_deleted(self, pod: SimulatedPod) -> None:
        """It was told to stop."""
        ...

    def pod_gone(self, pod: SimulatedPod) -> None:
        """It has ended."""
        ...

    def training_changed(self, training: WorkloadController[Any]) -> None:
        """A training workload was created, goes on to something else, or is over."""
        ...

    def claim_running(self, claim: SimulatedNodeClaim) -> None:
        """Its instance runs."""
        ...

    def node_changed(self, node: SimulatedNode) -> None:
        """It registered, became Ready, got its devices, or was cordoned."""
        ...

    def node_gone(self, node: SimulatedNode) -> None:
        """The machine is gone, with everything on it."""
        ...

    def event(self, object_: str, type_: str, reason: str, message: str) -> None:
        """A cluster event about ``Kind namespace/name``."""
        ...


class Unseen:
    """Nobody listens."""

    def pod_created(self, pod: SimulatedPod) -> None: ...
    def daemon_created(self, spec: FleetPod, node: SimulatedNode) -> None: ...
    def pod_changed(self, pod: SimulatedPod) -> None: ...
    def pod_failing(self, pod: SimulatedPod, reason: str, message: str) -> None: ...
    def pod_deleted(self, pod: SimulatedPod) -> None: ...
    def pod_gone(self, pod: SimulatedPod) -> None: ...
    def training_changed(self, training: WorkloadController[Any]) -> None: ...
    def claim_running(self, claim: SimulatedNodeClaim) -> None: ...
    def node_changed(self, node: SimulatedNode) -> None: ...
    def node_gone(self, node: SimulatedNode) -> None: ...
    def event(self, object_: str, type_: str, reason: str, message: str) -> None: ...
