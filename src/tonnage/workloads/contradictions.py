"""What groups of pods say that cannot be, found across objects: each with the place where it stands and what to do."""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from tonnage.errors import Problem
from tonnage.fleet.gangs import Gang, TopologyRule
from tonnage.objects import core, groups, training, volcano
from tonnage.objects.base import KubeObject, where
from tonnage.workloads import marks
from tonnage.workloads.membership import gangs_of, member_of, named, stamped, task_groups, topologies_of
from tonnage.workloads.priority import Priorities
from tonnage.workloads.replicas import Replica, runtime_of

POD_GROUPS: dict[type[KubeObject], str] = {
    groups.KaiPodGroup: "spec.minMember",
    groups.VolcanoPodGroup: "spec.minMember",
    groups.CoschedulingPodGroup: "spec.minMember",
    groups.KubePodGroup: "spec.schedulingPolicy.gang.minCount",
}
"""The kinds of pod groups, each with the field of its minimum."""


@dataclass(frozen=True, slots=True)
class _Pod:
    """A pod, the object that it stands in, and its gang."""

    owner: KubeObject
    replica: Replica
    gang: str
    subgroup: str


def problems_of(objects: Iterable[KubeObject]) -> tuple[Problem, ...]:
    """Minimums above the pods that there are, groups, subgroups, topologies, levels, priority classes and runtimes that
    are named and do not exist, names that stand for two groups, and what a group asks for that is not read."""
    given = tuple(objects)
    gangs = gangs_of(given)
    pods = tuple(_pods(given, gangs))
    return (
        *_twice(given),
        *_unknown_names(given, gangs, pods),
        *_too_few(given, gangs, pods),
        *_places(given, gangs, pods),
        *_not_read(given),
    )


def _pods(objects: tuple[KubeObject, ...], gangs: Mapping[str, Gang]) -> Iterator[_Pod]:
    for obj in objects:
        for replica in stamped(obj, objects):
            member = member_of(gangs, replica.namespace, replica.labels, replica.annotations, replica.spec)
            yield _Pod(obj, replica, member.gang, member.subgroup)


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
                    f"{obj.kind} {obj.name} stands beside one of {first.api_version}, which is the one that counts"
                )
                yield Problem(where(obj, "metadata.name"), message, "rename one of them")


def _unknown_names(
    objects: tuple[KubeObject, ...], gangs: Mapping[str, Gang], pods: tuple[_Pod, ...]
) -> Iterator[Problem]:
    named_groups = {f"{obj.namespace}/{obj.name}" for obj in objects if isinstance(obj, tuple(POD_GROUPS))}
    told: set[tuple[int, str]] = set()
    for pod in pods:
        for name, message, near in _unknown_of_pod(pod, gangs, named_groups):
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


def _unknown_of_pod(pod: _Pod, gangs: Mapping[str, Gang], named_groups: set[str]) -> Iterator[tuple[str, str, str]]:
    """(name, message, hint) of each group and subgroup that a pod names and that does not exist."""
    replica = pod.replica
    for key, subgroups in named(replica.namespace, replica.labels, replica.annotations, replica.spec):
        gang = gangs.get(key)
        wanted = next((name for name in subgroups if name), "")
        if gang is None and key not in named_groups:
            name = key.partition("/")[2]
            near = _near(name, (other.partition("/")[2] for other in named_groups))
            yield key, f"{name!r} names no group of pods", near
        elif gang is not None and gang.source == "KAI PodGroup" and wanted and not pod.subgroup:
            near = _near(wanted, (one.name for one in gang.subgroups))
            yield wanted, f"{wanted!r} is no subgroup of PodGroup {key}", near


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


def _too_few(objects: tuple[KubeObject, ...], gangs: Mapping[str, Gang], pods: tuple[_Pod, ...]) -> Iterator[Problem]:
    """Minimums that the pods of the objects cannot meet. A group that no pod names is made for pods yet to come."""
    counts = Counter(pod.gang for pod in pods)
    parts = Counter((pod.gang, pod.subgroup) for pod in pods)
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
            yield Problem(where(owner, _minimum_field(owner)), message, f"at most {counts[key]}")
        inner = {subgroup.parent for subgroup in gang.subgroups}
        for index, subgroup in enumerate(gang.subgroups):
            have = parts[key, subgroup.name]
            if subgroup.name not in inner and subgroup.min_member > have:
                field = f"spec.subGroups[{index}].minMember" if isinstance(owner, groups.KaiPodGroup) else ""
                message = f"subgroup {subgroup.name!r} needs {subgroup.min_member} pods and only {have} are of it"
                yield Problem(where(owner, field or _minimum_field(owner)), message, f"at most {have}")


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
            yield f"{level!r} is no level of Topology {rule.topology}", _near(level, levels)


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
