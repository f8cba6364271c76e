"""`tonnage why` at a time of a run, of what keeps pods away: preemption, back-off, failure, a quota, and no stock; and
what `tonnage simulate` says first of it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from cli_builders import tonnage

Json = dict[str, Any]
NODE = "fleet: {nodes: [{instanceType: g6e.12xlarge, count: 1}]}"
Told = Callable[..., tuple[int, Json]]


def job(name: str, limit: int = 2, priority: str = "") -> Json:
    container = {"name": "main", "image": "nvcr.io/nvidia/pytorch:25.04-py3", "command": ["python", "train.py"]}
    container |= {"resources": {"limits": {"nvidia.com/gpu": "4", "cpu": "8", "memory": "64Gi"}}}
    pod = {"restartPolicy": "Never", "containers": [container]}
    pod |= {"priorityClassName": priority} if priority else {}
    metadata = {"name": name, "namespace": "lab"}
    spec = {"backoffLimit": limit, "template": {"spec": pod}}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": spec}


def api(replicas: int = 1, gpus: int = 1) -> Json:
    labels = {"app": "api"}
    resources = {"requests": {"cpu": "4", "memory": "8Gi"}, "limits": {"nvidia.com/gpu": str(gpus)}}
    container = {"name": "main", "image": "nginx:1.29", "resources": resources}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [container]}}
    spec = {"replicas": replicas, "selector": {"matchLabels": labels}, "template": template}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "api", "namespace": "lab"},
        "spec": spec,
    }


def write(folder: Path, scenario: str, *objects: Json) -> Path:
    (folder / "manifests").mkdir(parents=True)
    (folder / "manifests/all.yaml").write_text(yaml.safe_dump_all(objects))
    text = f"kind: Scenario\nname: x\nduration: 40m\npolicies: {{p: {{manifests: manifests}}}}\n{scenario}\n"
    (folder / "scenario.yaml").write_text(text)
    return folder


@pytest.fixture
def told(capfd: pytest.CaptureFixture[str]) -> Told:
    """The exit code, and what is told of the object."""

    def ask(folder: Path, about: str, *more: str) -> tuple[int, Json]:
        done = tonnage(capfd, "why", about, "-n", "lab", folder, *more, "-o", "json")
        return done.code, json.loads(done.out)["told"]

    return ask


FAILING = f"""{NODE}
training: [{{workload: lab/job/tune, work: {{duration: 30m}}}}]
faults: [{{kind: pod-failure, at: 4m, workload: lab/job/tune}}, {{kind: pod-failure, at: 9m, workload: lab/job/tune}}]"""


def test_a_job_in_back_off_says_until_when(tmp_path: Path, told: Told) -> None:
    folder = write(tmp_path, FAILING, job("tune"))
    line = "is in back-off (1 restart): tune-0 exited with code 1; its pods are recreated at 0:04:10"
    for about in ("job/tune", "pod/tune-0"):
        code, found = told(folder, about, "--at", "4m5s")
        assert (code, found["state"], found["line"]) == (1, "waits", line)


def test_a_job_past_its_limit_is_said_first(tmp_path: Path, told: Told, capfd: pytest.CaptureFixture[str]) -> None:
    folder = write(tmp_path, FAILING, job("tune", limit=1))
    code, found = told(folder, "job/tune")
    line = "failed at 0:09:00: BackoffLimitExceeded: tune-0 exited with code 1"
    assert (code, found["state"], found["line"]) == (1, "fails", line)
    done = tonnage(capfd, "simulate", folder, "-q", "--fail-on", "error")
    assert done.code == 1
    assert " ".join(done.out.split()).startswith("Not running: Job lab/tune, no pod Ready since 0:09:00, 1 restart")


def test_a_job_within_its_limit_is_no_error(tmp_path: Path, told: Told, capfd: pytest.CaptureFixture[str]) -> None:
    folder = write(tmp_path, FAILING.replace("30m", "10m"), job("tune"))
    assert tonnage(capfd, "simulate", folder, "-q", "--fail-on", "error").code == 0
    code, found = told(folder, "job/tune")
    assert (code, found["state"]) == (0, "ended") and found["line"].startswith("finished at 0:19:")


URGENT = f"""{NODE}
training:
  - {{workload: lab/job/tune, work: {{duration: 30m}}}}
  - {{workload: lab/job/urgent, arrival: 6m, work: {{duration: 8m}}}}"""
CLASS = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "first"}, "value": 1000}


def test_who_was_preferred_is_named(tmp_path: Path, told: Told) -> None:
    folder = write(tmp_path, URGENT, job("tune"), job("urgent", priority="first"), CLASS)
    code, found = told(folder, "job/tune", "--at", "7m")
    assert (code, found["state"]) == (1, "waits")
    assert found["line"].startswith(
        "was preempted by Pod lab/urgent-0 at 0:06:00 and is pending: 0/1 nodes are available"
    )
    assert told(folder, "job/urgent", "--at", "5m")[1]["line"] == "is created at 0:06:00"


def test_who_comes_later_was_not_preempted(tmp_path: Path, told: Told) -> None:
    folder = write(tmp_path, URGENT, job("tune"), job("urgent"))
    assert told(folder, "job/urgent", "--at", "7m") == (1, None)


def test_what_a_quota_keeps_out_is_said(tmp_path: Path, told: Told) -> None:
    hard = {"spec": {"hard": {"requests.nvidia.com/gpu": "3"}}}
    quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "few", "namespace": "lab"}, **hard}
    folder = write(tmp_path, NODE, api(replicas=4), quota)
    code, found = told(folder, "deploy/api")
    assert code == 0
    assert "ResourceQuota few of namespace lab" in found["line"] and "admits 3 of 4 pods" in found["line"]
    quota["spec"] = {"hard": {"requests.nvidia.com/gpu": "4"}}
    folder = write(tmp_path / "all", NODE, api(replicas=4), quota)
    code, found = told(folder, "deploy/api")
    assert code == 0 and found["line"].endswith("(4 of 4 pods of Deployment lab/api run or are about to)")


POOL = [
    {
        "apiVersion": "karpenter.k8s.aws/v1",
        "kind": "EC2NodeClass",
        "metadata": {"name": "gpu"},
        "spec": {
            "amiSelectorTerms": [{"alias": "bottlerocket@v1.42.0"}],
            "role": "nodes",
            "subnetSelectorTerms": [{"tags": {"a": "b"}}],
            "securityGroupSelectorTerms": [{"tags": {"a": "b"}}],
        },
    },
    {
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodePool",
        "metadata": {"name": "gpu"},
        "spec": {
            "template": {
                "spec": {
                    "nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "gpu"},
                    "requirements": [
                        {"key": "node.kubernetes.io/instance-type", "operator": "In", "values": ["g6e.2xlarge"]},
                        {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["on-demand"]},
                    ],
                }
            }
        },
    },
]


@pytest.mark.parametrize("until", ["60m", "38m"])
def test_what_ec2_has_none_of_is_said_first(
    until: str, tmp_path: Path, told: Told, capfd: pytest.CaptureFixture[str]
) -> None:
    """Whether a node is on its way when the run ends, or not."""
    out = f"faults: [{{kind: out-of-stock, at: 0s, instanceType: g6e.2xlarge, duration: {until}}}]"
    folder = write(tmp_path, out, api(), *POOL)
    code, found = told(folder, "deploy/api", "--at", "5m")
    assert (code, found["state"], found["rule"]) == (1, "waits", "offerings-sold-out")
    assert "NodePool gpu: no offering is available for g6e.2xlarge" in found["line"]
    assert "InsufficientInstanceCapacity" in found["line"]
    done = tonnage(capfd, "simulate", folder, "-q", "--fail-on", "error")
    assert done.code == 1
    assert "no pod Ready since 0:00:00 (offerings-sold-out)" in " ".join(done.out.split())


def test_stock_that_comes_back_in_time_is_no_error(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    out = "faults: [{kind: out-of-stock, at: 0s, instanceType: g6e.2xlarge, duration: 10m}]"
    folder = write(tmp_path, out, api(), *POOL)
    assert tonnage(capfd, "simulate", folder, "-q", "--fail-on", "error").code == 0


def test_a_container_between_two_starts_says_when_it_starts_again(tmp_path: Path, told: Told) -> None:
    crash = "faults: [{kind: pod-failure, at: 2m, workload: lab/api}, {kind: pod-failure, at: 3m, workload: lab/api, exit: 3}]"
    folder = write(tmp_path, f"{NODE}\n{crash}", api(replicas=2))
    code, found = told(folder, "deploy/api", "--at", "3m5s")
    assert (code, found["state"]) == (1, "fails")
    assert found["line"].startswith(
        "is in CrashLoopBackOff: its container has crashed 2 times in a row, last at 0:03:00 with exit code 3 (Error)"
    )
    assert "it starts again at 0:03:1" in found["line"]
    assert told(folder, "deploy/api", "--at", "5m")[0] == 0


def test_replicas_that_are_ready_from_the_start_are_the_fewest(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    folder = write(tmp_path, NODE, api(replicas=3))
    (found,) = json.loads(tonnage(capfd, "simulate", folder, "-q", "-o", "json").out)["workloads"]
    assert (found["min_ready_replicas"], found["max_ready_replicas"]) == (3, 3)
    crash = "faults: [{kind: pod-failure, at: 3m, workload: lab/api, count: 2}]"
    folder = write(tmp_path / "crash", f"{NODE}\n{crash}", api(replicas=3))
    (found,) = json.loads(tonnage(capfd, "simulate", folder, "-q", "-o", "json").out)["workloads"]
    assert (found["min_ready_replicas"], found["max_ready_replicas"]) == (1, 3)
