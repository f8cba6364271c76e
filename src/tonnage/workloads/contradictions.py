"""What groups of pods say that cannot be, found across objects: each with the place where it stands and what to do."""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import msgspec

from tonnage.errors import Problem, Where
from tonnage.fleet.gangs import Gang, TopologyRule
from tonnage.objects import apps, core, groups, training, volcano
from tonnage.objects.base import KubeObject, where
from tonnage.objects.group_names import WorkloadReference
from tonnage.workloads import marks
from tonnage.workloads.membership import gangs_of, member_of, stamped, task_groups, topologies_of
from tonnage.workloads.naming import named, workload_key
from tonnage.workloads.priority import Priorities
from tonnage.workloads.replicas import WorkloadPod, runtime_of

POD_GROUPS: dict[type[KubeObject], str] = {
    groups.KaiPodGroup: "spec.minMember",
    groups.VolcanoPodGroup: "spec.minMember",
    groups.CoschedulingPodGroup: "spec.minMember",
    groups.KubePodGroup: "spec.schedulingPolicy.gang.minCount",
}
"""The kinds of pod groups, each with the field of its minimum."""


_MOST = 100_000
"""Objects that count beyond this are not gangs."""
_COUNTS = frozenset({"replicas", "parallelism", "completions", "size", "numNodes", "numOfHosts"})
_NAMING = (
    *(f"labels.{key}" for key in (*marks.COSCHEDULING_GROUP, marks.OLD_GROUP, marks.KUEUE_GROUP)),
    *(f"annotations.{key}" for key in (*marks.VOLCANO_GROUP, marks.KAI_GROUP)),
    "schedulingGroup.podGroupName",
    "workloadRef.name",
)
"""The ends of the paths of fields that name a group."""


class _Pod(msgspec.Struct, frozen=True):
    """A pod, the object that it stands in, its gang, and how many like it there are."""

    owner: KubeObject
    replica: WorkloadPod
    gang: str
    subgroup: str
    count: int = 1


class NeverStarts(msgspec.Struct, frozen=True):
    """Pods of ``owner`` that wait for ever: ``missing`` says whether their group does not exist, else there are too few
    of them."""

    owner: KubeObject
    problem: Problem
    missing: bool = False


def problems_of(objects: Iterable[KubeObject]) -> tuple[Problem, ...]:
    """Subgroups, topologies, levels, priority classes and runtimes that are named and do not exist, names that stand
    for two groups, and what a group asks for that is not read."""
    given = tuple(objects)
    gangs = gangs_of(given)
    pods = tuple(_pods(given, gangs))
    return (
        *_twice(given),
        *_unknown_names(given, gangs, pods),
        *_places(given, gangs, pods),
        *_not_read(given),
    )


def never_start(objects: Iterable[KubeObject]) -> tuple[NeverStarts, ...]:
    """Groups whose minimum is above the pods that there are, and pods that name a group that does not exist."""
    given = tuple(obj for obj in objects if not _is_immense(obj.written))
    gangs = gangs_of(given)
    pods = tuple(_pods(given, gangs))
    return (*_missing_groups(given, gangs, pods), *_too_few(given, gangs, pods))


def _is_immense(value: Any) -> bool:
    if isinstance(value, list):
        return any(_is_immense(one) for one in value)
    return isinstance(value, dict) and any(
        (key in _COUNTS and isinstance(inner, int) and inner > _MOST) or _is_immense(inner)
        for key, inner in value.items()
    )


def _pods(objects: tuple[KubeObject, ...], gangs: Mapping[str, Gang]) -> Iterator[_Pod]:
    for obj in objects:
        made, count = obj, 1
        if isinstance(obj, apps.Replicated) and obj.spec.replicas:
            count = obj.spec.replicas
            made = msgspec.structs.replace(obj, spec=msgspec.structs.replace(obj.spec, replicas=1))
        for replica in stamped(made, objects):
            member = member_of(gangs, replica.namespace, replica.labels, replica.annotations, replica.spec)
            yield _Pod(obj, replica, member.gang, member.subgroup, count)


def _missing_groups(
    objects: tuple[KubeObject, ...], gangs: Mapping[str, Gang], pods: tuple[_Pod, ...]
) -> Iterator[NeverStarts]:
    """Groups that pods name and that do not exist, each once for an object."""
    named_groups = _group_names(objects)
    told: set[tuple[int, str]] = set()
    for pod in pods:
        replica = pod.replica
        if replica.spec.workload_ref is not None:  # its replicas share the group of the Workload
            like = msgspec.structs.replace(replica.spec.workload_ref, pod_group_replica_key="")
            replica = replace(replica, spec=msgspec.structs.replace(replica.spec, workload_ref=like))
        apps_of_yunikorn = {f"{replica.namespace}/{replica.labels.get(key)}" for key in marks.YUNIKORN_APP}
        for key, _ in named(replica.namespace, replica.labels, replica.annotations, replica.spec):
            exists = gangs.get(key) is not None or key in named_groups or key in apps_of_yunikorn
            if not exists and (id(pod.owner), key) not in told:
                told.add((id(pod.owner), key))
                name = key.rpartition("/")[2]
                near = _near(name, (other.partition("/")[2] for other in named_groups))
                message = f"{name!r} names no group of pods: they wait for it for ever"
                yield NeverStarts(pod.owner, Problem(_naming(pod.owner), message, near), missing=True)


def _group_names(objects: tuple[KubeObject, ...]) -> set[str]:
    """The keys of all groups that pods may name, those included that are not gangs."""
    found = {f"{obj.namespace}/{obj.name}" for obj in objects if isinstance(obj, tuple(POD_GROUPS))}
    for obj in objects:
        if isinstance(obj, groups.KubeWorkload):
            for group in obj.spec.pod_groups:
                found.add(workload_key(obj.namespace, WorkloadReference(name=obj.name, pod_group=group.name)))
    return found


def _naming(owner: KubeObject) -> Where:
    """Where an object names the group of its pods, as far as that can be seen."""
    paths = [path for path in owner.lines if path.startswith("spec") or isinstance(owner, core.Pod)]
    found = next((path for end in _NAMING for path in paths if path.endswith(end)), "")
    return where(owner, found or ("metadata" if isinstance(owner, core.Pod) else "spec"))


def _twice(objects: tuple[KubeObject, ...]) -> Iterator[Problem]:
    """Pod groups of two schedulers, and topologies of two, that share a name."""
    for kinds in (tuple(POD_GROUPS), (groups.Topology,)):
        seen: dict[tuple[str, str], KubeObject] = {}
        for obj in objects:
            if not isinstance(obj, kinds):
                continue
            first = seen.setdefault((obj.namespace, obj.name), obj)
            if first is not obj and first.api_version != obj.api_version:
                message = (
                    f"{obj.kind} {obj.name} coexists with one of {first.api_version}, which is the one that counts"
                )
                yield Problem(where(obj, "metadata.name"), message, "rename one of them")


def _unknown_names(
    objects: tuple[KubeObject, ...], gangs: Mapping[str, Gang], pods: tuple[_Pod, ...]
) -> Iterator[Problem]:
    told: set[tuple[int, str]] = set()
    for pod in pods:
        for name, message, near in _unknown_subgroups(pod, gangs):
            if (id(pod.owner), name) not in told:
                told.add((id(pod.owner), name))
                field = "metadata" if isinstance(pod.owner, core.Pod) else "spec"
                yield Problem(where(pod.owner, field), message, near)
    yield from _unknown_classes(objects)
    for obj in objects:
        if isinstance(obj, training.TrainJob) and runtime_of(obj, objects) is None:
            runtime = obj.spec.runtime_ref
            near = _near(runtime.name, (one.name for one in objects if isinstance(one, training.TrainingRuntime)))
            message = f"{runtime.kind} {runtime.name!r} is not among the objects: the TrainJob makes no pods"
            yield Problem(where(obj, "spec.runtimeRef.name"), message, near)


def _unknown_subgroups(pod: _Pod, gangs: Mapping[str, Gang]) -> Iterator[tuple[str, str, str]]:
    """(name, message, hint) of each subgroup that a pod names and that its group does not have."""
    replica = pod.replica
    for key, subgroups in named(replica.namespace, replica.labels, replica.annotations, replica.spec):
        gang = gangs.get(key)
        wanted = next((name for name in subgroups if name), "")
        if gang is not None and gang.source == "KAI PodGroup" and wanted and not pod.subgroup:
            near = _near(wanted, (one.name for one in gang.subgroups))
            yield wanted, f"{wanted!r} is not a subgroup of PodGroup {key}", near


def _unknown_classes(objects: tuple[KubeObject, ...]) -> Iterator[Problem]:
    classes = [obj for obj in objects if isinstance(obj, core.PriorityClass)]
    ranks = Priorities(classes)
    for obj in objects:
        field, name = "spec.priorityClassName", ""
        if isinstance(obj, groups.KaiPodGroup | groups.VolcanoPodGroup | groups.KubePodGroup | volcano.VolcanoJob):
            name = obj.spec.priority_class_name
        elif isinstance(obj, training.KubeflowJob) and obj.spec.run_policy.scheduling_policy is not None:
            field = "spec.runPolicy.schedulingPolicy.priorityClass"
            name = obj.spec.run_policy.scheduling_policy.priority_class
        if name and ranks.of(core.PodSpec(containers=[], priority_class_name=name)) is None:
            near = _near(name, (one.name for one in classes))
            yield Problem(
                where(obj, field), f"PriorityClass {name!r} is not among the objects: taken as priority 0", near
            )


def _too_few(
    objects: tuple[KubeObject, ...], gangs: Mapping[str, Gang], pods: tuple[_Pod, ...]
) -> Iterator[NeverStarts]:
    """Minimums that the pods of the objects cannot meet. A group that no pod names is made for pods yet to come."""
    counts, parts = Counter[str](), Counter[tuple[str, str]]()
    for pod in pods:
        counts[pod.gang] += pod.count
        parts[pod.gang, pod.subgroup] += pod.count
    owners = {pod.gang: pod.owner for pod in reversed(pods)}
    for obj in objects:
        if isinstance(obj, tuple(POD_GROUPS)):
            owners[f"{obj.namespace}/{obj.name}"] = obj
    for key, gang in gangs.items():
        if not counts[key]:
            continue
        owner = owners[key]
        if gang.min_member > counts[key]:
            message = f"{gang.min_member} pods are needed and only {counts[key]} are of the group: it can never start"
            yield NeverStarts(owner, Problem(where(owner, _minimum_field(owner)), message, f"at most {counts[key]}"))
        inner = {subgroup.parent for subgroup in gang.subgroups}
        for index, subgroup in enumerate(gang.subgroups):
            have = parts[key, subgroup.name]
            if subgroup.name not in inner and subgroup.min_member > have:
                field = f"spec.subGroups[{index}].minMember" if isinstance(owner, groups.KaiPodGroup) else ""
                message = f"subgroup {subgroup.name!r} needs {subgroup.min_member} pods and only {have} are of it"
                at = where(owner, field or _minimum_field(owner))
                yield NeverStarts(owner, Problem(at, message, f"at most {have}"))


def _places(objects: tuple[KubeObject, ...], gangs: Mapping[str, Gang], pods: tuple[_Pod, ...]) -> Iterator[Problem]:
    """Topologies and levels that are named and do not exist."""
    known = topologies_of(objects)
    owners = {pod.gang: pod.owner for pod in reversed(pods) if pod.gang}
    for obj in objects:
        if isinstance(obj, tuple(POD_GROUPS)):
            owners[f"{obj.namespace}/{obj.name}"] = obj
    for key, gang in gangs.items():
        told: set[str] = set()
        rules = [("spec.topologyConstraint", gang.rule)]
        rules += [(f"spec.subGroups[{n}].topologyConstraint", part.rule) for n, part in enumerate(gang.subgroups)]
        for field, rule in rules:
            for message, near in _place(rule, known):
                owner = owners.get(key)
                if owner is not None and message not in told:
                    told.add(message)
                    at = field if isinstance(owner, groups.KaiPodGroup) else "metadata.annotations"
                    yield Problem(where(owner, at), message, near)


def _place(rule: TopologyRule, known: Mapping[str, tuple[str, ...]]) -> Iterator[tuple[str, str]]:
    if not rule.topology:
        return
    if rule.topology not in known:
        yield f"Topology {rule.topology!r} is not among the objects", _near(rule.topology, known)
        return
    levels = known[rule.topology]
    for level in (rule.required, rule.preferred, rule.slice_required):
        if level and level not in levels:
            yield f"{level!r} is not a level of Topology {rule.topology}", _near(level, levels)


def _not_read(objects: tuple[KubeObject, ...]) -> Iterator[Problem]:
    """What a group asks for that has no effect here."""
    for obj in objects:
        if isinstance(obj, groups.KaiPodGroup):
            yield from _optional_subgroups(obj)
        if isinstance(obj, groups.VolcanoPodGroup | volcano.VolcanoJob):
            wanted = obj.spec.network_topology
            if wanted is not None and not wanted.highest_tier_name:
                message = "tiers by number are those of HyperNodes, which are not read: no effect"
                yield Problem(where(obj, "spec.networkTopology"), message, "name a node label as highestTierName")
        if isinstance(obj, groups.VolcanoPodGroup):
            for index, policy in enumerate(obj.spec.sub_group_policy):
                if policy.label_selector is not None or policy.match_label_keys or policy.min_sub_groups:
                    message = "subgroups by labels, and a minimum of subgroups, are not read: no effect"
                    yield Problem(where(obj, f"spec.subGroupPolicy[{index}]"), message, "use minTaskMember")
        for marked, field in _annotations(obj):
            if marks.KUEUE_SLICES in marked:
                message = f"{marks.KUEUE_SLICES} is not read: no effect"
                yield Problem(where(obj, field), message, f"use {marks.KUEUE_SLICE_REQUIRED}")
            if marks.YUNIKORN_GROUPS in marked and not task_groups(marked):
                message = f"{marks.YUNIKORN_GROUPS}: expected a JSON list of objects with name and minMember"
                yield Problem(where(obj, field), message, '[{"name": "worker", "minMember": 4}]')


def _optional_subgroups(obj: groups.KaiPodGroup) -> Iterator[Problem]:
    children = Counter(group.parent for group in obj.spec.sub_groups)
    wanted = [("", "spec.minSubGroup", obj.spec.min_sub_group)]
    wanted += [(g.name, f"spec.subGroups[{n}].minSubGroup", g.min_sub_group) for n, g in enumerate(obj.spec.sub_groups)]
    for parent, field, least in wanted:
        if least is not None and least < children[parent]:
            message = f"{least} of {children[parent]} subgroups would do; here all are waited for"
            yield Problem(
                where(obj, field), message, "give the groups that can do without each other PodGroups of their own"
            )


def _annotations(obj: KubeObject) -> Iterator[tuple[Mapping[str, str], str]]:
    """The annotations of an object's pods, with the field that they stand in as far as it is known."""
    field = "metadata.annotations" if isinstance(obj, core.Pod) else "spec"
    for replica in {replica.role: replica for replica in stamped(obj, ())}.values():
        yield replica.annotations, field


def _minimum_field(owner: KubeObject) -> str:
    if isinstance(owner, training.KubeflowJob):
        elastic = owner.spec.elastic_policy if isinstance(owner, training.PyTorchJob) else None
        policy = owner.spec.run_policy.scheduling_policy
        if elastic is not None and (policy is None or policy.min_available is None):
            return "spec.elasticPolicy.minReplicas"
        return "spec.runPolicy.schedulingPolicy.minAvailable"
    return POD_GROUPS.get(type(owner), "metadata")


def _near(name: str, names: Iterable[str]) -> str:
    found = difflib.get_close_matches(name, list(names), 1)
    return f"did you mean {found[0]}?" if found else "add the object, or correct the name"
