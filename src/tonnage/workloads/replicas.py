"""The pods that a workload's controller makes, so that they can be made without the controller.

Names lack the random suffix that some controllers add. Labels and annotations are the template's and those by which the
controller, and who groups pods, know them. Sources: the controllers named in :mod:`tonnage.workloads.marks`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import msgspec

from tonnage.facts.labels import JOB_NAME
from tonnage.objects import batch, core, leaderworker, ray, training, volcano
from tonnage.objects.base import KubeObject
from tonnage.workloads import marks
from tonnage.workloads.exclusive import ANY_NAMESPACE, alone_in_domain, key_of


class After(NamedTuple):
    """A pod is created only when the pods of ``role`` are all ``state``: Ready or Complete. ``group``: of the pods of
    this group; None: of all."""

    role: str
    state: str
    group: int | None = None


@dataclass(frozen=True, slots=True)
class WorkloadPod:
    """A pod of a workload. ``name`` is its own in the namespace.

    ``role``: the replica type, replicated job, worker group, task; ``leader`` or ``worker`` of a LeaderWorkerSet.
    ``index``: its number in the role, or in ``group``: the Job of a replicated job, the group of a LeaderWorkerSet,
    the replica of a Ray group with several hosts. ``turn``: how many pods of its Job must have succeeded before it is
    created.
    """

    name: str
    namespace: str
    role: str
    index: int
    spec: core.PodSpec
    labels: dict[str, str]
    annotations: dict[str, str] = field(default_factory=dict)
    group: int = 0
    turn: int = 0
    after: tuple[After, ...] = ()


def replicas_of(workload: KubeObject, objects: Iterable[KubeObject] = ()) -> tuple[WorkloadPod, ...]:
    """Every pod of the workload in the order of creation; none of a suspended one, or of a kind that makes none here.
    ``objects``: among which the runtime of a TrainJob is found."""
    made = resolved(workload, objects)
    return tuple(_MAKERS[type(made)](made)) if type(made) in _MAKERS and not is_suspended(made) else ()


def is_suspended(workload: KubeObject) -> bool:
    """Whether the workload, as :func:`resolved` gives it, is to have no pods for now."""
    match workload:
        case training.PyTorchJob() | training.TFJob() | training.XGBoostJob() | training.JAXJob() | training.MPIJob():
            return workload.spec.run_policy.suspend
        case batch.Job() | batch.JobSet() | training.TrainJob() | ray.RayCluster() | ray.RayJob():
            return workload.spec.suspend
    return False


def resolved(workload: KubeObject, objects: Iterable[KubeObject] = ()) -> KubeObject:
    """The workload that makes the pods: the JobSet of a TrainJob, the RayCluster of a RayService, any other itself. A
    TrainJob whose runtime is not among the objects stays what it is.

    Source: kubeflow/trainer pkg/runtime/framework/plugins/{plainml,torch,mpi,jobset}.
    """
    if isinstance(workload, ray.RayService):
        return workload.cluster()
    if not isinstance(workload, training.TrainJob):
        return workload
    runtime = runtime_of(workload, objects)
    return workload if runtime is None else _job_set_of(workload, runtime)


def runtime_of(job: training.TrainJob, objects: Iterable[KubeObject]) -> training.TrainingRuntime | None:
    """The runtime that a TrainJob names."""
    wanted = job.spec.runtime_ref
    for obj in objects:
        if not isinstance(obj, training.TrainingRuntime) or (obj.kind, obj.name) != (wanted.kind, wanted.name):
            continue
        if obj.kind == "ClusterTrainingRuntime" or obj.namespace == job.namespace:
            return obj
    return None


def _job_set_of(job: training.TrainJob, runtime: training.TrainingRuntime) -> batch.JobSet:
    policy = runtime.spec.ml_policy
    trainer = job.spec.trainer
    nodes = 1 if policy is None or policy.num_nodes is None else policy.num_nodes
    if trainer is not None and trainer.num_nodes is not None:
        nodes = trainer.num_nodes
    template = runtime.spec.template
    launcher_counts = policy is not None and policy.mpi is not None and policy.mpi.run_launcher_as_node
    parts = []
    for part in template.spec.replicated_jobs:
        step = part.template.metadata.labels.get(marks.TRAINER_STEP, "")
        if part.name == "node" or (step == "trainer" and part.name != "launcher"):
            part = _trained(part, nodes - 1 if launcher_counts else nodes, trainer)
        parts.append(part)
    metadata = msgspec.structs.replace(
        job.metadata,
        labels={**template.metadata.labels, **job.metadata.labels},
        annotations={**template.metadata.annotations, **job.metadata.annotations},
    )
    spec = msgspec.structs.replace(
        template.spec, replicated_jobs=parts, suspend=job.spec.suspend or template.spec.suspend
    )
    made = batch.JobSet(api_version="jobset.x-k8s.io/v1alpha2", kind="JobSet", metadata=metadata, spec=spec)
    return made.remember(job.origin, job.lines)


def _trained(part: batch.ReplicatedJob, nodes: int, trainer: training.Trainer | None) -> batch.ReplicatedJob:
    """The training step with as many pods as the TrainJob wants, and its image and resources."""
    spec = part.template.spec
    pod = spec.template.spec
    if trainer is not None:
        containers = []
        for container in pod.containers:
            if container.name == "node" or len(pod.containers) == 1:
                if trainer.resources_per_node is not None:
                    container = msgspec.structs.replace(container, resources=trainer.resources_per_node)
                if trainer.image:
                    container = msgspec.structs.replace(container, image=trainer.image)
            containers.append(container)
        pod = msgspec.structs.replace(pod, containers=containers)
    template = msgspec.structs.replace(spec.template, spec=pod)
    job = msgspec.structs.replace(spec, parallelism=nodes, completions=nodes, template=template)
    return msgspec.structs.replace(part, template=msgspec.structs.replace(part.template, spec=job))


def at_once(spec: batch.JobSpec) -> int:
    """How many pods of a Job run at a time."""
    parallel = 1 if spec.parallelism is None else spec.parallelism
    return parallel if spec.completions is None else min(parallel, spec.completions)


def _job(obj: batch.Job) -> Iterator[WorkloadPod]:
    yield from _job_pods(obj.name, obj.namespace, obj.spec, WorkloadPod("", "", "", 0, obj.spec.template.spec, {}))


def _job_pods(name: str, namespace: str, spec: batch.JobSpec, like: WorkloadPod) -> Iterator[WorkloadPod]:
    """The pods of a Job; ``like`` has what they have in common beyond it."""
    together = at_once(spec)
    total = together if spec.completions is None or not together else spec.completions
    labels = {**spec.template.metadata.labels, **like.labels, JOB_NAME: name}
    annotations = {**spec.template.metadata.annotations, **like.annotations}
    for index in range(total):
        own = {marks.JOB_INDEX: str(index)} if spec.completion_mode == "Indexed" else {}
        yield WorkloadPod(
            name=f"{name}-{index}",
            namespace=namespace,
            role=like.role,
            index=index,
            spec=spec.template.spec,
            labels={**labels, **own},
            annotations={**annotations, **own},
            group=like.group,
            turn=max(0, index - together + 1),
            after=like.after,
        )


def _job_set(obj: batch.JobSet) -> Iterator[WorkloadPod]:
    startup = obj.spec.startup_policy
    in_order = startup is not None and startup.startup_policy_order == "InOrder"
    before: batch.ReplicatedJob | None = None
    for part in obj.spec.replicated_jobs:
        after = tuple(After(wanted.name, wanted.status) for wanted in part.depends_on)
        if in_order and before is not None:
            after = (After(before.name, "Ready"),)
        before = part
        inherited = {
            key: value
            for key, value in {**obj.metadata.annotations, **part.template.metadata.annotations}.items()
            if key in (marks.JOB_SET_EXCLUSIVE, marks.JOB_SET_NODE_SELECTOR)
            or (key == marks.KUEUE_PODSET_GROUP and key in part.template.metadata.annotations)
        }
        spec = _restarting(part.template.spec)
        for number in range(part.replicas):
            name = f"{obj.name}-{part.name}-{number}"
            labels = {
                marks.JOB_SET: obj.name,
                marks.JOB_SET_PART: part.name,
                marks.JOB_SET_INDEX: str(number),
                marks.JOB_SET_KEY: key_of(obj.namespace, name),
            }
            like = WorkloadPod("", "", part.name, 0, spec.template.spec, labels, inherited, number, 0, after)
            yield from map(_exclusive, _job_pods(name, obj.namespace, spec, like))


def _exclusive(pod: WorkloadPod) -> WorkloadPod:
    """The pod as JobSet's webhook makes it: the first of a Job that has a domain for itself looks for that."""
    level = pod.annotations.get(marks.JOB_SET_EXCLUSIVE, "")
    if not level or pod.index or marks.JOB_SET_NODE_SELECTOR in pod.annotations:
        return pod
    key = pod.labels[marks.JOB_SET_KEY]
    return replace(pod, spec=alone_in_domain(pod.spec, marks.JOB_SET_KEY, key, level, ANY_NAMESPACE))


def _restarting(spec: batch.JobSpec) -> batch.JobSpec:
    """The Job as JobSet's webhook makes it: with restartPolicy OnFailure where none is written, as Always is none."""
    if spec.template.spec.restart_policy not in ("", "Always"):
        return spec
    pod = msgspec.structs.replace(spec.template.spec, restart_policy="OnFailure")
    return msgspec.structs.replace(spec, template=msgspec.structs.replace(spec.template, spec=pod))


def _leader_worker_set(obj: leaderworker.LeaderWorkerSet) -> Iterator[WorkloadPod]:
    made = obj.spec.leader_worker_template
    leader = made.leader_template or made.worker_template
    waits = obj.spec.startup_policy == "LeaderReady"
    level = obj.metadata.annotations.get(marks.LWS_EXCLUSIVE, "")
    of_subgroup = obj.metadata.annotations.get(marks.LWS_SUBGROUP_EXCLUSIVE, "")
    for group in range(obj.spec.replicas):
        first = f"{obj.name}-{group}"
        key = key_of(obj.namespace, first)
        for index in range(made.size):
            template = leader if index == 0 else made.worker_template
            spec = template.spec
            labels = {
                **template.metadata.labels,
                marks.LWS: obj.name,
                marks.LWS_GROUP: str(group),
                marks.LWS_WORKER: str(index),
                marks.LWS_KEY: key,
            }
            if level and index == 0:
                spec = alone_in_domain(spec, marks.LWS_KEY, key, level, None)
            part = lws_subgroup(made, index)
            if part is not None:
                labels |= {marks.LWS_SUBGROUP: str(part), marks.LWS_SUBGROUP_KEY: key_of(first, str(part))}
                if of_subgroup:
                    own = labels[marks.LWS_SUBGROUP_KEY]
                    spec = alone_in_domain(spec, marks.LWS_SUBGROUP_KEY, own, of_subgroup, None)
            yield WorkloadPod(
                name=f"{first}-{index}" if index else first,
                namespace=obj.namespace,
                role="worker" if index else "leader",
                index=index,
                spec=spec,
                labels=labels,
                annotations={**template.metadata.annotations, marks.LWS_SIZE: str(made.size)},
                group=group,
                after=(After("leader", "Ready", group),) if waits and index else (),
            )


def lws_subgroup(made: leaderworker.LeaderWorkerTemplate, index: int) -> int | None:
    """The subgroup of the pod with this index in its group; None without subgroups, or for a leader outside of them.

    Source: kubernetes-sigs/lws api/leaderworkerset/v1 SubGroupPolicy.
    """
    policy = made.sub_group_policy
    if policy is None:
        return None
    excluded = policy.sub_group_policy_type == "LeaderExcluded"
    if index == 0:
        return None if excluded else 0
    extra = excluded or (made.size - 1) % policy.sub_group_size == 0
    return (index - 1 if extra else index) // policy.sub_group_size


def _kubeflow(obj: training.KubeflowJob) -> Iterator[WorkloadPod]:
    mpi = isinstance(obj, training.MPIJob)
    found = list(training.roles(obj))
    chief = any(role in ("Master", "Chief") for role, _, _ in found)
    for role, _, spec in reversed(found) if mpi else found:
        policy = restart_policy(obj, role, spec)
        pod = msgspec.structs.replace(spec.template.spec, restart_policy="Never" if policy == "ExitCode" else policy)
        word = role.lower()
        waits = isinstance(obj, training.MPIJob) and obj.spec.launcher_creation_policy == "WaitForWorkersReady"
        for index in range(count_of(obj, role, spec)):
            labels = {
                **spec.template.metadata.labels,
                marks.TRAINING_JOB: obj.name,
                marks.TRAINING_OPERATOR: "mpi-operator" if mpi else f"{obj.kind.lower()}-controller",
                marks.TRAINING_ROLE: word,
                marks.TRAINING_INDEX: str(index),
            }
            if mpi:
                labels[marks.TRAINING_JOB_ROLE] = word
            elif role in ("Master", "Chief") or (not chief and role == "Worker" and index == 0):
                labels[marks.TRAINING_JOB_ROLE] = "master"
            yield WorkloadPod(
                name=f"{obj.name}-launcher" if role == "Launcher" else f"{obj.name}-{word}-{index}",
                namespace=obj.namespace,
                role=role,
                index=index,
                spec=pod,
                labels=labels,
                annotations=dict(spec.template.metadata.annotations),
                after=(After("Worker", "Ready"),) if waits and role == "Launcher" else (),
            )


def count_of(obj: training.KubeflowJob, role: str, spec: training.ReplicaSpec) -> int:
    """Pods of a role: 1 where nothing is said, no workers of an MPIJob.

    Sources: kubeflow/training-operator pkg/apis/kubeflow.org/v1/*_defaults.go, kubeflow/mpi-operator default.go.
    """
    if spec.replicas is not None:
        return spec.replicas
    return 0 if isinstance(obj, training.MPIJob) and role == "Worker" else 1


def restart_policy(obj: training.KubeflowJob, role: str, spec: training.ReplicaSpec) -> str:
    """The restart policy of a role: OnFailure for a PyTorchJob and a launcher where nothing is said, else Never.

    Sources: as :func:`count_of`, and pkg/apis/kubeflow.org/v1/*_types.go.
    """
    if spec.restart_policy:
        return spec.restart_policy
    return "OnFailure" if isinstance(obj, training.PyTorchJob) or role == "Launcher" else "Never"


def _ray_cluster(obj: ray.RayCluster) -> Iterator[WorkloadPod]:
    yield from _ray_pods(obj.name, obj.namespace, obj.spec)


def _ray_job(obj: ray.RayJob) -> Iterator[WorkloadPod]:
    if obj.spec.ray_cluster_spec is None:
        return
    yield from _ray_pods(cluster_name(obj), obj.namespace, obj.spec.ray_cluster_spec)
    template = obj.spec.submitter_pod_template
    if obj.spec.submission_mode == "K8sJobMode" and template is not None:
        labels = {**template.metadata.labels, JOB_NAME: obj.name}
        annotations = dict(template.metadata.annotations)
        after = (After("head", "Ready"),)
        yield WorkloadPod(obj.name, obj.namespace, "submitter", 0, template.spec, labels, annotations, after=after)


def cluster_name(obj: ray.RayJob) -> str:
    """The name of a RayJob's cluster; KubeRay adds a suffix to the job's, which is left out until it is known."""
    return obj.status.ray_cluster_name or obj.name


def _ray_pods(name: str, namespace: str, spec: ray.RayClusterSpec) -> Iterator[WorkloadPod]:
    if spec.suspend:
        return
    head = spec.head_group_spec.template
    labels = {
        **head.metadata.labels,
        marks.RAY_CLUSTER: name,
        marks.RAY_TYPE: "head",
        marks.RAY_GROUP: marks.RAY_HEAD_GROUP,
    }
    yield WorkloadPod(f"{name}-head", namespace, "head", 0, head.spec, labels, dict(head.metadata.annotations))
    for group in spec.worker_group_specs:
        template = group.template
        labels = {
            **template.metadata.labels,
            marks.RAY_CLUSTER: name,
            marks.RAY_TYPE: "worker",
            marks.RAY_GROUP: group.group_name,
        }
        for index in range(0 if group.suspend else ray_replicas(group) * group.num_of_hosts):
            yield WorkloadPod(
                name=f"{name}-{group.group_name}-worker-{index}",
                namespace=namespace,
                role=group.group_name,
                index=index,
                spec=template.spec,
                labels=dict(labels),
                annotations=dict(template.metadata.annotations),
                group=index // group.num_of_hosts,
            )


def ray_replicas(group: ray.WorkerGroupSpec) -> int:
    """Replicas that a worker group has at first: within its bounds, the least where no number is given.

    Source: ray-project/kuberay ray-operator/controllers/ray/utils GetWorkerGroupDesiredReplicas.
    """
    least = group.min_replicas or 0
    wanted = least if group.replicas is None else group.replicas
    most = wanted if group.max_replicas is None else group.max_replicas
    return max(least, min(wanted, most))


def _volcano_job(obj: volcano.VolcanoJob) -> Iterator[WorkloadPod]:
    for place, task in enumerate(obj.spec.tasks):
        role = task_name(task, place)
        for index in range(task.replicas):
            labels = {**task.template.metadata.labels, marks.VOLCANO_JOB: obj.name, marks.VOLCANO_TASK: role}
            yield WorkloadPod(
                name=f"{obj.name}-{role}-{index}",
                namespace=obj.namespace,
                role=role,
                index=index,
                spec=task.template.spec,
                labels={**labels, marks.VOLCANO_INDEX: str(index)},
                annotations={**task.template.metadata.annotations, marks.VOLCANO_TASK: role},
            )


def task_name(task: volcano.VolcanoTask, place: int) -> str:
    """The name of a task; its place among the tasks where it has none."""
    return task.name or f"default{place}"


_MAKERS: Mapping[type[KubeObject], Callable[[Any], Iterator[WorkloadPod]]] = {
    batch.Job: _job,
    batch.JobSet: _job_set,
    leaderworker.LeaderWorkerSet: _leader_worker_set,
    training.PyTorchJob: _kubeflow,
    training.TFJob: _kubeflow,
    training.XGBoostJob: _kubeflow,
    training.JAXJob: _kubeflow,
    training.MPIJob: _kubeflow,
    ray.RayCluster: _ray_cluster,
    ray.RayJob: _ray_job,
    volcano.VolcanoJob: _volcano_job,
}
WORKLOADS: tuple[type[KubeObject], ...] = (*_MAKERS, training.TrainJob, ray.RayService)
"""The kinds that make pods here."""
