"""Scenarios with training work, played in the simulated world and on an API."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sim_builders import EXAMPLE

import yaml_text
from live.contract.same import check_same, played
from tonnage.kube.transport import Transport
from tonnage.simulation import run, scenario
from tonnage.simulation.driver import LoopDriver
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
    """A PyTorchJob of this many workers."""
    role = {"replicas": count, "restartPolicy": policy, "template": pod(gpus)}
    meta = {"name": name, "namespace": "research"}
    spec = {"pytorchReplicaSpecs": {"Worker": role}}
    return {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "metadata": meta, "spec": spec}


def set_up(folder: Path, manifests: list[Json], **spec: Any) -> run.SetUp:
    """A scenario of two nodes with four GPUs each, these manifests, and what ``spec`` says besides."""
    (folder / "manifests").mkdir(exist_ok=True)
    (folder / "manifests" / "all.yaml").write_text(yaml_text.dump_all(manifests), encoding="utf-8")
    document = {
        "kind": "Scenario",
        "name": "training",
        "duration": "3h",
        "fleet": {"nodes": [{"instanceType": "g6e.12xlarge", "count": 2}]},
        "policies": {"plain": {"manifests": "manifests", "placement": "binpack", "preemption": False}},
        **spec,
    }
    path = folder / "scenario.yaml"
    path.write_text(yaml_text.dump(document), encoding="utf-8")
    return run.set_up(scenario.load(path), "plain", run.RunOptions(seed=5))


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


def sets_of_one_pod(folder: Path) -> run.SetUp:
    """JobSets that are no gangs: of one pod, and of Jobs of one pod that begin one after another."""
    template = {"spec": {"parallelism": 1, "completions": 1, "completionMode": "Indexed", "template": pod()}}
    parts = [{"name": name, "template": template} for name in ("a", "b")]
    manifests = [
        obj("jobset.x-k8s.io/v1alpha2", "JobSet", "one", replicatedJobs=parts[:1]),
        obj(
            "jobset.x-k8s.io/v1alpha2",
            "JobSet",
            "turns",
            replicatedJobs=parts,
            startupPolicy={"startupPolicyOrder": "InOrder"},
        ),
    ]
    training = [
        {"workload": f"research/jobset/{name}", "arrival": f"{minutes}m", "work": {"duration": "10m"}}
        for minutes, name in ((3, "one"), (7, "turns"))
    ]
    return set_up(folder, manifests, training=training)


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


def jobs(folder: Path, transport: Transport | None) -> LoopDriver:
    """:func:`crowded_jobs` in one world."""
    return played(crowded_jobs(folder), END_S * NS_PER_S, transport)


def ends(machine: LoopDriver) -> dict[str, tuple[bool, int | None, int]]:
    """Of each workload: whether it has failed, when it ended, how often it was restarted."""
    return {key: (one.failed, one.ended_ns, one.restarts) for key, one in machine.cluster.training.items()}


def check_alike(simulated: LoopDriver, on_api: LoopDriver) -> None:
    """The same decisions, machines and bill, and every workload has come to the same end."""
    check_same(simulated, on_api)
    assert ends(on_api) == ends(simulated)


def example(
    name: str, policy: str, minutes: int, transport: Transport | None, *, by_manager: bool = False
) -> LoopDriver:
    """The first minutes of an example."""
    made = run.set_up(scenario.load(EXAMPLES / name), policy, run.RunOptions(seed=2))
    return played(made, minutes * 60 * NS_PER_S, transport, by_manager=by_manager)


def rivals(folder: Path) -> run.SetUp:
    """Gangs that matter more take the room of gangs that matter less, which go on from their checkpoints later. Nothing
    fails, and no Job controller is needed."""

    def gang(name: str, count: int, gpus: int, priority: str) -> Json:
        made = workers(name, count, gpus)
        made["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]["spec"]["priorityClassName"] = priority
        return made

    classes = [
        {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name}, "value": value}
        for name, value in (("urgent", 1000), ("patient", 10))
    ]
    sizes = {"wide": (4, 1), "deep": (2, 2), "rush": (2, 2), "late": (4, 2), "one": (1, 1), "two": (1, 2)}
    arrivals = {"wide": 0, "deep": 1, "rush": 15, "late": 45, "one": 2, "two": 3}
    manifests = [gang(name, *size, "urgent" if name in ("rush", "late") else "patient") for name, size in sizes.items()]
    training = [
        {
            "workload": f"research/pytorchjob/{name}",
            "arrival": f"{minute}m",
            "work": {"duration": "15m" if name in ("rush", "late") else "40m"},
            "checkpoint": {"every": "5m", "write": "5s", "load": "10s"},
        }
        for name, minute in arrivals.items()
    ]
    policies = {"plain": {"manifests": "manifests"}}
    return set_up(folder, [*classes, *manifests], training=training, policies=policies)


def moved_replicas(folder: Path, transport: Transport | None) -> LoopDriver:
    """A replica of a Deployment moves to make room for a Job. It takes its time to leave, while another is made in its
    stead, and Jobs come that would take its room or the Job's."""
    hook = {"preStop": {"exec": {"command": ["sleep", "40"]}}}
    template = pod(restartPolicy="Always", terminationGracePeriodSeconds=60)
    template["spec"]["containers"][0]["lifecycle"] = hook
    labels = {"app": "web"}
    template["metadata"] = {"labels": labels}
    spec = {"replicas": 2, "selector": {"matchLabels": labels}, "template": template}
    manifests = [obj("apps/v1", "Deployment", "web", **spec), job("large", 4), job("other", 3)]
    training: list[Json] = [
        {"workload": "research/job/large", "arrival": "20m", "work": {"duration": "30m"}},
        {"workload": "research/job/other", "copies": 4, "arrival": ["1201s", "1239s"], "work": {"duration": "20m"}},
    ]
    policy = {"manifests": "manifests", "placement": "spread", "defragmentation": True}
    made = set_up(folder, manifests, training=training, policies={"plain": policy})
    return played(made, END_S * NS_PER_S, transport)


def moved(folder: Path, transport: Transport | None, *, by_manager: bool = False) -> LoopDriver:
    """Jobs and a gang that are scattered over two nodes, and moved to make room for large ones. A budget lets one of
    the Jobs stay where it is."""
    sizes = {"a": 1, "b": 1, "c": 2, "d": 1, "large": 4, "huge": 4}
    labels = {"matchLabels": {"batch.kubernetes.io/job-name": "c"}}
    budget = {"maxUnavailable": 0, "selector": labels}
    manifests = [
        *(job(name, gpus, backoffLimit=20) for name, gpus in sizes.items()),
        workers("pair", 2),
        obj("policy/v1", "PodDisruptionBudget", "stays", **budget),
    ]
    arrivals = {"job/a": 0, "job/b": 1, "job/c": 2, "job/d": 3, "pytorchjob/pair": 100, "job/large": 40, "job/huge": 70}
    training = [
        {
            "workload": f"research/{name}",
            "arrival": f"{minute}m",
            "work": {"duration": "25m" if minute in (40, 70) else "80m"},
            "checkpoint": {"every": "7m", "write": "5s", "load": "10s"},
        }
        for name, minute in arrivals.items()
    ]
    policy = {"manifests": "manifests", "placement": "spread", "defragmentation": True}
    made = set_up(folder, manifests, training=training, policies={"plain": policy})
    return played(made, END_S * NS_PER_S, transport, by_manager=by_manager)
