"""What `tonnage why` says of files: that pods which are well are, and the cause that a scenario of them has."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from cli.cli_builders import tonnage
from health.broken_sets import BrokenSet, broken, good


@pytest.mark.parametrize("one", [one for one in good() if one.file == "admitted"], ids=lambda one: one.name)
def test_pods_of_a_good_set_run_or_are_about_to(
    one: BrokenSet, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    _all_are_well(one.write(tmp_path / "set"), one.parts()[0], capfd)


@pytest.mark.parametrize("one", [one for one in broken() if one.file == "admitted"], ids=lambda one: one.name)
def test_pods_of_a_mended_set_run_or_are_about_to(
    one: BrokenSet, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    _all_are_well(one.write(tmp_path / "set", fixed=True), one.parts()[0], capfd)


def _all_are_well(folder: Path, objects: list[Any], capfd: pytest.CaptureFixture[str]) -> None:
    about = [one for one in objects if one["kind"] in ("Pod", "Deployment", "DaemonSet")]
    assert about
    for one in about:
        name = f"{one['kind'].lower()}/{one['metadata']['name']}"
        done = tonnage(capfd, "why", name, "-n", one["metadata"]["namespace"], folder)
        assert done.code == 0, (name, done.out)


BOUGHT = [
    one
    for one in broken()
    if one.listed.get("base") == "provisioned" and one.listed["expect"]["stage"] == "unschedulable"
]
MISSING = BrokenSet(
    "", {"base": "provisioned", "name": "class of the node pool is missing", "remove": ["EC2NodeClass/gpu"]}
)


@pytest.mark.parametrize("one", [*BOUGHT, MISSING], ids=lambda one: one.name)
def test_files_alone_have_the_same_cause_as_their_scenario(
    one: BrokenSet, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    folder = one.write(tmp_path / "set")
    asked = [("why", "deploy/model", folder / "manifests"), ("why", "deploy/model", folder, "--at", "0s")]
    files, scenario = (json.loads(tonnage(capfd, *one, "-o", "json").out)["told"] for one in asked)
    assert files["state"] == scenario["state"]
    assert (files["line"], files["help"], files["rule"]) == (scenario["line"], scenario["help"], scenario["rule"])


ONE_GPU = """\
apiVersion: v1
kind: Node
metadata: {{name: gpu-1, labels: {labels}}}
status: {{allocatable: {{cpu: "8", memory: 64Gi, pods: "110", nvidia.com/gpu: "1"}}}}
---
apiVersion: v1
kind: Pod
metadata: {{name: part, namespace: default, annotations: {annotations}}}
spec: {{containers: [{{name: main, image: busybox, resources: {{limits: {limits}}}}}]}}
"""


@pytest.mark.parametrize(
    ("annotations", "limits"),
    [
        ("{}", "{nvidia.com/gpu: 1, nvidia.com/gpumem: 4000}"),
        ("{}", "{nvidia.com/gpu: 1, nvidia.com/gpumem-percentage: 50}"),
        ("{gpu-memory: '4000'}", "{}"),
    ],
)
def test_memory_of_gpus_is_asked_for_and_no_node_says_how_much_there_is(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], annotations: str, limits: str
) -> None:
    file = tmp_path / "all.yaml"
    file.write_text(ONE_GPU.format(labels="{}", annotations=annotations, limits=limits))
    done = tonnage(capfd, "why", "part", file, "-o", "json")
    told = json.loads(done.out)["told"]
    assert done.code == 1
    assert "1 node(s) do not say how much memory their GPUs have" in told["line"]
    assert told["help"] == (
        "label the nodes with nvidia.com/gpu.memory, as GPU feature discovery does, or request 1 whole nvidia.com/gpu "
        "instead of GPU memory: node gpu-1 does not say how much its GPUs have"
    )
    labelled = "{nvidia.com/gpu.memory: '81920'}"
    file.write_text(ONE_GPU.format(labels=labelled, annotations=annotations, limits=limits))
    assert tonnage(capfd, "why", "part", file).code == 0


TRAINING = """\
apiVersion: kubeflow.org/v1
kind: PyTorchJob
metadata: {{name: t}}
spec:
  pytorchReplicaSpecs:
    Master:
      replicas: 1
      template:
        spec:
          containers: [{{name: pytorch, image: busybox, resources: {{limits: {{nvidia.com/gpu: {master}}}}}}}]
    Worker:
      replicas: 2
      template:
        spec:
          containers: [{{name: pytorch, image: busybox, resources: {{limits: {{nvidia.com/gpu: {worker}}}}}}}]
"""
NODES = "".join(
    f"""\
---
apiVersion: v1
kind: Node
metadata: {{name: gpu-{number}}}
status: {{allocatable: {{cpu: "8", memory: 64Gi, pods: "110", nvidia.com/gpu: "1"}}}}
"""
    for number in range(4)
)


@pytest.mark.parametrize(
    ("master", "worker", "parts"),
    [(2, 2, ["Master", "Worker"]), (1, 2, ["Worker"]), (2, 1, ["Master"]), (3, 2, ["Master", "Worker"]), (1, 1, [])],
)
def test_every_part_of_a_gang_that_fits_nowhere_is_told_what_to_change_and_that_is_enough(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], master: int, worker: int, parts: list[str]
) -> None:
    file = tmp_path / "all.yaml"
    file.write_text(TRAINING.format(master=master, worker=worker) + NODES)
    found = json.loads(tonnage(capfd, "check", file, "-o", "json").out)["findings"]
    never = {one["where"]["field"].split(".")[2]: one["help"] for one in found if one["rule"] == "pods-fit-no-node"}
    asked = {"Master": master, "Worker": worker}
    assert never == {
        part: f"request 1 nvidia.com/gpu instead of {asked[part]}, {asked[part] - 1} less" for part in parts
    }
    file.write_text(TRAINING.format(master=1, worker=1) + NODES)
    assert tonnage(capfd, "check", file, "-o", "json").code == 0
