"""What does not run when a run ends, and why: the cause before its symptoms."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

import msgspec

from tonnage.decisions import Finding, Ref
from tonnage.errors import Where
from tonnage.health.blocker import CRASHING, NO_EFFECT, REFUSED, STAGES, UNSCHEDULABLE, Blocker, in_order
from tonnage.machines.ailing import NO_ENGINE
from tonnage.machines.blocked import of_group, of_workload
from tonnage.machines.cluster import SimulatedCluster
from tonnage.machines.objects import Failing, SimulatedPod, Workload
from tonnage.machines.training.part import PartState
from tonnage.machines.training.workload import Training
from tonnage.objects import core
from tonnage.objects.base import KubeObject, where
from tonnage.simulation.configure import workloads_behind
from tonnage.simulation.findings.waiting import NO_STOCK, PENDING, STOCK_HELP, Reasons, event_of
from tonnage.simulation.recorder import Recorder
from tonnage.simulation.result import NotRunning
from tonnage.units import NS_PER_S

ENDED, NO_ENDPOINTS = "workload-failed", "service-without-endpoints"
"""Rules of causes that no finding names: the workload has ended with an error; a Service selects nothing that runs."""


class Known(msgspec.Struct, frozen=True):
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
    """Everything that does not run, the earliest in the pod lifecycle first; then what has no effect."""
    reasons = Reasons(cluster, recorder)
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
    """NodePools that never launch a node, or not the nodes that they say."""
    for one in known.findings:
        if one.severity == "error" and one.rule.startswith("nodepool-"):
            help_ = one.help if isinstance(one.help, str) else ""
            yield NotRunning(one.object, 0, 0, 0.0, NO_EFFECT, one.rule, one.message, one.where, "", 0, help_)


def _order(one: NotRunning) -> tuple[bool, bool, int, int, str]:
    """What serves nobody before what has no effect, what is known by the files before what merely came of it."""
    weak = one.rule in (PENDING, NO_STOCK, ENDED, NO_ENDPOINTS, NO_ENGINE)
    return one.stage == NO_EFFECT, weak, STAGES.index(one.stage), -one.pods, str(one.object)


def _is_simulated(cluster: SimulatedCluster, ref: Ref) -> bool:
    """Whether the run itself shows what becomes of the object's pods."""
    if ref.workload in cluster.workloads:
        return True
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
    cluster: SimulatedCluster, workload: Workload, known: Known, reasons: Reasons
) -> Iterator[NotRunning]:
    ref = workload.ref
    blockers = in_order((*of_workload(cluster, workload), *of_group(cluster, workload.gang[0])))
    missing = workload.replicas - len(workload.active)
    if missing > 0:
        refused = next((b for b in blockers if b.stage == REFUSED), None)
        if refused is not None:
            yield _from_blocker(refused, ref, missing, workload.replicas, 0, 0)
    found = list(_groups(workload.active, ref, workload.replicas, blockers, known, reasons))
    if workload.stateful is not None and missing > 0:  # those after the last wait for the one that does not serve
        found[-1:] = [msgspec.structs.replace(one, pods=one.pods + missing) for one in found[-1:]]
    yield from found or _never_ready(workload, workload.replicas, ref, known, reasons)


def _never_ready(workload: Workload, wanted: int, ref: Ref, known: Known, reasons: Reasons) -> Iterator[NotRunning]:
    """Pods that are on their way when the run ends, and would have come long ago had there been nodes to launch."""
    pods = workload.active
    failing = reasons.never_ready(pods) if workload.ready_ns is None else None
    if failing is not None:
        since_s, stage, cause = _s(failing.since_ns), failing.stage, failing.cause
        place, event = known.place(ref), failing.event
        yield NotRunning(ref, len(pods), wanted, since_s, stage, failing.rule, cause, place, event, 0, STOCK_HELP)


def _groups(
    active: Iterable[SimulatedPod], ref: Ref, wanted: int, blockers: Sequence[Blocker], known: Known, reasons: Reasons
) -> Iterator[NotRunning]:
    """The pods of a workload that do not serve, those with one cause together."""
    grouped: dict[tuple[str, str, str], list[tuple[SimulatedPod, Failing]]] = {}
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
            mine.help if mine is not None and isinstance(mine.help, str) else STOCK_HELP if rule == NO_STOCK else "",
        )


def _failing(
    pod: SimulatedPod, ref: Ref, blockers: Sequence[Blocker], known: Known, reasons: Reasons
) -> Failing | None:
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
    return Failing(
        pod.created_ns, stopped.stage, stopped.rule, stopped.message, event_of(stopped)
    )  # made again just now


# ---- training ----


def _of_training(cluster: SimulatedCluster, training: Training, known: Known, reasons: Reasons) -> Iterator[NotRunning]:
    failed = training.over and training.state is PartState.FAILED and not training.withdrawn
    ran = any(part.started_ns is not None for part in training.parts)
    if not training.arrived or (ran and not failed):
        return
    namespace, kind, name = training.origin.split("/", 2)
    ref = Ref(training.kind, name, namespace) if kind != "podgroup" else Ref("PodGroup", name, namespace)
    wanted = len(training.replicas)
    blockers = of_workload(cluster, training.workload, training.replicas[0].name)
    blockers = in_order((*blockers, *(b for gang in training.gangs for b in of_group(cluster, gang))))
    pods = [pod for part in training.parts for pod in part.pods.values() if not pod.terminating]
    if training.over:
        if failed:
            yield _ended(training, ref, () if ran else blockers, known)
        return
    refused = next((b for b in blockers if b.stage == REFUSED), None)
    if refused is not None and len(pods) < wanted:
        yield _from_blocker(refused, ref, wanted - len(pods), wanted, training.arrival_ns, 0)
        return
    for one in _groups(pods, ref, wanted, blockers, known, reasons):
        yield msgspec.structs.replace(
            one, since_s=min(one.since_s, _s(training.arrival_ns))
        )  # pods are recreated, and none ever ran


def _ended(training: Training, ref: Ref, blockers: Sequence[Blocker], known: Known) -> NotRunning:
    """A workload that has failed for good. ``blockers``: what stopped it, where it never ran."""
    wanted = len(training.replicas)
    crashed = next((b for b in blockers if b.stage == CRASHING), None)
    if crashed is not None:
        return _from_blocker(crashed, ref, wanted, wanted, training.arrival_ns, training.restarts)
    why = training.verdict or "it failed before all of its pods ran"
    since_ns = training.arrival_ns if training.ended_ns is None else training.ended_ns
    at, event = known.place(ref), f"Failed: {why}"
    return NotRunning(ref, wanted, wanted, _s(since_ns), CRASHING, ENDED, why, at, event, training.restarts, "")


# ---- what is said ----


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
        event_of(blocker),
        restarts,
        blocker.help,
    )


def _s(t_ns: int) -> float:
    return round(t_ns / NS_PER_S, 3)
