"""What does not run when a run ends, and why: the cause before its symptoms."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import msgspec

from tonnage.decisions import Finding, Ref
from tonnage.errors import Where
from tonnage.health.blocker import CRASHING, NO_EFFECT, REFUSED, STAGES, UNSCHEDULABLE, Blocker, in_order
from tonnage.objects import core
from tonnage.objects.base import KubeObject, where
from tonnage.simulation.ailing import NO_ENGINE
from tonnage.simulation.blocked import of_group, of_workload
from tonnage.simulation.cluster import SimulatedCluster
from tonnage.simulation.configure import workloads_behind
from tonnage.simulation.objects import Failing, Pod, Workload
from tonnage.simulation.recorder import Recorder
from tonnage.simulation.result import DecisionRecord, NotRunning
from tonnage.simulation.training.part import State
from tonnage.simulation.training.workload import Training
from tonnage.units import NS_PER_S

SOON_NS = 60 * NS_PER_S
"""A pod that has waited no longer than this may still be placed: whoever buys nodes has not had its turn."""
PENDING, ENDED, NO_ENDPOINTS = "pod-pending", "workload-failed", "service-without-endpoints"
"""Rules of causes that no finding names: nobody had room for the pods; the workload has ended with an error; a Service
selects nothing that runs."""


@dataclass(frozen=True, slots=True)
class Known:
    """What tells the causes: the objects as written, what never runs by them, and what else is wrong with them."""

    objects: Sequence[KubeObject]
    blockers: Sequence[Blocker]
    findings: Sequence[Finding]

    def place(self, ref: Ref) -> Where:
        """Where the object begins."""
        return next((where(one) for one in self.objects if _same(ref, one.kind, one.namespace, one.name)), Where())

    def error(self, ref: Ref, stage: str) -> Finding | None:
        """The first finding of severity error about the object that stops its pods at this stage."""
        found = (f for f in self.findings if f.severity == "error" and f.rule in _STOPS.get(stage, ()))
        return next((f for f in found if _same(ref, f.object.kind, f.object.namespace, f.object.name)), None)


_STOPS = {UNSCHEDULABLE: ("pods-fit-no-nodepool",), CRASHING: ("engine-without-gpu",)}


def _same(ref: Ref, kind: str, namespace: str, name: str) -> bool:
    namespace = namespace or (ref.namespace and "default")
    return (ref.kind.lower(), ref.namespace, ref.name) == (kind.lower(), namespace, name)


def not_running(cluster: SimulatedCluster, recorder: Recorder, known: Known) -> list[NotRunning]:
    """Everything that does not run, the earliest in a pod's life first; then what has no effect."""
    reasons = _Reasons(cluster, recorder)
    found = [one for w in cluster.workloads.values() for one in _of_deployment(cluster, w, known, reasons)]
    found += [one for t in cluster.training.values() for one in _of_training(cluster, t, known, reasons)]
    found += _dead_services(cluster, known)
    seen = {(one.object.kind.lower(), one.object.namespace, one.object.name) for one in found}
    said = {(one.rule, one.cause) for one in found}
    for blocker in known.blockers:
        ref = blocker.object
        key = (ref.kind.lower(), ref.namespace, ref.name)
        shown = blocker.stage != NO_EFFECT and (key in seen or _is_simulated(cluster, ref))
        if not (blocker.some or shown or (blocker.rule, blocker.message) in said):
            seen.add(key)
            found.append(_from_blocker(blocker, ref, 0, 0, 0, 0))
    found += _useless_pools(known)
    return sorted(found, key=_order)


def _useless_pools(known: Known) -> Iterator[NotRunning]:
    """NodePools that never make a node, or not the nodes that they say."""
    for one in known.findings:
        if one.severity == "error" and one.rule.startswith("nodepool-"):
            help_ = one.help if isinstance(one.help, str) else ""
            yield NotRunning(one.object, 0, 0, 0.0, NO_EFFECT, one.rule, one.message, one.where, "", 0, help_)


def _order(one: NotRunning) -> tuple[bool, bool, int, int, str]:
    """What serves nobody before what has no effect, what is known by the files before what merely came of it."""
    weak = one.rule in (PENDING, ENDED, NO_ENDPOINTS, NO_ENGINE)
    return one.stage == NO_EFFECT, weak, STAGES.index(one.stage), -one.pods, str(one.object)


def _is_simulated(cluster: SimulatedCluster, ref: Ref) -> bool:
    """Whether the run itself shows what becomes of the object's pods."""
    if ref.kind == "Deployment":
        workload = cluster.workloads.get(f"{ref.namespace}/{ref.name}")
        return workload is not None
    origin = f"{ref.namespace}/{ref.kind.lower()}/{ref.name}"
    return any(training.origin == origin for training in cluster.training.values())


def _dead_services(cluster: SimulatedCluster, known: Known) -> Iterator[NotRunning]:
    """Services with traffic that select no pods at all."""
    behind = {
        f"{one.namespace or 'default'}/{one.name}"
        for one in known.objects
        if isinstance(one, core.Service) and workloads_behind(cluster, one)
    }
    for service in cluster.services:
        namespace, _, name = service.name.partition("/")
        ref = Ref("Service", name, namespace)
        if service.name not in behind and not any(one.object == ref for one in known.blockers):
            cause = f"no pod answers for {service.name}: all of its requests fail"
            yield NotRunning(ref, 0, 0, 0.0, NO_EFFECT, NO_ENDPOINTS, cause, known.place(ref), "", 0, "")


# ---- Deployments ----


def _of_deployment(
    cluster: SimulatedCluster, workload: Workload, known: Known, reasons: _Reasons
) -> Iterator[NotRunning]:
    ref = Ref("Deployment", workload.name, workload.namespace)
    blockers = in_order((*of_workload(cluster, workload), *of_group(cluster, workload.gang[0])))
    missing = workload.replicas - len(workload.active)
    if missing > 0:
        refused = next((b for b in blockers if b.stage == REFUSED), None)
        if refused is not None:
            yield _from_blocker(refused, ref, missing, workload.replicas, 0, 0)
    yield from _groups(workload.active, ref, workload.replicas, blockers, known, reasons)


def _groups(
    active: Iterable[Pod], ref: Ref, wanted: int, blockers: Sequence[Blocker], known: Known, reasons: _Reasons
) -> Iterator[NotRunning]:
    """The pods of a workload that do not serve, those with one cause together."""
    grouped: dict[tuple[str, str, str], list[tuple[Pod, Failing]]] = {}
    for pod in active:
        failing = _failing(pod, ref, blockers, known, reasons)
        if failing is not None:
            grouped.setdefault((failing.stage, failing.rule, failing.cause), []).append((pod, failing))
    for (stage, rule, cause), group in grouped.items():
        blocker = next((b for b in blockers if b.rule == rule and b.message == cause), None)
        since_ns = min(failing.since_ns for _, failing in group)
        restarts = sum(max(0, pod.starts - 1) for pod, _ in group)
        if blocker is not None:
            yield _from_blocker(blocker, ref, len(group), wanted, since_ns, restarts)
            continue
        finding = known.error(ref, stage)
        mine = finding if finding is not None and finding.rule == rule else None
        yield NotRunning(
            ref,
            len(group),
            wanted,
            _s(since_ns),
            stage,
            rule,
            cause,
            mine.where if mine is not None else known.place(ref),
            group[0][1].event,
            restarts,
            mine.help if mine is not None and isinstance(mine.help, str) else "",
        )


def _failing(pod: Pod, ref: Ref, blockers: Sequence[Blocker], known: Known, reasons: _Reasons) -> Failing | None:
    """Why the pod does not serve; None of one that does, or is on its way."""
    if pod.bound_ns is None:
        waits = next((b for b in blockers if b.stage == UNSCHEDULABLE), None)
        return reasons.pending(pod, waits, known.error(ref, UNSCHEDULABLE))
    if pod.failing is not None:
        error = known.error(ref, pod.failing.stage) if pod.failing.rule == NO_ENGINE else None
        return pod.failing if error is None else replace(pod.failing, rule=error.rule, cause=error.message)
    stopped = next((b for b in blockers if b.stage not in (REFUSED, UNSCHEDULABLE, NO_EFFECT)), None)
    if stopped is None or pod.ready_ns is not None:
        return None
    return Failing(pod.created_ns, stopped.stage, stopped.rule, stopped.message, _event(stopped))  # made again just now


# ---- training ----


def _of_training(
    cluster: SimulatedCluster, training: Training, known: Known, reasons: _Reasons
) -> Iterator[NotRunning]:
    if not training.arrived or any(part.started_ns is not None for part in training.parts):
        return
    namespace, kind, name = training.origin.split("/", 2)
    ref = Ref(training.kind, name, namespace) if kind != "podgroup" else Ref("PodGroup", name, namespace)
    wanted = len(training.replicas)
    blockers = of_workload(cluster, training.workload, training.replicas[0].name)
    blockers = in_order((*blockers, *(b for gang in training.gangs for b in of_group(cluster, gang))))
    pods = [pod for part in training.parts for pod in part.pods.values() if not pod.terminating]
    if training.over:
        if training.state is State.FAILED and not training.withdrawn:
            yield _ended(cluster, training, ref, blockers, known)
        return
    refused = next((b for b in blockers if b.stage == REFUSED), None)
    if refused is not None and len(pods) < wanted:
        yield _from_blocker(refused, ref, wanted - len(pods), wanted, training.arrival_ns, 0)
        return
    for one in _groups(pods, ref, wanted, blockers, known, reasons):
        yield msgspec.structs.replace(
            one, since_s=min(one.since_s, _s(training.arrival_ns))
        )  # pods are made again, and none ever ran


def _ended(
    cluster: SimulatedCluster, training: Training, ref: Ref, blockers: Sequence[Blocker], known: Known
) -> NotRunning:
    """A workload that failed before it ever ran."""
    wanted = len(training.replicas)
    crashed = next((b for b in blockers if b.stage == CRASHING), None)
    if crashed is not None:
        return _from_blocker(crashed, ref, wanted, wanted, training.arrival_ns, training.restarts)
    said = [e for e in cluster.events.rows.values() if e.object == f"Training {training.key}" and e.reason == "Failed"]
    message = said[-1].message if said else "it ended with an error before all of its pods ran"
    since = _s(training.arrival_ns)
    at, event = known.place(ref), f"Failed: {message}"
    return NotRunning(ref, wanted, wanted, since, CRASHING, ENDED, message, at, event, training.restarts, "")


# ---- pods without a node ----


class _Reasons:
    """What whoever places pods and buys nodes said last about each pod that waits."""

    def __init__(self, cluster: SimulatedCluster, recorder: Recorder) -> None:
        self._now_ns = cluster.now_ns
        self._coming = {ref.name for claim in cluster.claims.values() for ref in claim.launch.pods}
        self._last: dict[tuple[str, str], DecisionRecord] = {}
        for record in recorder.decisions:
            if record.kind == "Wait":
                self._last[record.loop, record.target] = record

    def pending(self, pod: Pod, blocker: Blocker | None, error: Finding | None) -> Failing | None:
        """Why the pod has no node; None of one that may get one soon."""
        if blocker is not None:
            return Failing(pod.created_ns, UNSCHEDULABLE, blocker.rule, blocker.message, _event(blocker))
        if pod.name in self._coming or self._now_ns - pod.created_ns <= SOON_NS:
            return None
        target = str(Ref("Pod", pod.name, pod.namespace))
        said = [record for (_, about), record in self._last.items() if about == target]
        placed = next((r for r in said if r.loop == "scheduler"), None)
        event = f"FailedScheduling: {placed.verdict}" if placed is not None else ""
        if error is not None:
            return Failing(pod.created_ns, UNSCHEDULABLE, error.rule, error.message, event)
        bought = next((r for r in said if r.loop != "scheduler"), None)
        cause = "; ".join(dict.fromkeys(_told(record) for record in (placed, bought) if record is not None))
        return Failing(pod.created_ns, UNSCHEDULABLE, PENDING, cause or "no node has been found for it", event)


def _told(record: DecisionRecord) -> str:
    """The verdict, with the first reason why there was no alternative."""
    why = f" ({record.alternatives[0][0]}: {record.alternatives[0][1]})" if record.alternatives else ""
    return record.verdict + why


# ---- what is said ----


def _event(blocker: Blocker) -> str:
    return ": ".join(part for part in (blocker.reason, blocker.said) if part)


def _from_blocker(blocker: Blocker, ref: Ref, pods: int, wanted: int, since_ns: int, restarts: int) -> NotRunning:
    return NotRunning(
        ref,
        pods,
        wanted,
        _s(since_ns),
        blocker.stage,
        blocker.rule,
        blocker.message,
        blocker.where,
        _event(blocker),
        restarts,
        blocker.help,
    )


def _s(t_ns: int) -> float:
    return round(t_ns / NS_PER_S, 3)
