"""Workloads of which other numbers of pods are wanted while they run: followed where the framework is elastic."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from hollow.running_api import Json, Running
from live.contract.training import job, obj, pod, set_up, workers
from tonnage.kube.resources import JOBS, PODS, Resource
from tonnage.live.group_kinds import JOB_SETS, LEADER_WORKER_SETS, PYTORCH_JOBS, RAY_CLUSTERS
from tonnage.machines.training.part import PartState

Made = Callable[[int], Json]


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Running]:
    made = Running(set_up(tmp_path, [job("first")], training=[{"workload": "research/job/first", "arrival": "2h"}]))
    yield made
    made.close()


def leaders(replicas: int) -> Json:
    """A LeaderWorkerSet of this many groups of two."""
    groups = {"size": 2, "workerTemplate": pod(restartPolicy="Always")}
    return obj("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet", "mine", replicas=replicas, leaderWorkerTemplate=groups)


def ray(replicas: int) -> Json:
    """A RayCluster of a head and this many workers."""
    group = {"groupName": "w", "replicas": replicas, "template": pod(restartPolicy="Always")}
    head = {"template": pod(0, restartPolicy="Always")}
    return obj("ray.io/v1", "RayCluster", "mine", headGroupSpec=head, workerGroupSpecs=[group])


def elastic(count: int) -> Json:
    """A PyTorchJob that goes on with two workers or more."""
    body = workers("mine", count)
    body["spec"]["elasticPolicy"] = {"minReplicas": 2, "maxReplicas": 6}
    return body


GANGS = pytest.mark.parametrize(
    ("resource", "body"),
    [(LEADER_WORKER_SETS, leaders), (RAY_CLUSTERS, ray), (PYTORCH_JOBS, elastic)],
    ids=["LeaderWorkerSet", "RayCluster", "PyTorchJob"],
)


@GANGS
def test_what_is_scaled_up_gets_more_pods_and_keeps_those_that_it_has(
    running: Running, resource: Resource, body: Made
) -> None:
    running.create(resource, body(2))
    running.place()
    running.later(30)
    before = {one["metadata"]["name"]: one["metadata"]["uid"] for one in running.client.list(PODS)}
    running.client.patch(resource, "mine", {"spec": body(3)["spec"]}, "research")
    running.later(30)
    assert "Pending" in running.pods().values()
    assert [one.state for one in running.cluster.training.values() if one.arrived] == [PartState.RUNNING]
    running.place()
    running.later(30)
    after = {one["metadata"]["name"]: one["metadata"]["uid"] for one in running.client.list(PODS)}
    assert set(running.pods().values()) == {"Running"}
    assert after.items() > before.items()
    assert len(after) - len(before) == (2 if resource is LEADER_WORKER_SETS else 1)


@GANGS
def test_what_is_scaled_down_loses_the_last_and_can_be_scaled_up_again(
    running: Running, resource: Resource, body: Made
) -> None:
    running.create(resource, body(4))
    running.place()
    running.later(30)
    most = sorted(running.pods())
    running.client.patch(resource, "mine", {"spec": body(2)["spec"]}, "research")
    running.later(60)
    few = running.client.list(PODS)
    assert {one["metadata"]["name"] for one in few} < set(most)
    assert set(running.pods().values()) == {"Running"}
    running.client.patch(resource, "mine", {"spec": body(4)["spec"]}, "research")
    running.later(60)
    running.place()
    running.later(60)
    assert (sorted(running.pods()), set(running.pods().values())) == (most, {"Running"})
    kept = {one["metadata"]["uid"] for one in running.client.list(PODS)}
    assert kept >= {one["metadata"]["uid"] for one in few}


def test_a_head_without_workers_stays_when_some_come_and_go(running: Running) -> None:
    running.create(RAY_CLUSTERS, ray(0))
    running.place()
    running.later(30)
    (head,) = running.client.list(PODS)
    for wanted in (2, 0, 1):
        running.client.patch(RAY_CLUSTERS, "mine", {"spec": ray(wanted)["spec"]}, "research")
        running.later(60)
        running.place()
        running.later(30)
        assert list(running.pods().values()) == ["Running"] * (1 + wanted)
        assert head["metadata"]["uid"] in {one["metadata"]["uid"] for one in running.client.list(PODS)}
        assert [one.state for one in running.cluster.training.values() if one.arrived] == [PartState.RUNNING]


def test_the_status_counts_the_groups_that_are_wanted_now(running: Running) -> None:
    running.create(LEADER_WORKER_SETS, leaders(2))
    running.place()
    running.later(30)
    for wanted in (1, 0, 2):
        running.client.patch(LEADER_WORKER_SETS, "mine", {"spec": {"replicas": wanted}}, "research")
        running.later(60)
        running.place()
        running.later(30)
        status = running.status(LEADER_WORKER_SETS, "mine")
        assert (status.get("replicas", 0), status.get("readyReplicas", 0)) == (wanted, wanted)
        assert len(running.pods()) == 2 * wanted


def test_fewer_of_a_jobs_pods_run_at_once_when_its_parallelism_goes_down(running: Running) -> None:
    running.create(JOBS, job("mine", parallelism=2, completions=3), "10m")
    running.place()
    running.later(30)
    assert len(running.pods()) == 2
    running.client.patch(JOBS, "mine", {"spec": {"parallelism": 1}}, "research")
    running.later(60)
    assert running.pods() == {"mine-0": "Running"}
    for _ in range(3):
        running.later(900)
        running.place()
    assert set(running.pods().values()) == {"Succeeded"}
    assert (len(running.pods()), running.status(JOBS, "mine")["succeeded"]) == (3, 3)


def test_more_of_a_jobs_pods_run_at_once_when_its_parallelism_goes_up(running: Running) -> None:
    running.create(JOBS, job("mine", parallelism=1, completions=3), "10m")
    running.client.patch(JOBS, "mine", {"spec": {"parallelism": 3}}, "research")
    running.settle()
    running.place()
    running.later(900)
    assert running.pods() == dict.fromkeys(("mine-0", "mine-1", "mine-2"), "Succeeded")


def test_more_workers_have_done_an_elastic_jobs_work_sooner(running: Running) -> None:
    running.create(PYTORCH_JOBS, elastic(2), "20m")
    running.place()
    running.client.patch(PYTORCH_JOBS, "mine", {"spec": elastic(4)["spec"]}, "research")
    running.settle()
    running.place()
    running.later(700)
    conditions = running.status(PYTORCH_JOBS, "mine")["conditions"]
    assert (conditions[-1]["type"], conditions[-1]["status"]) == ("Succeeded", "True")


@pytest.mark.parametrize("kind", ["PyTorchJob", "JobSet"])
def test_where_scaling_is_not_followed_an_event_says_once_what_to_do(running: Running, kind: str) -> None:
    told: list[tuple[str, str, str, str]] = []
    running.machines.options.event = lambda about, *said: told.append((str(about), *said))
    part = {"spec": {"parallelism": 2, "completions": 2, "template": pod()}}

    def body(count: int) -> Json:
        parts = [{"name": "a", "replicas": count // 2, "template": part}]
        sets = obj("jobset.x-k8s.io/v1alpha2", "JobSet", "mine", replicatedJobs=parts)
        return workers("mine", count) if kind == "PyTorchJob" else sets

    resource = PYTORCH_JOBS if kind == "PyTorchJob" else JOB_SETS
    running.create(resource, body(2))
    running.client.patch(resource, "mine", {"spec": body(4)["spec"]}, "research")
    running.settle()
    running.place()
    running.later(30)
    said = [one for one in told if one[2] == "ScalingNotFollowed"]
    assert [one[:2] for one in said] == [(f"{kind} research/mine", "Warning")]
    assert "asks for 4 pods, and it has 2" in said[0][3]
    assert "delete it and recreate it" in said[0][3]
    assert list(running.pods().values()) == ["Running", "Running"]
