"""What a decision may look at: a read-only view of the cluster at one instant, with its revision. Not a copy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tonnage.decisions import Launch
from tonnage.fleet.state import Fleet


@dataclass(frozen=True, slots=True)
class PodView:
    """One pod of a workload. Times in nanoseconds; None until it happened."""

    row: int
    namespace: str
    name: str
    node: str
    created_ns: int
    bound_ns: int | None
    ready_ns: int | None
    deletion_cost: int = 0


@dataclass(frozen=True, slots=True)
class WorkloadView:
    """A Deployment: replicas wanted, and its pods that are not being deleted, by name.

    ``cold_starts_ns``: how long each of its recent pods took from creation to serving. ``owner``: the HPA or
    ScaledObject that sets its replicas, if one does.
    """

    kind: str
    namespace: str
    name: str
    replicas: int
    pods: tuple[PodView, ...]
    cold_starts_ns: tuple[int, ...] = ()
    uid: str = ""
    annotations: Mapping[str, str] = field(default_factory=dict)
    owner: str = ""

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}"

    @property
    def ready(self) -> int:
        """Pods that are Ready."""
        return sum(pod.ready_ns is not None for pod in self.pods)


@dataclass(frozen=True, slots=True)
class ClaimView:
    """A NodeClaim that is not initialised yet: bought, or being bought. ``launch``: the decision that bought it."""

    launch: Launch
    created_ns: int
    node: str = ""  # until it registered

    @property
    def name(self) -> str:
        return self.launch.claim.name


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The cluster as a decision sees it. ``fleet`` may be changed inside ``fleet.what_if()`` only."""

    now_ns: int
    fleet: Fleet
    workloads: Mapping[str, WorkloadView] = field(default_factory=dict)
    claims: tuple[ClaimView, ...] = ()
    unavailable: frozenset[tuple[str, str, str]] = frozenset()
    """Offerings out of stock: (instance type, zone, capacity type)."""
    last_claim: int = 0
    """The highest number in the name of a NodeClaim that there is or was, where the world knows."""

    @property
    def revision(self) -> int:
        return self.fleet.revision
