"""Which pods of a ReplicaSet go first when there are too many.

Source: kubernetes/kubernetes v1.36 pkg/controller/controller_utils.go, ActivePodsWithRanks with the feature gates
PodDeletionCost and LogarithmicScaleDown, both on by default.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cmp_to_key

from msgspec import Struct

from tonnage.units import NS_PER_S

_PHASES = {"Pending": 0, "Unknown": 1, "Running": 2}


class RemovalCandidate(Struct, frozen=True):
    """What counts of one pod. Times are seconds since the epoch; ``ready_since`` is None for a pod that is not ready.

    ``restarts`` is the most restarts of a container, ``sidecar_restarts`` of a restartable init container.
    """

    uid: str
    node: str = ""
    phase: str = "Pending"
    ready_since: float | None = None
    created: float = 0.0
    deletion_cost: int = 0
    restarts: int = 0
    sidecar_restarts: int = 0


def removal_order(
    pods: Iterable[RemovalCandidate], neighbours: Mapping[str, int], now: float
) -> list[RemovalCandidate]:
    """The pods in the order in which Kubernetes deletes them.

    Without a node first, then the earlier phase, not ready, the lower deletion cost, more of the same workload on the
    node (``neighbours``: active pods of the workload by node), ready for less time, more restarts, younger. Times count
    by powers of two of their age, and the uid decides within one power.
    """

    def compare(a: RemovalCandidate, b: RemovalCandidate) -> int:
        rank_a, rank_b = _rank(a, neighbours), _rank(b, neighbours)
        if rank_a != rank_b:
            return -1 if rank_a < rank_b else 1
        if a.ready_since is not None and b.ready_since is not None and a.ready_since != b.ready_since:
            return _younger_first(a, b, now - a.ready_since, now - b.ready_since)
        restarts_a, restarts_b = (a.restarts, a.sidecar_restarts), (b.restarts, b.sidecar_restarts)
        if restarts_a != restarts_b:
            return -1 if restarts_a > restarts_b else 1
        if a.created != b.created:
            return _younger_first(a, b, now - a.created, now - b.created)
        return (a.uid > b.uid) - (a.uid < b.uid)

    return sorted(pods, key=cmp_to_key(compare))


def _rank(pod: RemovalCandidate, neighbours: Mapping[str, int]) -> tuple[bool, int, bool, int, int]:
    return (
        bool(pod.node),
        _PHASES.get(pod.phase, 0),
        pod.ready_since is not None,
        pod.deletion_cost,
        -neighbours.get(pod.node, 0),
    )


def _younger_first(a: RemovalCandidate, b: RemovalCandidate, age_a: float, age_b: float) -> int:
    power_a, power_b = _power(age_a), _power(age_b)
    if power_a != power_b:
        return -1 if power_a < power_b else 1
    return (a.uid > b.uid) - (a.uid < b.uid)


def _power(age_s: float) -> int:
    """The power of two of an age in nanoseconds, -1 for one that is not positive."""
    return int(age_s * NS_PER_S).bit_length() - 1
