"""From manifests and a scenario's training entries to workloads that arrive in the simulated cluster."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace as replaced
from fractions import Fraction

import msgspec

from tonnage.decisions import Finding, Ref
from tonnage.errors import InputError, Problem
from tonnage.fleet import asks
from tonnage.fleet.gangs import Gang
from tonnage.fleet.rows import split_key
from tonnage.machines.cluster import SimulatedCluster
from tonnage.machines.objects import Workload
from tonnage.machines.training.entries import (
    Checkpoint,
    TrainingEntry,
    TrainingWork,
    WorkEntry,
    arrival_of,
    checkpoint_of,
    problems_of_work,
    work_of,
)
from tonnage.machines.training.part import WorkloadPart
from tonnage.machines.training.workload import Training
from tonnage.objects import core
from tonnage.objects.base import KubeObject
from tonnage.objects.load import where
from tonnage.simulation.fault_entries import FLAPPING, OF_PODS
from tonnage.simulation.residents import Residents
from tonnage.simulation.scenario import Scenario
from tonnage.units import NS_PER_HOUR
from tonnage.workloads.admission.chain import Admission
from tonnage.workloads.admission.refused import AdmissionRefusal
from tonnage.workloads.contradictions import problems_of
from tonnage.workloads.membership import Member, gangs_of, member_of, topologies_of
from tonnage.workloads.owners import is_running
from tonnage.workloads.priority import Priorities
from tonnage.workloads.replicas import WorkloadPod, replicas_of, resolved

POD_GROUP = "podgroup"
"""The kind under which the bare pods of a PodGroup are one workload."""


class _Manifests:
    """The workloads that manifests have, by namespace/kind/name in lower case."""

    def __init__(self, objects: Iterable[KubeObject], priorities: Priorities, nodes: Collection[str]) -> None:
        self.objects = tuple(map(_in_a_namespace, objects))
        self.gangs = gangs_of(self.objects, priorities)
        self.workloads: dict[str, KubeObject] = {}
        self.pods: dict[str, list[core.Pod]] = {}
        for one in self.objects:
            if not isinstance(one, core.Pod) and replicas_of(one, self.objects):
                self.workloads[key_of(one)] = one
        self.residents = Residents(self.objects, self.workloads, nodes)
        for one in self.objects:
            if isinstance(one, core.Pod) and self.residents.is_alone(one):
                self._add_pod(one)

    def _add_pod(self, pod: core.Pod) -> None:
        member = self.member(_replica(pod))
        key = key_of(pod)
        if member.gang.count("/") == 1:
            namespace, name = split_key(member.gang)
            key = f"{namespace}/{POD_GROUP}/{name}"
        self.pods.setdefault(key, []).append(pod)

    def member(self, replica: WorkloadPod) -> Member:
        """The gang of a replica, and its part of it."""
        return member_of(self.gangs, replica.namespace, replica.labels, replica.annotations, replica.spec)


def key_of(one: KubeObject) -> str:
    """namespace/kind/name, the kind in lower case."""
    return f"{one.namespace}/{one.kind.lower()}/{one.name}"


def _in_a_namespace(one: KubeObject) -> KubeObject:
    """The object; one that names no namespace is in default."""
    return one if one.namespace else one.renamed(namespace="default")


def connect_training(
    scenario: Scenario, objects: Iterable[KubeObject], cluster: SimulatedCluster
) -> tuple[Finding, ...]:
    """Make the training workloads of the manifests; nothing arrives before :func:`start_training`. Returns what is
    suspicious about them. Raises InputError for an entry whose workload is not there, or that cannot be copied."""
    objects = tuple(objects)
    priorities = Priorities([o for o in objects if isinstance(o, core.PriorityClass)])
    written = _Manifests(objects, priorities, cluster.nodes)
    entries = _entries(scenario, written)
    found = _Manifests(_with_copies(written.objects, entries), priorities, cluster.nodes)
    cluster.declared.topologies = topologies_of(objects)
    endless: list[Finding] = []
    for key, one in {**found.workloads, **{k: p[0] for k, p in found.pods.items()}}.items():
        origin = _origin(key, entries)
        entry = entries.get(origin)
        replicas = tuple(map(_replica, found.pods[key])) if key in found.pods else replicas_of(one, found.objects)
        if entry is None and not (isinstance(one, core.Pod) and is_running(one)):
            endless.append(_endless(one, key))
        _refuse_shared(scenario, entry, replicas, found)
        made = _training(cluster, key, origin, one, replicas, entry, found, cluster.declared.admission)
        made.refused = _refused(cluster.declared.admission, replicas)
        made.workload.standing = found.residents.of(key, found.pods.get(key, ()))
        cluster.training[key] = made
    for deployment in cluster.workloads.values():
        deployment.standing = found.residents.of(deployment.key)
    _refuse_spread(cluster)
    _join_gangs(cluster, found)
    for i, fault in enumerate(scenario.spec.faults):
        known = (*cluster.training, *cluster.workloads)
        if fault.kind == FLAPPING:
            known = tuple(cluster.workloads)
        if fault.kind in OF_PODS and fault.workload not in known:
            raise InputError(_unknown(scenario, f"faults[{i}].workload", fault.workload, known))
    return (*endless, *_problems(found.objects))


def adopted(
    cluster: SimulatedCluster, one: KubeObject, others: Iterable[KubeObject], duration: str = ""
) -> Training | None:
    """The training workload of an object that appears while the cluster runs; None for one that makes no pods.

    ``others``: what it may refer to. ``duration``: for how long it works with all of its pods, as ``2h``; without, it
    never ends. Raises ValueError for a duration that cannot be read."""
    others = tuple(others)
    priorities = Priorities([o for o in others if isinstance(o, core.PriorityClass)])
    found = _Manifests((*(o for o in others if key_of(o) != key_of(one)), one), priorities, cluster.nodes)
    key, replicas = key_of(one), replicas_of(one, found.objects)
    if not replicas:
        return None
    entry = None
    if duration:
        work = WorkEntry(duration=duration)
        if problem := next((why for _, why in problems_of_work(work)), ""):
            raise ValueError(problem)
        entry = TrainingEntry(workload=key, work=work)
    cluster.declared.topologies = cluster.declared.topologies | topologies_of(others)
    return _training(cluster, key, key, one, replicas, entry, found, Admission(others), cluster.now_ns)


def _join_gangs(cluster: SimulatedCluster, found: _Manifests) -> None:
    """Pods of Deployments that name a group are of its gang."""
    for workload in cluster.workloads.values():
        meta, spec = workload.template.metadata, workload.template.spec
        member = member_of(found.gangs, workload.namespace, meta.labels, meta.annotations, spec)
        if member.gang in found.gangs:
            workload.gang = (member.gang, member.subgroup)
            cluster.declared.gangs[member.gang] = found.gangs[member.gang]


def _unknown(scenario: Scenario, field: str, name: str, known: Iterable[str]) -> Problem:
    """A workload that is not in the manifests, with the nearest that is."""
    names = tuple(known)
    near = difflib.get_close_matches(name, names, 1)
    hint = f"did you mean {near[0]}?" if near else f"the manifests have {', '.join(names) or 'none'}"
    return scenario.document.problem(field, f'"{name}": no such workload with pods in the manifests', hint)


def _entries(scenario: Scenario, written: _Manifests) -> dict[str, TrainingEntry]:
    """The scenario's entries by workload. Raises InputError for one that is not in the manifests."""
    known = [*written.workloads, *written.pods]
    for i, entry in enumerate(scenario.spec.training):
        if entry.workload not in known:
            raise InputError(_unknown(scenario, f"training[{i}].workload", entry.workload, known))
        if entry.copies > 1 and entry.workload in written.pods:
            message = "bare pods name their PodGroup, so copies of them would be one group"
            raise InputError(scenario.document.problem(f"training[{i}].copies", message, "give each its own manifest"))
    return {entry.workload: entry for entry in scenario.spec.training}


def _with_copies(objects: Iterable[KubeObject], entries: Mapping[str, TrainingEntry]) -> Iterator[KubeObject]:
    """The objects, and in place of each that has copies these."""
    for one in objects:
        entry = entries.get(key_of(one))
        if entry is None or entry.copies == 1:
            yield one
            continue
        for number in range(1, entry.copies + 1):
            yield one.renamed(name=f"{one.name}-{number}")


def _origin(key: str, entries: Mapping[str, TrainingEntry]) -> str:
    """The workload in the manifests of which ``key`` is a copy, or itself."""
    origin, _, number = key.rpartition("-")
    entry = entries.get(origin)
    return origin if entry is not None and entry.copies > 1 and number.isdigit() and key not in entries else key


def _refuse_shared(
    scenario: Scenario, entry: TrainingEntry | None, replicas: Iterable[WorkloadPod], found: _Manifests
) -> None:
    if entry is None or entry.copies == 1:
        return
    shared = sorted({key for r in replicas if (key := found.member(r).gang).count("/") == 1})
    if shared:
        number = next(i for i, one in enumerate(scenario.spec.training) if one is entry)
        message = f"its pods are in the PodGroup {shared[0]}, so copies of them would be one group"
        raise InputError(scenario.document.problem(f"training[{number}].copies", message, "leave the group out"))


def _refuse_spread(cluster: SimulatedCluster) -> None:
    """A gang whose pods are made by several workloads makes progress in none of them."""
    owners: dict[str, Training] = {}
    for training in cluster.training.values():
        for key in training.gangs:
            other = owners.setdefault(key, training)
            if other is not training:
                message = f"its pods are in the gang {key}, and so are those of {other.key}"
                hint = "give each workload a group of its own"
                raise InputError(Problem(where(training.object), message, hint))


def _training(
    cluster: SimulatedCluster,
    key: str,
    origin: str,
    one: KubeObject,
    replicas: tuple[WorkloadPod, ...],
    entry: TrainingEntry | None,
    found: _Manifests,
    admission: Admission,
    from_ns: int = 0,
) -> Training:
    namespace, name = split_key(origin)
    specs = {
        id(r.spec): admission.completed(r.namespace, r.spec) for r in replicas
    }  # replicas of one role share theirs
    replicas = tuple(replaced(one, spec=specs[id(one.spec)]) for one in replicas)
    work = work_of(entry.work) if entry is not None and entry.work is not None else None
    checkpoint = checkpoint_of(entry.checkpoint) if entry is not None and entry.checkpoint is not None else None
    first, last = arrival_of(entry) if entry is not None else (0, 0)
    drawn = cluster.streams.python(f"arrival/{key}").random() if last > first else 0.0
    arrival_ns = from_ns + first + int(drawn * (last - first))
    members = {replica.name: found.member(replica) for replica in replicas}
    parts = tuple(_parts(replicas, members, found.gangs, work, checkpoint))
    gangs = {p.gang.key: replaced(p.gang, created_ns=arrival_ns) for p in parts if p.gang is not None}
    workload = Workload(
        namespace,
        name,
        core.PodTemplateSpec(spec=replicas[0].spec),
        len(replicas),
    )
    made = Training(
        resolved(one, found.objects),
        key,
        one.kind,
        workload,
        replicas,
        members,
        parts,
        gangs,
        arrival_ns,
        work or TrainingWork(),
    )
    workload.controller = made
    return made


def _refused(admission: Admission, replicas: Iterable[WorkloadPod]) -> dict[str, AdmissionRefusal]:
    """Why the API server admits no pod as these are written, by their names; those that it admits are left out."""
    known: dict[int, AdmissionRefusal | None] = {}
    found = {}
    for one in replicas:
        if id(one.spec) not in known:
            known[id(one.spec)] = next(iter(admission.refusals(one.namespace, one.spec)), None)
        if (why := known[id(one.spec)]) is not None:
            found[one.name] = why
    return found


def _parts(
    replicas: Iterable[WorkloadPod],
    members: Mapping[str, Member],
    gangs: Mapping[str, Gang],
    work: TrainingWork | None,
    checkpoint: Checkpoint | None,
) -> Iterator[WorkloadPart]:
    """What computes together: each gang, and each pod that is in none."""
    groups: dict[str, dict[str, WorkloadPod]] = {}
    for replica in replicas:
        gang = members[replica.name].gang
        groups.setdefault(gang or f"pod {replica.name}", {})[replica.name] = replica
    for name, group in groups.items():
        found = gangs.get(name)
        gpus = sum((gpus_of(replica) for replica in group.values()), Fraction(0))
        amount = _amount(work, gpus or Fraction(len(group)))
        subgroups = {replica: members[replica].subgroup for replica in group}
        yield WorkloadPart(name, group, subgroups, found, amount, checkpoint, gpus)


def _amount(work: TrainingWork | None, unit: Fraction) -> Fraction | None:
    """GPU-ns of work of a part with this many GPUs, or pods."""
    if work is None:
        return None
    return Fraction(work.gpu_hours) * NS_PER_HOUR if work.gpu_hours else work.duration_ns * unit


def gpus_of(replica: WorkloadPod) -> Fraction:
    """GPUs that the pod asks for, parts of one included."""
    ask = asks.read(replica.spec, core.pod_requests(replica.spec), replica.annotations)
    return Fraction(ask.gpu_milli, asks.FULL)


def _replica(pod: core.Pod) -> WorkloadPod:
    """A bare pod, as if a controller made it."""
    meta, spec = pod.metadata, pod.spec
    if meta.owner_references and spec.node_name:  # a scheduler has written it, and would again for another
        spec = msgspec.structs.replace(spec, node_name="")
    return WorkloadPod(meta.name, meta.namespace, "pod", 0, spec, meta.labels, meta.annotations)


def _endless(one: KubeObject, key: str) -> Finding:
    return Finding(
        "training-without-work",
        "info",
        Ref(one.kind, one.name, one.namespace),
        where(one),
        f"the scenario's training says nothing of {key}: its pods are there from the start and never end",
    )


def _problems(objects: Iterable[KubeObject]) -> Iterator[Finding]:
    for problem in problems_of(objects):
        yield Finding("gang-not-understood", "warning", Ref("File", problem.where.file), problem.where, problem.message)
