"""Training workloads that users create on the API beside simulated machines."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from deep_seeds import part
from hollow.running_api import Json, Running
from live.contract.training import job, pod, set_up, workers
from tonnage.kube.resources import PODS, PRIORITY_CLASSES
from tonnage.live.group_kinds import JOB_SETS, JOBS, LEADER_WORKER_SETS, PYTORCH_JOBS, VOLCANO_JOBS


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Running]:
    made = Running(set_up(tmp_path, [job("first")], training=[{"workload": "research/job/first", "arrival": "2h"}]))
    yield made
    made.close()


def test_a_users_job_gets_its_pods_and_completes(running: Running) -> None:
    running.create(JOBS, job("mine", parallelism=2, completions=2), "10m")
    assert running.pods() == {"mine-0": "Pending", "mine-1": "Pending"}
    running.place()
    running.later(30)
    assert running.pods() == {"mine-0": "Running", "mine-1": "Running"}
    assert (running.status(JOBS, "mine")["active"], running.status(JOBS, "mine")["ready"]) == (2, 2)
    running.later(900)
    status = running.status(JOBS, "mine")
    assert running.pods() == {"mine-0": "Succeeded", "mine-1": "Succeeded"}
    assert {c["type"] for c in status["conditions"]} == {"SuccessCriteriaMet", "Complete"}
    assert (status["succeeded"], "active" in status) == (2, False)
    assert running.cluster.pods == {}


def test_pods_are_made_as_the_template_says_with_what_is_not_read_here_too(running: Running) -> None:
    body = workers("mine", 1)
    template = body["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]
    template["metadata"] = {"labels": {"team": "a"}, "annotations": {"note": "b"}}
    template["spec"] |= {"volumes": [{"name": "data", "emptyDir": {}}], "hostname": "worker"}
    running.create(PYTORCH_JOBS, body)
    made = running.client.get(PODS, "mine-worker-0", "research")
    owner = running.client.get(PYTORCH_JOBS, "mine", "research")
    assert (made["spec"]["hostname"], made["spec"]["volumes"]) == ("worker", [{"name": "data", "emptyDir": {}}])
    assert (made["spec"]["schedulerName"], made["spec"]["restartPolicy"]) == ("tonnage", "OnFailure")
    labels, annotations = made["metadata"]["labels"], made["metadata"]["annotations"]
    assert (labels["team"], labels["training.kubeflow.org/job-name"], annotations["note"]) == ("a", "mine", "b")
    reference = made["metadata"]["ownerReferences"][0]
    assert (reference["kind"], reference["uid"], reference["controller"]) == (
        "PyTorchJob",
        owner["metadata"]["uid"],
        True,
    )


def test_a_pods_priority_is_that_of_its_class(running: Running) -> None:
    running.client.create(PRIORITY_CLASSES, {"metadata": {"name": "high"}, "value": 1000})
    running.settle()
    body = job("mine")
    body["spec"]["template"] = pod(priorityClassName="high")
    running.create(JOBS, body)
    assert running.client.get(PODS, "mine-0", "research")["spec"]["priority"] == 1000
    assert running.cluster.fleet.pod(running.cluster.pods["research", "mine-0"].row).spec.priority == 1000


def test_a_pod_that_is_deleted_comes_again_under_its_name(running: Running) -> None:
    running.create(PYTORCH_JOBS, workers("mine", 2))
    running.place()
    running.later(30)
    before = running.client.get(PODS, "mine-worker-0", "research")["metadata"]["uid"]
    running.client.delete(PODS, "mine-worker-0", "research")
    running.later(60)
    after = running.client.get(PODS, "mine-worker-0", "research")
    assert (after["metadata"]["uid"] != before, after["status"]["phase"]) == (True, "Pending")
    training = running.cluster.training["research/pytorchjob/mine"]
    assert (training.evictions, training.restarts) == (1, 1)
    running.place()
    running.later(30)
    assert set(running.pods().values()) == {"Running"}


def test_an_eviction_counts_as_one(running: Running) -> None:
    running.create(JOB_SETS, _job_set("mine"))
    running.place()
    running.later(30)
    running.client.evict("mine-part-0-0", "research")
    running.later(60)
    running.place()
    running.later(60)
    assert set(running.pods().values()) == {"Running"}
    assert running.status(JOB_SETS, "mine")["restarts"] == 1


def _job_set(name: str) -> Json:
    meta = {"name": name, "namespace": "research"}
    template = {"spec": {"parallelism": 2, "completions": 2, "completionMode": "Indexed", "template": pod()}}
    spec = {"replicatedJobs": [{"name": "part", "replicas": 1, "template": template}]}
    spec["failurePolicy"] = {"maxRestarts": 3}  # type: ignore[assignment]
    return {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "metadata": meta, "spec": spec}


def test_pods_go_with_their_workload_and_it_can_be_made_again(running: Running) -> None:
    running.create(PYTORCH_JOBS, workers("mine", 2))
    running.place()
    running.later(30)
    running.client.delete(PYTORCH_JOBS, "mine", "research", propagation="Background")
    running.settle()
    running.create(PYTORCH_JOBS, workers("mine", 3))
    running.later(120)
    assert sorted(running.pods()) == ["mine-worker-0", "mine-worker-1", "mine-worker-2"]
    owner = running.client.get(PYTORCH_JOBS, "mine", "research")["metadata"]["uid"]
    assert {one["metadata"]["ownerReferences"][0]["uid"] for one in running.client.list(PODS)} == {owner}


@pytest.mark.parametrize("seed", part(range(20)))
def test_it_can_be_made_again_whichever_watch_is_behind(tmp_path: Path, seed: int) -> None:
    made = set_up(tmp_path, [job("first")], training=[{"workload": "research/job/first", "arrival": "2h"}])
    running = Running(made, late=random.Random(seed))
    try:
        running.create(PYTORCH_JOBS, workers("mine", 2))
        running.place()
        running.later(30)
        running.client.delete(PYTORCH_JOBS, "mine", "research", propagation="Background")
        for _ in range(60):
            running.now_s += 1
            running.turns(1)
        running.settle()
        assert (running.pods(), running.cluster.pods) == ({}, {})
        running.create(PYTORCH_JOBS, workers("mine", 3))
        running.later(120)
        owner = running.client.get(PYTORCH_JOBS, "mine", "research")["metadata"]["uid"]
        pods = running.client.list(PODS)
        assert sorted(one["metadata"]["name"] for one in pods) == [f"mine-worker-{i}" for i in range(3)]
        assert {one["metadata"]["ownerReferences"][0]["uid"] for one in pods} == {owner}
    finally:
        running.close()


def test_a_suspended_job_gets_pods_when_it_is_resumed_and_loses_them_when_it_is_suspended(running: Running) -> None:
    running.create(JOBS, job("mine", suspend=True))
    assert running.pods() == {}
    running.client.patch(JOBS, "mine", {"spec": {"suspend": False}}, "research")
    running.settle()
    assert running.pods() == {"mine-0": "Pending"}
    running.client.patch(JOBS, "mine", {"spec": {"suspend": True}}, "research")
    running.later(60)
    assert running.pods() == {}


def test_work_that_cannot_be_read_never_ends_and_an_event_says_so(running: Running) -> None:
    told: list[tuple[str, str]] = []
    running.machines.options.event = lambda about, type_, reason, message: told.append((str(about), reason))
    running.create(JOBS, job("mine"), "soon")
    assert ("Job research/mine", "InvalidAnnotation") in told
    running.place()
    running.later(7_000)
    assert running.pods() == {"mine-0": "Running"}


def test_a_workload_that_another_owns_is_left_to_it(running: Running) -> None:
    owner = running.client.create(VOLCANO_JOBS, _volcano("outer"), "research")
    reference = {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "name": "outer"}
    body = job("inner")
    body["metadata"]["ownerReferences"] = [{**reference, "uid": owner["metadata"]["uid"], "controller": True}]
    running.create(JOBS, body)
    assert running.pods() == {"outer-work-0": "Pending"}


def _volcano(name: str) -> Json:
    spec = {"tasks": [{"name": "work", "replicas": 1, "template": pod()}]}
    meta = {"name": name, "namespace": "research"}
    return {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "metadata": meta, "spec": spec}


def test_leader_and_workers_are_counted_by_groups(running: Running) -> None:
    meta = {"name": "mine", "namespace": "research"}
    spec = {"replicas": 2, "leaderWorkerTemplate": {"size": 2, "workerTemplate": pod(restartPolicy="Always")}}
    body = {
        "apiVersion": "leaderworkerset.x-k8s.io/v1",
        "kind": "LeaderWorkerSet",
        "metadata": meta,
        "spec": spec,
    }
    running.create(LEADER_WORKER_SETS, body)
    running.place()
    running.later(30)
    status = running.status(LEADER_WORKER_SETS, "mine")
    assert (status["replicas"], status["readyReplicas"]) == (2, 2)
    assert {c["type"]: c["status"] for c in status["conditions"]} == {"Available": "True", "Progressing": "False"}


def test_the_scenarios_workload_is_created_when_it_arrives(running: Running) -> None:
    assert running.client.list(JOBS) == []
    running.later(7_300)
    assert [one["metadata"]["name"] for one in running.client.list(JOBS)] == ["first"]
    assert running.pods() == {"first-0": "Pending"}


def test_where_others_make_pods_their_workloads_are_only_created(tmp_path: Path) -> None:
    """A Job is the Job controller's, a kind that was defined before its operator's."""
    manifests = [job("theirs"), _volcano("theirs-too"), workers("ours", 1)]
    entries = [{"workload": f"research/{name}", "arrival": "1m"} for name in ("job/theirs", "pytorchjob/ours")]
    running = Running(set_up(tmp_path, manifests, training=entries), theirs=(VOLCANO_JOBS,), managed=True)
    try:
        running.later(90)
        assert [one["metadata"]["name"] for one in running.client.list(JOBS)] == ["theirs"]
        assert [one["metadata"]["name"] for one in running.client.list(VOLCANO_JOBS)] == ["theirs-too"]
        template = running.client.get(JOBS, "theirs", "research")["spec"]["template"]
        assert template["spec"]["schedulerName"] == "tonnage"
        assert running.pods() == {"ours-worker-0": "Pending"}
        theirs = running.client.get(JOBS, "theirs", "research")
        by = {"apiVersion": "batch/v1", "kind": "Job", "name": "theirs", "uid": theirs["metadata"]["uid"]}
        meta = {"name": "theirs-x", "namespace": "research", "ownerReferences": [{**by, "controller": True}]}
        running.client.create(PODS, {"apiVersion": "v1", "kind": "Pod", "metadata": meta, **pod()}, "research")
        running.settle()
        assert running.pods()["theirs-x"] == "Pending"
        assert ("research", "theirs-x") in running.cluster.pods
        running.client.delete(PODS, "theirs-x", "research")
        running.create(VOLCANO_JOBS, _volcano("another"))
        running.create(PYTORCH_JOBS, workers("mine", 1))
        assert running.pods() == {"ours-worker-0": "Pending", "mine-worker-0": "Pending"}
        running.machines.take_away()
        running.managers.step()
        assert running.client.list(PYTORCH_JOBS)[0]["metadata"]["name"] == "mine"
        assert (len(running.client.list(PYTORCH_JOBS)), running.client.list(JOBS)) == (1, [])
        assert "ours-worker-0" not in running.pods()
    finally:
        running.close()


def test_bare_pods_of_a_group_are_created_as_they_are_written_and_taken_away(tmp_path: Path) -> None:
    group = {"apiVersion": "scheduling.run.ai/v2alpha2", "kind": "PodGroup", "spec": {"minMember": 2}}
    group["metadata"] = {"name": "pair", "namespace": "research"}
    members = [
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": f"pair-{i}", "namespace": "research", "annotations": {"pod-group-name": "pair"}},
            "spec": {**pod()["spec"], "hostname": f"host-{i}"},
        }
        for i in range(2)
    ]
    entries = [{"workload": "research/podgroup/pair", "work": {"duration": "10m"}}]
    running = Running(set_up(tmp_path, [group, *members], training=entries))
    try:
        made = {one["metadata"]["name"]: one for one in running.client.list(PODS)}
        assert {name: one["spec"]["hostname"] for name, one in made.items()} == {"pair-0": "host-0", "pair-1": "host-1"}
        assert all("ownerReferences" not in one["metadata"] for one in made.values())
        running.place()
        running.later(30)
        assert running.pods() == {"pair-0": "Running", "pair-1": "Running"}
        running.machines.take_away()
        assert running.pods() == {}
    finally:
        running.close()


def test_one_object_that_cannot_be_written_holds_up_no_other(running: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tonnage.hollow.running.RETRY_S", 600.0)
    running.create(JOBS, job("mine", parallelism=2, completions=2))
    running.refusing.refused["mine-0"] = 0
    running.place()
    running.now_s += 30
    running.turns()
    assert running.pods() == {"mine-0": "Pending", "mine-1": "Running"}
    assert (running.refusing.refused["mine-0"], list(running.machines.errors)) == (1, ["pod research/mine-0"])


def test_what_could_not_be_written_is_tried_again(running: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tonnage.hollow.running.RETRY_S", 0.01)
    running.create(JOBS, job("mine"))
    running.refusing.refused["mine-0"] = 0
    running.place()
    running.now_s += 30
    running.turns()
    time.sleep(0.02)
    running.turns()
    assert running.refusing.refused.pop("mine-0") > 1
    running.settle()
    assert (running.pods(), running.machines.errors) == ({"mine-0": "Running"}, {})
