"""The gangs that workloads imply where no pod group is named: how many pods each needs at least, in which parts.

Source, where nothing else is said: kai-scheduler/KAI-Scheduler pkg/podgrouper/podgrouper/plugins, which makes a pod
group for each kind. A Job needs one pod, hence is not a gang, unless it says otherwise; the pods of a distributed job
are needed all, or as many as its elastic minimum; a JobSet whose replicated jobs start one after another is one gang
each. Kueue's topology requests (kubernetes-sigs/kueue pkg/controller/jobs) make a gang of all pods that start together,
too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from msgspec import Struct

from tonnage.fleet.gangs import ANYWHERE, SubGroup, TopologyRule
from tonnage.objects import batch, core, leaderworker, ray, training, volcano
from tonnage.objects.base import KubeObject
from tonnage.workloads import marks
from tonnage.workloads.replicas import at_once, cluster_name, count_of, lws_subgroup, ray_replicas, task_name

WORDS: Mapping[type[KubeObject], str] = {
    batch.Job: "job",
    batch.JobSet: "jobset",
    leaderworker.LeaderWorkerSet: "leaderworkerset",
    training.PyTorchJob: "pytorchjob",
    training.TFJob: "tfjob",
    training.XGBoostJob: "xgboostjob",
    training.JAXJob: "jaxjob",
    training.MPIJob: "mpijob",
    ray.RayCluster: "raycluster",
    ray.RayJob: "raycluster",
    volcano.VolcanoJob: "vcjob",
}
"""How the keys of implied gangs name the kind."""


class GangPart(Struct, frozen=True):
    """Pods of a gang that have something in common. ``group``: parts of one group stand in one domain together."""

    name: str
    needed: int
    rule: TopologyRule = ANYWHERE
    parent: str = ""
    group: str = ""


@dataclass(frozen=True, slots=True)
class Implied:
    """A gang before it is keyed and ranked. ``template``: of the pods whose priority it has."""

    name: str
    needed: int
    parts: tuple[GangPart, ...]
    template: core.PodTemplateSpec
    rule: TopologyRule = ANYWHERE
    priority_class: str = ""


def implied(workload: KubeObject) -> Iterator[Implied]:
    """The gangs of a workload, those of one pod that may stand anywhere left out."""
    maker = _MAKERS.get(type(workload))
    for gang in maker(workload) if maker is not None else ():
        found = _settled(gang)
        if found.needed > 1 or found.rule != ANYWHERE or found.parts:
            yield found


def key(workload: KubeObject, name: str) -> str:
    """The key of an implied gang: namespace, kind and name."""
    return f"{workload.namespace}/{WORDS[type(workload)]}/{name}"


def subgroups(gang: Implied) -> tuple[SubGroup, ...]:
    """The parts as subgroups, the groups of parts as their parents."""
    groups: dict[str, list[GangPart]] = {}
    for part in gang.parts:
        if part.group:
            groups.setdefault(part.group, []).append(part)
    made = [SubGroup(name, sum(part.needed for part in parts), parts[0].rule) for name, parts in groups.items()]
    for part in gang.parts:
        rule = replace(part.rule, required="", preferred="", unconstrained=False) if part.group else part.rule
        made.append(SubGroup(part.name, part.needed, rule, part.group or part.parent))
    return tuple(made)


def _settled(gang: Implied) -> Implied:
    """A single part is the gang itself; parts that need nothing of their own are none."""
    parts = gang.parts
    if len(parts) == 1 and gang.rule == ANYWHERE:
        return replace(gang, parts=(), rule=parts[0].rule)
    if len(parts) == 1 and parts[0].rule == ANYWHERE:
        return replace(gang, parts=())
    if sum(part.needed for part in parts if not part.parent) == 0 and all(part.rule == ANYWHERE for part in parts):
        return replace(gang, parts=())
    return gang


def kai_rule(annotations: Mapping[str, str]) -> TopologyRule:
    """What KAI's annotations ask for."""
    required, preferred = annotations.get(marks.KAI_REQUIRED, ""), annotations.get(marks.KAI_PREFERRED, "")
    if not required and not preferred:
        return ANYWHERE
    return TopologyRule(required=required, preferred=preferred, topology=annotations.get(marks.KAI_TOPOLOGY, ""))


def kueue_rule(annotations: Mapping[str, str]) -> TopologyRule:
    """What Kueue's annotations on a pod template ask for. Slices of several layers are not read."""
    required, preferred = annotations.get(marks.KUEUE_REQUIRED, ""), annotations.get(marks.KUEUE_PREFERRED, "")
    anywhere = annotations.get(marks.KUEUE_UNCONSTRAINED, "") == "true"
    size, level = whole(annotations, marks.KUEUE_SLICE_SIZE) or 0, annotations.get(marks.KUEUE_SLICE_REQUIRED, "")
    if not (required or preferred or anywhere or (size and level)):
        return ANYWHERE
    return TopologyRule(required, preferred, anywhere, size if level else 0, level if size else "")


def whole(annotations: Mapping[str, str], name: str) -> int | None:
    """An annotation's number of at least 1; None where there is none."""
    written = annotations.get(name, "")
    return int(written) if written.isascii() and written.isdigit() and int(written) >= 1 else None


def _part(name: str, needed: int, template: core.PodTemplateSpec, rule: TopologyRule = ANYWHERE) -> GangPart:
    """Kueue's annotations on the template count where there is no other rule."""
    annotations = template.metadata.annotations
    found = rule if rule != ANYWHERE else kueue_rule(annotations)
    return GangPart(name, needed, found, group=annotations.get(marks.KUEUE_PODSET_GROUP, ""))


def _job(obj: batch.Job) -> Iterator[Implied]:
    template = obj.spec.template
    rule = kueue_rule(template.metadata.annotations)
    needed = whole(obj.metadata.annotations, marks.KAI_MIN_MEMBER)
    if needed is None:
        least = whole(obj.metadata.annotations, marks.KUEUE_MIN_PARALLELISM)
        needed = 1 if rule == ANYWHERE else min(least or at_once(obj.spec), at_once(obj.spec))
    own = kai_rule(obj.metadata.annotations)
    if needed > 1 or own != ANYWHERE or rule != ANYWHERE:
        yield Implied(obj.name, needed, (), template, own if own != ANYWHERE else rule)


def _job_set(obj: batch.JobSet) -> Iterator[Implied]:
    startup, policy = obj.spec.startup_policy, obj.spec.gang_policy
    alone = startup is not None and startup.startup_policy_order == "InOrder"
    alone = alone or (policy is not None and policy.policy == "JobSetGangPerReplicatedJob")
    together: list[batch.ReplicatedJob] = []
    own = kai_rule(obj.metadata.annotations)
    for part in obj.spec.replicated_jobs:
        if alone or part.depends_on:
            pods = _job_set_parts(obj, part)
            yield Implied(f"{obj.name}/{part.name}", pods[0].needed, pods, part.template.spec.template, own)
        else:
            together.append(part)
    if together:
        parts = [_job_set_parts(obj, part) for part in together]
        needed = sum(of_part[0].needed for of_part in parts)
        flat = tuple(part for of_part in parts for part in of_part)
        yield Implied(obj.name, needed, flat, together[0].template.spec.template, own)


def _job_set_parts(obj: batch.JobSet, part: batch.ReplicatedJob) -> tuple[GangPart, ...]:
    """The replicated job, and each of its Jobs where these have a place of their own."""
    template = part.template
    of_job = whole(template.metadata.annotations, marks.KAI_MIN_MEMBER) or at_once(template.spec)
    all_of_them = _part(part.name, of_job * part.replicas, template.spec.template)
    rule = kai_rule(template.metadata.annotations)
    exclusive = template.metadata.annotations.get(marks.JOB_SET_EXCLUSIVE)
    exclusive = exclusive or obj.metadata.annotations.get(marks.JOB_SET_EXCLUSIVE, "")
    if rule == ANYWHERE and exclusive:
        rule = TopologyRule(required=exclusive, led=marks.JOB_SET_NODE_SELECTOR not in obj.metadata.annotations)
    if rule == ANYWHERE:
        return (all_of_them,)
    jobs = (GangPart(f"{part.name}-replica-{n}", of_job, rule, part.name) for n in range(part.replicas))
    return (all_of_them, *jobs)


def _leader_worker_set(obj: leaderworker.LeaderWorkerSet) -> Iterator[Implied]:
    """Each group is a gang. Where the workers are made only when the leader is Ready, it is one without the leader."""
    made = obj.spec.leader_worker_template
    leader = made.leader_template or made.worker_template
    own = kai_rule(obj.metadata.annotations)
    exclusive = obj.metadata.annotations.get(marks.LWS_EXCLUSIVE, "")
    if own == ANYWHERE and exclusive:
        own = TopologyRule(required=exclusive, led=True)
    waits = obj.spec.startup_policy == "LeaderReady"
    first = 1 if waits else 0
    if made.sub_group_policy is not None:
        parts = _segments(obj, first)
    else:
        parts = () if waits else (_part("leader", 1, leader),)
        if made.size > 1:
            parts = (*parts, _part("workers", made.size - 1, made.worker_template))
    for group in range(obj.spec.replicas if made.size > first else 0):
        yield Implied(f"{obj.name}-{group}", made.size - first, parts, leader, own)


def _segments(obj: leaderworker.LeaderWorkerSet, first: int) -> tuple[GangPart, ...]:
    """The subgroups of a group, from the pod ``first`` on."""
    made = obj.spec.leader_worker_template
    level = obj.metadata.annotations.get(marks.LWS_SUBGROUP_EXCLUSIVE, "")
    annotations = {**obj.metadata.annotations, **made.worker_template.metadata.annotations}
    level = annotations.get(marks.KAI_SEGMENT_REQUIRED, level)
    rule = TopologyRule(required=level, topology=annotations.get(marks.KAI_TOPOLOGY, "")) if level else ANYWHERE
    sizes: dict[str, int] = {}
    for index in range(first, made.size):
        number = lws_subgroup(made, index)
        name = "leader" if number is None else f"subgroup-{number}"
        sizes[name] = sizes.get(name, 0) + 1
    return tuple(GangPart(name, size, ANYWHERE if name == "leader" else rule) for name, size in sizes.items())


def _kubeflow(obj: training.KubeflowJob) -> Iterator[Implied]:
    policy = obj.spec.run_policy.scheduling_policy
    found = list(training.roles(obj))
    counts = {role: count_of(obj, role, spec) for role, _, spec in found}
    total = sum(counts.values())
    needed = total
    if isinstance(obj, training.PyTorchJob) and obj.spec.elastic_policy is not None:
        least = obj.spec.elastic_policy.min_replicas
        needed = needed if least is None else least
    if policy is not None and policy.min_available is not None:
        needed = policy.min_available
    if isinstance(obj, training.MPIJob) and obj.spec.launcher_creation_policy == "WaitForWorkersReady":
        needed, counts["Launcher"] = needed - counts.get("Launcher", 0), 0
        total -= 1
    fixed = counts.get("Master", 0)
    parts = []
    for role, _, spec in found:
        least = counts[role]
        if needed != total:
            # Which pods make up a smaller number is known of elastic workers beside a master only.
            known = isinstance(obj, training.PyTorchJob)
            least = (max(0, needed - fixed) if role == "Worker" else least) if known else 0
        parts.append(_part(role.lower(), min(least, counts[role]), spec.template, _segment_rule(spec.template)))
    priority_class = policy.priority_class if policy is not None else ""
    yield Implied(
        obj.name, needed, tuple(parts), found[0][2].template, kai_rule(obj.metadata.annotations), priority_class
    )


def _segment_rule(template: core.PodTemplateSpec) -> TopologyRule:
    """KAI's segments: this many pods at a time in one domain."""
    annotations = template.metadata.annotations
    size, level = whole(annotations, marks.KAI_SEGMENT), annotations.get(marks.KAI_SEGMENT_REQUIRED, "")
    if size is None or not level:
        return ANYWHERE
    return TopologyRule(slice_size=size, slice_required=level, topology=annotations.get(marks.KAI_TOPOLOGY, ""))


def _ray_cluster(obj: ray.RayCluster) -> Iterator[Implied]:
    yield _ray(obj.name, obj.spec, obj.metadata.annotations)


def _ray_job(obj: ray.RayJob) -> Iterator[Implied]:
    if obj.spec.ray_cluster_spec is not None:
        yield _ray(cluster_name(obj), obj.spec.ray_cluster_spec, obj.metadata.annotations)


def _ray(name: str, spec: ray.RayClusterSpec, annotations: Mapping[str, str]) -> Implied:
    """The head, and of each worker group its minimum, or its replicas where it has none and nothing scales it."""
    head = spec.head_group_spec.template
    parts = [_part(marks.RAY_HEAD_GROUP, 1, head, kai_rule(head.metadata.annotations))]
    for group in spec.worker_group_specs:
        least = group.min_replicas or 0
        needed = least if spec.enable_in_tree_autoscaling or least else ray_replicas(group)
        if not group.suspend and ray_replicas(group):
            rule = kai_rule(group.template.metadata.annotations)
            parts.append(_part(group.group_name, needed * group.num_of_hosts, group.template, rule))
    return Implied(name, sum(part.needed for part in parts), tuple(parts), head, kai_rule(annotations))


def _volcano_job(obj: volcano.VolcanoJob) -> Iterator[Implied]:
    """Source: volcano-sh/volcano pkg/webhooks/admission/jobs/mutate (by default a task needs all its replicas, and the
    job what its tasks need)."""
    tasks = obj.spec.tasks
    least = [task.replicas if task.min_available is None else task.min_available for task in tasks]
    needed = obj.spec.min_available or sum(least)
    own = volcano_task_minima(needed, least)
    parts = tuple(_part(task_name(task, n), own[n], task.template) for n, task in enumerate(tasks))
    if tasks:
        rule = volcano_rule(obj.spec.network_topology)
        yield Implied(obj.name, needed, parts, tasks[0].template, rule, obj.spec.priority_class_name)


def volcano_task_minima(needed: int, least: Sequence[int]) -> list[int]:
    """What counts of the minima of a job's tasks: nothing where the job's own is below their sum.

    Source: volcano-sh/volcano pkg/scheduler/api/job_info.go (CheckTaskReady: MinAvailable < TaskMinAvailableTotal)."""
    return list(least) if needed >= sum(least) else [0] * len(least)


def volcano_rule(wanted: Any) -> TopologyRule:
    """A tier that is named as a node label is. Tiers by number need HyperNodes, which are not read."""
    if wanted is None or not wanted.highest_tier_name:
        return ANYWHERE
    level = wanted.highest_tier_name
    return TopologyRule(required=level) if wanted.mode == "hard" else TopologyRule(preferred=level)


_MAKERS: Mapping[type[KubeObject], Callable[[Any], Iterator[Implied]]] = {
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
