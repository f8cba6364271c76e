"""Workloads that are suspended and resumed: their pods, and what their status says, for each kind."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pytest

from hollow.running_api import Json, Running
from live.contract.training import job, obj, pod, set_up, workers
from tonnage.kube.resources import JOBS, PODS, Resource
from tonnage.live.group_kinds import JOB_SETS, MPI_JOBS, PYTORCH_JOBS, RAY_CLUSTERS, RAY_JOBS, TRAIN_JOBS
from tonnage.live.group_kinds import TRAINING_RUNTIMES as RUNTIMES
from tonnage.objects import core

TWO = {"parallelism": 2, "completions": 2, "completionMode": "Indexed", "template": pod()}
PARTS = [{"name": "node", "replicas": 1, "template": {"spec": TWO}}]
RAY = {
    "headGroupSpec": {"template": pod(restartPolicy="Always")},
    "workerGroupSpecs": [{"groupName": "w", "replicas": 1, "template": pod(restartPolicy="Always")}],
}
MPI = {"Launcher": {"replicas": 1, "template": pod(0)}, "Worker": {"replicas": 1, "template": pod()}}


@dataclass(frozen=True)
class Kind:
    """A workload of two pods. ``spec``: what suspends it, without its value."""

    resource: Resource
    body: Json
    path: tuple[str, ...] = ("suspend",)

    def suspended(self, value: bool) -> Json:
        found: Any = value
        for name in reversed(self.path):
            found = {name: found}
        return {"spec": found}


KINDS = {
    "Job": Kind(JOBS, job("mine", parallelism=2, completions=2)),
    "JobSet": Kind(JOB_SETS, obj("jobset.x-k8s.io/v1alpha2", "JobSet", "mine", replicatedJobs=PARTS)),
    "PyTorchJob": Kind(PYTORCH_JOBS, workers("mine", 2), ("runPolicy", "suspend")),
    "MPIJob": Kind(
        MPI_JOBS, obj("kubeflow.org/v2beta1", "MPIJob", "mine", mpiReplicaSpecs=MPI), ("runPolicy", "suspend")
    ),
    "RayCluster": Kind(RAY_CLUSTERS, obj("ray.io/v1", "RayCluster", "mine", **RAY)),
    "RayJob": Kind(RAY_JOBS, obj("ray.io/v1", "RayJob", "mine", rayClusterSpec=RAY)),
    "TrainJob": Kind(
        TRAIN_JOBS,
        obj(
            "trainer.kubeflow.org/v1alpha1",
            "TrainJob",
            "mine",
            runtimeRef={"kind": "TrainingRuntime", "name": "pair"},
            trainer={"numNodes": 2},
        ),
    ),
}
RUNTIME = obj("trainer.kubeflow.org/v1alpha1", "TrainingRuntime", "pair", template={"spec": {"replicatedJobs": PARTS}})
EVERY_KIND = pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Running]:
    made = Running(set_up(tmp_path, [job("first")], training=[{"workload": "research/job/first", "arrival": "2h"}]))
    made.create(RUNTIMES, RUNTIME)
    yield made
    made.close()


def held(status: Json) -> dict[str, str]:
    """The status of each condition, by type."""
    return {one["type"]: one["status"] for one in status.get("conditions", ())}


def says_suspended(kind: Kind, status: Json) -> bool:
    """Whether the object says so, in the words of its kind."""
    if kind.resource == RAY_CLUSTERS:
        return status.get("state") == "suspended"
    if kind.resource == RAY_JOBS:
        return (status["jobDeploymentStatus"], status["jobStatus"]) == ("Suspended", "")
    return held(status).get("Suspended") == "True"


def pods_that(status: Json, name: str) -> int:
    """How many pods are active or ready by what any of the kinds writes."""
    rows = [status, *status.get("replicatedJobsStatus", ()), *status.get("replicaStatuses", {}).values()]
    return sum(row.get(name, 0) for row in rows)


@EVERY_KIND
def test_what_is_suspended_has_no_pods_and_says_so(running: Running, kind: Kind) -> None:
    running.create(kind.resource, kind.body)
    running.place()
    running.later(30)
    assert list(running.pods().values()) == ["Running", "Running"]
    assert not says_suspended(kind, running.status(kind.resource, "mine"))
    running.client.patch(kind.resource, "mine", kind.suspended(True), "research")
    running.later(60)
    status = running.status(kind.resource, "mine")
    assert (running.pods(), says_suspended(kind, status)) == ({}, True)
    assert (pods_that(status, "active"), pods_that(status, "ready"), status.get("readyWorkerReplicas", 0)) == (0, 0, 0)
    assert held(status).get("Running", "False") == "False"
    assert held(status).keys().isdisjoint({"Failed", "Complete"})


@EVERY_KIND
def test_what_is_resumed_has_its_pods_again_and_says_so(running: Running, kind: Kind) -> None:
    running.create(kind.resource, {**kind.body, "spec": kind.body["spec"] | kind.suspended(True)["spec"]})
    status = running.status(kind.resource, "mine")
    assert (running.pods(), says_suspended(kind, status)) == ({}, True)
    for _ in range(2):
        running.client.patch(kind.resource, "mine", kind.suspended(False), "research")
        running.later(60)
        running.place()
        running.later(30)
        status = running.status(kind.resource, "mine")
        assert (list(running.pods().values()), says_suspended(kind, status)) == (["Running", "Running"], False)
        assert held(status).get("Suspended", "False") == "False"
        assert held(status).get("Running", "True") == "True"
        running.client.patch(kind.resource, "mine", kind.suspended(True), "research")
        running.later(60)
        assert says_suspended(kind, running.status(kind.resource, "mine"))


def test_a_job_says_when_it_was_resumed_and_completes(running: Running) -> None:
    running.create(JOBS, job("mine", suspend=True), "10m")
    first = running.status(JOBS, "mine")["conditions"]
    running.later(60)
    running.client.patch(JOBS, "mine", {"spec": {"suspend": False}}, "research")
    running.settle()
    running.place()
    running.later(900)
    conditions = {one["type"]: one for one in running.status(JOBS, "mine")["conditions"]}
    assert conditions["Complete"]["status"] == "True"
    assert (conditions["Suspended"]["status"], conditions["Suspended"]["reason"]) == ("False", "JobResumed")
    assert conditions["Suspended"]["lastTransitionTime"] > first[0]["lastTransitionTime"]


def test_what_has_come_to_its_end_stays_as_it_is_when_it_is_suspended(running: Running) -> None:
    running.create(JOBS, job("mine"), "10m")
    running.place()
    running.later(900)
    before = running.status(JOBS, "mine")
    running.client.patch(JOBS, "mine", {"spec": {"suspend": True}}, "research")
    running.later(60)
    assert (running.status(JOBS, "mine"), held(before)["Complete"]) == (before, "True")
    assert running.pods() == {"mine-0": "Succeeded"}


@pytest.mark.parametrize("end", ["suspended", "complete"])
def test_what_is_heard_late_of_a_pod_that_has_ended_makes_no_other(running: Running, end: str) -> None:
    running.create(JOBS, job("mine"), "10m")
    running.place()
    running.later(30)
    late = msgspec.convert(running.client.get(PODS, "mine-0", "research"), core.Pod)
    if end == "suspended":
        running.client.patch(JOBS, "mine", {"spec": {"suspend": True}}, "research")
    running.later(900)
    assert running.cluster.pods == {}
    running.machines.see_pod(late, late)
    assert running.cluster.pods == {}
