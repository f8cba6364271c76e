"""`tonnage init` writes the scenario that is missing: one that simulate takes."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
import yaml
from cli_builders import tonnage

from docs_outputs import REPOSITORY
from tonnage.apiserver import kubeconfig
from tonnage.apiserver.api import Api
from tonnage.apiserver.http import Server
from tonnage.apiserver.inprocess import InProcess
from tonnage.kube.resources import DEPLOYMENTS, PODS, REPLICA_SETS, SERVICES
from tonnage.kube.verbs import Client
from tonnage.simulation import run, scenario

EXAMPLES = REPOSITORY / "examples"
FOLDERS = [one for one in sorted(EXAMPLES.glob("*/manifests")) if any(one.glob("*.yaml"))]
FOLDERS += [one for example in sorted(EXAMPLES.iterdir()) for one in sorted((example / "manifests").glob("*/"))[:1]]

POD = {"labels": {"app": "chat"}}
ENGINE = {"name": "vllm", "image": "vllm/vllm-openai:v0.11.0", "args": ["--model", "meta-llama/Llama-3.1-8B-Instruct"], "resources": {"limits": {"nvidia.com/gpu": 1}}}  # fmt: skip
WEB = {"name": "web", "image": "nginx:1.27"}


def deployment(name: str, container: dict[str, object]) -> dict[str, object]:
    labels = {"app": name}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [container]}}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name}, "spec": {"selector": {"matchLabels": labels}, "template": template}}  # fmt: skip


def service(name: str) -> dict[str, object]:
    return {"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": {"selector": {"app": name}, "ports": [{"port": 80, "targetPort": 8000}]}}  # fmt: skip


def job(name: str, kind: str = "Job") -> dict[str, object]:
    spec = {"template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}}}
    if kind == "CronJob":
        spec = {"schedule": "0 * * * *", "jobTemplate": {"spec": spec}}
    return {"apiVersion": "batch/v1", "kind": kind, "metadata": {"name": name}, "spec": spec}


def taken(folder: Path) -> scenario.Scenario:
    made = scenario.load(folder)
    run.set_up(made, scenario.AS_WRITTEN)
    return made


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda one: str(one.relative_to(EXAMPLES)))
def test_the_manifests_of_the_examples_get_a_scenario(
    capfd: pytest.CaptureFixture[str], tmp_path: Path, folder: Path
) -> None:
    ran = tonnage(capfd, "init", folder, "--to", tmp_path / "made")
    assert ran.code == 0, ran.err
    made = taken(tmp_path / "made")
    assert made.spec.traffic or made.spec.training


@pytest.mark.parametrize(
    ("objects", "services", "training", "left"),
    [
        ([deployment("chat", ENGINE), service("chat")], ["default/chat"], [], []),
        ([deployment("web", WEB), service("web")], [], [], ["default/web"]),
        ([deployment("chat", ENGINE), service("chat"), deployment("web", WEB), service("web"), service("nobody")], ["default/chat"], [], ["default/web", "default/nobody"]),
        ([job("train")], [], ["default/job/train"], []),
        ([job("train"), job("nightly", "CronJob"), deployment("chat", ENGINE)], [], ["default/job/train"], ["default/cronjob/nightly"]),
    ],
    ids=["engine", "web", "both", "job", "cron"],
)  # fmt: skip
def test_what_serves_and_what_trains_is_told_from_what_does_neither(
    capfd: pytest.CaptureFixture[str],
    tmp_path: Path,
    objects: list[object],
    services: list[str],
    training: list[str],
    left: list[str],
) -> None:
    (tmp_path / "k8s.yaml").write_text(yaml.safe_dump_all(objects), encoding="utf-8")
    ran = tonnage(capfd, "init", tmp_path / "k8s.yaml", "--to", tmp_path / "made")
    assert ran.code == 0, ran.err
    made = taken(tmp_path / "made")
    assert [one.service for one in made.spec.traffic] == services
    assert [one.workload for one in made.spec.training] == training
    text = (tmp_path / "made" / "scenario.yaml").read_text(encoding="utf-8")
    assert all(f"#   {key}: " in text and f"left out: {key}: " in ran.out for key in left)
    assert made.spec.fleet.assumed


def test_it_runs(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "k8s.yaml").write_text(
        yaml.safe_dump_all([deployment("chat", ENGINE), service("chat")]), encoding="utf-8"
    )
    tonnage(capfd, "init", tmp_path / "k8s.yaml", "--to", tmp_path / "made")
    file = tmp_path / "made" / "scenario.yaml"
    file.write_text(file.read_text(encoding="utf-8").replace("duration: 1h\n", "duration: 20m\n"), encoding="utf-8")
    ran = tonnage(capfd, "simulate", tmp_path / "made", "-o", "json", "--quiet")
    assert ran.code == 0, ran.err
    assert json.loads(ran.out)["services"][0]["prompt_tokens"] > 100_000


def test_of_a_cluster_what_controllers_made_is_left_to_them(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    api = Api()
    inside = Client(InProcess(api))
    inside.create(DEPLOYMENTS, deployment("chat", ENGINE), "default")
    inside.create(SERVICES, service("chat"), "default")
    owned = {"name": "chat-1", "labels": {"app": "chat"}, "ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "chat", "uid": "u", "controller": True}]}  # fmt: skip
    inside.create(
        PODS, {"apiVersion": "v1", "kind": "Pod", "metadata": owned, "spec": {"containers": [WEB]}}, "default"
    )
    with Server(api) as server:
        config = kubeconfig.write(tmp_path / "config", server.url)
        ran = tonnage(capfd, "init", "--kubeconfig", config, "--to", tmp_path / "made")
    assert ran.code == 0, ran.err
    assert [one.service for one in taken(tmp_path / "made").spec.traffic] == ["default/chat"]
    kept = json.loads((tmp_path / "made" / "manifests" / "cluster.json").read_text(encoding="utf-8"))["items"]
    assert not {one["kind"] for one in kept} & {"Pod", REPLICA_SETS.kind}


def test_of_two_services_of_one_deployment_the_first_has_the_traffic(
    capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    other = {**service("chat"), "metadata": {"name": "also"}}
    objects = [deployment("chat", ENGINE), service("chat"), other]
    (tmp_path / "k8s.yaml").write_text(yaml.safe_dump_all(objects), encoding="utf-8")
    ran = tonnage(capfd, "init", tmp_path / "k8s.yaml", "--to", tmp_path / "made")
    assert ran.code == 0, ran.err
    assert [one.service for one in taken(tmp_path / "made").spec.traffic] == ["default/chat"]
    assert "left out: default/also: " in ran.out


def test_what_is_there_is_neither_replaced_nor_removed(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Whether it fails early, late, or would have worked."""
    good, broken = tmp_path / "k8s.yaml", tmp_path / "broken.yaml"
    good.write_text(yaml.safe_dump_all([deployment("chat", ENGINE), service("chat")]), encoding="utf-8")
    broken.write_text("kind: Pod\n", encoding="utf-8")
    mine = {
        tmp_path / "made" / "traffic" / "azure-2023-conv.yaml": "mine",
        tmp_path / "made" / "manifests" / "cluster.json": "my own",
    }
    for path, text in mine.items():
        path.parent.mkdir(parents=True)
        path.write_text(text, encoding="utf-8")
    unreachable = tmp_path / "config"
    unreachable.write_text(yaml.safe_dump({"clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1:9"}}], "contexts": [{"name": "c", "context": {"cluster": "c", "user": ""}}], "current-context": "c"}), encoding="utf-8")  # fmt: skip
    for words in ((good,), (broken,), (tmp_path / "none",), ("--kubeconfig", unreachable)):
        assert tonnage(capfd, "init", *words, "--to", tmp_path / "made").code == 2
        assert {path: path.read_text(encoding="utf-8") for path in mine} == mine
    assert not (tmp_path / "made" / "scenario.yaml").exists()


def test_a_scenario_among_its_own_manifests_is_refused(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "k8s.yaml").write_text(yaml.safe_dump(job("a")), encoding="utf-8")
    for folder in (tmp_path, tmp_path / "inside"):
        ran = tonnage(capfd, "init", tmp_path, "--to", folder)
        assert ran.code == 2
        assert "beside" in ran.err
    assert [one.name for one in tmp_path.iterdir()] == ["k8s.yaml"]


def test_manifests_on_standard_input_are_kept(
    capfd: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Input:
        buffer = io.BytesIO(yaml.safe_dump(job("train")).encode())

    monkeypatch.setattr("sys.stdin", Input())
    assert tonnage(capfd, "init", "-", "--to", tmp_path / "made").code == 0
    assert [one.workload for one in taken(tmp_path / "made").spec.training] == ["default/job/train"]


@pytest.mark.parametrize(
    ("text", "words", "told"),
    [
        ("kind: Pod\napiVersion: v1\nmetadata: {name: a}\nspec: {containers: 3}\n", ("k8s.yaml",), "k8s.yaml:4"),
        ("kind: Pod\n", ("nothing.yaml",), "nothing.yaml"),
        ("", (), "--context"),
        (yaml.safe_dump(job("a")), ("k8s.yaml", "--region", "mars-1"), "mars-1"),
    ],
)
def test_nothing_is_written_where_it_cannot_be_done(
    capfd: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    text: str,
    words: tuple[str, ...],
    told: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("k8s.yaml").write_text(text, encoding="utf-8")
    ran = tonnage(capfd, "init", *words, "--to", "made")
    assert ran.code == 2
    assert told in ran.err
    assert sorted(one.name for one in tmp_path.iterdir()) == ["k8s.yaml"]


def test_a_scenario_that_is_there_stays(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "scenario.yaml").write_text("mine", encoding="utf-8")
    ran = tonnage(capfd, "init", EXAMPLES / "traffic-surge" / "manifests" / "corrected", "--to", tmp_path)
    assert ran.code == 2
    assert (tmp_path / "scenario.yaml").read_text(encoding="utf-8") == "mine"
