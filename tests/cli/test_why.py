"""`tonnage why`: answers, exit codes, bad input, width."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from cli_builders import tonnage

CLUSTER = Path(__file__).resolve().parents[2] / "docs" / "files" / "waiting-cluster.yaml"
TRAINING = Path(__file__).resolve().parents[2] / "examples" / "training-cluster"


def test_a_waiting_pod_is_explained_in_80_columns_and_is_exit_code_1(capfd: pytest.CaptureFixture[str]) -> None:
    done = tonnage(capfd, "why", "finetune", CLUSTER)
    assert done.code == 1
    assert done.out.startswith("research/finetune is pending: 0/5 nodes are available: ")
    assert "1  node(s) were unschedulable" in done.out
    assert "make node gpu-2 schedulable" in done.out
    assert max(map(len, done.out.splitlines()[1:])) <= 80
    assert "\x1b" not in done.out


def test_a_pod_that_would_be_placed_is_exit_code_0(capfd: pytest.CaptureFixture[str]) -> None:
    done = tonnage(capfd, "why", "research/notebook", CLUSTER, "--placement", "binpack")
    assert done.code == 0
    assert "by policy binpack" in done.out


def test_a_gang_is_explained_by_level(capfd: pytest.CaptureFixture[str]) -> None:
    done = tonnage(capfd, "why", "research/pretrain", CLUSTER)
    assert done.code == 1
    assert "example.com/rack (required)" in done.out


def test_the_receipt_is_printed_as_json(capfd: pytest.CaptureFixture[str]) -> None:
    done = tonnage(capfd, "why", "finetune", CLUSTER, "-o", "json")
    receipt = json.loads(done.out)["receipt"]
    assert (receipt["type"], receipt["state"]) == ("pod", "waits")
    assert receipt["changes"][0]["change"]["edits"][0] == {"type": "uncordon", "node": "gpu-2"}


@pytest.mark.parametrize("about", ["finetune", "pretrain", "notebook"])
def test_the_json_is_valid_by_the_published_schema(capfd: pytest.CaptureFixture[str], about: str) -> None:
    jsonschema = pytest.importorskip("jsonschema", reason="jsonschema is not installed")
    validator = jsonschema.Draft202012Validator(json.loads(tonnage(capfd, "schema", "why").out))
    printed = json.loads(tonnage(capfd, "why", about, CLUSTER, "-o", "json").out)
    validator.validate(printed)
    del printed["receipt"]["state"]
    assert not validator.is_valid(printed)


HALF_IN_USE = """
apiVersion: v1
kind: Node
metadata:
  name: gpu-1
  labels:
    nvidia.com/gpu.product: NVIDIA-H100-80GB-HBM3
    nvidia.com/gpu.count: "2"
    nvidia.com/gpu.memory: "81559"
    nvidia.com/mig.capable: "true"
    nvidia.com/mig.strategy: mixed
    nvidia.com/mig.config: all-disabled
status: {allocatable: {cpu: 64, memory: 512Gi, pods: 110, nvidia.com/gpu: 2}}
---
apiVersion: v1
kind: Pod
metadata: {name: busy, namespace: d}
spec: {nodeName: gpu-1, containers: [{name: c, image: i, resources: {limits: {nvidia.com/gpu: 1}}}]}
status: {phase: Running}
---
apiVersion: v1
kind: Pod
metadata: {name: want, namespace: d}
spec: {containers: [{name: c, image: i, resources: {limits: {nvidia.com/mig-3g.40gb: 1}}}]}
status: {phase: Pending}
"""


def test_the_first_lines_name_a_gpu_that_is_not_in_use_as_the_receipt_does(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "cluster.yaml"
    file.write_text(HALF_IN_USE)
    done = tonnage(capfd, "why", "want", file)
    change = "change the MIG layout of GPU 1 on node gpu-1 to 3g.40gb"
    first, second, *rest = done.out.splitlines()
    assert first.startswith("d/want never runs") and second == f"help: {change}"
    assert f"  - {change}" in rest and "GPU 0" not in done.out


JOB = """
apiVersion: batch/v1
kind: Job
metadata: {name: train, namespace: research}
spec:
  template:
    spec:
      restartPolicy: Never
      containers: [{name: main, image: train, resources: {limits: {nvidia.com/gpu: 8}}}]
"""
SCENARIO = """
kind: Scenario
name: two-jobs
duration: 2h
fleet:
  nodes: [{instanceType: p5.48xlarge, count: 1, zone: us-east-1a}]
training:
  - {workload: research/job/train, copies: 2, arrival: [1m, 10m], work: {duration: 30m}}
policies:
  pack: {manifests: manifests, placement: binpack}
"""


def test_of_a_scenario_the_pods_are_those_of_the_time_asked_for(
    capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "manifests").mkdir()
    (tmp_path / "manifests" / "job.yaml").write_text(JOB)
    (tmp_path / "scenario.yaml").write_text(SCENARIO)

    def receipt(pod: str, at: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(tonnage(capfd, "why", pod, tmp_path, "--at", at, "-o", "json").out)
        return found["receipt"]

    first, second = "research/train-2-0", "research/train-1-0"  # by arrival, which the seed decides
    assert (receipt(first, "20m")["state"], receipt(first, "20m")["policy"]) == ("runs", "binpack")
    waits = receipt(second, "20m")
    assert (waits["state"], waits["nodes"], waits["fit"], waits["ahead"]) == ("waits", 1, 0, 0)
    assert waits["changes"][0]["change"]["edits"] == [
        {
            "type": "leave",
            "namespace": "research",
            "name": "train-2-0",
            "node": waits["out"][0]["examples"][0],
            "held": 8000,
        }
    ]
    assert receipt(second, "45m")["state"] == "runs"
    done = tonnage(capfd, "why", first, tmp_path, "--at", "0s")
    assert done.code == 2
    assert "no such pod or gang" in done.err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["fintune", CLUSTER], "did you mean research/finetune"),
        (["chat-", CLUSTER], "did you mean"),
        (["finetune", CLUSTER, "--placement", "binpak"], "did you mean binpack?"),
        (["finetune", CLUSTER, "--at", "1h"], "--at"),
        (["finetune", CLUSTER, "--seed", "0"], "--seed: is of a scenario"),
        (["finetune", CLUSTER, "--policy", "slo"], "--policy: is of a scenario"),
        (["finetune", "nowhere.yaml"], "nowhere.yaml"),
        (["x", TRAINING, "--at", "soon"], "is not a time"),
        (["x", TRAINING, "--at", "99h"], "after the scenario's end"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(
    capfd: pytest.CaptureFixture[str], arguments: list[object], said: str
) -> None:
    done = tonnage(capfd, "why", *arguments)
    assert done.code == 2
    assert said in done.err


# ---- moves ----

SCATTERED = CLUSTER.with_name("scattered-cluster.yaml")


def test_the_moves_that_make_room_are_printed(capfd: pytest.CaptureFixture[str]) -> None:
    done = tonnage(capfd, "why", "finetune", SCATTERED)
    assert done.code == 1
    assert "Moves that make room for it on gpu-2\n  - research/eval-0 from gpu-2 to gpu-1\n" in done.out
    assert "each is a restart; 3.0 hours of device time are lost" in done.out
    assert max(map(len, done.out.splitlines()[1:])) <= 80


def test_what_forbids_moves_is_printed(capfd: pytest.CaptureFixture[str]) -> None:
    done = tonnage(capfd, "why", "pretrain", SCATTERED)
    assert "Moves that make room for it on gpu-3, if they were allowed" in done.out
    assert "but it has no controller that would recreate it" in done.out


def test_moves_are_in_the_json(capfd: pytest.CaptureFixture[str]) -> None:
    moves = json.loads(tonnage(capfd, "why", "finetune", SCATTERED, "-o", "json").out)["receipt"]["moves"]
    assert moves["moves"] == [{"pod": "research/eval-0", "origin": "gpu-2", "target": "gpu-1", "forbidden": ""}]
    assert (moves["allowed"], moves["work_lost_device_s"], moves["into"]) == (True, 10_800.0, ["gpu-2"])
