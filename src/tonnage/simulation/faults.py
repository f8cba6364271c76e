"""What breaks in a scenario: spot interruptions, lost nodes, GPUs that fail, instance types out of stock."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tonnage.documents import duration_ns
from tonnage.machines.cluster import SimulatedCluster
from tonnage.machines.crashes import SIGNALLED, taken_along
from tonnage.machines.events import Later
from tonnage.machines.gpu_faults import XidReported, container_ends
from tonnage.machines.life import NodeLost, SpotNotice
from tonnage.machines.objects import Offering, Pod
from tonnage.simulation.fault_entries import OOM, FaultSpec
from tonnage.workloads.failures import Cause


@dataclass(slots=True)
class Fault:
    """Strikes nodes that live at its time, in order of name."""

    spec: FaultSpec

    def handle(self, cluster: SimulatedCluster) -> Later:
        spec = self.spec
        live = sorted(
            (n for n in cluster.nodes.values() if n.ended_ns is None and n.ready_ns is not None and not n.leaving),
            key=lambda n: n.name,
        )
        if spec.node_pool:
            live = [n for n in live if n.node_pool == spec.node_pool]
        if spec.instance_type:
            live = [n for n in live if n.instance_type == spec.instance_type]
        if spec.kind == "spot-interruption":
            live = [n for n in live if n.capacity_type == "spot"]
        if spec.kind == "gpu-failure":
            live = [n for n in live if n.gpus]
        if not live:
            cluster.events.add(cluster.now_ns, "Scenario", "Warning", "FaultHitNothing", f"{spec.kind}: no such node")
        for node in live[: spec.count]:
            if spec.kind == "spot-interruption":
                yield cluster.now_ns, SpotNotice(node.name)
            elif spec.kind == "gpu-failure":
                lasts = duration_ns(spec.detection), duration_ns(spec.duration)
                yield cluster.now_ns, XidReported(node.name, spec.xid, *lasts)
            else:
                yield cluster.now_ns, NodeLost(node.name, "node failure")


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

    def _pods(self, cluster: SimulatedCluster) -> list[Pod]:
        training = cluster.training.get(self.spec.workload)
        if training is not None:
            return [pod for part in training.parts for pod in part.ready]
        workload = cluster.workloads.get(self.spec.workload)
        return workload.active if workload is not None else []  # behind an API its pods may be somebody else's


def _reason(cluster: SimulatedCluster, pod: Pod, code: int, *, oom: bool) -> str:
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
    for fault in faults:
        at = duration_ns(fault.at)
        if fault.kind == "out-of-stock":
            held = tuple(o for o in offerings if o[0] == fault.instance_type)
            cluster.queue.push(at, OutOfStock(fault, held))
        elif fault.kind == "pod-failure":
            cluster.queue.push(at, PodFailure(fault))
        else:
            cluster.queue.push(at, Fault(fault))
