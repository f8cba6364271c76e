"""What the controllers of training frameworks write about their workloads: coarse, so that kubectl shows progress.

Sources: the status types of kubernetes/api batch/v1, kubernetes-sigs/jobset v1alpha2, kubeflow/training-operator v1,
kubeflow/mpi-operator v2beta1, kubeflow/trainer v1alpha1, kubernetes-sigs/lws v1, ray-project/kuberay v1 and
volcano-sh/apis batch v1alpha1.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from tonnage.hollow.conditions import condition

JsonObject = dict[str, Any]


class WorkloadStage(StrEnum):
    """How far a workload is."""

    PENDING = "Pending"
    RUNNING = "Running"
    COMPLETE = "Complete"
    FAILED = "Failed"
    SUSPENDED = "Suspended"


@dataclass(frozen=True, slots=True)
class PodCounts:
    """Pods of one role: how many there should be, are there, are Ready, have succeeded."""

    wanted: int = 0
    active: int = 0
    ready: int = 0
    succeeded: int = 0

    def __add__(self, other: PodCounts) -> PodCounts:
        return PodCounts(
            self.wanted + other.wanted,
            self.active + other.active,
            self.ready + other.ready,
            self.succeeded + other.succeeded,
        )


@dataclass(frozen=True, slots=True)
class WorkloadProgress:
    """A workload's state: RFC 3339 times of its creation and its end, counts by role, how often pods were made again.

    ``since``: when each stage began that it has gone through; ``resumed``: when it was last no longer suspended."""

    stage: WorkloadStage
    started: str
    ended: str = ""
    roles: Mapping[str, PodCounts] = field(default_factory=dict)
    restarts: int = 0
    since: Mapping[WorkloadStage, str] = field(default_factory=dict)
    resumed: str = ""

    @property
    def all(self) -> PodCounts:
        return sum(self.roles.values(), PodCounts())

    def at(self, stage: WorkloadStage) -> str:
        return self.since.get(stage, self.ended or self.started)


def status_of(group: str, kind: str, progress: WorkloadProgress) -> JsonObject:
    """The status of an object of this kind."""
    made = _KINDS.get((group, kind)) or _KUBEFLOW.get(group)
    return made(progress) if made is not None else {}


_WORDS = {
    WorkloadStage.COMPLETE: ("CompletionsReached", "all work is done"),
    WorkloadStage.FAILED: ("BackoffLimitExceeded", "it has failed more often than its limit allows"),
}


def _ends(
    progress: WorkloadProgress, names: Mapping[WorkloadStage, Iterable[str]], reasons: tuple[str, str]
) -> list[JsonObject]:
    """The conditions of a workload: whether it is suspended, if it ever was, and how it has stopped.

    ``reasons``: of one that is suspended, and of one that was resumed."""
    types = names.get(progress.stage, ())
    ends = [condition(type_, True, *_WORDS[progress.stage], progress.at(progress.stage)) for type_ in types]
    return [*_suspended(progress, reasons), *ends]


def _suspended(progress: WorkloadProgress, reasons: tuple[str, str]) -> list[JsonObject]:
    if progress.stage is WorkloadStage.SUSPENDED:
        return [condition("Suspended", True, reasons[0], "it is suspended", progress.at(progress.stage))]
    if progress.resumed:
        return [condition("Suspended", False, reasons[1], "it was resumed", progress.resumed)]
    return []


def _job(progress: WorkloadProgress) -> JsonObject:
    over = progress.stage in (WorkloadStage.COMPLETE, WorkloadStage.FAILED)
    counts = progress.all
    names = {
        WorkloadStage.COMPLETE: ("SuccessCriteriaMet", "Complete"),
        WorkloadStage.FAILED: ("FailureTarget", "Failed"),
    }
    return {
        "startTime": progress.started,
        "active": 0 if over else counts.active,
        "ready": 0 if over else counts.ready,
        "succeeded": counts.succeeded,
        "failed": progress.restarts + (progress.stage is WorkloadStage.FAILED),
        "conditions": _ends(progress, names, ("JobSuspended", "JobResumed")),
        **({"completionTime": progress.ended} if progress.stage is WorkloadStage.COMPLETE else {}),
    }


def _job_set(progress: WorkloadProgress) -> JsonObject:
    names = {WorkloadStage.COMPLETE: ("Completed",), WorkloadStage.FAILED: ("Failed",)}
    terminal = {WorkloadStage.COMPLETE: "Completed", WorkloadStage.FAILED: "Failed"}.get(progress.stage)
    return {
        "conditions": _ends(progress, names, ("SuspendedJobs", "ResumeJobs")),
        "restarts": progress.restarts,
        **({"terminalState": terminal} if terminal else {}),
        "replicatedJobsStatus": [
            {
                "name": role,
                "ready": counts.ready,
                "active": counts.active,
                "succeeded": counts.succeeded,
                "failed": 0,
                "suspended": counts.wanted if progress.stage is WorkloadStage.SUSPENDED else 0,
            }
            for role, counts in progress.roles.items()
        ],
    }


def _kubeflow(progress: WorkloadProgress) -> JsonObject:
    """PyTorchJob and its kin: a condition for each stage, the last one holds."""
    stages = [stage for stage in (WorkloadStage.PENDING, WorkloadStage.RUNNING) if stage in progress.since]
    if progress.stage in (WorkloadStage.COMPLETE, WorkloadStage.FAILED):
        stages.append(progress.stage)
    types = {WorkloadStage.PENDING: "Created", WorkloadStage.COMPLETE: "Succeeded"}
    conditions = []
    for stage in stages:
        type_ = types.get(stage, stage.value)
        holds = stage is progress.stage or stage is WorkloadStage.PENDING
        one = condition(type_, holds, f"Job{type_}", f"the job is {type_.lower()}", progress.at(stage))
        conditions.append(one)
    conditions[1:1] = _suspended(progress, ("JobSuspended", "JobResumed"))
    return {
        "startTime": progress.started,
        "conditions": [{**one, "lastUpdateTime": one["lastTransitionTime"]} for one in conditions],
        "replicaStatuses": {
            role: {"active": counts.active, "succeeded": counts.succeeded} for role, counts in progress.roles.items()
        },
        **({"completionTime": progress.ended} if progress.ended else {}),
    }


def _train_job(progress: WorkloadProgress) -> JsonObject:
    names = {WorkloadStage.COMPLETE: ("Complete",), WorkloadStage.FAILED: ("Failed",)}
    return {"conditions": _ends(progress, names, ("Suspended", "Resumed"))}


def _leader_worker_set(progress: WorkloadProgress) -> JsonObject:
    counts, leaders = progress.all, progress.roles.get("leader", PodCounts())
    whole = counts.wanted == counts.ready
    size = counts.wanted // leaders.wanted if leaders.wanted else 1
    at = progress.at(progress.stage)
    return {
        "replicas": leaders.wanted,
        "readyReplicas": counts.ready // size,
        "updatedReplicas": leaders.wanted,
        "conditions": [
            condition("Available", whole, "AllGroupsReady" if whole else "GroupsProgressing", "", at),
            condition("Progressing", not whole, "GroupsProgressing", "", at),
        ],
    }


def _ray_cluster(progress: WorkloadProgress) -> JsonObject:
    workers = sum((one for role, one in progress.roles.items() if role not in ("head", "submitter")), PodCounts())
    state = {WorkloadStage.RUNNING: "ready", WorkloadStage.SUSPENDED: "suspended", WorkloadStage.FAILED: "failed"}.get(
        progress.stage
    )
    return {
        "state": state,  # None: there is no such field
        "desiredWorkerReplicas": workers.wanted,
        "readyWorkerReplicas": workers.ready,
        "availableWorkerReplicas": workers.ready,
    }


def _ray_job(progress: WorkloadProgress) -> JsonObject:
    words = {
        WorkloadStage.COMPLETE: "SUCCEEDED",
        WorkloadStage.FAILED: "FAILED",
        WorkloadStage.RUNNING: "RUNNING",
        WorkloadStage.SUSPENDED: "",
    }
    job = words.get(progress.stage, "PENDING")
    return {
        "jobStatus": job,
        "jobDeploymentStatus": "Initializing" if progress.stage is WorkloadStage.PENDING else progress.stage.value,
        "startTime": progress.started,
        **({"endTime": progress.ended} if progress.ended else {}),
    }


def _ray_service(progress: WorkloadProgress) -> JsonObject:
    return {"serviceStatus": "Running" if progress.stage is WorkloadStage.RUNNING else ""}


def _volcano_job(progress: WorkloadProgress) -> JsonObject:
    phase = "Completed" if progress.stage is WorkloadStage.COMPLETE else progress.stage.value
    counts = progress.all
    return {
        "state": {"phase": phase, "lastTransitionTime": progress.at(progress.stage)},
        "pending": counts.active - counts.ready,
        "running": counts.ready,
        "succeeded": counts.succeeded,
        "retryCount": progress.restarts,
    }


_KINDS: dict[tuple[str, str], Callable[[WorkloadProgress], JsonObject]] = {
    ("batch", "Job"): _job,
    ("jobset.x-k8s.io", "JobSet"): _job_set,
    ("trainer.kubeflow.org", "TrainJob"): _train_job,
    ("leaderworkerset.x-k8s.io", "LeaderWorkerSet"): _leader_worker_set,
    ("ray.io", "RayCluster"): _ray_cluster,
    ("ray.io", "RayJob"): _ray_job,
    ("ray.io", "RayService"): _ray_service,
    ("batch.volcano.sh", "Job"): _volcano_job,
}
_KUBEFLOW: dict[str, Callable[[WorkloadProgress], JsonObject]] = {"kubeflow.org": _kubeflow}


def counted(
    roles: Iterable[str], active: Iterable[str], ready: Iterable[str], done: Iterable[str]
) -> dict[str, PodCounts]:
    """Counts by role, from the role of each pod that should be, is, is Ready, has succeeded."""
    sums = [Counter(part) for part in (roles, active, ready, done)]
    return {role: PodCounts(*(part[role] for part in sums)) for role in sums[0]}
