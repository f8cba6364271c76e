"""How often a workload restarts before it has failed."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from tonnage.objects.base import KubeObject
from tonnage.workloads.failures import Cause
from tonnage.workloads.outcomes import WorkloadOutcome, outcome
from tonnage.workloads.replicas import replicas_of
from tonnage.workloads.restarts import Restart, restart
from workload_manifests import job, job_set, leader_worker_set, one, part, ray_job, training_job, volcano_job


def fail(
    workload: KubeObject, counters: Mapping[str, int], *names: str, cause: Cause = Cause.PERMANENT, code: int = 1
) -> Restart:
    return restart(workload, replicas_of(workload), names, cause, counters, code)


def times(workload: KubeObject, name: str, cause: Cause = Cause.PERMANENT, most: int = 20) -> int:
    """How many failures of one pod it takes until the workload has failed."""
    counters: Mapping[str, int] = {}
    for count in range(1, most + 1):
        found = fail(workload, counters, name, cause=cause)
        counters = found.counters
        if found.failed:
            return count
    return 0


@pytest.mark.parametrize(
    ("text", "failures"),
    [
        (job("  backoffLimit: 2\n"), 3),
        (job("  backoffLimit: 0\n"), 1),
        (job(), 7),
        (job("  backoffLimit: 2\n", "OnFailure"), 2),
        (job("  backoffLimit: 0\n", "OnFailure"), 1),
    ],
    ids=["above 2 pods", "above none", "6 by default", "2 restarts in the pod", "no restart in the pod"],
)
def test_a_job_fails_when_its_failures_are_above_its_limit_and_its_restarts_at_it(text: str, failures: int) -> None:
    assert times(one(text), "j-0") == failures


def test_failures_of_all_pods_of_a_job_count_together() -> None:
    workload, counters = one(job("  backoffLimit: 2\n")), {}
    for name in ("j-0", "j-1"):
        counters = fail(workload, counters, name).counters
    assert fail(workload, counters, "j-2").failed


def test_a_node_that_takes_three_pods_counts_three_failures() -> None:
    workload = one(job("  backoffLimit: 2\n"))
    both = fail(workload, {}, "j-0", "j-1", cause=Cause.NODE)
    assert (both.recreated, both.failed) == (("j-0", "j-1"), False)
    assert fail(workload, {}, "j-0", "j-1", "j-2", cause=Cause.NODE).failed


def test_a_disruption_counts_unless_the_pod_failure_policy_ignores_it() -> None:
    ignore = "  podFailurePolicy: {rules: [{action: Ignore, onPodConditions: [{type: DisruptionTarget}]}]}\n"
    assert times(one(job("  backoffLimit: 1\n")), "j-0", Cause.EVICTION) == 2
    assert times(one(job("  backoffLimit: 1\n" + ignore)), "j-0", Cause.EVICTION) == 0
    assert times(one(job("  backoffLimit: 1\n" + ignore)), "j-0", Cause.PERMANENT) == 2


def test_an_exit_code_that_no_rule_names_is_counted() -> None:
    policy = "  podFailurePolicy: {rules: [{action: FailJob, onExitCodes: {operator: In, values: [42]}}]}\n"
    workload = one(job(policy))
    assert not fail(workload, {}, "j-0", code=1).failed
    assert fail(workload, {}, "j-0", code=42).failed
    assert not fail(workload, {}, "j-0", cause=Cause.NODE, code=42).failed


def test_memory_kills_are_exit_code_137_to_a_pod_failure_policy() -> None:
    policy = "  podFailurePolicy: {rules: [{action: FailJob, onExitCodes: {operator: In, values: [137]}}]}\n"
    assert fail(one(job(policy)), {}, "j-0", cause=Cause.OOM).failed


def test_the_rest_of_a_job_goes_on_when_an_index_fails_for_good() -> None:
    workload = one(job("  backoffLimitPerIndex: 1\n"))
    first = fail(workload, {}, "j-1")
    second = fail(workload, first.counters, "j-1")
    assert (first.recreated, second.recreated, second.stopped, second.failed) == (("j-1",), (), ("j-1",), False)
    replicas = replicas_of(workload)
    assert outcome(workload, replicas, {"j-0", "j-2"}, second.counters) is WorkloadOutcome.RUNNING
    assert outcome(workload, replicas, {"j-0", "j-2", "j-3"}, second.counters) is WorkloadOutcome.FAILED


def test_more_failed_indexes_than_allowed_fail_the_job() -> None:
    workload = one(job("  backoffLimitPerIndex: 0\n  maxFailedIndexes: 1\n"))
    first = fail(workload, {}, "j-1")
    assert not first.failed
    assert fail(workload, first.counters, "j-2").failed


def test_back_off_doubles_for_a_job_and_leaves_the_first_restart_in_a_pod_free() -> None:
    def delays(workload: KubeObject, count: int) -> list[int]:
        counters: Mapping[str, int] = {}
        found = []
        for _ in range(count):
            step = fail(workload, counters, "j-0")
            counters = step.counters
            found.append(step.delay_ns // 10**9)
        return found

    assert delays(one(job("  backoffLimit: 9\n")), 8) == [10, 20, 40, 80, 160, 320, 600, 600]
    assert delays(one(job("  backoffLimit: 9\n", "OnFailure")), 8) == [0, 10, 20, 40, 80, 160, 300, 300]


def test_a_job_set_restarts_as_often_as_it_may() -> None:
    assert times(one(job_set("  failurePolicy: {maxRestarts: 3}\n")), "js-worker-0-1") == 4


def test_a_jobs_own_limit_comes_before_the_job_sets() -> None:
    workload = one(job_set("  failurePolicy: {maxRestarts: 1}\n", (part("worker", 2, 2, 1),)))
    first = fail(workload, {}, "js-worker-0-1")
    assert (first.recreated, first.rule) == (("js-worker-0-1",), "job-never")
    second = fail(workload, first.counters, "js-worker-0-1")
    assert (len(second.recreated), second.rule) == (4, "jobset-restart")
    third = fail(workload, second.counters, "js-worker-0-1")
    assert (third.recreated, third.rule) == (("js-worker-0-1",), "job-never"), "the Jobs that are made again start at 0"
    assert fail(workload, third.counters, "js-worker-0-1").failed


def test_two_pods_of_one_job_set_lost_at_once_restart_it_once() -> None:
    workload = one(job_set("  failurePolicy: {maxRestarts: 1}\n"))
    found = fail(workload, {}, "js-worker-0-1", "js-worker-1-0", "js-leader-0-0", cause=Cause.NODE)
    assert not found.failed
    assert len(found.recreated) == 7
    assert found.counters == {"jobset-restarts/js": 1}


def test_restarts_of_single_jobs_count_towards_the_job_sets_limit() -> None:
    rules = "[{name: one, action: RestartJob, targetReplicatedJobs: [worker]}]"
    workload = one(job_set(f"  failurePolicy: {{maxRestarts: 2, rules: {rules}}}\n"))
    first = fail(workload, {}, "js-worker-0-0")
    second = fail(workload, first.counters, "js-leader-0-0")
    assert (len(first.recreated), len(second.recreated)) == (3, 7)
    assert fail(workload, second.counters, "js-worker-1-0").failed


def test_the_reason_for_which_a_job_failed_chooses_the_job_sets_rule() -> None:
    rules = "[{name: bug, action: FailJobSet, onJobFailureReasons: [PodFailurePolicy]}]"
    policy = "podFailurePolicy: {rules: [{action: FailJob, onExitCodes: {operator: In, values: [3]}}]}, "
    worker = part("worker", 1, 2).replace("parallelism", policy + "parallelism", 1)
    workload = one(job_set(f"  failurePolicy: {{maxRestarts: 5, rules: {rules}}}\n", (worker,)))
    assert fail(workload, {}, "js-worker-0-0", code=3).failed
    assert fail(workload, {}, "js-worker-0-0", code=1).rule == "jobset-restart"


def test_a_group_of_a_leader_worker_set_restarts_without_end() -> None:
    assert times(one(leader_worker_set()), "lws-0-2") == 0


def test_a_group_that_has_not_started_is_left_alone_by_recreate_after_start() -> None:
    workload = one(leader_worker_set("    restartPolicy: RecreateGroupAfterStart\n"))
    replicas = replicas_of(workload)
    found = restart(workload, replicas, ["lws-1-2"], Cause.NODE, {}, pending={"lws-1-4"})
    assert found.recreated == ("lws-1-2",)
    found = restart(workload, replicas, ["lws-1-2"], Cause.NODE, {}, pending={"lws-0-4"})
    assert found.recreated == ("lws-1", "lws-1-1", "lws-1-2", "lws-1-3", "lws-1-4")


@pytest.mark.parametrize(
    ("policy", "cause", "failures"),
    [
        ("OnFailure", Cause.PERMANENT, 3),
        ("OnFailure", Cause.NODE, 0),
        ("ExitCode", Cause.OOM, 0),
        ("Never", Cause.NODE, 1),
    ],
)
def test_only_restarts_in_the_pod_count_towards_a_training_jobs_limit(policy: str, cause: Cause, failures: int) -> None:
    assert (
        times(one(training_job("PyTorchJob", "  runPolicy: {backoffLimit: 3}\n", policy)), "t-worker-0", cause)
        == failures
    )


def test_a_back_off_limit_of_none_lets_no_training_pod_be_made_again() -> None:
    workload = one(training_job("PyTorchJob", "  runPolicy: {backoffLimit: 0}\n"))
    assert fail(workload, {}, "t-worker-0", cause=Cause.NODE).failed


def test_a_training_pod_that_is_made_again_takes_its_restarts_with_it() -> None:
    workload = one(training_job("PyTorchJob", "  runPolicy: {backoffLimit: 2}\n"))
    one_restart = fail(workload, {}, "t-worker-0")
    assert sum(one_restart.counters.values()) > 0
    assert fail(workload, one_restart.counters, "t-worker-0", cause=Cause.NODE).counters == {}


@pytest.mark.parametrize(("clean", "stopped"), [("None", 1), ("Running", 4), ("All", 4)])
def test_the_clean_pod_policy_says_which_pods_a_failed_training_job_ends(clean: str, stopped: int) -> None:
    workload = one(training_job("PyTorchJob", f"  runPolicy: {{cleanPodPolicy: {clean}}}\n", "Never"))
    assert len(fail(workload, {}, "t-worker-0").stopped) == stopped


def test_a_limit_that_is_reached_ends_all_pods_whatever_the_clean_pod_policy() -> None:
    workload = one(training_job("PyTorchJob", "  runPolicy: {backoffLimit: 1, cleanPodPolicy: None}\n"))
    assert len(fail(workload, {}, "t-worker-0").stopped) == 4


def test_lost_workers_of_an_mpi_job_use_up_the_launchers_retries() -> None:
    assert times(one(training_job("MPIJob", "  runPolicy: {backoffLimit: 2}\n")), "t-worker-0", Cause.NODE) == 2
    assert times(one(training_job("MPIJob")), "t-worker-0", Cause.NODE) == 6


def test_each_attempt_of_a_ray_job_is_a_new_cluster_until_the_limit() -> None:
    assert times(one(ray_job("  backoffLimit: 2\n")), "rj-head", Cause.NODE) == 3
    assert times(one(ray_job()), "rj-head", Cause.NODE) == 1
    assert times(one(ray_job("  backoffLimit: 1\n")), "rj") == 6, "three submissions an attempt, two attempts"


def test_a_volcano_job_is_restarted_fewer_times_than_its_max_retry() -> None:
    workload = one(volcano_job("  maxRetry: 3\n", policies="[{event: '*', action: RestartJob}]"))
    assert times(workload, "v-worker-1") == 3


def test_a_volcano_policy_may_be_about_an_exit_code() -> None:
    workload = one(volcano_job(policies="[{exitCode: 7, action: RestartTask}]"))
    assert fail(workload, {}, "v-worker-1", code=7).rule == "volcano-restart-task"
    assert fail(workload, {}, "v-worker-1", code=8).rule == "volcano-stays"


def test_the_counters_that_go_in_are_left_as_they_are() -> None:
    workload, counters = one(job()), {"failures/j": 1}
    found = fail(workload, counters, "j-0")
    assert (counters, found.counters["failures/j"]) == ({"failures/j": 1}, 2)


@pytest.mark.parametrize(
    ("text", "done", "expected"),
    [
        (job(), "j-0 j-1 j-2 j-3", "succeeded"),
        (job(), "j-0 j-1 j-2", "running"),
        (job("  successPolicy: {rules: [{succeededIndexes: '0,2-3'}]}\n"), "j-0 j-2 j-3", "succeeded"),
        (job("  successPolicy: {rules: [{succeededIndexes: '0-2', succeededCount: 1}]}\n"), "j-3", "running"),
        (job("  successPolicy: {rules: [{succeededIndexes: '0-2', succeededCount: 1}]}\n"), "j-1", "succeeded"),
        (job_set(), "js-leader-0-0", "running"),
        (job_set("  successPolicy: {operator: Any, targetReplicatedJobs: [leader]}\n"), "js-leader-0-0", "succeeded"),
        (job_set("  successPolicy: {operator: All, targetReplicatedJobs: [worker]}\n"), "js-worker-0-0", "running"),
        (leader_worker_set(), "lws-0 lws-1", "running"),
        (training_job("PyTorchJob"), "t-master-0", "succeeded"),
        (training_job("PyTorchJob"), "t-worker-0 t-worker-1 t-worker-2", "running"),
        (training_job("TFJob"), "t-worker-0", "succeeded"),
        (training_job("TFJob", "  successPolicy: AllWorkers\n"), "t-worker-0", "running"),
        (training_job("JAXJob"), "t-worker-0", "running"),
        (training_job("MPIJob"), "t-launcher", "succeeded"),
        (ray_job(), "rj", "succeeded"),
        (volcano_job("  minSuccess: 2\n"), "v-worker-0 v-worker-1", "succeeded"),
    ],
)
def test_a_workload_has_succeeded_when_the_pods_that_decide_have(text: str, done: str, expected: str) -> None:
    workload = one(text)
    assert outcome(workload, replicas_of(workload), set(done.split())).value == expected
