"""When a workload has succeeded, by which of its pods have.

Sources: kubernetes/kubernetes pkg/controller/job/success_policy.go, kubernetes-sigs/jobset
pkg/controllers/success_policy.go, kubeflow/training-operator pkg/controller.v1/*/..._controller.go UpdateJobStatus,
kubeflow/mpi-operator updateMPIJobStatus, volcano-sh/volcano pkg/controllers/job/state/running.go.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from enum import StrEnum

from tonnage.objects import batch, leaderworker, ray, training, volcano
from tonnage.objects.base import KubeObject
from tonnage.workloads.replicas import WorkloadPod
from tonnage.workloads.restarts import INDEX_FAILED


class WorkloadOutcome(StrEnum):
    """How a workload stands."""

    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"


def outcome(
    workload: KubeObject,
    replicas: Sequence[WorkloadPod],
    done: AbstractSet[str],
    counters: Mapping[str, int] | None = None,
) -> WorkloadOutcome:
    """How the workload stands when the replicas named ``done`` have exited with 0. ``counters``: those of its restarts,
    among them indexes that have failed for good. Whether a failure ends it is for :func:`~.restarts.restart` to say."""
    lost = {key.removeprefix(INDEX_FAILED) for key in counters or {} if key.startswith(INDEX_FAILED)}
    if isinstance(workload, batch.Job):
        return _job(workload.spec, replicas, done, lost)
    if isinstance(workload, batch.JobSet):
        return _job_set(workload, replicas, done, lost)
    if isinstance(workload, leaderworker.LeaderWorkerSet | ray.RayCluster) or not replicas:
        return WorkloadOutcome.RUNNING
    if isinstance(workload, volcano.VolcanoJob):
        needed = workload.spec.min_success
        enough = len(done) >= (len(replicas) if needed is None else needed)
        return WorkloadOutcome.SUCCEEDED if enough else WorkloadOutcome.RUNNING
    deciding = _deciding(workload, replicas)
    return WorkloadOutcome.SUCCEEDED if {one.name for one in deciding} <= done else WorkloadOutcome.RUNNING


def _deciding(workload: KubeObject, replicas: Sequence[WorkloadPod]) -> list[WorkloadPod]:
    """The pods whose success is that of the workload."""
    chiefs = [one for one in replicas if one.role in ("Chief", "Master", "Launcher", "submitter")]
    if chiefs:
        return chiefs
    if isinstance(workload, ray.RayJob):
        return [one for one in replicas if one.role == "head"]
    workers = [one for one in replicas if one.role == "Worker"]
    if isinstance(workload, training.TFJob) and workload.spec.success_policy != "AllWorkers":
        return workers[:1]
    return workers or list(replicas)


def _job(
    spec: batch.JobSpec, replicas: Sequence[WorkloadPod], done: AbstractSet[str], lost: AbstractSet[str]
) -> WorkloadOutcome:
    succeeded = {one.index for one in replicas if one.name in done}
    if spec.success_policy is not None and any(_is_met(rule, succeeded) for rule in spec.success_policy.rules):
        return WorkloadOutcome.SUCCEEDED
    if any(one.name not in done and one.name not in lost for one in replicas):
        return WorkloadOutcome.RUNNING
    return WorkloadOutcome.FAILED if any(one.name in lost for one in replicas) else WorkloadOutcome.SUCCEEDED


def _is_met(rule: batch.JobSuccessPolicyRule, succeeded: AbstractSet[int]) -> bool:
    wanted = _indexes(rule.succeeded_indexes)
    if rule.succeeded_count is not None:
        return len(succeeded & wanted if wanted else succeeded) >= rule.succeeded_count
    return bool(wanted) and wanted <= succeeded


def _indexes(written: str) -> set[int]:
    """The numbers of ``0,2-4``; what is not a number is none."""
    found: set[int] = set()
    for part in written.split(","):
        low, _, high = part.strip().partition("-")
        if low.isdigit() and (high or low).isdigit():
            found |= set(range(int(low), int(high or low) + 1))
    return found


def _job_set(
    workload: batch.JobSet, replicas: Sequence[WorkloadPod], done: AbstractSet[str], lost: AbstractSet[str]
) -> WorkloadOutcome:
    specs = {part.name: part.template.spec for part in workload.spec.replicated_jobs}
    policy = workload.spec.success_policy
    targets = set(policy.target_replicated_jobs if policy is not None else ()) or set(specs)
    jobs: dict[tuple[str, int], list[WorkloadPod]] = {}
    for one in replicas:
        if one.role in targets:
            jobs.setdefault((one.role, one.group), []).append(one)
    results = [_job(specs[role], members, done, lost) for (role, _), members in jobs.items()]
    succeeded = [result is WorkloadOutcome.SUCCEEDED for result in results]
    enough = any(succeeded) if policy is not None and policy.operator == "Any" else all(succeeded)
    return WorkloadOutcome.SUCCEEDED if results and enough else WorkloadOutcome.RUNNING
