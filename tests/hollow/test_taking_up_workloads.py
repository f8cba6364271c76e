"""What simulated operators look at when they take a workload up: what it refers to, and nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from hollow.running_api import Json, Running
from live.contract.training import job, obj, pod, set_up, workers
from tonnage.kube.resources import JOBS, PRIORITY_CLASSES
from tonnage.live.group_kinds import GROUPS, JOB_SETS, PYTORCH_JOBS, TRAIN_JOBS, TRAINING_RUNTIMES
from tonnage.workloads.membership import Maker

KAI_GROUPS = GROUPS[0][0]


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Running]:
    made = Running(set_up(tmp_path, [job("first")], training=[{"workload": "research/job/first", "arrival": "2h"}]))
    yield made
    made.close()


def grouped(name: str) -> Json:
    """A Job of two pods, which name a pod group of the Job's name."""
    body = job(name, parallelism=2, completions=2)
    body["spec"]["template"]["metadata"] = {"annotations": {"pod-group-name": name}}
    return body


def group(name: str) -> Json:
    return obj("scheduling.run.ai/v2alpha2", "PodGroup", name, minMember=2)


def test_taking_up_one_is_as_much_work_whatever_else_is_there(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked_at: list[str] = []
    of_object = Maker.of_object
    monkeypatch.setattr(
        Maker, "of_object", lambda self, one, others: looked_at.append(one.name) or of_object(self, one, others)
    )
    classes = [one["metadata"]["name"] for one in running.client.list(PRIORITY_CLASSES)]
    for number in range(6):
        running.create(KAI_GROUPS, group(f"job-{number}"))
        running.create(JOBS, grouped(f"job-{number}"))
        running.create(PYTORCH_JOBS, workers(f"torch-{number}", 2))
        looked_at.clear()
    running.create(JOBS, job("alone"))
    assert looked_at == [*classes, "alone"]
    running.create(KAI_GROUPS, group("last"))
    looked_at.clear()
    running.create(JOBS, grouped("last"))
    assert looked_at == [*classes, "last", "last"]


def test_its_gang_is_that_of_the_group_that_its_pods_name(running: Running) -> None:
    running.create(KAI_GROUPS, group("other"))
    running.create(KAI_GROUPS, group("mine"))
    running.create(JOBS, grouped("mine"))
    training = running.cluster.training["research/job/mine"]
    assert list(training.gangs) == ["research/mine"]
    assert {pod.gang for pod in training.members.values()} == {"research/mine"}


def test_a_gang_that_its_own_kind_implies_has_the_priority_of_its_class(running: Running) -> None:
    running.client.create(PRIORITY_CLASSES, {"metadata": {"name": "high"}, "value": 1000})
    running.settle()
    template = {"spec": {"parallelism": 2, "completions": 2, "template": pod(priorityClassName="high")}}
    parts = [{"name": "a", "replicas": 1, "template": template}]
    running.create(JOB_SETS, obj("jobset.x-k8s.io/v1alpha2", "JobSet", "mine", replicatedJobs=parts))
    (gang,) = running.cluster.training["research/jobset/mine"].gangs.values()
    assert (gang.key, gang.priority, gang.min_member) == ("research/jobset/mine", 1000, 2)


def test_a_group_that_was_deleted_is_no_longer_referred_to(running: Running) -> None:
    running.create(KAI_GROUPS, group("mine"))
    running.client.delete(KAI_GROUPS, "mine", "research")
    running.settle()
    running.create(JOBS, grouped("mine"))
    assert running.cluster.training["research/job/mine"].gangs == {}


def test_a_train_job_gets_its_pods_once_its_runtime_is_there(running: Running) -> None:
    template = {"spec": {"parallelism": 1, "completions": 1, "template": pod()}}
    jobs = {"spec": {"replicatedJobs": [{"name": "node", "replicas": 1, "template": template}]}}
    reference = {"kind": "TrainingRuntime", "name": "pair"}
    running.create(
        TRAIN_JOBS,
        obj("trainer.kubeflow.org/v1alpha1", "TrainJob", "mine", runtimeRef=reference, trainer={"numNodes": 2}),
    )
    assert running.pods() == {}
    running.create(TRAINING_RUNTIMES, obj("trainer.kubeflow.org/v1alpha1", "TrainingRuntime", "pair", template=jobs))
    assert running.pods() == {"mine-node-0-0": "Pending", "mine-node-0-1": "Pending"}
