"""Pods and the workloads that own them: what the Deployment and StatefulSet controllers and the kubelet do."""

from __future__ import annotations

import dataclasses
from collections import Counter
from dataclasses import dataclass
from uuid import UUID

import msgspec

from tonnage.costs.ledger import Resources
from tonnage.fleet.state import Conflict, FleetPod
from tonnage.health.blocker import Blocker
from tonnage.machines import binding, sharing
from tonnage.machines.admitting import refused
from tonnage.machines.blocked import held_back
from tonnage.machines.charging import divide
from tonnage.machines.claiming import devices, ended, need
from tonnage.machines.events import Later
from tonnage.machines.objects import SimulatedPod, Workload, drain_times
from tonnage.machines.serving.replica import ServingReplica
from tonnage.machines.site import Site
from tonnage.objects import apps, core
from tonnage.objects.base import ObjectMeta
from tonnage.scaling import removal
from tonnage.units import NS_PER_S
from tonnage.workloads import stateful
from tonnage.workloads.failures import Cause
from tonnage.workloads.replicas import WorkloadPod


def reconcile(cluster: Site, workload: Workload) -> None:
    """Create the pods that are missing, or delete those that are too many."""
    active = workload.active
    if not cluster.runs_workloads:
        count_ready(cluster, workload)
        return
    if workload.stateful is not None:
        _reconcile_numbered(cluster, workload, workload.stateful)
        return
    for _ in range(workload.replicas - len(active)):
        if not _create(cluster, workload):
            break
    for pod in removal_order(active, cluster.now_ns)[: max(0, len(active) - workload.replicas)]:
        stop_pod(cluster, pod)
    count_ready(cluster, workload)


def _reconcile_numbered(cluster: Site, workload: Workload, obj: apps.StatefulSet) -> None:
    """The same of a StatefulSet, whose pods have numbers: one that is being deleted has its number until it is gone."""
    wanted = stateful.wanted(obj, workload.replicas)
    parallel = obj.spec.pod_management_policy == stateful.PARALLEL
    numbers = {stateful.ordinal(pod.name): pod for pod in workload.pods.values()}
    there = {n: pod.ready_ns is not None and not pod.terminating for n, pod in numbers.items()}
    stood = [n for n in wanted if n not in there and stateful.pod_name(workload.name, n) in workload.standing]
    for number in stood or stateful.to_make(wanted, there, parallel=parallel):
        if not _create(cluster, workload, stateful.replica(obj, number)):
            break
    for number in stateful.to_delete(wanted, there, parallel=parallel):
        stop_pod(cluster, numbers[number])
    count_ready(cluster, workload)


def removal_order(active: list[SimulatedPod], now_ns: int) -> list[SimulatedPod]:
    """The pods of one workload in the order in which Kubernetes deletes them when there are too many."""
    standings = [_standing(pod) for pod in active]
    pods = {id(standing): pod for standing, pod in zip(standings, active, strict=True)}
    together = Counter(pod.node for pod in active)
    return [pods[id(one)] for one in removal.removal_order(standings, together, now_ns / NS_PER_S)]


def _standing(pod: SimulatedPod) -> removal.RemovalCandidate:
    return removal.RemovalCandidate(
        pod.uid,
        pod.node,
        "Pending" if pod.started_ns is None else "Running",
        None if pod.ready_ns is None else pod.ready_ns / NS_PER_S,
        pod.created_ns / NS_PER_S,
        pod.deletion_cost,
    )


def _create(cluster: Site, workload: Workload, numbered: WorkloadPod | None = None) -> bool:
    """Make one pod more, ``numbered`` where it is a StatefulSet's; whether the API server let it in."""
    own, there, owner = None, next(iter(workload.standing), ""), str(workload.ref)
    name = there or f"{workload.name}-{workload.created + 1:05d}"
    if numbered is not None:
        name, there = numbered.name, numbered.name if numbered.name in workload.standing else ""
        metadata = ObjectMeta(labels=numbered.labels, annotations=numbered.annotations)
        own = core.PodTemplateSpec(metadata=metadata, spec=numbered.spec)

    def again(cluster: Site) -> None:
        reconcile(cluster, workload)

    if not there and refused(cluster, workload, owner, workload.template.spec, workload.refused, name, again):
        return False
    workload.created += not there
    if workload.stateful is not None and numbered is not None:
        for claim in stateful.claims(workload.stateful, numbered.index):
            if (claim.namespace, claim.name) not in cluster.declared.volumes.claims:
                cluster.declared.volumes.see(claim)
    stand(cluster, create_pod(cluster, workload, name, own, *workload.gang), workload.stands_on(name))
    return True


def stand(cluster: Site, pod: SimulatedPod, node: str) -> None:
    """The pod has been on this node since before the run began, so that no scheduler is asked; nothing where it has no
    node, or one that is not there. One that does not fit there, by what the nodes say, waits like others."""
    if node not in cluster.nodes:
        return
    try:
        binding.assign(cluster, pod, cluster.nodes[node])
    except Conflict as conflict:
        cluster.events.add(cluster.now_ns, f"Pod {pod.key}", "Warning", "FailedScheduling", str(conflict))


def create_pod(
    cluster: Site, workload: Workload, name: str, own: core.PodTemplateSpec | None, gang: str, subgroup: str
) -> SimulatedPod:
    """Make a pod, from the workload's template or its ``own``."""
    uid = str(UUID(int=cluster.streams.python(f"uid/{workload.key}").getrandbits(128)))
    template = own or workload.template
    row = cluster.fleet.add_pod(
        FleetPod(
            workload.namespace,
            name,
            uid,
            dict(template.metadata.labels),
            _without_gates(cluster, workload, name, template.spec),
            owner=workload.key if workload.controller is None else workload.controller.owner,
            priority=template.spec.priority or 0,
            created_ns=cluster.now_ns,
            annotations=template.metadata.annotations,
            gang=gang,
            subgroup=subgroup,
            volumes=need(cluster, workload.namespace, name, template.spec),
            claims=devices(cluster, workload.namespace, name, template.spec),
        )
    )
    pod = SimulatedPod(workload, name, uid, row, cluster.now_ns, own=own)
    workload.pods[name] = pod
    cluster.pods[workload.namespace, name] = pod
    cluster.mirror.pod_created(pod)
    cluster.wake("pod")
    return pod


def _without_gates(cluster: Site, workload: Workload, name: str, spec: core.PodSpec) -> core.PodSpec:
    """The spec once whoever put gates on the pods has removed them: at once, unless nobody does."""
    if not spec.scheduling_gates or held_back(cluster, workload, name):
        return spec
    return msgspec.structs.replace(spec, scheduling_gates=[])


def hold(cluster: Site, pod: SimulatedPod, why: Blocker) -> None:
    """No scheduler takes the pod up from now on."""
    spec = cluster.fleet.pod(pod.row).spec
    gated = msgspec.structs.replace(spec.spec, scheduling_gates=[core.PodSchedulingGate(name=why.rule)])
    cluster.fleet.remove_pod(pod.row)
    pod.row = cluster.fleet.add_pod(dataclasses.replace(spec, spec=gated))
    cluster.events.add(cluster.now_ns, f"Pod {pod.key}", "Warning", "FailedScheduling", why.said or why.message)


def pod_ready(cluster: Site, pod: SimulatedPod) -> None:
    """The pod's Ready condition turns true; its Service, if any, sends it requests."""
    pod.ready_ns = cluster.now_ns
    if pod.workload.ready_ns is None:
        pod.workload.ready_ns = cluster.now_ns
    if pod.workload.service is not None and pod.workload.server is not None:
        pod.replica = pod.replica or new_replica(cluster, pod)
        pod.workload.service.add(pod.replica)
        pod.workload.service.resume(cluster.now_ns)
    cluster.mirror.pod_changed(pod)
    cluster.events.add(cluster.now_ns, f"Pod {pod.key}", "Normal", "Ready", "pod is Ready")
    count_ready(cluster, pod.workload)
    if pod.workload.controller is not None:
        pod.workload.controller.after(cluster, pod)
    elif pod.workload.stateful is not None:
        reconcile(cluster, pod.workload)  # the next one may come now


def pod_unready(cluster: Site, pod: SimulatedPod, why: str) -> None:
    """The pod's Ready condition turns false: no further requests, until it is true again; those that it has go on."""
    pod.ready_ns = None
    if pod.replica is not None and pod.workload.service is not None:
        pod.workload.service.drain(pod.replica)
    cluster.mirror.pod_changed(pod)
    cluster.events.add(cluster.now_ns, f"Pod {pod.key}", "Warning", "Unhealthy", why)
    count_ready(cluster, pod.workload)


def new_replica(cluster: Site, pod: SimulatedPod) -> ServingReplica:
    """What the pod's Service sees of it."""
    return ServingReplica(pod.key, zone=cluster.nodes[pod.node].zone, role=pod.workload.role)


def pod_serves(cluster: Site, pod: SimulatedPod) -> None:
    """The engine answers: a cold start is over. Pods of time 0 were there before, and others crashed meanwhile."""
    if pod.created_ns > 0 and not pod.crashes:
        pod.workload.cold_starts_ns.append(cluster.now_ns - pod.created_ns)


def stop_pod(cluster: Site, pod: SimulatedPod) -> None:
    """Delete a pod gracefully: it gets no further requests, and may finish those that it has."""
    if pod.terminating:
        return
    _tell(cluster, pod)
    pod.terminating = True
    cluster.mirror.pod_deleted(pod)
    if pod.replica is not None and pod.workload.service is not None:
        pod.workload.service.drain(pod.replica)
    if pod.bound_ns is None:
        end_pod(cluster, pod)
        return
    cluster.fleet.set_leaving(pod.row)
    least, most = drain_times(pod.template.spec, pod.workload.server)
    now = cluster.now_ns
    cluster.queue.push(now, PodDraining(pod, now + least, now + most))


@dataclass(slots=True)
class PodDraining:
    """Told to stop: the pod ends when it has no request left, at the latest when its time is up."""

    pod: SimulatedPod
    earliest_ns: int
    deadline_ns: int

    def handle(self, cluster: Site) -> Later:
        pod, now = self.pod, cluster.now_ns
        if pod.workload.pods.get(pod.name) is not pod:
            return
        replica, service = pod.replica, pod.workload.service
        if replica is not None and service is not None:
            service.settle(now)
        idle = replica is None or replica.in_flight == 0
        if now >= self.deadline_ns or (idle and now >= self.earliest_ns):
            end_pod(cluster, pod)
            return
        yield min(max(now + NS_PER_S, self.earliest_ns), self.deadline_ns), self


def end_pod(cluster: Site, pod: SimulatedPod) -> None:
    """The pod is gone: its requests fail, its devices are free."""
    _tell(cluster, pod)
    if pod.replica is not None and pod.workload.service is not None:
        pod.workload.service.kill(pod.replica, cluster.now_ns)
        account(cluster, pod)
    sharing.leave(cluster, pod)
    row = cluster.fleet.pod(pod.row)
    if row.node >= 0:
        if pod.held != Resources():
            cluster.records.ledger.release(pod.node, pod.workload.key, pod.held, cluster.now_ns)
        cluster.fleet.note(row.node, last_pod_event_ns=cluster.now_ns)
    cluster.state.settled(pod.key)
    used = cluster.fleet.device_claims.used_by(pod.row)
    ended(cluster, pod)
    divide(cluster, used, pod)
    del pod.workload.pods[pod.name]
    del cluster.pods[pod.namespace, pod.name]
    cluster.mirror.pod_gone(pod)
    cluster.events.add(cluster.now_ns, f"Pod {pod.key}", "Normal", "Killing", "pod terminated")
    count_ready(cluster, pod.workload)
    cluster.wake("pod")
    cluster.wake("node")
    if pod.workload.controller is not None:
        pod.workload.controller.after(cluster, pod)
    elif pod.workload.stateful is not None:
        reconcile(cluster, pod.workload)  # its number is free


def _tell(cluster: Site, pod: SimulatedPod) -> None:
    """The pod's owner books what it did until now, before that changes."""
    if pod.workload.controller is not None:
        pod.workload.controller.before(cluster, pod)


def lose(cluster: Site, pod: SimulatedPod, cause: Cause) -> None:
    """The pod ends at once, and whoever owns it makes another."""
    _tell(cluster, pod)
    told, pod.terminating = pod.terminating, True
    end_pod(cluster, pod)
    if not told:
        replace(cluster, pod, cause)


def replace(cluster: Site, pod: SimulatedPod, cause: Cause) -> None:
    """The pod is gone or going: whoever owns it makes another."""
    if pod.workload.controller is None:
        reconcile(cluster, pod.workload)
    else:
        pod.workload.controller.lost(cluster, pod, cause)


def gone(pod: SimulatedPod) -> bool:
    """Whether the pod has been deleted, or is about to be."""
    return pod.terminating or pod.workload.pods.get(pod.name) is not pod


def count_ready(cluster: Site, workload: Workload) -> None:
    """Keep the extremes of the number of serving replicas (Ready, not terminating) from the start of the run on; what
    holds for no time is not the least number."""
    ready = sum(1 for p in workload.pods.values() if p.ready_ns is not None and not p.terminating)
    if cluster.now_ns > workload.counted_ns:
        workload.lasted = workload.min_ready
    workload.counted_ns = cluster.now_ns
    workload.min_ready = ready if workload.lasted is None else min(workload.lasted, ready)
    workload.max_ready = max(workload.max_ready, ready)


def account(cluster: Site, pod: SimulatedPod) -> None:
    """Tell the ledger what the pod's engine took of its devices' time; it must be settled."""
    if pod.replica is None or pod.replica.engine is None:
        return
    taken = pod.replica.taken_ns
    server = pod.workload.server
    used = server.args.gpus if server is not None else 1  # the pod may hold more than its engine uses
    cluster.records.ledger.add_busy(pod.node, pod.workload.key, (taken - pod.busy_ns) * used)
    pod.busy_ns = taken
