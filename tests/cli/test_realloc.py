"""`tonnage realloc` on files and on an API: what is said is done, undone, and done by nobody when something has changed."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cli_builders import tonnage

from tonnage.apiserver import kubeconfig
from tonnage.apiserver.api import Api
from tonnage.apiserver.http import Server
from tonnage.apiserver.inprocess import InProcess
from tonnage.kube.resources import DEPLOYMENTS, HPAS, SCALED_OBJECTS
from tonnage.kube.transport import JSON_PATCH
from tonnage.kube.verbs import Client

MANIFESTS = "examples/traffic-surge/manifests/corrected"
MOVE = ("--from", "b", "--to", "a", "--gpus", 2)


def deployment(name: str, replicas: int) -> dict[str, Any]:
    container = {"name": "vllm", "image": "i", "resources": {"limits": {"nvidia.com/gpu": "1"}}}
    template = {"metadata": {"labels": {"app": name}}, "spec": {"containers": [container]}}
    spec = {"replicas": replicas, "selector": {"matchLabels": {"app": name}}, "template": template}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name}, "spec": spec}


HPA = {
    "apiVersion": "autoscaling/v2",
    "kind": "HorizontalPodAutoscaler",
    "metadata": {"name": "b"},
    "spec": {"scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "b"}, "minReplicas": 1, "maxReplicas": 8},
}  # fmt: skip
SCALED_OBJECT = {
    "apiVersion": "keda.sh/v1alpha1",
    "kind": "ScaledObject",
    "metadata": {"name": "a"},
    "spec": {
        "scaleTargetRef": {"name": "a"},
        "maxReplicaCount": 4,
        "triggers": [
            {"type": "prometheus", "metadata": {"serverAddress": "http://p", "query": "up", "threshold": "1"}}
        ],
    },
}


@pytest.fixture
def api() -> Api:
    return Api()


@pytest.fixture
def client(api: Api) -> Client:
    inside = Client(InProcess(api))
    inside.create(DEPLOYMENTS, deployment("a", 3), "default")
    inside.create(DEPLOYMENTS, deployment("b", 5), "default")
    inside.create(HPAS, HPA, "default")
    inside.create(SCALED_OBJECTS, SCALED_OBJECT, "default")
    return inside


@pytest.fixture
def config(api: Api, tmp_path: Path) -> Iterator[Path]:
    with Server(api) as server:
        yield kubeconfig.write(tmp_path / "config", server.url)


def state(client: Client) -> tuple[Any, ...]:
    """Replicas of a and b, the bounds of a's ScaledObject and of b's HPA."""
    a, b = (client.get(DEPLOYMENTS, name, "default")["spec"]["replicas"] for name in ("a", "b"))
    scaled, hpa = client.get(SCALED_OBJECTS, "a", "default")["spec"], client.get(HPAS, "b", "default")["spec"]
    return a, b, scaled.get("minReplicaCount"), scaled["maxReplicaCount"], hpa["minReplicas"], hpa["maxReplicas"]


START, MOVED = (3, 5, None, 4, 1, 8), (5, 3, 5, 5, 1, 3)
BACK = (5, 3, None, 4, 1, 8)
"""Bounds are back; the replicas are set by the autoscalers."""


def test_a_dry_run_says_what_it_frees_and_changes_nothing(
    client: Client, config: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    ran = tonnage(capfd, "realloc", "--kubeconfig", config, *MOVE, "--dry-run")
    assert (ran.code, ran.err) == (0, "")
    assert "Deployment default/b gives up 2 replicas: 2 GPUs are freed" in ran.out
    assert state(client) == START


def test_replicas_and_bounds_move_and_the_record_brings_the_bounds_back(
    client: Client, config: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    record = tmp_path / "moved.json"
    ran = tonnage(capfd, "realloc", "--kubeconfig", config, *MOVE, "--record", record)
    assert (ran.code, ran.err, ran.out.splitlines()[-1]) == (0, "", "done")
    assert state(client) == MOVED
    back = tonnage(capfd, "realloc", "--kubeconfig", config, "--undo", record)
    assert (back.code, back.err) == (0, "")
    assert state(client) == BACK


def test_the_commands_that_are_printed_as_the_reverse_are_the_reverse(
    client: Client, config: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    ran = tonnage(capfd, "realloc", "--kubeconfig", config, *MOVE, "-o", "json")
    assert state(client) == MOVED
    for command in json.loads(ran.out)["undo_commands"]:
        kubectl, verb, plural, name, _, namespace, kind, _, body = shlex.split(command)
        assert (kubectl, verb, kind) == ("kubectl", "patch", "--type=json")
        resource = next(one for one in (DEPLOYMENTS, HPAS, SCALED_OBJECTS) if one.plural == plural)
        client.patch(resource, name, json.loads(body), namespace, content_type=JSON_PATCH)
    assert state(client) == BACK


def test_where_a_field_has_changed_meanwhile_nothing_stays_changed(
    client: Client, config: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    record = tmp_path / "moved.json"
    assert tonnage(capfd, "realloc", "--kubeconfig", config, *MOVE, "--record", record).code == 0
    client.patch(HPAS, "b", {"spec": {"maxReplicas": 6}}, "default")  # the last to be brought back
    ran = tonnage(capfd, "realloc", "--kubeconfig", config, "--undo", record)
    assert ran.code == 1 and "what was done before is undone" in ran.err, ran.err
    assert state(client) == (*MOVED[:5], 6)


def test_an_object_of_the_same_name_made_anew_is_left_alone(
    client: Client, config: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    record = tmp_path / "moved.json"
    assert tonnage(capfd, "realloc", "--kubeconfig", config, *MOVE, "--record", record).code == 0
    client.delete(SCALED_OBJECTS, "a", "default")
    client.create(SCALED_OBJECTS, {**SCALED_OBJECT, "spec": {**SCALED_OBJECT["spec"], "minReplicaCount": 5, "maxReplicaCount": 5}}, "default")  # fmt: skip
    ran = tonnage(capfd, "realloc", "--kubeconfig", config, "--undo", record)
    assert ran.code == 1 and "nothing was changed" in ran.err


def test_of_files_it_is_said_and_no_more(capfd: pytest.CaptureFixture[str]) -> None:
    ran = tonnage(
        capfd, "realloc", MANIFESTS, "--from", "model-b-serving", "--to", "model-a-serving", "--gpus", 1, "-o", "json"
    )
    found = json.loads(ran.out)
    assert [(one["path"][-1], one["before"], one["after"]) for one in found["steps"]] == [
        ("maxReplicaCount", 8, 3),
        ("replicas", 4, 3),
        ("minReplicaCount", 2, 5),
        ("replicas", 4, 5),
    ]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([MANIFESTS], "give --from, --to and --gpus, or --undo"),
        ([MANIFESTS, "--from", "x", "--to", "model-a-serving", "--gpus", "1"], '--from: "x": there is no workload'),
        (
            [MANIFESTS, "--from", "model-b-serving", "--to", "model-a-serving", "--gpus", "9"],
            "9 GPUs cannot be freed",
        ),
        (
            [MANIFESTS, "--from", "b", "--to", "a", "--gpus", "1", "--record", "r.json"],
            "--record writes down what is done on a cluster",
        ),
        (["--undo", "README.md"], "README.md: not a record of a reallocation"),
        (["--undo", "nowhere.json"], "nowhere.json: cannot be read"),
        ([MANIFESTS, "--undo", "README.md"], "--undo takes what is in its file"),
    ],
)
def test_what_cannot_be_done_is_refused_in_a_line(
    arguments: list[str], said: str, capfd: pytest.CaptureFixture[str]
) -> None:
    ran = tonnage(capfd, "realloc", *arguments)
    assert ran.code == 2 and said in ran.err, ran.err
