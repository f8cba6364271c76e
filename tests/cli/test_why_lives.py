"""`tonnage why` on pods that have a life: at a time of a scenario, and as a cluster's status and events tell it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from cli_builders import tonnage

import yaml_text
from health.broken_sets import BrokenSet

SET = BrokenSet("", {"name": "provisioned", "base": "provisioned"})


@pytest.mark.parametrize(
    ("at", "state", "line"),
    [
        ("1m", "node-comes", "waits for node gpu-00001 (g6e.2xlarge): requested at 0:00:01, expected at 0:02:41"),
        ("4m", "starts", "is on gpu-00001: pulling image vllm/vllm-openai:v0.11.0 until 0:06:47"),
        ("8m", "starts", "is on gpu-00001: loading the weights of Qwen/Qwen2.5-7B-Instruct (14.2 GiB) until 0:08:40"),
        ("9m", "starts", "is on gpu-00001: the engine has been starting since 0:06:49: compilation and CUDA graphs"),
        ("20m", "serves", "serves on gpu-00001 since 0:12:29"),
    ],
)
def test_a_pod_of_a_scenario_is_told_as_far_as_it_has_come(
    at: str, state: str, line: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    folder = SET.write(tmp_path / "set")
    done = tonnage(capfd, "why", "deploy/model", folder, "--at", at, "-o", "json")
    told = json.loads(done.out)["told"]
    assert (done.code, told["state"], told["line"]) == (0, state, line)


def test_manifests_are_planned_for_with_their_node_pools(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    folder = SET.write(tmp_path / "set")
    done = tonnage(capfd, "why", "svc/model", folder / "manifests")
    assert done.code == 0
    assert done.out.split() == [
        "inference/model-0",
        "waits",
        "for",
        "a",
        "node:",
        "NodePool",
        "gpu",
        "launches",
        "g6e.2xlarge",
        "(on-demand,",
        "us-east-1a,",
        "$2.24",
        "an",
        "hour)",
        "for",
        "it",
    ]


NODE = {
    "apiVersion": "v1",
    "kind": "Node",
    "metadata": {"name": "gpu-1", "uid": "n1", "labels": {"kubernetes.io/hostname": "gpu-1"}},
    "status": {
        "allocatable": {"cpu": "16", "memory": "64Gi", "pods": "110", "nvidia.com/gpu": "1"},
        "conditions": [{"type": "Ready", "status": "True"}],
    },
}


def _pod(status: dict[str, Any], **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": "chat-1",
            "namespace": "serving",
            "uid": "p1",
            "creationTimestamp": "2026-03-02T09:00:00Z",
        },
        "spec": {"nodeName": "gpu-1", "containers": [{"name": "vllm", "image": "vllm/vllm-openai:v0.11.0"}], **spec},
        "status": {"phase": "Running", **status},
    }


def _waiting(why: str, said: str = "", restarts: int = 0, **last: Any) -> dict[str, Any]:
    waiting = {"reason": why, **({"message": said} if said else {})}
    container = {"name": "vllm", "restartCount": restarts, "state": {"waiting": waiting}}
    return {"containerStatuses": [{**container, **({"lastState": {"terminated": last}} if last else {})}]}


RUNNING = {"containerStatuses": [{"name": "vllm", "state": {"running": {"startedAt": "2026-03-02T09:01:00Z"}}}]}
READY = {"type": "Ready", "status": "True", "lastTransitionTime": "2026-03-02T09:05:00Z"}


@pytest.mark.parametrize(
    ("pod", "code", "line"),
    [
        (
            _pod(
                _waiting(
                    "CrashLoopBackOff",
                    "back-off 5m0s",
                    7,
                    reason="Error",
                    exitCode=1,
                    message="x\nValueError: too long\n",
                )
            ),
            1,
            "container vllm is in CrashLoopBackOff, 7 restarts, last Error with exit code 1: ValueError: too long",
        ),
        (
            _pod(_waiting("CrashLoopBackOff", "back-off", 3, reason="OOMKilled", exitCode=137)),
            1,
            "container vllm is in CrashLoopBackOff, 3 restarts, last OOMKilled with exit code 137: back-off",
        ),
        (
            _pod({"phase": "Pending", **_waiting("ImagePullBackOff", 'Back-off pulling image "x"')}),
            1,
            'container vllm is in ImagePullBackOff: Back-off pulling image "x"',
        ),
        (
            _pod({"phase": "Pending", **_waiting("CreateContainerConfigError", 'secret "hf-token" not found')}),
            1,
            'container vllm is in CreateContainerConfigError: secret "hf-token" not found',
        ),
        (_pod({**RUNNING, "conditions": [READY]}), 0, "runs on gpu-1, Ready since 2026-03-02T09:05:00Z"),
        (
            _pod(
                {
                    **RUNNING,
                    "conditions": [{"type": "ContainersReady", "status": "True"}, {"type": "Ready", "status": "False"}],
                },
                readinessGates=[{"conditionType": "example.com/lb"}],
            ),
            1,
            "runs on gpu-1 and is not Ready: readiness gate example.com/lb is not open",
        ),
        (
            _pod({"phase": "Pending", **_waiting("ContainerCreating")}),
            0,
            "is on gpu-1, its containers are being created: 2026-03-02T09:02:00Z FailedMount: no such claim (x4)",
        ),
        (
            _pod({"phase": "Failed", "reason": "Evicted", "message": "low on memory"}),
            1,
            "has failed: Evicted: low on memory",
        ),
    ],
)
def test_a_pod_of_a_cluster_is_told_by_its_status_and_events(
    pod: dict[str, Any], code: int, line: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    event = {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": "e", "namespace": "serving"},
        "involvedObject": {"kind": "Pod", "namespace": "serving", "name": "chat-1"},
        "lastTimestamp": "2026-03-02T09:02:00Z",
        "reason": "FailedMount",
        "message": "no such claim",
        "count": 4,
    }
    (tmp_path / "cluster.yaml").write_text(yaml_text.dump_all([NODE, pod, event]))
    done = tonnage(capfd, "why", "serving/chat-1", tmp_path / "cluster.yaml", "-o", "json")
    assert (done.code, json.loads(done.out)["told"]["line"]) == (code, line)


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (["deploy/mode"], "no such Deployment (did you mean model?)"),
        (["job/model"], "no such pod or gang"),
        (["deploy/model", "-n", "training"], "no such Deployment"),
        (["svc/modl"], "did you mean model?"),
    ],
)
def test_an_object_that_is_not_there_is_exit_code_2(
    asked: list[str], said: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    folder = SET.write(tmp_path / "set")
    done = tonnage(capfd, "why", *asked, folder / "manifests")
    assert done.code == 2
    assert said in done.err


@pytest.mark.parametrize(("name", "shown"), [("node/gpu-1", "Node gpu-1"), ("nodepool/gpu", "NodePool gpu")])
def test_what_has_no_namespace_is_named_without_one(
    name: str, shown: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    folder = SET.write(tmp_path / "set") / "manifests"
    (folder / "node.yaml").write_text("{apiVersion: v1, kind: Node, metadata: {name: gpu-1}}\n")
    done = tonnage(capfd, "why", name, folder)
    assert done.code == 0
    assert done.out.startswith(f"{shown} has no pods of its own")
