"""Objects of every kind from which gangs are read, and the pods that their controllers make."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from random import Random

import msgspec

from tonnage.live.groups import KINDS
from tonnage.objects import core
from tonnage.objects.base import KubeObject, ObjectMeta, OwnerReference
from tonnage.workloads.replicas import WorkloadPod, replicas_of
from workload_manifests import (
    COSCHEDULING,
    KAI,
    VOLCANO,
    group,
    job,
    job_set,
    leader_worker_set,
    objects,
    one,
    part,
    ray_cluster,
    ray_job,
    template,
    training_job,
    volcano_job,
)

POD = "{containers: [{name: main, image: img, resources: {limits: {nvidia.com/gpu: 1}}}]}"
NAMESPACED = frozenset({"PriorityClass", "ClusterTrainingRuntime", "Topology"})
"""The kinds that are not."""

RUNTIME = """\
apiVersion: trainer.kubeflow.org/v1alpha1
kind: {kind}
metadata: {{name: {name}{place}}}
spec:
  mlPolicy: {{numNodes: {nodes}}}
  template:
    spec:
      replicatedJobs:
        - {part}
"""
TRAIN_JOB = """\
apiVersion: trainer.kubeflow.org/v1alpha1
kind: TrainJob
metadata: {{name: {name}, namespace: ml}}
spec: {{runtimeRef: {{kind: {kind}, name: {runtime}}}}}
"""


def _named(text: str, name: str) -> KubeObject:
    """The object of a text under another name."""
    return one(re.sub(r"(metadata: \{name: )\w+", rf"\g<1>{name}", text, count=1))


def job_of(count: int, name: str) -> KubeObject:
    """A Job that is a gang by KAI's mark."""
    meta = f", annotations: {{kai.scheduler/batch-min-member: '{count}'}}"
    text = job(name=name, meta=meta).replace("parallelism: 4", f"parallelism: {count}")
    return one(text.replace("completions: 4", f"completions: {count}"))


def lws_of(count: int, name: str) -> KubeObject:
    text = leader_worker_set().replace("size: 5", f"size: {count}").replace("replicas: 2", "replicas: 1")
    return _named(text, name)


def volcano_of(count: int, name: str) -> KubeObject:
    return _named(volcano_job().replace("replicas: 3", f"replicas: {count - 1}"), name)


WORKLOADS: dict[str, Callable[[int, str], KubeObject]] = {
    "Job": job_of,
    "JobSet": lambda count, name: _named(job_set(parts=(part("w", 1, count),)), name),
    "PyTorchJob": lambda count, name: _named(training_job("PyTorchJob", workers=count - 1), name),
    "TFJob": lambda count, name: _named(training_job("TFJob", workers=count - 1), name),
    "XGBoostJob": lambda count, name: _named(training_job("XGBoostJob", workers=count - 1), name),
    "JAXJob": lambda count, name: _named(training_job("JAXJob", workers=count), name),
    "MPIJob": lambda count, name: _named(training_job("MPIJob", workers=count - 1), name),
    "LeaderWorkerSet": lws_of,
    "RayCluster": lambda count, name: _named(ray_cluster(workers=f"replicas: {count - 1}"), name),
    "RayJob": lambda count, name: _named(ray_job().replace("replicas: 3", f"replicas: {count - 1}"), name),
    "VolcanoJob": volcano_of,
}
"""A workload that is one gang of this many pods, by kind."""

GROUPS: dict[str, Callable[[int, str], KubeObject]] = {
    "KAI": lambda count, name: one(group(KAI, f"  minMember: {count}\n", name)),
    "Volcano": lambda count, name: one(group(VOLCANO, f"  minMember: {count}\n", name)),
    "coscheduling": lambda count, name: one(group(COSCHEDULING, f"  minMember: {count}\n", name)),
    "v1alpha2": lambda count, name: one(_kube(count, name, "v1alpha2")),
    "v1beta1": lambda count, name: one(_kube(count, name, "v1beta1")),
    "Workload": lambda count, name: one(
        group(
            "scheduling.k8s.io/v1alpha1",
            f"  podGroups: [{{name: w, policy: {{gang: {{minCount: {count}}}}}}}]\n",
            name,
            kind="Workload",
        )
    ),
}
"""What pods name as their group, by whose it is."""


def _kube(count: int, name: str, version: str) -> str:
    spec = f"  schedulingPolicy: {{gang: {{minCount: {count}}}}}\n"
    return group(f"scheduling.k8s.io/{version}", spec, name)


PODS: dict[str, Callable[[int, str], dict[str, object]]] = {
    "KAI": lambda count, name: {"annotations": {"pod-group-name": name}},
    "Volcano": lambda count, name: {"annotations": {"scheduling.k8s.io/group-name": name}},
    "coscheduling": lambda count, name: {"labels": {"scheduling.x-k8s.io/pod-group": name}},
    "v1alpha2": lambda count, name: {"spec": {"schedulingGroup": {"podGroupName": name}}},
    "v1beta1": lambda count, name: {"spec": {"schedulingGroup": {"podGroupName": name}}},
    "Workload": lambda count, name: {"spec": {"workloadRef": {"name": name, "podGroup": "w"}}},
    "labels": lambda count, name: {
        "labels": {
            "pod-group.scheduling.sigs.k8s.io/name": name,
            "pod-group.scheduling.sigs.k8s.io/min-available": str(count),
        }
    },
    "Kueue": lambda count, name: {
        "labels": {"kueue.x-k8s.io/pod-group-name": name},
        "annotations": {"kueue.x-k8s.io/pod-group-total-count": str(count)},
    },
    "YuniKorn": lambda count, name: {
        "labels": {"applicationId": name},
        "annotations": {
            "yunikorn.apache.org/task-group-name": "w",
            "yunikorn.apache.org/task-groups": f'[{{"name": "w", "minMember": {count}}}]',
        },
    },
}
"""What a pod says of its group, by whose it is."""


def bare_pods(kind: str, count: int, name: str) -> list[core.Pod]:
    """The pods of a group that they name themselves."""
    said = PODS[kind](count, name)
    found = []
    for index in range(count):
        spec = {"containers": [{"name": "main", "resources": {"limits": {"nvidia.com/gpu": "1"}}}]}
        body = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": f"{name}-{index}",
                "namespace": "ml",
                **{k: v for k, v in said.items() if k != "spec"},
            },
            "spec": spec | dict(said.get("spec", {})),  # type: ignore[call-overload]
        }
        found.append(msgspec.convert(body, core.Pod))
    return found


def pods_of(workload: KubeObject, others: tuple[KubeObject, ...] = ()) -> list[core.Pod]:
    """The pods that its controller makes, owned by it."""
    return [pod_of(replica, workload) for replica in replicas_of(workload, others)]


def pod_of(replica: WorkloadPod, workload: KubeObject) -> core.Pod:
    """One pod of a workload."""
    owner = OwnerReference(
        api_version=workload.api_version,
        kind=workload.kind,
        name=workload.name,
        uid=workload.metadata.uid,
        controller=True,
    )
    metadata = ObjectMeta(
        name=replica.name,
        namespace=replica.namespace,
        labels=replica.labels,
        annotations=replica.annotations,
        owner_references=[owner],
    )
    return core.Pod(api_version="v1", kind="Pod", metadata=metadata, spec=replica.spec)


def place_of(obj: KubeObject) -> int:
    """The place of an object's kind among those that are watched."""
    return next(
        place
        for place, (resource, type_) in enumerate(KINDS)
        if (resource.api_version, resource.kind) == (obj.api_version, obj.kind) and isinstance(obj, type_)
    )


def referred(rng: Random) -> KubeObject:
    """A PriorityClass, a topology or a training runtime, one of a few names."""
    number = rng.randrange(2)
    choice = rng.randrange(4)
    if choice == 0:
        default = "\nglobalDefault: true" if rng.random() < 0.2 else ""
        value = rng.choice((10, 50, 200))
        return one(
            "apiVersion: scheduling.k8s.io/v1\nkind: PriorityClass\n"
            f"metadata: {{name: class-{number}}}\nvalue: {value}{default}\n"
        )
    if choice == 1:
        version = rng.choice(("kai.scheduler/v1alpha1", "kueue.x-k8s.io/v1beta1", "kueue.x-k8s.io/v1beta2"))
        keys = rng.choice((("zone", "rack"), ("rack",), ("zone",)))
        levels = "".join(f"    - nodeLabel: example.com/{key}\n" for key in keys)
        return one(group(version, f"  levels:\n{levels}", f"top-{number}", kind="Topology", namespace=""))
    kind = rng.choice(("TrainingRuntime", "ClusterTrainingRuntime"))
    place = ", namespace: ml" if kind == "TrainingRuntime" else ""
    return one(
        RUNTIME.format(kind=kind, name=f"rt-{number}", place=place, nodes=rng.randint(1, 3), part=part("node", 1, 1))
    )


def anything(rng: Random, number: int) -> Iterator[KubeObject]:
    """A workload or group of any kind of size 1 to 4, in random order with its pods."""
    count, name = rng.randint(2, 4), f"g{number}"
    kind = rng.choice([*WORKLOADS, *GROUPS, *(PODS.keys() - GROUPS.keys()), "TrainJob"])
    if kind == "TrainJob":
        runtime = rng.choice(("TrainingRuntime", "ClusterTrainingRuntime"))
        yield one(TRAIN_JOB.format(name=name, kind=runtime, runtime=f"rt-{rng.randrange(2)}"))
        made = _named(job_set(parts=(part("node", 1, count),)), name)
        yield made
        yield from pods_of(made)
    elif kind in WORKLOADS:
        made = _ruled(rng, WORKLOADS[kind](count, name))
        yield made
        yield from pods_of(made)
    else:
        if kind in GROUPS:
            yield _ruled(rng, GROUPS[kind](count, name))
        yield from bare_pods(kind, count, name)


def _ruled(rng: Random, obj: KubeObject) -> KubeObject:
    """With a priority class and a place to stand in, sometimes."""
    labels, annotations = dict(obj.metadata.labels), dict(obj.metadata.annotations)
    if rng.random() < 0.3:
        labels["priorityClassName"] = f"class-{rng.randrange(2)}"
    if rng.random() < 0.3:
        annotations["kai.scheduler/topology-required-placement"] = "example.com/rack"
    return msgspec.structs.replace(
        obj, metadata=msgspec.structs.replace(obj.metadata, labels=labels, annotations=annotations)
    )


__all__ = [
    "GROUPS",
    "PODS",
    "WORKLOADS",
    "anything",
    "bare_pods",
    "objects",
    "place_of",
    "pods_of",
    "referred",
    "template",
]
