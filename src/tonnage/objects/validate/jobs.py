"""JobSets and LeaderWorkerSets.

Sources: kubernetes-sigs/jobset api/jobset/v1alpha2/jobset_webhook.go, kubernetes-sigs/lws
pkg/webhooks/leaderworkerset_webhook.go.
"""

from __future__ import annotations

from tonnage.objects.api.errors import label_faults, template_metadata
from tonnage.objects.batch import FailurePolicy, JobSet
from tonnage.objects.leaderworker import LeaderWorkerSet
from tonnage.objects.validate import served
from tonnage.objects.validate.common import Report

_JOB_SET_ACTIONS = (
    "FailJobSet",
    "RestartJobSet",
    "RestartJobSetAndIgnoreMaxRestarts",
    "RestartJob",
    "RestartJobAndIgnoreMaxRestarts",
)
_STRATEGIES = ("Recreate", "BlockingRecreate", "InPlaceRestart")
_GANGS = ("JobSetAsGang", "JobSetGangPerReplicatedJob", "JobSetWorkloadTemplate")
RESTARTS = "OnFailure"
"""The restartPolicy that JobSet's webhook sets."""
_GROUP_RESTARTS = ("RecreateGroupOnPodRestart", "RecreateGroupAfterStart", "None", "Default")


def template(path: str, report: Report) -> None:
    """What pods are stamped from."""
    report.refused(template_metadata(f"{path}.metadata", report.at(f"{path}.metadata") or {}))
    served.pod_spec(f"{path}.spec", report)


def job_set(obj: JobSet, report: Report) -> None:
    spec = obj.spec
    names = [part.name for part in spec.replicated_jobs]
    report.unique("spec.replicatedJobs[{}].name", names, "a replicated job of this name")
    in_order = spec.startup_policy is not None and spec.startup_policy.startup_policy_order == "InOrder"
    for index, part in enumerate(spec.replicated_jobs):
        path = f"spec.replicatedJobs[{index}]"
        report.matches(f"{path}.name", part.name, label_faults)
        report.within(f"{path}.replicas", part.replicas, 0)
        for place, wanted in enumerate(part.depends_on):
            at = f"{path}.dependsOn[{place}]"
            report.one_of(f"{at}.status", wanted.status, ("Ready", "Complete"))
            if wanted.name not in names[:index]:
                report.refuse(f"{at}.name", wanted.name, "a replicated job listed before this one")
            if in_order:
                report.add(at, "is set together with startupPolicyOrder InOrder", "remove one of them")
        served.job_spec(f"{path}.template.spec", report, restart=RESTARTS)
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
    template(f"{path}.workerTemplate", report)
    if group.leader_template is not None:
        template(f"{path}.leaderTemplate", report)
