"""Writes down what happens while it happens: decisions, and the state of the cluster at fixed intervals."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import TYPE_CHECKING

from tonnage.costs.held import part_of
from tonnage.decisions import Applied, Decision, Outcome, Refused, Stale, Wait
from tonnage.fleet import claimed_gpus
from tonnage.fleet.cards import FREE_DEVICE, NO_DEVICE, SHARED_DEVICE
from tonnage.machines.events import Later
from tonnage.machines.objects import SimulatedPod
from tonnage.machines.serving.replica import ServingReplica
from tonnage.machines.serving.service import SimulatedService
from tonnage.simulation.result import DecisionRecord

if TYPE_CHECKING:
    from tonnage.fleet.state import FleetPod
    from tonnage.machines.cluster import SimulatedCluster

ABSENT, FREE = -1, 0


@dataclass(slots=True)
class ServiceSample:
    """One service at one time."""

    wanted: int
    ready: int
    starting: int
    pending: int
    running: int
    waiting: int
    kv_usage: float | None


@dataclass(slots=True)
class Recorder:
    """Samples in order of time; ``heat`` maps (node, device) to its (owner, busy %, parts) by sample number.

    Of a device with pods on parts of it the owner is the first of them, what they take of its time is added up, and
    ``parts`` has what each owner holds of it."""

    interval_ns: int
    times_ns: list[int] = field(default_factory=list)
    services: dict[str, list[ServiceSample]] = field(default_factory=dict)
    nodes_ready: list[int] = field(default_factory=list)
    nodes_starting: list[int] = field(default_factory=list)
    gpus_paid: list[int] = field(default_factory=list)
    gpus_allocated: list[int] = field(default_factory=list)
    spend_micro_usd: list[int] = field(default_factory=list)
    owners: list[str] = field(default_factory=lambda: ["free"])
    parts: dict[tuple[tuple[int, float], ...], int] = field(default_factory=lambda: {(): 0})
    heat: dict[tuple[str, int], list[tuple[int, int, int, int]]] = field(default_factory=dict)
    decisions: list[DecisionRecord] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)
    _busy: dict[ServingReplica | SimulatedPod, int] = field(default_factory=dict)
    _waits: dict[tuple[str, str], str] = field(default_factory=dict)

    def decided(self, t_ns: int, loop: str, decision: Decision, outcome: Outcome) -> None:
        """Record a decision. A pod that a loop lets wait for the same reason again is recorded once."""
        target = str(decision.target)
        if isinstance(decision, Wait):
            if self._waits.get((loop, target)) == decision.reason.verdict:
                return
            self._waits[loop, target] = decision.reason.verdict
        kind = type(decision).__name__
        self.counts[kind] = self.counts.get(kind, 0) + isinstance(outcome, Applied)
        reason = decision.reason
        self.decisions.append(
            DecisionRecord(
                round(t_ns / 1e9, 3),
                loop,
                kind,
                target,
                decision.summary(),
                reason.verdict,
                list(reason.evidence),
                [(a.name, a.why, a.score) for a in reason.alternatives],
                _outcome_text(outcome),
            )
        )

    def sample(self, cluster: SimulatedCluster) -> None:
        """Write down the state now; engines must be settled."""
        index = len(self.times_ns)
        self.times_ns.append(cluster.now_ns)
        for service in cluster.services:
            self._sample_service(cluster, service)
        live = [node for node in cluster.nodes.values() if node.ended_ns is None]
        self.nodes_ready.append(sum(node.ready_ns is not None for node in live))
        self.nodes_starting.append(len(cluster.cloud.claims))
        self.gpus_paid.append(sum(node.gpus for node in live))
        devices = cluster.fleet.devices
        held = int(((devices >= 0) | (devices == SHARED_DEVICE)).sum())
        self.gpus_allocated.append(held + claimed_gpus.allocated(cluster.fleet))
        self.spend_micro_usd.append(cluster.records.ledger.total(cluster.now_ns))
        self._sample_heat(cluster, index)

    def _sample_service(self, cluster: SimulatedCluster, service: SimulatedService) -> None:
        workloads = [w for w in cluster.workloads.values() if w.service is service]
        active = [pod for workload in workloads for pod in workload.active]
        engines = [r.engine for r in (*service.endpoints, *service.draining) if r.engine is not None]
        usage = [e.kv_usage for e in engines]
        self.services.setdefault(service.name, []).append(
            ServiceSample(
                sum(workload.replicas for workload in workloads),
                sum(p.ready_ns is not None for p in active),
                sum(p.bound_ns is not None and p.ready_ns is None for p in active),
                sum(p.bound_ns is None for p in active),
                sum(e.running for e in engines),
                sum(e.waiting for e in engines),
                round(sum(usage) / len(usage), 4) if usage else None,
            )
        )

    def _sample_heat(self, cluster: SimulatedCluster, index: int) -> None:
        busy_share = self._busy_since(cluster)
        for node in cluster.nodes.values():
            if node.ended_ns is not None or not node.gpus:
                continue
            row = cluster.fleet.node_by_name.get(node.name)
            claimed = claimed_gpus.holders(cluster.fleet, row) if row is not None else {}
            for device in range(node.gpus):
                owner, busy, parts = FREE, 0, 0
                there = row is not None and device < cluster.fleet.devices.shape[1]
                holder = int(cluster.fleet.devices[row, device]) if there else NO_DEVICE
                holder = claimed.get(device, holder)
                if row is not None and holder not in (FREE_DEVICE, NO_DEVICE):
                    holders = [holder] if holder >= 0 else cluster.fleet.holders(row, device)
                    on_it = [cluster.fleet.pod(one).spec for one in holders]
                    owner = self._payer(cluster, on_it[0])
                    busy = min(100, round(sum(busy_share.get(f"{pod.namespace}/{pod.name}", 0) for pod in on_it)))
                    parts = 0 if holder >= 0 else self._parts(cluster, row, device, holders)
                self.heat.setdefault((node.name, device), []).append((index, owner, busy, parts))

    def _parts(self, cluster: SimulatedCluster, node: int, device: int, holders: Sequence[int]) -> int:
        """What each owner holds of a device that is held in parts, as the ledger counts it."""
        held: dict[int, Fraction] = {}
        for pod in (cluster.fleet.pod(one) for one in holders):
            pieces = (part_of(cluster.fleet, node, piece) for piece in pod.pieces if piece.device == device)
            owner = self._payer(cluster, pod.spec)
            held[owner] = held.get(owner, Fraction(0)) + sum(pieces, Fraction(0))
        found = tuple((owner, round(float(100 * part), 1)) for owner, part in held.items())
        return self.parts.setdefault(found, len(self.parts))

    def _busy_since(self, cluster: SimulatedCluster) -> dict[str, float]:
        """Per cent of the time of each of its devices that a pod took since the last sample."""
        shares = {}
        for replica, taken_ns in taken_times(cluster.services):
            since = taken_ns - self._busy.get(replica, 0)
            self._busy[replica] = taken_ns
            shares[replica.pod] = 100 * since / self.interval_ns
        for pod in (pod for training in cluster.training.values() for part in training.parts for pod in part.bound):
            since = pod.busy_ns - self._busy.get(pod, 0)
            self._busy[pod] = pod.busy_ns
            shares[pod.key] = 100 * since / self.interval_ns
        return shares

    def _payer(self, cluster: SimulatedCluster, spec: FleetPod) -> int:
        """The workload of the manifests of which the pod is."""
        pod = cluster.pods.get((spec.namespace, spec.name))
        owner = spec.owner if pod is None else pod.workload.key
        if owner not in self.owners:
            self.owners.append(owner)
        return self.owners.index(owner)


@dataclass(slots=True)
class SampleTick:
    """Samples the cluster, again and again."""

    recorder: Recorder

    def handle(self, cluster: SimulatedCluster) -> Later:
        for service in cluster.services:
            service.settle(cluster.now_ns)
        cluster.account_busy()
        self.recorder.sample(cluster)
        yield cluster.now_ns + self.recorder.interval_ns, self


def taken_times(services: Iterable[SimulatedService]) -> Iterable[tuple[ServingReplica, int]]:
    """(replica, ns of each of its devices that it took so far) of every engine."""
    for service in services:
        for replica in (*service.endpoints, *service.draining):
            if replica.engine is not None:
                yield replica, replica.taken_ns


def _outcome_text(outcome: Outcome) -> str:
    match outcome:
        case Applied():
            return "Applied"
        case Stale(changed=changed):
            return f"Stale: {changed}"
        case Refused(why=why):
            return f"Refused: {why}"
