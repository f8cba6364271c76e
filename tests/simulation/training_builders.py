"""Small scenarios with training work: a fleet of eight-GPU nodes, manifests written in the test, no jitter."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

import yaml_text
from tonnage.facts import durations
from tonnage.machines.cluster import SimulatedCluster
from tonnage.simulation import configure, run, scenario
from tonnage.simulation.result import Result, TrainingResult

NODE = "p5.48xlarge"
GPUS = 8
GPU = "nvidia.com/gpu"
START_S = durations.get().container_start_s
"""A container starts again; its image is on the node."""
FIRST_START_S = START_S + durations.get().small_image_bytes / durations.get().image_pull_bytes_per_s
"""The first pod of a node waits for the image, too."""


@pytest.fixture
def exact(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every duration is exactly as facts have it."""
    typical = msgspec.structs.replace(durations.get(), jitter=0.0)
    monkeypatch.setattr(configure.durations, "get", lambda: typical)


def container(gpus: int | None = GPUS, cpu: str = "8") -> dict[str, Any]:
    """One container with this many GPUs; None: without a word about GPUs."""
    limits = {"cpu": cpu, "memory": "16Gi"} | ({GPU: gpus} if gpus else {})
    return {"name": "trainer", "image": "registry.example/train:1", "resources": {"limits": limits}}


def template(gpus: int | None = GPUS, *, meta: Mapping[str, Any] | None = None, **spec: Any) -> dict[str, Any]:
    """A pod template; ``meta`` and ``spec`` as in a manifest."""
    return {"metadata": dict(meta or {}), "spec": {"containers": [container(gpus)], **spec}}


def _object(api: str, kind: str, name: str, spec: Mapping[str, Any], **meta: Any) -> dict[str, Any]:
    return {"apiVersion": api, "kind": kind, "metadata": {"name": name, "namespace": "ml", **meta}, "spec": dict(spec)}


def pytorch(name: str = "bert", workers: int = 2, gpus: int = GPUS, **more: Any) -> dict[str, Any]:
    """A PyTorchJob of workers; ``more``: of its spec, or ``restart`` and ``pod`` of its workers."""
    worker = {
        "replicas": workers,
        "restartPolicy": more.pop("restart", "OnFailure"),
        "template": template(gpus, **more.pop("pod", {})),
    }
    return _object("kubeflow.org/v1", "PyTorchJob", name, {"pytorchReplicaSpecs": {"Worker": worker}, **more})


def job_set(name: str = "pair", jobs: int = 2, pods: int = 1, gpus: int = GPUS, *, restarts: int = 3) -> dict[str, Any]:
    """A JobSet of ``jobs`` Jobs with this many pods."""
    spec = {"parallelism": pods, "completions": pods, "completionMode": "Indexed", "backoffLimit": 0}
    job = {"spec": {**spec, "template": template(gpus, restartPolicy="Never")}}
    replicated = [{"name": "part", "replicas": jobs, "template": job}]
    body = {"replicatedJobs": replicated, "failurePolicy": {"maxRestarts": restarts}}
    return _object("jobset.x-k8s.io/v1alpha2", "JobSet", name, body)


def leader_worker_set(name: str = "lws", groups: int = 2, size: int = 2, gpus: int = GPUS) -> dict[str, Any]:
    """A LeaderWorkerSet whose groups restart whole."""
    body = {"size": size, "restartPolicy": "RecreateGroupOnPodRestart", "workerTemplate": template(gpus)}
    return _object(
        "leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet", name, {"replicas": groups, "leaderWorkerTemplate": body}
    )


def job(
    name: str = "batch", gpus: int | None = 1, *, pod: Mapping[str, Any] | None = None, **spec: Any
) -> dict[str, Any]:
    """A Job; ``pod``: of its template."""
    made = template(gpus, **{"restartPolicy": "OnFailure", **(pod or {})})
    return _object("batch/v1", "Job", name, {"template": made, **spec})


def mpi(name: str = "mpi", workers: int = 2, gpus: int = GPUS) -> dict[str, Any]:
    """An MPIJob with a launcher that has no GPU."""
    roles = {
        "Launcher": {"replicas": 1, "restartPolicy": "OnFailure", "template": template(None)},
        "Worker": {"replicas": workers, "restartPolicy": "OnFailure", "template": template(gpus)},
    }
    return _object("kubeflow.org/v2beta1", "MPIJob", name, {"mpiReplicaSpecs": roles})


def ray_cluster(name: str = "ray", workers: int = 2, least: int = 2, gpus: int = GPUS) -> dict[str, Any]:
    """A RayCluster with a head that has no GPU."""
    group = {"groupName": "gpu", "replicas": workers, "minReplicas": least, "maxReplicas": workers}
    body = {"headGroupSpec": {"template": template(None)}, "workerGroupSpecs": [{**group, "template": template(gpus)}]}
    return _object("ray.io/v1", "RayCluster", name, body)


def pods_of_group(name: str = "group", pods: int = 2, gpus: int = GPUS) -> list[dict[str, Any]]:
    """A coscheduling PodGroup with bare pods."""
    labels = {"scheduling.x-k8s.io/pod-group": name}
    group = _object("scheduling.x-k8s.io/v1alpha1", "PodGroup", name, {"minMember": pods})
    spec = {"containers": [container(gpus)], "restartPolicy": "OnFailure"}
    return [group, *(_object("v1", "Pod", f"{name}-{i}", spec, labels=labels) for i in range(pods))]


def load(
    folder: Path,
    objects: Sequence[Mapping[str, Any]],
    training: Sequence[Mapping[str, Any]] = (),
    *,
    nodes: int = 2,
    duration: str = "3h",
    **more: Any,
) -> scenario.Scenario:
    """A scenario of these manifests and entries on this many nodes; ``more``: its other fields."""
    (folder / "manifests").mkdir(exist_ok=True)
    (folder / "manifests" / "all.yaml").write_text(yaml_text.dump_all(list(objects)), encoding="utf-8")
    content = {
        "kind": "Scenario",
        "name": "training",
        "duration": duration,
        "fleet": {"nodes": [{"instanceType": NODE, "count": nodes}]},
        "training": list(training),
        "policies": {"only": {"manifests": "manifests", "placement": "binpack"}},
        **more,
    }
    path = folder / "scenario.yaml"
    path.write_text(yaml_text.dump(content, sort_keys=False), encoding="utf-8")
    return scenario.load(path)


def play(made: scenario.Scenario, policy: str = "only", seed: int = 0, **options: Any) -> Result:
    """The result of a run in which all invariants held."""
    result = run.run(made, policy, run.RunOptions(seed=seed, check=True, **options))
    assert result.check.violations == []
    return result


def entry(workload: str, **more: Any) -> dict[str, Any]:
    """An entry of the scenario's training: one hour of work unless it says otherwise."""
    return {"workload": f"ml/{workload}", "work": {"duration": "1h"}, **more}


def work(result: Result, name: str) -> TrainingResult:
    """One workload by kind/name."""
    assert isinstance(result.training, list)
    return next(one for one in result.training if one.name == f"ml/{name}")


def killed(result: Result) -> dict[str, int]:
    """How often each pod ended, by name."""
    return {e.object.rpartition("/")[2]: e.count for e in result.events if e.reason == "Killing"}


def placed(result: Result) -> dict[str, list[str]]:
    """The nodes to which each pod was bound, in order."""
    found: dict[str, list[str]] = {}
    for decision in result.decisions:
        if decision.kind == "Bind":
            found.setdefault(decision.target.rpartition("/")[2], []).append(decision.summary.rpartition(" ")[2])
    return found


def watched(made: scenario.Scenario, look: Any, policy: str = "only") -> None:
    """Run it and call ``look`` with the cluster after every event."""

    def observe(cluster: SimulatedCluster, until_ns: int) -> None:
        look(cluster)

    play(made, policy, observer=observe)
