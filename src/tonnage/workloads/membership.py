"""Which gang each pod is of: from pod groups that it names, or from the workload that made it.

A pod group that a pod names wins over the gang that its workload implies (:mod:`tonnage.workloads.implied`).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any, NamedTuple

from tonnage.facts.labels import JOB_NAME
from tonnage.fleet.gangs import ANYWHERE, Gang, SubGroup, TopologyRule
from tonnage.objects import apps, batch, core, groups, leaderworker, ray, training, volcano
from tonnage.objects.base import KubeObject
from tonnage.objects.group_names import WorkloadReference
from tonnage.workloads import implied, marks, stateful
from tonnage.workloads.implied import whole
from tonnage.workloads.naming import named, workload_key
from tonnage.workloads.priority import Priorities
from tonnage.workloads.replicas import WORKLOADS, WorkloadPod, cluster_name, replicas_of, resolved

KAI_PREEMPTIBLE_BELOW = 100
"""Priority under which KAI takes a pod group for preemptible when it does not say (podgroup_types.go)."""

PRECEDENCE: tuple[type[KubeObject], ...] = (
    groups.KaiPodGroup,
    groups.VolcanoPodGroup,
    groups.CoschedulingPodGroup,
    groups.KubePodGroup,
    groups.KubeWorkload,
    batch.Job,
    batch.JobSet,
    training.PyTorchJob,
    training.TFJob,
    training.XGBoostJob,
    training.JAXJob,
    training.MPIJob,
    training.TrainJob,
    leaderworker.LeaderWorkerSet,
    ray.RayCluster,
    ray.RayJob,
    ray.RayService,
    volcano.VolcanoJob,
)
"""Where several objects stand for one gang, the first of these kinds counts, then the first by name."""
_PLACE = {kind: place for place, kind in enumerate(PRECEDENCE)}

MAKERS: Mapping[type[KubeObject], str] = {
    **implied.WORDS,
    training.TrainJob: implied.WORDS[batch.JobSet],
    ray.RayService: implied.WORDS[ray.RayCluster],
}
"""How the labels of pods name the kind of the workload that made them: the JobSet that a TrainJob makes, and the
RayCluster that a RayJob or RayService makes."""

Clock = Callable[[str | None], int]
"""Nanoseconds of a creationTimestamp; of none, whatever now is."""


class Member(NamedTuple):
    """The gang of a pod, and its part of it; both empty for a pod on its own."""

    gang: str = ""
    subgroup: str = ""


class TaskGroup(NamedTuple):
    """A task group of YuniKorn's annotation."""

    name: str
    min_member: int


def epoch(timestamp: str | None) -> int:
    """Nanoseconds since the Unix epoch; 0 for no time."""
    if not timestamp:
        return 0
    moment = datetime.fromisoformat(timestamp.replace("Z", "+00:00"))
    return int(moment.timestamp()) * 1_000_000_000 + moment.microsecond * 1000


def gangs_of(
    objects: Iterable[KubeObject], priorities: Priorities | None = None, clock: Clock = epoch
) -> dict[str, Gang]:
    """All gangs by key: ``namespace/name`` of a pod group or of a group that pods name by label,
    ``namespace/kind/name`` of one that a workload implies. Objects may be manifests, or a cluster's with its pods.

    ``priorities``: those of the PriorityClasses among the objects when not given.
    """
    given = tuple(objects)
    ranks = priorities or Priorities(obj for obj in given if isinstance(obj, core.PriorityClass))
    maker = Maker(ranks, topologies_of(given), clock)
    found: dict[str, Gang] = {}
    makers: dict[str, tuple[int, str, str]] = {}
    for obj in given:
        rank = (_PLACE.get(type(obj), len(_PLACE)), obj.namespace, obj.name)
        for gang in maker.of_object(obj, given):
            if rank < makers.setdefault(gang.key, rank) or gang.key not in found:
                found[gang.key], makers[gang.key] = gang, rank
    for pod in _named(given):
        for gang in maker.of_pod(pod, found):
            found.setdefault(gang.key, gang)
    return found


def topologies_of(objects: Iterable[KubeObject]) -> dict[str, tuple[str, ...]]:
    """The label keys of each Topology object's levels, outermost first, by its name."""
    found: dict[str, tuple[str, ...]] = {}
    for obj in objects:
        if isinstance(obj, groups.Topology):
            found.setdefault(obj.name, tuple(level.node_label for level in obj.spec.levels))
    return found


def member_of(
    gangs: Mapping[str, Gang],
    namespace: str,
    labels: Mapping[str, str],
    annotations: Mapping[str, str],
    spec: core.PodSpec,
) -> Member:
    """The gang of a pod among these, by what the pod itself says; its labels are those that its controller adds."""
    return first_of(gangs, asked(namespace, labels, annotations, spec))


class GangCandidate(NamedTuple):
    """A gang that a pod may be of. ``names``: of the pod's subgroup, the best first. ``workload``: the key of the
    workload that implies it (:func:`maker_key`), empty where the pod names a group itself."""

    key: str
    names: tuple[str, ...]
    workload: str = ""


def asked(
    namespace: str, labels: Mapping[str, str], annotations: Mapping[str, str], spec: core.PodSpec
) -> tuple[GangCandidate, ...]:
    """Every gang that the pod may be of by what it says: the first that exists is its own."""
    own = (GangCandidate(key, names) for key, names in named(namespace, labels, annotations, spec))
    return (*own, *_implied(namespace, labels))


def first_of(gangs: Mapping[str, Gang], candidates: Iterable[GangCandidate]) -> Member:
    """The first of these that exists, and the pod's part of it."""
    for one in candidates:
        gang = gangs.get(one.key)
        if gang is not None:
            own = {subgroup.name for subgroup in gang.subgroups}
            return Member(one.key, next((name for name in one.names if name in own), ""))
    return Member()


def maker_key(obj: KubeObject) -> str:
    """How the labels of its pods know a workload: namespace, kind and name. Empty for an object that makes no pods."""
    word = MAKERS.get(type(obj))
    name = cluster_name(obj) if isinstance(obj, ray.RayJob) else obj.name
    return f"{obj.namespace}/{word}/{name}" if word is not None else ""


def task_groups(annotations: Mapping[str, str]) -> tuple[TaskGroup, ...]:
    """YuniKorn's task groups; none when the annotation is not a list of them.

    Source: apache/yunikorn-k8shim pkg/cache/amprotocol.go TaskGroup.
    """
    try:
        listed: Any = json.loads(annotations.get(marks.YUNIKORN_GROUPS, "[]"))
        return tuple(TaskGroup(str(group["name"]), int(group["minMember"])) for group in listed)
    except (ValueError, TypeError, KeyError):
        return ()


def says_a_group(pod: core.Pod) -> bool:
    """Whether there may be a group because this pod says so: a label group, or a replica of a Workload's group."""
    labels, annotations = pod.metadata.labels, pod.metadata.annotations
    said = marks.OLD_MIN in labels or marks.KUEUE_TOTAL in annotations or marks.YUNIKORN_GROUPS in annotations
    return said or pod.spec.workload_ref is not None


def _implied(namespace: str, labels: Mapping[str, str]) -> Iterator[GangCandidate]:
    """Every gang that the pod's workload may imply, the outermost first."""
    if marks.JOB_SET in labels:
        part, number = labels.get(marks.JOB_SET_PART, ""), labels.get(marks.JOB_SET_INDEX, "")
        names = (f"{part}-replica-{number}", part)
        made = f"{namespace}/jobset/{labels[marks.JOB_SET]}"
        yield GangCandidate(f"{made}/{part}", names, made)
        yield GangCandidate(made, names, made)
    if marks.LWS in labels:
        leads = labels.get(marks.LWS_WORKER) == "0"
        made = f"{namespace}/leaderworkerset/{labels[marks.LWS]}"
        names = (f"subgroup-{labels.get(marks.LWS_SUBGROUP, '')}", "leader" if leads else "workers")
        yield GangCandidate(f"{made}-{labels.get(marks.LWS_GROUP, '')}", names, made)
    if marks.TRAINING_JOB in labels:
        operator = labels.get(marks.TRAINING_OPERATOR, "")
        kind = "mpijob" if operator == "mpi-operator" else operator.removesuffix("-controller")
        role = labels.get(marks.TRAINING_ROLE, labels.get(marks.TRAINING_JOB_ROLE, ""))
        yield _whole_of(f"{namespace}/{kind}/{labels[marks.TRAINING_JOB]}", role)
    if marks.RAY_CLUSTER in labels:
        yield _whole_of(f"{namespace}/raycluster/{labels[marks.RAY_CLUSTER]}", labels.get(marks.RAY_GROUP, ""))
    if marks.VOLCANO_JOB in labels:
        yield _whole_of(f"{namespace}/vcjob/{labels[marks.VOLCANO_JOB]}", labels.get(marks.VOLCANO_TASK, ""))
    if JOB_NAME in labels:
        made = f"{namespace}/job/{labels[JOB_NAME]}"
        yield GangCandidate(made, (), made)


def _whole_of(workload: str, name: str) -> GangCandidate:
    """The one gang of a workload, named as that is."""
    return GangCandidate(workload, (name,), workload)


def stamped(obj: KubeObject, objects: Iterable[KubeObject]) -> tuple[WorkloadPod, ...]:
    """The pods that an object is or makes, those of a Deployment, ReplicaSet or StatefulSet included."""
    if isinstance(obj, core.Pod):
        meta = obj.metadata
        return (WorkloadPod(meta.name, meta.namespace, "", 0, obj.spec, meta.labels, meta.annotations),)
    if isinstance(obj, apps.Deployment | apps.ReplicaSet):
        template = obj.spec.template
        meta = template.metadata
        return tuple(
            WorkloadPod(f"{obj.name}-{index}", obj.namespace, "", index, template.spec, meta.labels, meta.annotations)
            for index in range(obj.spec.replicas)
        )
    return stateful.replicas(obj) if isinstance(obj, apps.StatefulSet) else replicas_of(obj, objects)


def _named(objects: tuple[KubeObject, ...]) -> Iterator[WorkloadPod]:
    """One pod of each role of every object: groups that exist by their labels alone are known by it."""
    for obj in objects:
        yield from {replica.role: replica for replica in stamped(obj, objects)}.values()


class Maker:
    """Makes gangs, all with one view of priorities, topologies and time."""

    def __init__(self, priorities: Priorities, topologies: Mapping[str, tuple[str, ...]], clock: Clock) -> None:
        self._priorities, self._topologies, self._clock = priorities, topologies, clock

    def of_object(self, obj: KubeObject, objects: Iterable[KubeObject]) -> Iterator[Gang]:
        """The gangs that a pod group or a workload stands for; ``objects``: among which a TrainJob's runtime is."""
        if isinstance(obj, groups.KaiPodGroup):
            yield self._kai(obj)
        elif isinstance(obj, groups.VolcanoPodGroup):
            yield self._volcano(obj)
        elif isinstance(obj, groups.CoschedulingPodGroup):
            yield self._gang(obj, _key(obj), obj.spec.min_member, "coscheduling PodGroup")
        elif isinstance(obj, groups.KubePodGroup):
            yield from self._kube(obj)
        elif isinstance(obj, WORKLOADS):
            yield from self._workload(resolved(obj, objects), obj)
        elif isinstance(obj, groups.KubeWorkload):
            # Its groups exist once for each replica that pods name: kept under the key of none.
            for group in obj.spec.pod_groups:
                reference = WorkloadReference(name=obj.name, pod_group=group.name)
                if group.policy.gang is not None:
                    key = workload_key(obj.namespace, reference)
                    yield self._gang(obj, key, group.policy.gang.min_count, "Workload")

    def of_pod(self, pod: WorkloadPod, found: Mapping[str, Gang]) -> Iterator[Gang]:
        """The gangs that exist by what pods say alone: label groups, and replicas of a Workload's group."""
        namespace, labels, annotations = pod.namespace, pod.labels, pod.annotations
        if pod.spec.workload_ref is not None:
            reference = pod.spec.workload_ref
            like = WorkloadReference(name=reference.name, pod_group=reference.pod_group)
            gang = found.get(workload_key(namespace, like))
            if gang is not None:
                yield replace(gang, key=workload_key(namespace, reference))
        priority = self._priorities.of(pod.spec) or 0
        needed = whole(labels, marks.OLD_MIN)
        if needed is not None and marks.OLD_GROUP in labels:
            key = f"{namespace}/{labels[marks.OLD_GROUP]}"
            yield Gang(key, needed, source="coscheduling labels", priority=priority)
        needed = whole(annotations, marks.KUEUE_TOTAL)
        if needed is not None and marks.KUEUE_GROUP in labels:
            rule = self._placed(implied.kueue_rule(annotations))
            key = f"{namespace}/{labels[marks.KUEUE_GROUP]}"
            yield Gang(key, needed, rule=rule, source="Kueue pod group", priority=priority)
        app = next((labels[name] for name in marks.YUNIKORN_APP if name in labels), "")
        listed = task_groups(annotations)
        if app and listed:
            parts = tuple(SubGroup(group.name, group.min_member) for group in listed)
            total = sum(group.min_member for group in listed)
            yield Gang(f"{namespace}/{app}", total, parts, source="YuniKorn task groups", priority=priority)

    def _kai(self, obj: groups.KaiPodGroup) -> Gang:
        spec = obj.spec
        needs = _kai_needs(spec)
        parts = tuple(
            SubGroup(group.name, needs.get(group.name, 0), _kai_rule(group.topology_constraint), group.parent)
            for group in spec.sub_groups
        )
        needed = sum(needs[group.name] for group in spec.sub_groups if not group.parent)
        needed = max(needed, 1) if spec.min_member is None else spec.min_member
        priority = self._rank(spec.priority_class_name)
        free = priority < KAI_PREEMPTIBLE_BELOW if not spec.preemptibility else spec.preemptibility == "preemptible"
        rule = _kai_rule(spec.topology_constraint)
        return replace(self._gang(obj, _key(obj), needed, "KAI PodGroup", parts, rule, priority), preemptible=free)

    def _volcano(self, obj: groups.VolcanoPodGroup) -> Gang:
        spec = obj.spec
        tasks = sorted(spec.min_task_member)
        minima = implied.volcano_task_minima(spec.min_member, [spec.min_task_member[name] for name in tasks])
        parts = tuple(map(SubGroup, tasks, minima))
        rule = implied.volcano_rule(spec.network_topology)
        for policy in spec.sub_group_policy:
            level = implied.volcano_rule(policy.network_topology).required
            if level and policy.sub_group_size and policy.label_selector is None:
                rule = replace(rule, slice_size=policy.sub_group_size, slice_required=level)
        priority = self._rank(spec.priority_class_name)
        return self._gang(obj, _key(obj), spec.min_member, "Volcano PodGroup", parts, rule, priority)

    def _kube(self, obj: groups.KubePodGroup) -> Iterator[Gang]:
        spec = obj.spec
        wanted = spec.scheduling_constraints
        rule = TopologyRule(required=wanted.topology[0].key) if wanted and wanted.topology else ANYWHERE
        gang = spec.scheduling_policy.gang
        priority = self._rank(spec.priority_class_name) if spec.priority is None else spec.priority
        if gang is not None or rule != ANYWHERE:
            yield self._gang(obj, _key(obj), gang.min_count if gang else 1, "PodGroup", (), rule, priority)

    def _workload(self, made: KubeObject, obj: KubeObject) -> Iterator[Gang]:
        labels = obj.metadata.labels
        preemptible = labels.get(marks.KAI_PREEMPTIBILITY, "preemptible") != "non-preemptible"
        for gang in implied.implied(made):
            name = labels.get(marks.KAI_PRIORITY, gang.priority_class)
            priority = self._rank(name) if name else self._priorities.of(gang.template.spec) or 0
            key, parts = implied.key(made, gang.name), implied.subgroups(gang)
            found = self._gang(obj, key, gang.needed, obj.kind, parts, gang.rule, priority)
            yield replace(found, preemptible=preemptible)

    def _gang(
        self,
        obj: KubeObject,
        key: str,
        needed: int,
        source: str,
        parts: tuple[SubGroup, ...] = (),
        rule: TopologyRule = ANYWHERE,
        priority: int = 0,
    ) -> Gang:
        placed = tuple(replace(part, rule=self._placed(part.rule)) for part in parts)
        created = self._clock(obj.metadata.creation_timestamp)
        return Gang(key, needed, placed, self._placed(rule), source, priority, created)

    def _placed(self, rule: TopologyRule) -> TopologyRule:
        """The rule with the one topology that has its levels, where it names none."""
        levels = {level for level in (rule.required, rule.preferred, rule.slice_required) if level}
        fitting = [name for name, known in self._topologies.items() if levels and levels <= set(known)]
        return replace(rule, topology=fitting[0]) if not rule.topology and len(fitting) == 1 else rule

    def _rank(self, name: str) -> int:
        return self._priorities.of(core.PodSpec(containers=[], priority_class_name=name)) or 0


def _key(obj: KubeObject) -> str:
    return f"{obj.namespace}/{obj.name}"


def _kai_rule(wanted: groups.KaiTopologyConstraint | None) -> TopologyRule:
    if wanted is None:
        return ANYWHERE
    return TopologyRule(wanted.required_topology_level, wanted.preferred_topology_level, topology=wanted.topology)


def _kai_needs(spec: groups.KaiPodGroupSpec) -> dict[str, int]:
    """Pods that each subgroup needs: its own minimum, or that of the subgroups inside."""
    children: dict[str, list[groups.KaiSubGroup]] = {}
    for group in spec.sub_groups:
        children.setdefault(group.parent, []).append(group)
    needs: dict[str, int] = {}

    def need(group: groups.KaiSubGroup) -> int:
        inside = children.get(group.name, ())
        needs[group.name] = sum(need(child) for child in inside) if inside else group.min_member or 0
        return needs[group.name]

    for group in children.get("", ()):
        need(group)
    return needs
