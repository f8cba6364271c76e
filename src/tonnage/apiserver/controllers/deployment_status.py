"""The status of a Deployment: its counts and conditions, in Kubernetes' words. Pure.

Source: kubernetes/kubernetes v1.36 pkg/controller/deployment (progress.go, sync.go, util/deployment_util.go).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tonnage.apiserver.controllers.arithmetic import RolloutBounds, bounds
from tonnage.apiserver.controllers.meta import (
    condition_of,
    generation_of,
    key_of,
    seconds_of,
    spec_of,
    stamp,
    status_of,
)
from tonnage.kube.verbs import JsonObject

Status = dict[str, Any]
_NO_LIMIT = 2**31 - 1


def desired(deployment: JsonObject) -> int:
    """spec.replicas."""
    return int(spec_of(deployment).get("replicas", 1))


def is_rolling(deployment: JsonObject) -> bool:
    """Whether the strategy is RollingUpdate."""
    kind: str = (spec_of(deployment).get("strategy") or {}).get("type", "RollingUpdate")
    return kind == "RollingUpdate"


def bounds_of(deployment: JsonObject) -> RolloutBounds:
    """Surge and unavailability that the strategy allows now; none for Recreate."""
    if not is_rolling(deployment):
        return RolloutBounds(0, 0)
    rolling = (spec_of(deployment).get("strategy") or {}).get("rollingUpdate") or {}
    return bounds(rolling.get("maxSurge", "25%"), rolling.get("maxUnavailable", "25%"), desired(deployment))


def deadline_of(deployment: JsonObject) -> int | None:
    """progressDeadlineSeconds; None when progress has no deadline."""
    deadline = spec_of(deployment).get("progressDeadlineSeconds")
    return None if deadline is None or deadline == _NO_LIMIT else int(deadline)


def history_limit_of(deployment: JsonObject) -> int | None:
    """revisionHistoryLimit; None when all are kept."""
    limit = spec_of(deployment).get("revisionHistoryLimit")
    return None if limit is None or limit == _NO_LIMIT else int(limit)


def count(replica_sets: Sequence[JsonObject], field: str) -> int:
    """The sum of a count in the status of ReplicaSets."""
    return sum(int(status_of(one).get(field) or 0) for one in replica_sets)


def asked(replica_sets: Sequence[JsonObject]) -> int:
    """The sum of spec.replicas."""
    return sum(int(spec_of(one).get("replicas", 1)) for one in replica_sets)


def condition(kind: str, status: str, reason: str, message: str, now: float) -> dict[str, Any]:
    """A condition as of now."""
    when = stamp(now)
    return {
        "type": kind,
        "status": status,
        "lastUpdateTime": when,
        "lastTransitionTime": when,
        "reason": reason,
        "message": message,
    }


def with_condition(status: Status, new: dict[str, Any]) -> Status:
    """The status with a condition set, unless it says so already; the transition time changes with the status only."""
    old = condition_of(status, new["type"])
    if old is not None and (old.get("status"), old.get("reason")) == (new["status"], new["reason"]):
        return status
    if old is not None and old.get("status") == new["status"]:
        new = {**new, "lastTransitionTime": old.get("lastTransitionTime")}
    return {**status, "conditions": [*_others(status, new["type"]), new]}


def without_condition(status: Status, kind: str) -> Status:
    """The status without the condition of this type."""
    return {**status, "conditions": _others(status, kind)} if condition_of(status, kind) else status


def counted(deployment: JsonObject, sets: Sequence[JsonObject], new: JsonObject | None, now: float) -> Status:
    """The status by the ReplicaSets' own: counts and the condition Available."""
    old = status_of(deployment)
    available = count(sets, "availableReplicas")
    status: Status = {"observedGeneration": generation_of(deployment)}
    for field, number in (
        ("replicas", count(sets, "replicas")),
        ("updatedReplicas", count([new], "replicas") if new else 0),
        ("readyReplicas", count(sets, "readyReplicas")),
        ("availableReplicas", available),
        ("unavailableReplicas", max(0, asked(sets) - available)),
    ):
        if number:
            status[field] = number
    synced = [one for one in sets if status_of(one).get("observedGeneration")]
    if all(status_of(one).get("terminatingReplicas") is not None for one in synced):
        status["terminatingReplicas"] = count(sets, "terminatingReplicas")
    if old.get("collisionCount") is not None:
        status["collisionCount"] = old["collisionCount"]
    status["conditions"] = list(old.get("conditions") or ())
    if available >= desired(deployment) - bounds_of(deployment).unavailable:
        text = "True", "MinimumReplicasAvailable", "Deployment has minimum availability."
    else:
        text = "False", "MinimumReplicasUnavailable", "Deployment does not have minimum availability."
    return with_condition(status, condition("Available", *text, now))


def is_complete(deployment: JsonObject, status: Status) -> bool:
    """All desired pods are of the new template and available, and no others run."""
    wanted = desired(deployment)
    return (
        int(status.get("updatedReplicas") or 0) == wanted
        and int(status.get("replicas") or 0) == wanted
        and int(status.get("availableReplicas") or 0) == wanted
        and int(status.get("observedGeneration") or 0) >= generation_of(deployment)
    )


def rolled(deployment: JsonObject, sets: Sequence[JsonObject], new: JsonObject | None, now: float) -> Status:
    """The status in a rollout: as counted, with the conditions Progressing and ReplicaFailure."""
    status = counted(deployment, sets, new, now)
    old = status_of(deployment)
    current = condition_of(old, "Progressing")
    if deadline_of(deployment) is None:
        status = without_condition(status, "Progressing")
    else:
        settled = (
            int(status.get("replicas") or 0) == int(status.get("updatedReplicas") or 0)
            and current is not None
            and current.get("reason") == "NewReplicaSetAvailable"
        )
        if not settled:
            status = _with_progress(deployment, status, new, now)
    failure = _replica_failure(sets, new)
    return with_condition(status, failure) if failure else without_condition(status, "ReplicaFailure")


def recheck_at(deployment: JsonObject, status: Status) -> float | None:
    """When to look whether the deadline passed; None when there is nothing to wait for."""
    current, deadline = condition_of(status_of(deployment), "Progressing"), deadline_of(deployment)
    if deadline is None or current is None or is_complete(deployment, status):
        return None
    if current.get("reason") == "ProgressDeadlineExceeded":
        return None
    since = seconds_of(current.get("lastUpdateTime"))
    return None if since is None else since + deadline + 1


def _with_progress(deployment: JsonObject, status: Status, new: JsonObject | None, now: float) -> Status:
    subject = f'ReplicaSet "{key_of(new)[1]}"' if new else f'Deployment "{key_of(deployment)[1]}"'
    if is_complete(deployment, status):
        text = "True", "NewReplicaSetAvailable", f"{subject} has successfully progressed."
        return with_condition(status, condition("Progressing", *text, now))
    current = condition_of(status_of(deployment), "Progressing")
    if _has_progressed(status_of(deployment), status):
        fresh = condition("Progressing", "True", "ReplicaSetUpdated", f"{subject} is progressing.", now)
        if current is not None and current.get("status") == "True":
            fresh["lastTransitionTime"] = current.get("lastTransitionTime")
        return with_condition(without_condition(status, "Progressing"), fresh)
    if _has_timed_out(deployment, status, now):
        text = "False", "ProgressDeadlineExceeded", f"{subject} has timed out progressing."
        return with_condition(status, condition("Progressing", *text, now))
    return status


def _has_progressed(old: Status, new: Status) -> bool:
    def number(status: Status, field: str) -> int:
        return int(status.get(field) or 0)

    olds_before = number(old, "replicas") - number(old, "updatedReplicas")
    olds_now = number(new, "replicas") - number(new, "updatedReplicas")
    return olds_now < olds_before or any(
        number(new, field) > number(old, field) for field in ("updatedReplicas", "readyReplicas", "availableReplicas")
    )


def _has_timed_out(deployment: JsonObject, status: Status, now: float) -> bool:
    current, deadline = condition_of(status, "Progressing"), deadline_of(deployment)
    if current is None or deadline is None or current.get("reason") == "NewReplicaSetAvailable":
        return False
    if current.get("reason") == "ProgressDeadlineExceeded":
        return True
    since = seconds_of(current.get("lastUpdateTime"))
    return since is not None and since + deadline < now


def _replica_failure(sets: Sequence[JsonObject], new: JsonObject | None) -> dict[str, Any] | None:
    for one in [*([new] if new else []), *sets]:
        found = condition_of(status_of(one), "ReplicaFailure")
        if found is not None:
            return {**found, "lastUpdateTime": found.get("lastTransitionTime")}
    return None


def _others(status: Status, kind: str) -> list[dict[str, Any]]:
    return [one for one in status.get("conditions") or () if one.get("type") != kind]
