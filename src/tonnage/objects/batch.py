"""batch/v1 Job and jobset.x-k8s.io JobSet.

Sources of the field names: kubernetes/kubernetes staging/src/k8s.io/api/batch/v1/types.go (1.36),
kubernetes-sigs/jobset api/jobset/v1alpha2/jobset_types.go (0.11 and later; gangPolicy: keps, not released).
"""

from __future__ import annotations

from tonnage.objects.base import Field, KubeObject, ObjectMeta
from tonnage.objects.core import PodTemplateSpec


class PodFailurePolicyOnExitCodes(Field, frozen=True, kw_only=True):
    """``operator``: In or NotIn. Without a container name, any container."""

    operator: str
    values: list[int] = []
    container_name: str = ""


class PodFailurePolicyOnPodCondition(Field, frozen=True, kw_only=True):
    """A condition of the failed pod, such as DisruptionTarget."""

    type: str
    status: str = "True"


class PodFailurePolicyRule(Field, frozen=True, kw_only=True):
    """``action``: FailJob, FailIndex, Ignore or Count."""

    action: str
    on_exit_codes: PodFailurePolicyOnExitCodes | None = None
    on_pod_conditions: list[PodFailurePolicyOnPodCondition] = []


class PodFailurePolicy(Field, frozen=True, kw_only=True):
    """The first rule that matches decides."""

    rules: list[PodFailurePolicyRule] = []


class JobSuccessPolicyRule(Field, frozen=True, kw_only=True):
    """``succeeded_indexes``: numbers and ranges, ``0,2-4``."""

    succeeded_indexes: str = ""
    succeeded_count: int | None = None


class JobSuccessPolicy(Field, frozen=True, kw_only=True):
    """The Job has succeeded as soon as one of the rules is met."""

    rules: list[JobSuccessPolicyRule] = []


class JobSpec(Field, frozen=True, kw_only=True):
    """``parallelism`` pods at a time until ``completions`` have succeeded."""

    template: PodTemplateSpec
    parallelism: int | None = None
    completions: int | None = None
    completion_mode: str = "NonIndexed"
    backoff_limit: int | None = None
    backoff_limit_per_index: int | None = None
    max_failed_indexes: int | None = None
    pod_failure_policy: PodFailurePolicy | None = None
    success_policy: JobSuccessPolicy | None = None
    suspend: bool = False


class JobCondition(Field, frozen=True, kw_only=True):
    """``type``: Complete, Failed, Suspended and others."""

    type: str
    status: str = "True"


class JobStatus(Field, frozen=True, kw_only=True):
    """``succeeded``: pods that have ended well."""

    succeeded: int = 0
    conditions: list[JobCondition] = []

    @property
    def over(self) -> bool:
        """Whether its controller makes no more pods."""
        return any(one.type in ("Complete", "Failed") and one.status == "True" for one in self.conditions)


class Job(KubeObject, kw_only=True):
    """batch/v1 Job."""

    spec: JobSpec
    status: JobStatus = JobStatus()


class JobTemplateSpec(Field, frozen=True, kw_only=True):
    """What a JobSet stamps its Jobs from."""

    spec: JobSpec
    metadata: ObjectMeta = ObjectMeta()


class DependsOn(Field, frozen=True, kw_only=True):
    """``status``: Ready or Complete."""

    name: str
    status: str


class ReplicatedJob(Field, frozen=True, kw_only=True):
    """``replicas`` Jobs, called ``<JobSet>-<name>-<index>``."""

    name: str
    template: JobTemplateSpec
    replicas: int = 1
    depends_on: list[DependsOn] = []


class FailurePolicyRule(Field, frozen=True, kw_only=True):
    """What to do when a Job fails for one of these reasons, if it is of one of these replicated jobs."""

    action: str
    name: str = ""
    on_job_failure_reasons: list[str] = []
    target_replicated_jobs: list[str] = []


class FailurePolicy(Field, frozen=True, kw_only=True):
    """The first rule that matches decides; without one, all Jobs are recreated, ``max_restarts`` times."""

    max_restarts: int = 0
    restart_strategy: str = "Recreate"
    rules: list[FailurePolicyRule] = []


class SuccessPolicy(Field, frozen=True, kw_only=True):
    """``operator``: All or Any of the Jobs."""

    operator: str = "All"
    target_replicated_jobs: list[str] = []


class StartupPolicy(Field, frozen=True, kw_only=True):
    """``startup_policy_order``: AnyOrder or InOrder."""

    startup_policy_order: str = "AnyOrder"


class GangPolicy(Field, frozen=True, kw_only=True):
    """``policy``: JobSetAsGang, JobSetGangPerReplicatedJob or JobSetWorkloadTemplate."""

    policy: str = ""


class JobSetSpec(Field, frozen=True, kw_only=True):
    """A group of Jobs that start, fail and end together."""

    replicated_jobs: list[ReplicatedJob] = []
    success_policy: SuccessPolicy | None = None
    failure_policy: FailurePolicy | None = None
    startup_policy: StartupPolicy | None = None
    gang_policy: GangPolicy | None = None
    suspend: bool = False


class JobSet(KubeObject, kw_only=True):
    """jobset.x-k8s.io/v1alpha2 JobSet."""

    spec: JobSetSpec = JobSetSpec()
