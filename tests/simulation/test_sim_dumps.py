"""Dumps of a cluster: pods that stand on nodes keep their places, and what is new gets what they leave."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from tonnage.simulation import run, scenario
from tonnage.simulation.result import NotRunning, Result

Json = dict[str, Any]
GPU = "nvidia.com/gpu"


def node(name: str, gpus: int = 4, **spec: Any) -> Json:
    amounts = {"cpu": "32", "memory": "128Gi", "pods": "110", GPU: str(gpus)}
    ready = {"type": "Ready", "status": "True"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, "nvidia.com/gpu.product": "NVIDIA-L40S"}},
        "spec": spec,
        "status": {"allocatable": amounts, "capacity": amounts, "conditions": [ready]},
    }


def pod(name: str, on: str, gpus: int, phase: str = "Running", owner: tuple[str, str] | None = None) -> Json:
    owners = (
        [{"apiVersion": "apps/v1", "kind": owner[0], "name": owner[1], "uid": "o", "controller": True}] if owner else []
    )
    labels = {
        "app": name.partition("-")[0],
        **({"pod-template-hash": "6bd9"} if owner and owner[0] == "ReplicaSet" else {}),
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "shop", "labels": labels, "ownerReferences": owners},
        "spec": {"nodeName": on, **containers(gpus)},
        "status": {"phase": phase},
    }


def containers(gpus: int) -> Json:
    return {"containers": [{"name": "main", "image": "nginx:1.29", "resources": {"limits": {GPU: str(gpus)}}}]}


def deployment(name: str, replicas: int, gpus: int) -> Json:
    labels = {"app": name}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": "shop"},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": containers(gpus)},
        },
    }


def play(folder: Path, *objects: Json) -> tuple[Result, dict[str, str]]:
    """The result, and the node of each pod at the end; empty for none."""
    (folder / "all.yaml").write_text(yaml.safe_dump_all(objects))
    made = run.set_up(scenario.load(folder), "as-written")
    result = made.result(run.play(made))
    return result, {pod.name: pod.node for pod in made.cluster.pods.values()}


def stopped(result: Result) -> Sequence[NotRunning]:
    return () if isinstance(result.not_running, msgspec.UnsetType) else result.not_running


def test_a_new_deployment_waits_for_what_running_pods_hold(tmp_path: Path) -> None:
    there = [pod(f"job-{i}", "a", 1) for i in range(4)]
    result, on = play(tmp_path, deployment("api", 1, 1), node("a"), *there)
    assert on == {"job-0": "a", "job-1": "a", "job-2": "a", "job-3": "a", "api-00001": ""}
    (one,) = stopped(result)
    assert (one.object.name, one.rule, one.pods) == ("api", "pod-pending", 1)
    assert one.cause == "0/1 nodes are available: 1 Insufficient nvidia.com/gpu"


def test_a_new_deployment_gets_what_running_pods_leave(tmp_path: Path) -> None:
    result, on = play(tmp_path, deployment("api", 1, 1), node("a"), *(pod(f"job-{i}", "a", 1) for i in range(3)))
    assert (on["api-00001"], stopped(result)) == ("a", ())


def test_pods_on_a_cordoned_node_run_on(tmp_path: Path) -> None:
    result, on = play(tmp_path, node("a", unschedulable=True), node("b"), pod("job-0", "a", 4))
    assert (on, stopped(result)) == ({"job-0": "a"}, ())


def test_pods_of_a_deployment_stay_and_the_missing_ones_are_made_elsewhere(tmp_path: Path) -> None:
    there = pod("web-6bd9-x", "a", 3, owner=("ReplicaSet", "web-6bd9"))
    result, on = play(tmp_path, deployment("web", 2, 3), node("a"), node("b"), there)
    assert (on, stopped(result)) == ({"web-6bd9-x": "a", "web-00001": "b"}, ())


def test_pods_of_a_deployment_stay_where_no_others_have_room(tmp_path: Path) -> None:
    there = pod("web-6bd9-x", "b", 3, owner=("ReplicaSet", "web-6bd9"))
    result, on = play(tmp_path, deployment("web", 2, 3), node("a", gpus=2), node("b"), there)
    assert on == {"web-6bd9-x": "b", "web-00001": ""}
    assert [(one.object.name, one.pods, one.wanted) for one in stopped(result)] == [("web", 1, 2)]


def test_pods_of_owners_that_are_not_simulated_hold_what_they_have(tmp_path: Path) -> None:
    result, on = play(tmp_path, deployment("api", 1, 2), node("a"), pod("db-0", "a", 3, owner=("StatefulSet", "db")))
    assert on == {"db-0": "a", "api-00001": ""}
    assert [one.object.name for one in stopped(result)] == ["api"]


def test_pods_that_have_ended_hold_nothing(tmp_path: Path) -> None:
    ended = [pod("job-0", "a", 4, phase="Succeeded"), pod("job-1", "a", 4, phase="Failed")]
    result, on = play(tmp_path, deployment("api", 1, 4), node("a"), *ended)
    assert (on, stopped(result)) == ({"api-00001": "a"}, ())


def test_what_a_running_pod_has_behind_it_is_no_cause(tmp_path: Path) -> None:
    there = pod("job-0", "a", 1)
    there["spec"] |= {"schedulerName": "somebody", "serviceAccountName": "elsewhere"}
    there["spec"]["containers"][0]["envFrom"] = [{"secretRef": {"name": "elsewhere"}}]
    result, on = play(tmp_path, node("a"), there)
    assert (on, stopped(result)) == ({"job-0": "a"}, ())


def test_a_pod_written_for_a_node_without_room_never_runs(tmp_path: Path) -> None:
    written = pod("job-0", "a", 8)
    del written["status"]
    result, on = play(tmp_path, node("a"), written)
    assert on == {"job-0": ""}
    assert [one.rule for one in stopped(result)] == ["pods-fit-no-node"]


@pytest.mark.parametrize("name", ["tune-x7k2p", "tune-0-x7k2p"])
def test_pods_of_a_job_stay_whether_they_have_an_index_or_not(name: str, tmp_path: Path) -> None:
    job = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "tune", "namespace": "shop"},
        "spec": {"template": {"spec": {"restartPolicy": "Never", **containers(2)}}},
    }
    result, on = play(tmp_path, job, node("a"), node("b"), pod(name, "b", 2, owner=("Job", "tune")), pod("x", "b", 2))
    assert (on, stopped(result)) == ({"tune-0": "b", "x": "b"}, ())
