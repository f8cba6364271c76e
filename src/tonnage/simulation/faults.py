"""What breaks in a scenario: spot interruptions, lost nodes, GPUs that fail, instance types out of stock."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from tonnage.documents import duration_ns
from tonnage.facts.price_book import Reservation
from tonnage.machines.cluster import SimulatedCluster
from tonnage.machines.crashes import SIGNALLED, taken_along
from tonnage.machines.events import Later
from tonnage.machines.gpu_faults import XidReported, container_ends
from tonnage.machines.life import NodeLost, RebalanceRecommended, SpotNotice
from tonnage.machines.objects import Offering, SimulatedNode, SimulatedPod
from tonnage.provisioning.labels import RESERVATION_ID
from tonnage.provisioning.reserving import RECLAIMED_NS
from tonnage.simulation.fault_entries import (
    FLAPPING,
    GPU_FAILURE,
    INTERRUPTION,
    OF_METRICS,
    OOM,
    OUT_OF_STOCK,
    POD_FAILURE,
    WAVE,
    ZONE_OUTAGE,
    FaultSpec,
)
from tonnage.simulation.signal_faults import MetricsFault, ReadinessFlapping
from tonnage.workloads.failures import Cause


@dataclass(slots=True)
class Fault:
    """Strikes nodes that live at its time, in order of name."""

    spec: FaultSpec

    def handle(self, cluster: SimulatedCluster) -> Later:
        spec = self.spec
        live = _struck(cluster, spec)
        if not live:
            _hit_nothing(cluster, spec)
        for node in live[: spec.count]:
            if spec.kind == INTERRUPTION:
                yield cluster.now_ns, SpotNotice(node.name)
            elif spec.kind == GPU_FAILURE:
                lasts = duration_ns(spec.detection), duration_ns(spec.duration)
                yield cluster.now_ns, XidReported(node.name, spec.xid, *lasts)
            else:
                yield cluster.now_ns, NodeLost(node.name, "node failure")


@dataclass(slots=True)
class Wave:
    """Spot nodes of one instance type and zone are interrupted within a short while. Where the fault does not say
    which, it is the kind of which there are most."""

    spec: FaultSpec
    number: int
    offerings: tuple[Offering, ...]

    def handle(self, cluster: SimulatedCluster) -> Later:
        spec, rng = self.spec, cluster.streams.python(f"faults/wave/{self.number}")
        kinds: dict[tuple[str, str], list[SimulatedNode]] = {}
        for node in _struck(cluster, spec):
            kinds.setdefault((node.instance_type, node.zone), []).append(node)
        if not kinds:
            _hit_nothing(cluster, spec)
            return
        kind = max(kinds, key=lambda one: (len(kinds[one]), one))
        pool = kinds[kind]
        share = SHARE if spec.share is None else spec.share
        struck = rng.sample(pool, min(len(pool), math.ceil(len(pool) * share)))
        warned = struck[: math.floor(len(struck) * spec.rebalance)]
        first_ns, within_ns = max(cluster.now_ns, duration_ns(spec.at)), duration_ns(spec.within or WITHIN)
        for node in struck:
            notice_ns = first_ns + rng.randrange(within_ns + 1)
            if node in warned:
                yield max(cluster.now_ns, notice_ns - lead_ns(spec)), RebalanceRecommended(node.name)
            yield notice_ns, SpotNotice(node.name)
        gone = tuple(one for one in self.offerings if one == (*kind, "spot"))
        yield first_ns, OutOfStock(spec, gone)


@dataclass(slots=True)
class ZoneOutage:
    """Every node of a zone is lost at once, and EC2 sells nothing there for a while."""

    spec: FaultSpec
    offerings: tuple[Offering, ...]

    def handle(self, cluster: SimulatedCluster) -> Later:
        yield cluster.now_ns, OutOfStock(self.spec, self.offerings)
        struck = [node for node in cluster.nodes.values() if node.ended_ns is None and node.zone == self.spec.zone]
        if not struck:
            _hit_nothing(cluster, self.spec)
        for node in sorted(struck, key=lambda node: node.name):
            yield cluster.now_ns, NodeLost(node.name, "zone outage")


SHARE, WITHIN, LEAD = 0.5, "60s", "5m"
"""Of a wave, unless it says otherwise: half of the nodes within a minute, recommendations five minutes before."""


def lead_ns(spec: FaultSpec) -> int:
    """How long before the notices a wave's rebalance recommendations come; 0 where it has none."""
    return duration_ns(spec.lead or LEAD) if spec.rebalance else 0


def _struck(cluster: SimulatedCluster, spec: FaultSpec) -> list[SimulatedNode]:
    """The nodes that a fault may hit, in order of name."""
    found = [n for n in cluster.nodes.values() if n.ended_ns is None and n.ready_ns is not None and not n.leaving]
    found = [n for n in found if spec.node_pool in ("", n.node_pool) and spec.zone in ("", n.zone)]
    found = [n for n in found if spec.instance_type in ("", n.instance_type)]
    if spec.kind in (INTERRUPTION, WAVE):
        found = [n for n in found if n.capacity_type == "spot"]
    if spec.kind == GPU_FAILURE:
        found = [n for n in found if n.gpus]
    return sorted(found, key=lambda n: n.name)


def _hit_nothing(cluster: SimulatedCluster, spec: FaultSpec) -> None:
    cluster.events.add(cluster.now_ns, "Scenario", "Warning", "FaultHitNothing", f"{spec.kind}: no such node")


OOM_KILLED = 137
"""Exit code of a container that was killed for its memory: 128 + SIGKILL."""


@dataclass(slots=True)
class PodFailure:
    """The containers of some pods of a workload end with an error, and so do those of the pods on the same GPUs that
    nothing keeps apart from them."""

    spec: FaultSpec

    def handle(self, cluster: SimulatedCluster) -> Later:
        spec = self.spec
        running = [pod for pod in self._pods(cluster) if pod.started_ns is not None and not pod.terminating]
        running = [pod for pod in running if spec.pod in ("", pod.name)]
        if not running:
            message = f"{spec.kind}: no such pod runs"
            cluster.events.add(cluster.now_ns, "Scenario", "Warning", "FaultHitNothing", message)
        cause, code = exit_of(spec.exit)
        oom = cause is Cause.OOM
        for pod in sorted(running, key=lambda pod: pod.name)[: spec.count]:
            said = _reason(cluster, pod, code, oom=oom)
            for neighbour in taken_along(cluster, pod, code, oom=oom):
                yield from container_ends(cluster, neighbour, cause, code, f"{said} in Pod {pod.key} on the same GPU")
            yield from container_ends(cluster, pod, cause, code, said)

    def _pods(self, cluster: SimulatedCluster) -> list[SimulatedPod]:
        training = cluster.training.get(self.spec.workload)
        if training is not None:
            return [pod for part in training.parts for pod in part.ready]
        workload = cluster.workloads.get(self.spec.workload)
        return workload.active if workload is not None else []  # behind an API its pods may be somebody else's


def _reason(cluster: SimulatedCluster, pod: SimulatedPod, code: int, *, oom: bool) -> str:
    """What is said of the end: a pod with a part of a GPU is out of the GPU's memory, any other out of its node's."""
    if not oom:
        return f"exit code {code}"
    return "CUDA out of memory" if cluster.fleet.pod(pod.row).pieces else "OOMKilled"


def exit_of(written: int | str) -> tuple[Cause, int]:
    """The cause and the exit code of a pod failure, as the scenario has it."""
    if written == OOM:
        return Cause.OOM, OOM_KILLED
    code = int(written)
    return (Cause.RETRYABLE if code >= SIGNALLED else Cause.PERMANENT), code


@dataclass(slots=True)
class OutOfStock:
    """EC2 has nothing left of an instance type for a while. Nobody knows before a launch is refused."""

    spec: FaultSpec
    offerings: tuple[Offering, ...]

    def handle(self, cluster: SimulatedCluster) -> Later:
        until_ns = cluster.now_ns + duration_ns(self.spec.duration)
        for offering in self.offerings:
            cluster.cloud.out_of_stock[offering] = max(until_ns, cluster.cloud.out_of_stock.get(offering, 0))
        return ()


def schedule_faults(faults: Sequence[FaultSpec], cluster: SimulatedCluster, offerings: Sequence[Offering]) -> None:
    """Put the scenario's faults on the queue. ``offerings``: all that EC2 sells."""
    for number, fault in enumerate(faults):
        at = duration_ns(fault.at)
        if fault.kind == OUT_OF_STOCK:
            cluster.queue.push(at, OutOfStock(fault, tuple(o for o in offerings if _withheld(fault, o))))
        elif fault.kind == ZONE_OUTAGE:
            cluster.queue.push(at, ZoneOutage(fault, tuple(o for o in offerings if o[1] == fault.zone)))
        elif fault.kind == WAVE:
            cluster.queue.push(max(0, at - lead_ns(fault)), Wave(fault, number, tuple(offerings)))
        elif fault.kind in OF_METRICS:
            cluster.queue.push(at, MetricsFault(fault))
        elif fault.kind == FLAPPING:
            cluster.queue.push(at, ReadinessFlapping(fault))
        elif fault.kind == POD_FAILURE:
            cluster.queue.push(at, PodFailure(fault))
        else:
            cluster.queue.push(at, Fault(fault))


@dataclass(slots=True)
class BlockEnds:
    """EC2 terminates what is left of the instances of a capacity block."""

    reservation: str

    def handle(self, cluster: SimulatedCluster) -> Later:
        for node in sorted(cluster.nodes.values(), key=lambda node: node.name):
            if node.ended_ns is None and node.labels.get(RESERVATION_ID) == self.reservation:
                yield cluster.now_ns, NodeLost(node.name, "its capacity block has ended")


def schedule_ends(reservations: Sequence[Reservation], cluster: SimulatedCluster, epoch_ns: int) -> None:
    """Put the ends of capacity blocks on the queue. ``epoch_ns``: when the run begins, since the Unix epoch."""
    for one in reservations:
        if one.ends_ns is not None and one.ends_ns - RECLAIMED_NS >= epoch_ns + cluster.now_ns:
            cluster.queue.push(one.ends_ns - RECLAIMED_NS - epoch_ns, BlockEnds(one.id))


def _withheld(fault: FaultSpec, offering: Offering) -> bool:
    name, zone, kind = offering
    return name == fault.instance_type and fault.zone in ("", zone) and fault.capacity_type in ("", kind)
