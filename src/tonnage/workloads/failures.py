"""What a workload says about failures: the policy that is in force for a pod, and the limits of its counters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from tonnage.objects import batch, core, leaderworker, ray, training, volcano
from tonnage.objects.base import KubeObject
from tonnage.workloads import marks
from tonnage.workloads.replicas import WorkloadPod, restart_policy, task_name

DEFAULT_BACKOFF_LIMIT = 6
"""Of a Job that names none (kubernetes/kubernetes pkg/apis/batch/v1/defaults.go)."""
SUBMITTER_BACKOFF_LIMIT = 2
"""Of the Job that submits a RayJob (ray-project/kuberay ray-operator/controllers/ray/rayjob_controller.go)."""

Limits = Mapping[str, int | None]


class Cause(StrEnum):
    """What happened to a pod: its container exited, was killed for memory, its node is lost, or it was evicted."""

    RETRYABLE = "retryable"
    PERMANENT = "permanent"
    OOM = "oom"
    NODE = "node"
    EVICTION = "eviction"

    @property
    def is_exit(self) -> bool:
        """Whether a container exited; else the pod is gone."""
        return self in (Cause.RETRYABLE, Cause.PERMANENT, Cause.OOM)


@dataclass(frozen=True, slots=True)
class FailedPod:
    """A failed pod in the eyes of one controller. ``scope``: what its counters belong to, with all its pods."""

    kind: str
    policy: str
    scope: str
    members: tuple[WorkloadPod, ...]
    limits: Limits


def case_of(
    workload: KubeObject,
    replicas: Sequence[WorkloadPod],
    failed: WorkloadPod,
    cause: Cause,
    exit_code: int,
    pending: bool,
) -> FailedPod:
    """The failure of one pod, for the innermost controller: that of the Job for a JobSet.

    ``pending``: whether a pod of its group does not run yet. Raises TypeError for an object that makes no pods.
    """
    everything = tuple(replicas)
    if isinstance(workload, batch.Job):
        return _job(workload.name, workload.spec, everything, cause, exit_code)
    if isinstance(workload, batch.JobSet):
        if _in_place(workload):
            return FailedPod("JobSet", "InPlaceRestart", workload.name, everything, _job_set_limits(workload))
        spec = next(p.template.spec for p in workload.spec.replicated_jobs if p.name == failed.role)
        members = tuple(one for one in everything if (one.role, one.group) == (failed.role, failed.group))
        return _job(f"{workload.name}-{failed.role}-{failed.group}", spec, members, cause, exit_code)
    if isinstance(workload, leaderworker.LeaderWorkerSet):
        policy = workload.spec.leader_worker_template.restart_policy
        if policy == "RecreateGroupAfterStart" and pending:
            policy = "None"
        return FailedPod("LeaderWorkerSet", policy, workload.name, everything, {})
    if isinstance(workload, training.KubeflowJob):
        return _kubeflow(workload, everything, failed)
    if isinstance(workload, ray.RayCluster | ray.RayJob):
        return _ray(workload, everything, failed)
    if isinstance(workload, volcano.VolcanoJob):
        policy = _volcano_action(workload, failed, cause, exit_code) or failed.spec.restart_policy
        return FailedPod("VolcanoJob", policy, workload.name, everything, {"maxRetry": workload.spec.max_retry})
    if isinstance(workload, core.Pod):
        return FailedPod("Pod", failed.spec.restart_policy, workload.name, everything, {})
    raise TypeError(f"{workload.kind} {workload.name} makes no pods that could fail")


def job_set_case(
    workload: batch.JobSet, replicas: Sequence[WorkloadPod], failed: WorkloadPod, reason: str
) -> FailedPod:
    """A Job of a JobSet has failed for this reason."""
    policy = workload.spec.failure_policy
    action = "None" if policy is None else "RestartJobSet"
    for rule in policy.rules if policy is not None else ():
        if rule.on_job_failure_reasons and reason not in rule.on_job_failure_reasons:
            continue
        if not rule.target_replicated_jobs or failed.role in rule.target_replicated_jobs:
            action = rule.action
            break
    return FailedPod("JobSet", action, workload.name, tuple(replicas), _job_set_limits(workload))


def _job(scope: str, spec: batch.JobSpec, members: tuple[WorkloadPod, ...], cause: Cause, exit_code: int) -> FailedPod:
    """A limit per index leaves the Job without one, where it names none."""
    per_index = spec.backoff_limit_per_index is not None
    default = None if per_index else DEFAULT_BACKOFF_LIMIT
    limits = {
        "backoffLimit": default if spec.backoff_limit is None else spec.backoff_limit,
        "backoffLimitPerIndex": spec.backoff_limit_per_index,
        "maxFailedIndexes": spec.max_failed_indexes,
    }
    policy = _pod_failure_action(spec, cause, exit_code)
    if policy in ("", "Count"):
        policy = "PerIndex" if per_index else spec.template.spec.restart_policy
    return FailedPod("Job", policy, scope, members, limits)


def _pod_failure_action(spec: batch.JobSpec, cause: Cause, exit_code: int) -> str:
    """The action of the first rule that matches; empty without one. The first container is the one that exits, with
    137 when it is killed for memory."""
    code = 137 if cause is Cause.OOM else exit_code
    names = [container.name for container in spec.template.spec.containers]
    for rule in spec.pod_failure_policy.rules if spec.pod_failure_policy is not None else ():
        codes = rule.on_exit_codes
        exited = codes is not None and cause.is_exit and codes.container_name in ("", *names[:1])
        if codes is not None and exited and (code in codes.values) == (codes.operator == "In"):
            return rule.action
        wanted = [one for one in rule.on_pod_conditions if (one.type, one.status) == ("DisruptionTarget", "True")]
        if wanted and not cause.is_exit:
            return rule.action
    return ""


def _job_set_limits(workload: batch.JobSet) -> Limits:
    policy = workload.spec.failure_policy
    return {"maxRestarts": policy.max_restarts if policy is not None else 0}


def _in_place(workload: batch.JobSet) -> bool:
    policy = workload.spec.failure_policy
    return policy is not None and policy.restart_strategy == "InPlaceRestart"


def _kubeflow(job: training.KubeflowJob, replicas: tuple[WorkloadPod, ...], failed: WorkloadPod) -> FailedPod:
    policies = {role: restart_policy(job, role, spec) for role, _, spec in training.roles(job)}
    policy = policies[failed.role]
    limit = job.spec.run_policy.backoff_limit
    dynamic = isinstance(job, training.TFJob) and job.spec.enable_dynamic_worker
    if dynamic and policy == "Never" and failed.role == "Worker":
        policy = "DynamicWorker"
    if isinstance(job, training.MPIJob) and limit is None:
        limit = DEFAULT_BACKOFF_LIMIT
    return FailedPod(job.kind, policy, job.name, replicas, {"backoffLimit": limit})


def _ray(workload: ray.RayCluster | ray.RayJob, replicas: tuple[WorkloadPod, ...], failed: WorkloadPod) -> FailedPod:
    policy = failed.spec.restart_policy
    limits: dict[str, int | None] = {}
    if isinstance(workload, ray.RayCluster):
        written = workload.metadata.annotations.get(marks.RAY_FAULT_TOLERANT, "")
        if failed.role == "head" and (workload.spec.gcs_fault_tolerance_options is not None or written == "true"):
            policy = "FaultTolerantNever" if policy == "Never" else "FaultTolerant"
    else:
        config = workload.spec.submitter_config
        submitter = None if config is None else config.backoff_limit
        limits = {
            "backoffLimit": workload.spec.backoff_limit,
            "submitterBackoffLimit": SUBMITTER_BACKOFF_LIMIT if submitter is None else submitter,
        }
    return FailedPod(workload.kind, policy, workload.name, replicas, limits)


def _volcano_action(job: volcano.VolcanoJob, failed: WorkloadPod, cause: Cause, exit_code: int) -> str:
    """The action of the first policy of the task, then of the job, that matches; empty without one."""
    event = "PodFailed" if cause.is_exit else "PodEvicted"
    code = 137 if cause is Cause.OOM else exit_code
    own = [task.policies for n, task in enumerate(job.spec.tasks) if task_name(task, n) == failed.role]
    for policy in (*(policy for policies in own for policy in policies), *job.spec.policies):
        events = {policy.event, *policy.events} - {""}
        if events & {event, "*"} or (policy.exit_code == code and cause.is_exit):
            return policy.action
    return ""
