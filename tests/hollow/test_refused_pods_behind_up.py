"""Pods that the API server of `tonnage up` refuses to make, gates that are removed there, and pods of Jobs that failed."""

from __future__ import annotations

from pathlib import Path

import pytest

from health.broken_sets import broken
from hollow.running_api import Json
from hollow.up_in_step import UpInStep
from live.contract.training import job, pod, set_up, workers
from tonnage.hollow.given import given
from tonnage.kube.correlation import About
from tonnage.kube.events import EventRecorder
from tonnage.kube.resources import EVENTS, LIMIT_RANGES, SERVICE_ACCOUNTS
from tonnage.live.group_kinds import JOBS
from tonnage.objects import load
from tonnage.simulation import run, scenario


def up_in_step(folder: Path) -> UpInStep:
    """A cluster with a workload that comes later."""
    return UpInStep(set_up(folder, [job("first")], training=[{"workload": "research/job/first", "arrival": "9h"}]))


def with_account(body: Json, kind: str) -> Json:
    spec = body["spec"]
    template = spec["template"] if kind == "Job" else spec["pytorchReplicaSpecs"]["Worker"]["template"]
    template["spec"]["serviceAccountName"] = "trainer"
    return body


@pytest.mark.parametrize("kind", ["Job", "PyTorchJob"])
def test_an_operator_says_that_its_pods_are_refused_and_makes_them_once_they_are_not(kind: str, tmp_path: Path) -> None:
    with up_in_step(tmp_path) as up:
        up.apply(with_account(job("mine") if kind == "Job" else workers("mine", 1), kind))
        up.run_for(60)
        assert up.list_pods() == []
        (event,) = [one for one in up.events(kind, "mine") if one["reason"] == "FailedCreate"]
        assert event["type"] == "Warning" and event["count"] > 3
        assert event["message"].startswith("Error creating: ")
        assert event["message"].endswith('service account research/trainer: serviceaccount "trainer" not found')
        up.client.create(SERVICE_ACCOUNTS, {"metadata": {"name": "trainer"}}, "research")
        up.run_for(300)
        assert [one["status"]["phase"] for one in up.list_pods()] == ["Running"]
        assert up.machines.errors == {}


def test_what_a_limit_range_refuses_is_said_of_its_owner(tmp_path: Path) -> None:
    with up_in_step(tmp_path) as up:
        limit = {"type": "Container", "max": {"nvidia.com/gpu": "0"}}
        up.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "research"}})
        up.client.create(LIMIT_RANGES, {"metadata": {"name": "small"}, "spec": {"limits": [limit]}}, "research")
        up.apply(job("mine"))
        up.run_for(60)
        assert up.list_pods() == []
        said = [one["message"] for one in up.events("Job", "mine") if one["reason"] == "FailedCreate"]
        assert said and all("maximum nvidia.com/gpu usage per Container is 0" in text for text in said)


def test_a_gate_that_somebody_removes_is_removed(tmp_path: Path) -> None:
    one = next(one for one in broken() if one.name == "scheduling gate of kueue without a queue")
    loaded = scenario.load(one.write(tmp_path / "set", fixed=True))
    with UpInStep(run.set_up(loaded, loaded.default_policy)) as up:
        up.run_for(300)
        found = [(one["status"]["phase"], one["spec"].get("schedulingGates")) for one in up.list_pods()]
        assert found == [("Running", None)]


def test_a_gate_that_nobody_removes_stays(tmp_path: Path) -> None:
    with up_in_step(tmp_path) as up:
        body = job("mine")
        body["spec"]["template"] = pod(schedulingGates=[{"name": "kueue.x-k8s.io/admission"}])
        up.apply(body)
        up.run_for(120)
        (found,) = up.list_pods()
        said = next(c for c in found["status"]["conditions"] if c["type"] == "PodScheduled")
        assert (said["status"], said["reason"]) == ("False", "SchedulingGated")


def test_the_failed_pod_of_a_job_stays_and_goes_with_it(tmp_path: Path) -> None:
    one = next(one for one in broken() if one.name == "a context longer than the model's in a Job")
    loaded = scenario.load(one.write(tmp_path / "set"))
    with UpInStep(run.set_up(loaded, loaded.default_policy)) as up:
        up.run_for(1200)
        (found,) = up.list_pods()
        state = found["status"]["containerStatuses"][0]["state"]["terminated"]
        assert (found["status"]["phase"], state["exitCode"]) == ("Failed", 1)
        assert "max_model_len (262144)" in state["message"]
        up.client.delete(JOBS, "batch", found["metadata"]["namespace"], propagation="Background")
        up.run_for(60)
        assert up.list_pods() == []


def test_two_recorders_may_speak_of_one_object_at_one_instant(tmp_path: Path) -> None:
    with up_in_step(tmp_path) as up:
        recorders = [EventRecorder(up.client, name, lambda: 1_800_000_000.0) for name in ("one", "other", "third")]
        for recorder in recorders:
            recorder.record(About("v1", "Pod", "mine", "default"), "Warning", "Said", "it")
        assert all(recorder.close() for recorder in recorders)
        assert sorted(e["source"]["component"] for e in up.client.list(EVENTS, "default")) == ["one", "other", "third"]
        assert [recorder.dropped for recorder in recorders] == [0, 0, 0]


def test_what_operators_and_clusters_have_is_given(tmp_path: Path) -> None:
    claim = "{accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}"
    (tmp_path / "a.yaml").write_text(
        "\n---\n".join(
            (
                "apiVersion: nvidia.com/v1\nkind: ClusterPolicy\nmetadata: {name: p}\nspec: {}",
                f"apiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {{name: a}}\nspec: {claim}}}",
                "apiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {name: b}\n"
                f"spec: {claim}, storageClassName: gp2}}",
            )
        )
    )
    made = [(body["kind"], body["metadata"]["name"]) for body in given(load.read([tmp_path / "a.yaml"]).objects, ())]
    assert made == [
        *(("RuntimeClass", name) for name in ("nvidia", "nvidia-cdi", "nvidia-legacy")),
        ("StorageClass", "gp2"),
        ("StorageClass", "standard"),
    ]
