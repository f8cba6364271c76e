"""A cluster, and standard input, wherever files are read."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from cli_builders import Ran, tonnage

from tonnage.apiserver import kubeconfig
from tonnage.apiserver.api import Api
from tonnage.apiserver.http import Server
from tonnage.apiserver.inprocess import InProcess
from tonnage.kube.reading import read
from tonnage.kube.resources import DEPLOYMENTS, NODES, PODS
from tonnage.kube.transport import ApiError
from tonnage.kube.verbs import Client

NODE = {
    "apiVersion": "v1",
    "kind": "Node",
    "metadata": {"name": "n1", "labels": {"kubernetes.io/hostname": "n1"}},
    "status": {"allocatable": {"cpu": "8", "memory": "32Gi", "pods": "110", "nvidia.com/gpu": "1"}, "conditions": [{"type": "Ready", "status": "True"}]},
}  # fmt: skip


def pod(name: str, gpus: int) -> dict[str, Any]:
    limits = {"nvidia.com/gpu": str(gpus)}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "default"}, "spec": {"containers": [{"name": "c", "image": "i", "resources": {"limits": limits, "requests": limits}}]}}  # fmt: skip


@pytest.fixture
def api() -> Api:
    api = Api()
    inside = Client(InProcess(api))
    inside.create(NODES, NODE)
    inside.create(PODS, pod("large", 2), "default")
    small = pod("small", 1)
    small["metadata"]["annotations"] = {"example.com/odd": "1e3"}
    inside.create(PODS, small, "default")
    return api


@pytest.fixture
def config(api: Api, tmp_path: Path) -> Iterator[Path]:
    with Server(api) as server:
        yield kubeconfig.write(tmp_path / "config", server.url)


def test_a_dump_has_what_other_commands_read(capfd: pytest.CaptureFixture[str], config: Path, tmp_path: Path) -> None:
    ran = tonnage(capfd, "dump", "--kubeconfig", config)
    found = json.loads(ran.out)
    assert {(one["kind"], one["metadata"]["name"]) for one in found["items"]} >= {("Node", "n1"), ("Pod", "large")}
    assert not any("managedFields" in one["metadata"] for one in found["items"])
    printed = tonnage(capfd, "dump", "--kubeconfig", config, "-o", "yaml").out
    assert yaml.safe_load(printed) == found
    assert 'example.com/odd: "1e3"' in printed, "a number to Kubernetes' tooling, were it not quoted"
    dumped = tmp_path / "cluster.json"
    dumped.write_text(ran.out, encoding="utf-8")
    from_file = tonnage(capfd, "why", "large", dumped)
    assert from_file.code == 1
    assert tonnage(capfd, "why", "large", "--kubeconfig", config).out == from_file.out


def test_only_objects_of_the_namespace_are_read_beside_those_without_one(
    capfd: pytest.CaptureFixture[str], config: Path
) -> None:
    items = json.loads(tonnage(capfd, "dump", "--kubeconfig", config, "-n", "kube-system").out)["items"]
    assert {one["kind"] for one in items} >= {"Node"}
    assert not any(one["kind"] == "Pod" for one in items)


@pytest.mark.parametrize("command", [("check",), ("why", "large"), ("plan",)])
def test_a_cluster_is_checked_and_asked_as_its_dump_on_standard_input(
    capfd: pytest.CaptureFixture[str], config: Path, monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...]
) -> None:
    live = tonnage(capfd, *command, "--kubeconfig", config, "-o", "json")
    data = tonnage(capfd, "dump", "--kubeconfig", config).out.encode()
    piped = _piped(capfd, monkeypatch, data, *command, "-", "-o", "json")
    assert live.code == piped.code
    same = re.sub(r"/dev/fd/\d+", "/dev/stdin", live.out)
    assert _without_places(json.loads(same)) == _without_places(json.loads(piped.out))


def test_yaml_on_standard_input_is_read_too(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    ran = _piped(capfd, monkeypatch, yaml.safe_dump_all([NODE, pod("large", 2)]).encode(), "why", "large", "-")
    assert "large" in ran.out
    assert ran.code == 1


def test_a_fault_of_standard_input_is_named_by_its_line(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    ran = _piped(
        capfd, monkeypatch, b"kind: Pod\napiVersion: v1\nmetadata: {name: a}\nspec: {containers: 3}\n", "check", "-"
    )
    assert ran.code == 2
    assert "/dev/stdin:4" in ran.err


def test_what_may_not_be_read_is_named_and_what_is_not_there_passed_over() -> None:
    inside = Client(InProcess(Api()))
    inside.create(NODES, NODE)

    class Forbids(Client):
        def list(self, resource: Any, namespace: str = "", **selectors: str) -> list[dict[str, Any]]:
            if resource.kind == "Pod":
                raise ApiError(403, "Forbidden", "pods is forbidden")
            return super().list(resource, namespace, **selectors)

    found = read(Forbids(inside.transport), [("v1", "Pod"), ("example.com/v1", "Nothing"), ("v1", "Node")])
    assert [one["kind"] for one in found.objects] == ["Node"]
    assert len(found.left) == 1
    assert "pods" in found.left[0]


@pytest.mark.parametrize("command", [("check",), ("dump",), ("init", "--to", "made")])
def test_a_namespace_that_is_not_there_is_a_mistake(
    capfd: pytest.CaptureFixture[str],
    config: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    command: tuple[str, ...],
) -> None:
    monkeypatch.chdir(tmp_path)
    ran = tonnage(capfd, *command, "--kubeconfig", config, "-n", "typo")
    assert ran.code == 2
    assert '"typo"' in ran.err
    assert not (tmp_path / "made").exists()


def test_standard_input_that_is_closed_is_a_mistake(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", None)
    ran = tonnage(capfd, "check", "-")
    assert ran.code == 2
    assert "closed" in ran.err


def test_nothing_to_read_is_a_mistake_of_usage(capfd: pytest.CaptureFixture[str]) -> None:
    ran = tonnage(capfd, "check")
    assert ran.code == 2
    assert "--context" in ran.err


def test_a_kubeconfig_that_is_not_there_is_named(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    ran = tonnage(capfd, "dump", "--kubeconfig", tmp_path / "none")
    assert ran.code == 2
    assert str(tmp_path / "none") in ran.err


def _piped(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, data: bytes, *words: object) -> Ran:
    class Input:
        buffer = io.BytesIO(data)

    monkeypatch.setattr("sys.stdin", Input())
    return tonnage(capfd, *words)


def _without_places(report: Any) -> Any:
    if isinstance(report, dict):
        return {key: _without_places(value) for key, value in report.items() if key != "where"}
    return [_without_places(one) for one in report] if isinstance(report, list) else report


@pytest.mark.parametrize(
    "command",
    [("check",), ("plan",), ("share", "--gpu", "h100"), ("mig", "plan"), ("cuda", "fleet")],
)
def test_only_the_namespace_that_is_named_is_read(
    capfd: pytest.CaptureFixture[str], config: Path, command: tuple[str, ...]
) -> None:
    missing = tonnage(capfd, *command, "--kubeconfig", config, "-n", "typo")
    assert missing.code == 2 and '"typo"' in missing.err
    whole = tonnage(capfd, *command, "--kubeconfig", config, "-o", "json")
    assert tonnage(capfd, *command, "--kubeconfig", config, "-n", "default", "-o", "json").code == whole.code
    elsewhere = tonnage(capfd, *command, "--kubeconfig", config, "-n", "kube-system", "-o", "json")
    assert '"large"' not in elsewhere.out and "/large" not in elsewhere.out


def test_a_pod_of_another_namespace_is_not_meant(capfd: pytest.CaptureFixture[str], config: Path) -> None:
    """All of the cluster is read, for what other pods hold decides; the namespace says whose pod is meant."""
    words = ("why", "large", "--kubeconfig", config)
    assert tonnage(capfd, *words, "-n", "default").out == tonnage(capfd, *words).out
    other = tonnage(capfd, *words, "-n", "kube-system")
    assert other.code == 2 and '"large": no such pod or gang (did you mean default/large?)' in other.err


def test_the_engine_of_a_workload_of_the_cluster_is_sized_as_its_manifest(
    capfd: pytest.CaptureFixture[str], api: Api, config: Path, tmp_path: Path
) -> None:
    made = yaml.safe_load(ENGINE)
    Client(InProcess(api)).create(DEPLOYMENTS, made, "default")
    owned = pod("chat-1", 1)
    owned["spec"] = made["spec"]["template"]["spec"]
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "chat-a", "uid": "u", "controller": True}
    owned["metadata"]["ownerReferences"] = [owner]
    Client(InProcess(api)).create(PODS, owned, "default")
    (tmp_path / "chat.yaml").write_text(ENGINE, encoding="utf-8")
    of_file = json.loads(tonnage(capfd, "size", tmp_path / "chat.yaml", "-o", "json").out)
    ran = tonnage(capfd, "size", "--kubeconfig", config, "-n", "default", "-o", "json")
    assert ran.code == 0, ran.err
    assert json.loads(ran.out) == of_file
    both = tonnage(capfd, "size", "Qwen/Qwen3-8B", "--kubeconfig", config)
    assert both.code == 2 and "--workload" in both.err
    none = tonnage(capfd, "size", "--kubeconfig", config, "--workload", "talk")
    assert none.code == 2 and "no engine of talk (there are Deployment/chat)" in none.err


ENGINE = """\
apiVersion: apps/v1
kind: Deployment
metadata: {name: chat, namespace: default}
spec:
  selector: {matchLabels: {app: chat}}
  template:
    metadata: {labels: {app: chat}}
    spec:
      containers:
      - name: engine
        image: vllm/vllm-openai:v0.10.0
        args: [--model=Qwen/Qwen3-8B, --max-model-len=8192]
        resources: {limits: {nvidia.com/gpu: "1"}}
"""
