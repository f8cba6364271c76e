"""The controllers of training frameworks, as the simulated cluster has them: they make a workload's pods, and after a
failure the pods that the framework makes again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import partial

from tonnage.fleet.gangs import Gang
from tonnage.machines import ailing, pods, sharing
from tonnage.machines.admitting import refused
from tonnage.machines.objects import SimulatedPod, Workload
from tonnage.machines.site import Site
from tonnage.machines.training.entries import TrainingWork
from tonnage.machines.training.happened import Failure, StateSpan, Then
from tonnage.machines.training.part import AT_WORK, OVER, PartState, WorkloadPart
from tonnage.objects import core
from tonnage.objects.base import KubeObject, ObjectMeta
from tonnage.scheduling.communication import allreduce
from tonnage.units import ns
from tonnage.workloads.admission.refused import AdmissionRefusal
from tonnage.workloads.failures import Cause
from tonnage.workloads.membership import Member
from tonnage.workloads.outcomes import WorkloadOutcome, outcome
from tonnage.workloads.replicas import After, WorkloadPod
from tonnage.workloads.restarts import Counters, restart


@dataclass(slots=True, eq=False)
class Training:
    """A workload of a training framework. ``object``: who makes its pods, the JobSet of a TrainJob; ``key``:
    namespace/kind/name; ``workload``: that of the manifests, of which it may be one of several copies; ``members``: the
    gang of each replica, and its part of it.

    Implements :class:`tonnage.machines.objects.Controller`."""

    object: KubeObject
    key: str
    kind: str
    workload: Workload
    replicas: tuple[WorkloadPod, ...]
    members: Mapping[str, Member]
    parts: tuple[WorkloadPart, ...]
    gangs: Mapping[str, Gang]
    arrival_ns: int
    work: TrainingWork
    arrived: bool = False
    failed: bool = False
    withdrawn: bool = False
    ended_ns: int | None = None
    restarts: int = 0
    evictions: int = 0
    counters: Counters = field(default_factory=dict)
    succeeded: set[str] = field(default_factory=set)
    stopped: set[str] = field(default_factory=set)
    not_before_ns: dict[str, int] = field(default_factory=dict)
    failures: dict[Failure, list[str]] = field(default_factory=dict)
    phases: list[StateSpan] = field(default_factory=list)
    refused: Mapping[str, AdmissionRefusal] = field(default_factory=dict)
    verdict: str = ""  # why it has failed, the reason of its condition Failed first
    said: str = ""  # what its pods failed of last
    _part_of: dict[str, WorkloadPart] = field(default_factory=dict)
    _staged: bool = False
    _starts: dict[str, int] = field(default_factory=dict)
    _templates: dict[str, core.PodTemplateSpec] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.index()

    def index(self) -> None:
        """Take note of its replicas and parts. Pods that are no longer among them may still be there."""
        self._part_of |= {name: part for part in self.parts for name in part.replicas}
        self._staged = any(replica.after or replica.turn for replica in self.replicas)
        self._templates |= {
            r.name: core.PodTemplateSpec(metadata=ObjectMeta(labels=r.labels, annotations=r.annotations), spec=r.spec)
            for r in self.replicas
        }

    @property
    def origin(self) -> str:
        """The workload in the manifests, by which its pods are billed."""
        return self.workload.key

    @property
    def owner(self) -> str:
        return self.key if self.kind != "Pod" else ""

    @property
    def over(self) -> bool:
        return self.ended_ns is not None

    # ---- pods ----

    def arrive(self, cluster: Site) -> None:
        """The workload is created."""
        if self.over:
            return  # it was withdrawn before
        self.arrived = True
        cluster.declared.gangs.update(self.gangs)
        for part in self.parts:
            part.busy = lambda pod, gpu_ns: cluster.records.ledger.add_busy(pod.node, self.origin, gpu_ns)
        cluster.events.add(cluster.now_ns, f"Training {self.key}", "Normal", "Created", f"{len(self.replicas)} pods")
        self.reconcile(cluster)

    def reconcile(self, cluster: Site) -> None:
        """Make the pods that should be there: those whose turn has come, as far as their back-off is over."""
        if self.over:
            return
        gone = self.succeeded | self.stopped
        for replica in self.replicas:
            name, part = replica.name, self._part_of[replica.name]
            if name in gone or name in part.pods or self.not_before_ns.get(name, 0) > cluster.now_ns:
                continue
            if not self._may_start(replica):
                continue
            part.settle(cluster.now_ns)
            if part.state is PartState.ABSENT:
                part.state = PartState.WAITING
            template = self._templates[name]
            owner, ever = f"Training {self.key}", self.refused.get(name)
            standing = self.workload.standing
            node = self.workload.stands_on(name) if self.owner else standing.pop(name, "")
            if not node and refused(cluster, self.workload, owner, template.spec, ever, name, self.reconcile):
                break
            member = self.members[name]
            part.pods[name] = pods.create_pod(cluster, self.workload, name, template, *member)
            pods.stand(cluster, part.pods[name], node)
        self._note(cluster)

    def makes(self, namespace: str, name: str) -> bool:
        """Whether one of its pods is called so."""
        return namespace == self.workload.namespace and name in self._part_of

    def _may_start(self, replica: WorkloadPod) -> bool:
        """Whether those that come before it have succeeded, or are as far as it waits for."""
        if replica.turn:
            alike = sum(
                (r.role, r.group) == (replica.role, replica.group) and r.name in self.succeeded for r in self.replicas
            )
            if alike < replica.turn:
                return False
        return all(self._came(after) for after in replica.after)

    def _came(self, after: After) -> bool:
        before = [r.name for r in self.replicas if r.role == after.role and after.group in (None, r.group)]
        if after.state == "Complete":
            return self.succeeded.issuperset(before)
        ready = {pod.name for part in self.parts for pod in part.ready}
        return all(name in ready or name in self.succeeded for name in before)

    def settle(self, now_ns: int) -> None:
        """Book what all pods held until now."""
        if self.over or not self.arrived:
            return
        for part in self.parts:
            part.settle(now_ns)

    def has_succeeded(self, pod: SimulatedPod) -> bool:
        """Whether the pod's work is done."""
        return pod.name in self.succeeded

    def saved_ns(self, pod: SimulatedPod) -> int:
        """When the last checkpoint was written of what the pod does; what an earlier pod did counts for nothing."""
        saved_at_ns = self._part_of[pod.name].saved_at_ns
        return saved_at_ns if saved_at_ns >= pod.created_ns else 0

    # ---- what happens to its pods ----

    def before(self, cluster: Site, pod: SimulatedPod) -> None:
        """The pod is being bound, is told to stop, or is about to be gone."""
        self._part_of[pod.name].settle(cluster.now_ns)

    def after(self, cluster: Site, pod: SimulatedPod) -> None:
        """The pod was bound, became Ready, or is gone."""
        part = self._part_of[pod.name]
        gone = (pod.namespace, pod.name) not in cluster.pods
        if gone:
            del part.pods[pod.name]
        if gone or self._staged:
            cluster.queue.push(cluster.now_ns, Then(self.reconcile))
        self.review(cluster, part)

    def lost(self, cluster: Site, pod: SimulatedPod, cause: Cause) -> None:
        """The pod's node is gone, or it was evicted. What is lost at one time is one failure."""
        self.evictions += cause is Cause.EVICTION
        self._add_failure(cluster, Failure(cause, 1), pod)

    def paced(self, cluster: Site, pod: SimulatedPod) -> None:
        """Others share a GPU with the pod now, or some no longer do."""
        self.review(cluster, self._part_of[pod.name])

    def exits(self, cluster: Site, pod: SimulatedPod, cause: Cause, exit_code: int, said: str) -> None:
        """The pod's container ends with an error, of which an event says ``said``."""
        self._container_ends(cluster, pod)
        cluster.mirror.pod_failing(pod, "CrashLoopBackOff", said)
        cluster.events.add(cluster.now_ns, f"Pod {pod.key}", "Warning", "Failed", said)
        self._add_failure(cluster, Failure(cause, exit_code), pod)

    def _add_failure(self, cluster: Site, failure: Failure, pod: SimulatedPod) -> None:
        if self.over:
            return
        if not self.failures:
            cluster.queue.push(cluster.now_ns, Then(self.fail))
        self.failures.setdefault(failure, []).append(pod.name)
        self.review(cluster, self._part_of[pod.name])

    def fail(self, cluster: Site) -> None:
        """Do as the framework does after the failures of this instant."""
        failures, self.failures = self.failures, {}
        for failure, names in failures.items():
            if not self.over:
                self._follow(cluster, failure, names)

    def _follow(self, cluster: Site, failure: Failure, names: Sequence[str]) -> None:
        running = {pod.name for part in self.parts for pod in part.ready}
        pending = {r.name for r in self.replicas} - running - self.succeeded
        found = restart(self.object, self.replicas, names, failure.cause, self.counters, failure.exit_code, pending)
        self.counters = found.counters
        self.restarts += not found.failed
        hit = dict.fromkeys(self._part_of[n] for n in (*names, *found.recreated, *found.restarted, *found.stopped))
        for part in hit:
            part.settle(cluster.now_ns)
            if part.state not in OVER:
                part.roll_back()
            elif not part.replicas.keys().isdisjoint(found.recreated):
                part.reopen()
        self.said = failure.says(names)
        self.verdict = f"{found.reason}: {self.said}" if found.failed else ""
        said = f"{', '.join(names)}: {failure.cause.value} ({found.rule})"
        reason = "Failed" if found.failed else "Restarted"
        cluster.events.add(cluster.now_ns, f"Training {self.key}", "Warning", reason, said)
        if found.failed:
            self._end(cluster, failed=True)
            return
        for name in found.recreated:
            self.succeeded.discard(name)
            self.not_before_ns[name] = cluster.now_ns + found.delay_ns
            self._stop(cluster, name)
        for name in found.restarted:
            self._restart_container(cluster, name, found.delay_ns)
        self.stopped.update(found.stopped)
        for name in found.stopped:
            self._stop(cluster, name)
        for part in hit:
            self._go_on(cluster, part)
        cluster.queue.push(cluster.now_ns + found.delay_ns, Then(self.reconcile))

    def _go_on(self, cluster: Site, part: WorkloadPart) -> None:
        """The part goes on with the pods that it still has or will have again; without enough of them it has failed."""
        if part.state in OVER or part.enough(name for name in part.replicas if name not in self.stopped):
            self.review(cluster, part)
            return
        part.finish(cluster.now_ns, PartState.FAILED)
        self.verdict = self.said
        self.stopped.update(part.replicas)
        for name in part.replicas:
            self._stop(cluster, name)
        if all(other.state in OVER for other in self.parts):
            self._end(cluster, failed=True)

    def _restart_container(self, cluster: Site, name: str, delay_ns: int) -> None:
        """The pod keeps its node and devices, and its container starts again."""
        pod = self._part_of[name].pods.get(name)
        if pod is None or pod.terminating or pod.bound_ns is None:
            return
        self._container_ends(cluster, pod)
        takes = cluster.vary("container", cluster.physics.durations.container_start_s)
        self._starts[name] = self._starts.get(name, 0) + 1
        started = partial(self.container_started, pod=pod, number=self._starts[name])
        cluster.queue.push(cluster.now_ns + delay_ns + takes, Then(started))

    def _container_ends(self, cluster: Site, pod: SimulatedPod) -> None:
        self.before(cluster, pod)
        pod.started_ns = pod.ready_ns = None
        sharing.leave(cluster, pod)
        cluster.mirror.pod_changed(pod)

    def container_started(self, cluster: Site, *, pod: SimulatedPod, number: int) -> None:
        """Its container runs again, unless it was started once more since."""
        if pods.gone(pod) or self._starts.get(pod.name) != number or pod.ready_ns is not None:
            return
        pod.started_ns = cluster.now_ns
        pod.starts += 1
        if not ailing.stops(cluster, pod):
            sharing.join(cluster, pod)
            pods.pod_ready(cluster, pod)

    def _stop(self, cluster: Site, name: str) -> None:
        pod = self._part_of[name].pods.get(name)
        if pod is not None:
            pods.stop_pod(cluster, pod)

    # ---- work ----

    def review(self, cluster: Site, part: WorkloadPart) -> None:
        """See what the part's pods let it do from now on."""
        part.settle(cluster.now_ns)
        if self.work.allreduce_bytes and part.state not in OVER and part.runs:
            part.factor = self._stretched(cluster, part)
        part.review(cluster.now_ns)
        self._plan(cluster, part)

    def _stretched(self, cluster: Site, part: WorkloadPart) -> Fraction:
        """By how much each step is longer for what it sums over all GPUs, where they are now."""
        rows = [cluster.fleet.pod(pod.row) for pod in part.ready]
        placed = [(row.node, row.devices) for row in rows if row.devices]
        estimate = allreduce(cluster.fleet, placed, self.work.allreduce_bytes)
        return 1 + Fraction(ns(estimate.seconds), self.work.step_ns) if estimate is not None else Fraction(1)

    def due(self, cluster: Site, *, part: WorkloadPart, epoch: int) -> None:
        """What the part was doing has ended by itself, unless something came between."""
        if part.epoch != epoch:
            return
        part.settle(cluster.now_ns)
        saved_at_ns = part.saved_at_ns
        part.end_span(cluster.now_ns)
        if part.saved_at_ns != saved_at_ns:
            for pod in part.pods.values():
                cluster.mirror.pod_changed(pod)
        if part.state is PartState.DONE:
            self._succeed(cluster, part)
        else:
            self._plan(cluster, part)

    def _plan(self, cluster: Site, part: WorkloadPart) -> None:
        if part.due_ns is not None:
            cluster.queue.push(part.due_ns, Then(partial(self.due, part=part, epoch=part.epoch)))
        self._note(cluster)

    def _succeed(self, cluster: Site, part: WorkloadPart) -> None:
        """The part's work is done: its pods end."""
        self.succeeded.update(part.replicas)
        for pod in list(part.pods.values()):
            pod.terminating = True
            pods.end_pod(cluster, pod)
        stands = outcome(self.object, self.replicas, self.succeeded, self.counters)
        if stands is not WorkloadOutcome.RUNNING:
            self._end(cluster, failed=stands is WorkloadOutcome.FAILED)
        elif all(p.state in OVER for p in self.parts):
            self._end(cluster, failed=any(p.state is PartState.FAILED for p in self.parts))
        self._note(cluster)

    def _end(self, cluster: Site, *, failed: bool) -> None:
        """The workload is over, and all of its pods with it."""
        self.ended_ns, self.failed = cluster.now_ns, failed
        for part in self.parts:
            part.settle(cluster.now_ns)
            if part.state not in OVER:
                part.finish(cluster.now_ns, PartState.FAILED if failed else PartState.DONE)
            for pod in list(part.pods.values()):
                pods.stop_pod(cluster, pod)
        if not failed:
            cluster.events.add(cluster.now_ns, f"Training {self.key}", "Normal", "Completed", "all work is done")
        self._note(cluster)

    def withdraw(self, cluster: Site) -> None:
        """Its object was deleted, or is suspended: its pods go, and it makes no others."""
        if not self.over:
            self.withdrawn = True
            self._end(cluster, failed=True)

    def _note(self, cluster: Site) -> None:
        """Write down what the workload as a whole is doing now."""
        state, now_ns = self.state, cluster.now_ns
        if self.phases and self.phases[-1].start_ns == now_ns:
            self.phases.pop()
        if not self.phases or self.phases[-1].state is not state:
            self.phases.append(StateSpan(now_ns, state))
        cluster.mirror.training_changed(self)

    @property
    def state(self) -> PartState:
        """The most that one of its parts is doing. Writing a checkpoint counts as running."""
        if self.over:
            return PartState.FAILED if self.failed else PartState.DONE
        found = {PartState.RUNNING if p.state is PartState.WRITING else p.state for p in self.parts}
        order = (
            PartState.RUNNING,
            PartState.LOADING,
            PartState.STARTING,
            PartState.WAITING,
            PartState.ABSENT,
            PartState.DONE,
        )
        return next(state for state in order if state in found)

    # ---- what must hold ----

    def violations(self) -> Sequence[str]:
        """No part of a gang runs, and none waits with half of its pods placed."""
        found = []
        for part in self.parts:
            if part.state in AT_WORK and not part.runs:
                found.append(f"{part.name}: {part.state} with {len(part.ready)} pods, fewer than its minimum")
            if part.gang is not None and part.state is PartState.WAITING and part.staying and not part.was_whole:
                found.append(f"{part.name}: only part of the gang is placed, {len(part.staying)} pods")
        return found
