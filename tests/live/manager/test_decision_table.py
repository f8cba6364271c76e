"""`tonnage controller --once`: what would be decided on a cluster now, as a table and for programs."""

from __future__ import annotations

import json
import re
import signal
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from cli.cli_builders import tonnage
from tonnage.apiserver import kubeconfig
from tonnage.apiserver.api import Api
from tonnage.apiserver.http import Server
from tonnage.apiserver.inprocess import InProcess
from tonnage.cli.decision_table import row, summed
from tonnage.decisions import (
    Bind,
    Decision,
    Disrupt,
    Evict,
    Keep,
    Launch,
    Reason,
    Ref,
    Refused,
    Relayout,
    Return,
    Scale,
    Stale,
    Wait,
)
from tonnage.kube.resources import NODES, PODS
from tonnage.kube.verbs import Client
from tonnage.live.effects import NoNodes, Observing

WHY = Reason("fits", (("nodes", 2),))
POD, NODE, CHAT = Ref("Pod", "a", "default"), Ref("Node", "n1"), Ref("Deployment", "chat", "llm")
PAGE = Path(__file__).parents[3] / "docs" / "how-to" / "run-the-controllers.md"

ROWS: list[tuple[Decision, tuple[str, ...]]] = [
    (Bind(POD, NODE, WHY), ("bind", "default", "pod/a", "", "node/n1")),
    (Scale(CHAT, 4, 7, WHY), ("scale", "llm", "deployment/chat", "4", "7")),
    (
        Launch(Ref("NodeClaim", "gpu-1"), "gpu", "g6e.xlarge", "us-east-1a", "on-demand", 1_861_000, WHY),
        ("launch", "", "nodeclaim/gpu-1", "", "g6e.xlarge on-demand $1.86/h"),
    ),
    (Disrupt(NODE, WHY), ("disrupt", "", "node/n1", "", "drained and terminated")),
    (Keep(NODE, WHY), ("keep", "", "node/n1", "", "takes pods again")),
    (Return(NODE, WHY), ("terminate", "", "node/n1", "", "terminated")),
    (Evict(POD, WHY), ("evict", "default", "pod/a", "", "evicted")),
    (Evict(POD, WHY, to="n2"), ("move", "default", "pod/a", "", "node/n2")),
    (
        Relayout(NODE, 0, None, (("1g.10gb", 0), ("1g.10gb", 1)), WHY),
        ("relayout", "", "node/n1", "GPU 0: whole", "GPU 0: 2 x 1g.10gb"),
    ),
    (Wait(POD, WHY), ("wait", "default", "pod/a", "", "")),
    (Wait(POD, WHY, nominated="n2"), ("wait", "default", "pod/a", "", "node/n2")),
]


@pytest.mark.parametrize(("decision", "expected"), ROWS)
def test_a_decision_is_a_row_with_what_is_there_and_what_would_be(
    decision: Decision, expected: tuple[str, ...]
) -> None:
    action, namespace, name, now, then = expected
    assert row("it", decision, Observing.WHY) == (name, namespace, "it", action, now, then, "fits [nodes=2]")


def test_every_kind_of_decision_has_a_row() -> None:
    assert {type(decision) for decision, _ in ROWS} == set(typing.get_args(Decision))


def test_an_outcome_is_said_where_it_is_more_than_that_nothing_is_written() -> None:
    decision = Return(NODE, WHY)
    for outcome, said in (
        (Observing.WHY, ""),
        (NoNodes.WHY, " (nodes are only reported)"),
        (Refused("only reported: would set the size"), " (only reported: would set the size)"),
        (Stale("the node is gone"), " (the node is gone)"),
    ):
        assert row("nodes", decision, outcome).why == f"fits [nodes=2]{said}"


def test_decisions_are_summed_with_the_price_of_what_is_launched() -> None:
    assert summed([]) == "nothing to decide"
    assert summed([ROWS[0][0], ROWS[0][0], ROWS[9][0]]) == "decided: bind 2, wait 1"
    assert summed([ROWS[2][0]] * 2) == "decided: launch 2; what is launched costs $3.72 an hour"


# ---- on a cluster ----


def pod(name: str, gpus: int) -> dict[str, Any]:
    resources = {"limits": {"nvidia.com/gpu": str(gpus)}}
    container = {"name": "c", "image": "i", "resources": resources}
    spec = {"schedulerName": "tonnage", "containers": [container]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "default"}, "spec": spec}


@pytest.fixture
def config(tmp_path: Path) -> Iterator[Path]:
    """A node of four GPUs, a pod that fits and one that does not."""
    api = Api()
    client = Client(InProcess(api))
    labels = {"kubernetes.io/hostname": "gpu-01"}
    size = {"cpu": "48", "memory": "256Gi", "pods": "50", "nvidia.com/gpu": "4"}
    status = {"allocatable": size, "capacity": size, "conditions": [{"type": "Ready", "status": "True"}]}
    client.create(
        NODES, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "gpu-01", "labels": labels}, "status": status}
    )
    client.create(PODS, pod("chat", 1), "default")
    client.create(PODS, pod("train", 8), "default")
    kept = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    with Server(api) as server:
        yield kubeconfig.write(tmp_path / "config", server.url)
    for number, handler in kept.items():
        signal.signal(number, handler)


def test_one_look_is_a_table_and_says_what_it_comes_to(
    config: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    done = tonnage(capfd, "controller", "--once", "--only", "scheduler", "--kubeconfig", config)
    head, bind, wait = (re.split(r" {2,}", line.rstrip()) for line in done.out.splitlines())
    assert head == ["OBJECT", "NAMESPACE", "CONTROLLER", "ACTION", "NOW", "THEN", "WHY"]
    assert bind[:5] == ["pod/chat", "default", "scheduler", "bind", "node/gpu-01"]
    assert wait[:4] == ["pod/train", "default", "scheduler", "wait"] and "gpu" in wait[4]
    assert done.err.splitlines()[-1] == "decided: bind 1, wait 1"
    quiet = tonnage(capfd, "controller", "--once", "-q", "--only", "scheduler", "--kubeconfig", config)
    assert (quiet.out, quiet.err) == (done.out, "")


def test_the_page_shows_what_is_printed(
    config: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "110")
    done = tonnage(capfd, "controller", "--once", "--only", "scheduler", "--kubeconfig", config)
    shown = "\n".join(line.rstrip() for line in done.out.splitlines())
    assert f"```text\n{shown}\n```" in PAGE.read_text(encoding="utf-8")


def test_yaml_says_what_json_says_of_each_decision(config: Path, capfd: pytest.CaptureFixture[str]) -> None:
    words = ("controller", "--once", "--only", "scheduler", "--kubeconfig", config, "-o")
    lines = [json.loads(line) for line in tonnage(capfd, *words, "json").out.splitlines()]
    documents = list(yaml.safe_load_all(tonnage(capfd, *words, "yaml").out))
    assert [one["decision"]["type"] for one in lines] == ["Bind", "Wait"]
    assert [{**one, "time": 0} for one in documents] == [{**one, "time": 0} for one in lines]


def test_a_table_of_decisions_over_time_is_refused(config: Path, capfd: pytest.CaptureFixture[str]) -> None:
    done = tonnage(capfd, "controller", "-o", "table", "--kubeconfig", config)
    assert done.code == 2
    assert done.err == "error: -o table is for --once (decisions over time are printed one by one: -o text)\n"


def test_a_config_file_that_wants_tables_leaves_decisions_over_time_as_they_are(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "config.toml").write_text('output = "table"\n', encoding="utf-8")
    monkeypatch.setenv("TONNAGE_CONFIG", str(tmp_path / "config.toml"))
    done = tonnage(capfd, "controller", "--kubeconfig", tmp_path / "none")
    assert done.code == 2 and "none" in done.err and "-o table" not in done.err
