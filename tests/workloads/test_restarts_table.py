"""Each row of the table of restarts, as the sentence that it states."""

from __future__ import annotations

from typing import NamedTuple

import pytest

from tonnage.facts import restarts as table
from tonnage.objects.base import KubeObject
from tonnage.workloads.failures import Cause
from tonnage.workloads.membership import stamped
from tonnage.workloads.restarts import Restart, restart
from workload_manifests import (
    job,
    job_set,
    leader_worker_set,
    one,
    part,
    pod,
    ray_cluster,
    ray_job,
    training_job,
    volcano_job,
)

GONE = (Cause.NODE, Cause.EVICTION)
EXITS = (Cause.RETRYABLE, Cause.PERMANENT, Cause.OOM)


class Row(NamedTuple):
    """What a rule means for one workload: the pod that fails, why, and what starts again where."""

    rule: str
    workload: str
    failed: str
    causes: tuple[Cause, ...]
    recreated: str = ""
    restarted: str = ""
    stopped: str = ""
    fails: bool = False
    exit_code: int = 1


def _failure_policy(action: str, codes: str = "[42]") -> str:
    exits = f"onExitCodes: {{operator: In, values: {codes}}}"
    return f"  podFailurePolicy: {{rules: [{{action: {action}, {exits}}}]}}\n"


IGNORE = "  podFailurePolicy: {rules: [{action: Ignore, onPodConditions: [{type: DisruptionTarget}]}]}\n"
PER_INDEX = "  backoffLimitPerIndex: 1\n"
JOB = "j-0 j-1 j-2 j-3"
JS_W0 = "js-worker-0-0 js-worker-0-1 js-worker-0-2"
JS_W1 = "js-worker-1-0 js-worker-1-1 js-worker-1-2"
JS = f"js-leader-0-0 {JS_W0} {JS_W1}"
LWS1 = "lws-1 lws-1-1 lws-1-2 lws-1-3 lws-1-4"
TRAIN = "t-master-0 t-worker-0 t-worker-1 t-worker-2"
RAY = "rc-head rc-gpu-worker-0 rc-gpu-worker-1 rc-gpu-worker-2"
RJ = "rj-head rj-gpu-worker-0 rj-gpu-worker-1 rj-gpu-worker-2 rj"
VC = "v-ps-0 v-worker-0 v-worker-1 v-worker-2"


def _jobset_rule(action: str) -> str:
    rule = f"{{name: r, action: {action}}}"
    return job_set(f"  failurePolicy: {{maxRestarts: 2, rules: [{rule}]}}\n")


def _lws(policy: str) -> str:
    return leader_worker_set(f"    restartPolicy: {policy}\n")


def _volcano(action: str) -> str:
    return volcano_job(policies=f"[{{event: PodFailed, action: {action}}}]")


FT = "gcsFaultToleranceOptions: {redisAddress: r}\n"

ROWS = [
    Row(
        "job-fail-job",
        job(_failure_policy("FailJob")),
        "j-1",
        (Cause.PERMANENT,),
        stopped=JOB,
        fails=True,
        exit_code=42,
    ),
    Row("job-ignore", job(IGNORE), "j-1", GONE, "j-1"),
    Row(
        "job-index-failed", job(PER_INDEX + _failure_policy("FailIndex")), "j-2", EXITS[:2], stopped="j-2", exit_code=42
    ),
    Row("job-per-index", job(PER_INDEX), "j-2", EXITS + GONE, "j-2"),
    Row("job-never", job(), "j-3", EXITS + GONE, "j-3"),
    Row("job-on-failure-exit", job(restart="OnFailure"), "j-3", EXITS, restarted="j-3"),
    Row("job-on-failure-lost", job(restart="OnFailure"), "j-3", GONE, "j-3"),
    Row("jobset-none", job_set(), "js-worker-1-0", EXITS + GONE, stopped=JS, fails=True),
    Row("jobset-fail", _jobset_rule("FailJobSet"), "js-worker-1-0", EXITS, stopped=JS, fails=True),
    Row("jobset-restart", job_set("  failurePolicy: {maxRestarts: 1}\n"), "js-worker-1-0", EXITS + GONE, JS),
    Row("jobset-restart-free", _jobset_rule("RestartJobSetAndIgnoreMaxRestarts"), "js-worker-1-0", EXITS, JS),
    Row("jobset-restart-job", _jobset_rule("RestartJob"), "js-worker-1-0", EXITS + GONE, JS_W1),
    Row("jobset-restart-job-free", _jobset_rule("RestartJobAndIgnoreMaxRestarts"), "js-worker-0-1", EXITS, JS_W0),
    Row(
        "jobset-in-place",
        job_set("  failurePolicy: {maxRestarts: 1, restartStrategy: InPlaceRestart}\n"),
        "js-worker-0-1",
        EXITS + GONE,
        "js-worker-0-1",
        f"js-leader-0-0 js-worker-0-0 js-worker-0-2 {JS_W1}",
    ),
    Row("lws-group", leader_worker_set(), "lws-1-3", EXITS + GONE, LWS1),
    Row("lws-group", _lws("RecreateGroupAfterStart"), "lws-1", EXITS + GONE, LWS1),
    Row("lws-leader-gone", _lws("None"), "lws-1", GONE, LWS1),
    Row("lws-pod-gone", _lws("None"), "lws-1-3", GONE, "lws-1-3"),
    Row("lws-exit", _lws("Default"), "lws-1", EXITS, restarted="lws-1"),
    Row(
        "kubeflow-permanent",
        training_job("PyTorchJob", "  runPolicy: {cleanPodPolicy: Running}\n", "ExitCode"),
        "t-worker-1",
        (Cause.PERMANENT,),
        stopped=TRAIN,
        fails=True,
    ),
    Row(
        "kubeflow-retryable",
        training_job("PyTorchJob", "", "ExitCode"),
        "t-worker-1",
        (Cause.RETRYABLE, Cause.OOM, *GONE),
        "t-worker-1",
    ),
    Row("kubeflow-exit", training_job("PyTorchJob"), "t-worker-1", EXITS, restarted="t-worker-1"),
    Row("kubeflow-exit", training_job("JAXJob", "", "Always"), "t-worker-1", EXITS, restarted="t-worker-1"),
    Row("kubeflow-gone", training_job("XGBoostJob", "", "OnFailure"), "t-master-0", GONE, "t-master-0"),
    Row(
        "kubeflow-dynamic",
        training_job("TFJob", "  enableDynamicWorker: true\n"),
        "t-worker-2",
        EXITS + GONE,
        stopped="t-worker-2",
    ),
    Row("kubeflow-never", training_job("TFJob"), "t-ps-0", EXITS + GONE, stopped="t-ps-0", fails=True),
    Row("mpi-launcher-exit", training_job("MPIJob"), "t-launcher", EXITS, restarted="t-launcher"),
    Row("mpi-launcher-gone", training_job("MPIJob"), "t-launcher", GONE, "t-launcher"),
    Row(
        "mpi-worker-exit",
        training_job("MPIJob", "", "OnFailure"),
        "t-worker-1",
        EXITS,
        restarted="t-worker-1 t-launcher",
    ),
    Row("mpi-worker-gone", training_job("MPIJob"), "t-worker-1", GONE, "t-worker-1", "t-launcher"),
    Row(
        "mpi-worker-stays-failed",
        training_job("MPIJob"),
        "t-worker-1",
        EXITS,
        stopped="t-worker-1 t-launcher",
        fails=True,
    ),
    Row("ray-head-ft-exit", ray_cluster(FT), "rc-head", EXITS, restarted="rc-head"),
    Row("ray-head-ft-gone", ray_cluster(FT, "Never"), "rc-head", EXITS + GONE, "rc-head"),
    Row("ray-job-head", ray_job("  backoffLimit: 1\n"), "rj-head", EXITS + GONE, RJ),
    Row("ray-head-exit", ray_cluster(), "rc-head", EXITS, restarted=RAY),
    Row("ray-head-gone", ray_cluster(), "rc-head", GONE, "rc-head", RAY.removeprefix("rc-head ")),
    Row("ray-submitter", ray_job(), "rj", EXITS + GONE, "rj"),
    Row("ray-job-attempt", ray_job("  backoffLimit: 1\n  submitterConfig: {backoffLimit: 0}\n"), "rj", EXITS, RJ),
    Row("ray-worker-exit", ray_cluster(), "rc-gpu-worker-1", EXITS, restarted="rc-gpu-worker-1"),
    Row(
        "ray-worker-gone", ray_cluster(workers="replicas: 1, numOfHosts: 3"), "rc-gpu-worker-1", GONE, "rc-gpu-worker-1"
    ),
    Row("volcano-restart-job", _volcano("RestartJob"), "v-worker-0", EXITS, VC),
    Row("volcano-restart-task", _volcano("RestartTask"), "v-worker-0", EXITS, VC.removeprefix("v-ps-0 ")),
    Row("volcano-restart-pod", _volcano("RestartPod"), "v-worker-0", EXITS, "v-worker-0"),
    Row("volcano-end", _volcano("AbortJob"), "v-worker-0", EXITS, stopped=VC, fails=True),
    Row("volcano-gone", _volcano("RestartJob"), "v-worker-0", GONE, "v-worker-0"),
    Row("volcano-exit", volcano_job(restart="OnFailure"), "v-worker-0", EXITS, restarted="v-worker-0"),
    Row("volcano-stays", volcano_job(), "v-worker-0", EXITS, stopped="v-worker-0"),
    Row("pod-exit", pod(), "p", EXITS, restarted="p"),
    Row("pod-gone", pod(), "p", GONE, stopped="p"),
]
SENTENCES = {rule.rule: rule.sentence for rule in table.rules()}


def fail(workload: KubeObject, name: str, cause: Cause, exit_code: int = 1) -> Restart:
    return restart(workload, stamped(workload, ()), [name], cause, {}, exit_code)


@pytest.mark.parametrize("row", ROWS, ids=[SENTENCES[row.rule] for row in ROWS])
def test_a_rule_restarts_exactly_these_pods(row: Row) -> None:
    workload = one(row.workload)
    for cause in row.causes:
        found = fail(workload, row.failed, cause, row.exit_code)
        got = (found.rule, set(found.recreated), set(found.restarted), set(found.stopped), found.failed)
        wanted = (row.rule, *(set(names.split()) for names in (row.recreated, row.restarted, row.stopped)), row.fails)
        assert got == wanted, cause


def test_every_rule_of_the_table_has_a_row_here() -> None:
    assert {row.rule for row in ROWS} == set(SENTENCES)


def test_rules_are_told_apart_by_name_and_sentence_and_say_where_they_come_from() -> None:
    rules = table.rules()
    assert len({rule.rule for rule in rules}) == len({rule.sentence for rule in rules}) == len(rules)
    assert all(len(rule.source) > 20 for rule in rules)


def test_the_words_of_the_table_are_those_that_are_applied() -> None:
    names = {rule.rule for rule in table.rules()}
    for rule in table.rules():
        assert rule.restarts in ("container", "pod", "group", "job", "task", "all", "none", "index-fails", "fails")
        assert rule.over in ("", "above", "reached", "zero")
        assert rule.beyond in ("", "fails") or rule.beyond in names
        assert rule.backoff == "" or rule.backoff in table.backoffs()
        assert bool(rule.limit) == bool(rule.over) == bool(rule.beyond)
        assert rule.causes <= {cause.value for cause in Cause}


def test_every_kind_ends_with_a_row_for_whatever_else_happens() -> None:
    """So that no failure is without a rule."""
    made = [
        job(),
        job(restart="OnFailure"),
        job_set(),
        leader_worker_set(),
        ray_cluster(),
        ray_job(),
        volcano_job(),
        pod(),
    ]
    made += [leader_worker_set("    restartPolicy: None\n"), volcano_job(restart="OnFailure"), pod(restart="Never")]
    made += [
        training_job(kind, "", policy)
        for kind in ("PyTorchJob", "TFJob", "XGBoostJob", "JAXJob", "MPIJob")
        for policy in ("Always", "OnFailure", "Never", "ExitCode")
    ]
    made += [
        job_set(parts=(part("only", 1, 2, 3, "OnFailure"),)),
        ray_cluster(restart="Never"),
        ray_job(restart="Never"),
    ]
    for text in made:
        workload = one(text)
        for replica in stamped(workload, ()):
            for cause in Cause:
                found = fail(workload, replica.name, cause)
                assert found.rule in SENTENCES
                assert replica.name in (*found.recreated, *found.restarted, *found.stopped)
                assert not set(found.recreated) & set(found.restarted) | set(found.recreated) & set(found.stopped)
