"""Scenarios with training work, played in the simulated world and on an API."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from cluster.contract.same import played
from tonnage.cluster.client.transport import Transport
from tonnage.simulation import run, scenario
from tonnage.simulation.machine import Machine
from tonnage.units import NS_PER_S

Json = dict[str, Any]


def pod(gpus: int = 1, **spec: Any) -> Json:
    """The template of a pod that asks for GPUs."""
    container = {"name": "main", "image": "registry.example/train:1", "resources": {"limits": {"nvidia.com/gpu": gpus}}}
    return {"spec": {"restartPolicy": "OnFailure", "containers": [container], **spec}}


def job(name: str, gpus: int = 1, **spec: Any) -> Json:
    """A Job of one pod, unless ``spec`` says otherwise."""
    meta = {"name": name, "namespace": "research"}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": meta, "spec": {"template": pod(gpus), **spec}}


def workers(name: str, count: int, gpus: int = 1, *, policy: str = "OnFailure") -> Json:
    """A PyTorchJob of so many workers."""
    role = {"replicas": count, "restartPolicy": policy, "template": pod(gpus)}
    meta = {"name": name, "namespace": "research"}
    spec = {"pytorchReplicaSpecs": {"Worker": role}}
    return {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "metadata": meta, "spec": spec}


def set_up(folder: Path, manifests: list[Json], **spec: Any) -> run.SetUp:
    """A scenario of two nodes with four GPUs each, these manifests, and what ``spec`` says besides."""
    (folder / "manifests").mkdir(exist_ok=True)
    (folder / "manifests" / "all.yaml").write_text(yaml.safe_dump_all(manifests), encoding="utf-8")
    document = {
        "kind": "Scenario",
        "name": "training",
        "duration": "3h",
        "fleet": {"nodes": [{"instanceType": "g6e.12xlarge", "count": 2}]},
        "policies": {"plain": {"manifests": "manifests", "placement": "binpack", "preemption": False}},
        **spec,
    }
    path = folder / "scenario.yaml"
    path.write_text(yaml.safe_dump(document), encoding="utf-8")
    return run.set_up(scenario.load(path), "plain", run.Options(seed=5))


def jobs(folder: Path, transport: Transport | None) -> Machine:
    """More Jobs of single pods than there are GPUs at times; a node fails, and pods do."""
    manifests = [job("small"), job("large", 4), job("many", 1, parallelism=2, completions=5), workers("lone", 1, 2)]
    made = set_up(
        folder,
        manifests,
        training=[
            {
                "workload": "research/job/small",
                "copies": 12,
                "arrival": ["0s", "90m"],
                "work": {"duration": "25m"},
                "checkpoint": {"every": "10m", "write": "5s", "load": "10s"},
            },
            {"workload": "research/job/large", "copies": 3, "arrival": ["0s", "1h"], "work": {"duration": "20m"}},
            {"workload": "research/job/many", "arrival": "10m", "work": {"duration": "12m"}},
            {"workload": "research/pytorchjob/lone", "arrival": "5m", "work": {"gpuHours": 2}},
        ],
        faults=[
            {"kind": "node-failure", "at": "50m"},
            {"kind": "pod-failure", "at": "35m", "workload": "research/pytorchjob/lone", "exit": 139},
            {"kind": "pod-failure", "at": "30m", "workload": "research/job/many", "exit": 1},
        ],
    )
    return played(made, 3 * 3600 * NS_PER_S, transport)
