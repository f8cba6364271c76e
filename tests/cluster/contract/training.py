"""Scenarios with training work, played in the simulated world and on an API."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml
from sim_builders import EXAMPLE

from cluster.contract.same import played
from tonnage.cluster.client.transport import Transport
from tonnage.simulation import run, scenario
from tonnage.simulation.machine import Machine
from tonnage.units import NS_PER_S

Json = dict[str, Any]
END_S = 3 * 3600
EXAMPLES = EXAMPLE.parent


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


def whole_gangs(folder: Path) -> run.SetUp:
    """Gangs of several kinds that all fit at once; a pod of one fails."""
    part = {"replicas": 2, "template": pod(restartPolicy="Always")}
    mpi = {"Launcher": {"replicas": 1, "template": pod(0)}, "Worker": {"replicas": 1, "template": pod()}}
    template = {"spec": {"parallelism": 2, "completions": 2, "completionMode": "Indexed", "template": pod()}}
    manifests = [
        workers("torch", 2),
        obj("jobset.x-k8s.io/v1alpha2", "JobSet", "set", replicatedJobs=[{"name": "a", "template": template}]),
        obj("kubeflow.org/v2beta1", "MPIJob", "mpi", mpiReplicaSpecs=mpi),
        obj("batch.volcano.sh/v1alpha1", "Job", "volcano", tasks=[{"name": "t", **part}], minAvailable=2),
    ]
    names = ("pytorchjob/torch", "jobset/set", "mpijob/mpi", "job/volcano")
    training = [
        {"workload": f"research/{name}", "arrival": f"{minutes}m", "work": {"duration": "30m"}}
        for minutes, name in enumerate(names)
    ]
    faults = [{"kind": "pod-failure", "at": "15m", "workload": "research/jobset/set", "exit": 1}]
    return set_up(folder, manifests, training=training, faults=faults)


def obj(version: str, kind: str, name: str, **spec: Any) -> Json:
    """An object of the namespace that all of these have."""
    meta = {"name": name, "namespace": "research"}
    return {"apiVersion": version, "kind": kind, "metadata": meta, "spec": spec}


def crowded_jobs(folder: Path) -> run.SetUp:
    """More Jobs of single pods than there are GPUs at times; a node fails, and pods do."""
    manifests = [job("small"), job("large", 4), job("many", 1, parallelism=2, completions=5), workers("lone", 1, 2)]
    return set_up(
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


def jobs(folder: Path, transport: Transport | None) -> Machine:
    """:func:`crowded_jobs` in one world."""
    return played(crowded_jobs(folder), END_S * NS_PER_S, transport)


def ends(machine: Machine) -> dict[str, tuple[bool, int | None, int]]:
    """Of each workload: whether it has failed, when it ended, how often it was restarted."""
    return {key: (one.failed, one.ended_ns, one.restarts) for key, one in machine.cluster.training.items()}


def example(name: str, policy: str, minutes: int, transport: Transport | None) -> Machine:
    """The first minutes of an example."""
    made = run.set_up(scenario.load(EXAMPLES / name), policy, run.Options(seed=2))
    return played(made, minutes * 60 * NS_PER_S, transport)
