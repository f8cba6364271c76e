"""Jobs, JobSets and LeaderWorkerSets.

Sources: kubernetes/kubernetes pkg/apis/batch/validation/validation.go, kubernetes-sigs/jobset
api/jobset/v1alpha2/jobset_webhook.go, kubernetes-sigs/lws pkg/webhooks/leaderworkerset_webhook.go.
"""

from __future__ import annotations

from tonnage.objects.batch import FailurePolicy, Job, JobSet, JobSpec, PodFailurePolicyRule
from tonnage.objects.core import PodTemplateSpec
from tonnage.objects.leaderworker import LeaderWorkerSet
from tonnage.objects.validate.common import Report, Rule
from tonnage.objects.validate.pods import pod_spec

_POD_ACTIONS = ("FailJob", "FailIndex", "Ignore", "Count")
_JOB_SET_ACTIONS = (
    "FailJobSet",
    "RestartJobSet",
    "RestartJobSetAndIgnoreMaxRestarts",
    "RestartJob",
    "RestartJobAndIgnoreMaxRestarts",
)
_STRATEGIES = ("Recreate", "BlockingRecreate", "InPlaceRestart")
_GANGS = ("JobSetAsGang", "JobSetGangPerReplicatedJob", "JobSetWorkloadTemplate")
_GROUP_RESTARTS = ("RecreateGroupOnPodRestart", "RecreateGroupAfterStart", "None", "Default")


def job(obj: Job, report: Report) -> None:
    job_spec("spec", obj.spec, report)


def job_spec(path: str, spec: JobSpec, report: Report, *, defaulted: bool = False) -> None:
    """Everything below a Job's ``spec``, which stands at ``path``. ``defaulted``: a webhook sets restartPolicy
    OnFailure where there is none (kubernetes-sigs/jobset pkg/webhooks/jobset_webhook.go)."""
    for name, value in (
        ("parallelism", spec.parallelism),
        ("completions", spec.completions),
        ("backoffLimit", spec.backoff_limit),
        ("backoffLimitPerIndex", spec.backoff_limit_per_index),
        ("maxFailedIndexes", spec.max_failed_indexes),
    ):
        report.within(f"{path}.{name}", value, 0)
    restart = spec.template.spec.restart_policy
    indexed = spec.completion_mode == "Indexed"
    report.one_of(f"{path}.completionMode", spec.completion_mode, ("NonIndexed", "Indexed"))
    field = f"{path}.template.spec.restartPolicy"
    if report.is_written(field) or not defaulted:
        report.one_of(field, restart, ("OnFailure", "Never"), "a Job ends some day")
    if indexed and spec.completions is None:
        report.add(f"{path}.completions", "the field is missing", "completionMode Indexed needs it")
    if spec.backoff_limit_per_index is not None and (not indexed or restart != "Never"):
        message = "needs completionMode Indexed and restartPolicy Never"
        report.add(f"{path}.backoffLimitPerIndex", message, "set them, or use backoffLimit")
    if spec.max_failed_indexes is not None and spec.backoff_limit_per_index is None:
        report.add(f"{path}.maxFailedIndexes", "needs backoffLimitPerIndex", "set it, or remove maxFailedIndexes")
    policy = spec.pod_failure_policy
    if policy is not None and restart != "Never":
        report.add(f"{path}.podFailurePolicy", "needs restartPolicy Never", "set it in template.spec")
    for index, rule in enumerate(policy.rules if policy else []):
        _pod_failure(f"{path}.podFailurePolicy.rules[{index}]", rule, spec, report)
    template(f"{path}.template", spec.template, report)


def _pod_failure(path: str, rule: PodFailurePolicyRule, spec: JobSpec, report: Report) -> None:
    report.one_of(f"{path}.action", rule.action, _POD_ACTIONS)
    if rule.action == "FailIndex" and spec.backoff_limit_per_index is None:
        report.add(f"{path}.action", "FailIndex needs backoffLimitPerIndex", "set it, or use FailJob")
    if (rule.on_exit_codes is None) == (not rule.on_pod_conditions):
        report.add(path, "expected either onExitCodes or onPodConditions", "set exactly one of them")
    codes = rule.on_exit_codes
    if codes is not None:
        report.one_of(f"{path}.onExitCodes.operator", codes.operator, ("In", "NotIn"))
        if not codes.values:
            report.add(f"{path}.onExitCodes.values", "expected at least one exit code", "e.g. values: [42]")
        if codes.operator == "In" and 0 in codes.values:
            report.refuse(f"{path}.onExitCodes.values", 0, "no 0, which is success")
        names = [one.name for one in (*spec.template.spec.containers, *spec.template.spec.init_containers)]
        if codes.container_name:
            report.one_of(f"{path}.onExitCodes.containerName", codes.container_name, names)


def template(path: str, made: PodTemplateSpec, report: Report) -> None:
    """What pods are stamped from."""
    report.labels(f"{path}.metadata.labels", made.metadata.labels)
    pod_spec(f"{path}.spec", made.spec, report)


def job_set(obj: JobSet, report: Report) -> None:
    spec = obj.spec
    names = [part.name for part in spec.replicated_jobs]
    report.unique("spec.replicatedJobs[{}].name", names, "a replicated job of this name")
    in_order = spec.startup_policy is not None and spec.startup_policy.startup_policy_order == "InOrder"
    for index, part in enumerate(spec.replicated_jobs):
        path = f"spec.replicatedJobs[{index}]"
        report.matches(f"{path}.name", part.name, Rule.LABEL)
        report.within(f"{path}.replicas", part.replicas, 0)
        for place, wanted in enumerate(part.depends_on):
            at = f"{path}.dependsOn[{place}]"
            report.one_of(f"{at}.status", wanted.status, ("Ready", "Complete"))
            if wanted.name not in names[:index]:
                report.refuse(f"{at}.name", wanted.name, "a replicated job that stands before this one")
            if in_order:
                report.add(at, "stands beside startupPolicyOrder InOrder", "remove one of them")
        job_spec(f"{path}.template.spec", part.template.spec, report, defaulted=True)
    if spec.startup_policy is not None:
        order = spec.startup_policy.startup_policy_order
        report.one_of("spec.startupPolicy.startupPolicyOrder", order, ("AnyOrder", "InOrder"))
    if spec.gang_policy is not None:
        report.one_of("spec.gangPolicy.policy", spec.gang_policy.policy, _GANGS)
    if spec.success_policy is not None:
        report.one_of("spec.successPolicy.operator", spec.success_policy.operator, ("All", "Any"))
        _targets("spec.successPolicy", spec.success_policy.target_replicated_jobs, names, report)
    if spec.failure_policy is not None:
        _job_set_failure(spec.failure_policy, names, report)


def _job_set_failure(policy: FailurePolicy, names: list[str], report: Report) -> None:
    report.within("spec.failurePolicy.maxRestarts", policy.max_restarts, 0)
    report.one_of("spec.failurePolicy.restartStrategy", policy.restart_strategy, _STRATEGIES)
    for index, rule in enumerate(policy.rules):
        path = f"spec.failurePolicy.rules[{index}]"
        report.one_of(f"{path}.action", rule.action, _JOB_SET_ACTIONS)
        _targets(path, rule.target_replicated_jobs, names, report)


def _targets(path: str, targets: list[str], names: list[str], report: Report) -> None:
    for index, target in enumerate(targets):
        report.one_of(f"{path}.targetReplicatedJobs[{index}]", target, names)


def leader_worker_set(obj: LeaderWorkerSet, report: Report) -> None:
    group = obj.spec.leader_worker_template
    path = "spec.leaderWorkerTemplate"
    report.within("spec.replicas", obj.spec.replicas, 0)
    report.one_of("spec.startupPolicy", obj.spec.startup_policy, ("LeaderCreated", "LeaderReady"))
    report.within(f"{path}.size", group.size, 1)
    report.one_of(f"{path}.restartPolicy", group.restart_policy, _GROUP_RESTARTS)
    policy = group.sub_group_policy
    if policy is not None:
        size = policy.sub_group_size
        report.within(f"{path}.subGroupPolicy.subGroupSize", size, 1, max(group.size, 1))
        types = ("LeaderWorker", "LeaderExcluded")
        report.one_of(f"{path}.subGroupPolicy.subGroupPolicyType", policy.sub_group_policy_type, types)
        divisible = (
            [group.size - 1] if policy.sub_group_policy_type == "LeaderExcluded" else [group.size, group.size - 1]
        )
        if size >= 1 and all(count % size for count in divisible):
            expected = f"a divisor of {' or '.join(str(count) for count in divisible)}"
            report.refuse(f"{path}.subGroupPolicy.subGroupSize", size, expected)
    template(f"{path}.workerTemplate", group.worker_template, report)
    if group.leader_template is not None:
        template(f"{path}.leaderTemplate", group.leader_template, report)
