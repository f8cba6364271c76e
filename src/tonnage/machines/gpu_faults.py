"""GPUs of simulated nodes that fail and recover: what NVML reports, what the node's health makes of it, what follows.

Devices of a node are there from the first on: it is the last one that fails, and the first that is missing that comes
back."""

from __future__ import annotations

from dataclasses import dataclass

from tonnage.facts import xids
from tonnage.fleet.devices import Cut
from tonnage.fleet.state import NO_DEVICE
from tonnage.machines import pods
from tonnage.machines.crashes import crash
from tonnage.machines.events import Later
from tonnage.machines.life import PodStarted
from tonnage.machines.objects import SimulatedNode, SimulatedPod
from tonnage.machines.site import Site
from tonnage.node.device_health import HealthReading, ResetSeen, XidSeen
from tonnage.units import NS_PER_S
from tonnage.workloads.failures import Cause

FALLEN_OFF = 79
"""The Xid of a GPU that cannot be reached any more."""
EVICTION_NS = NS_PER_S
"""From the statuses of pods that name an unhealthy device to the eviction of the pods: an assumption."""


@dataclass(slots=True)
class XidReported:
    """NVML reports an Xid of the node's last GPU. What takes the GPU out of service is noticed ``detection_ns`` later,
    and is over ``duration_ns`` after it happened, by a reset. Of what is the application's fault the containers end.
    ``again``: the next start of such a pod."""

    node: str
    xid: int
    detection_ns: int
    duration_ns: int

    def handle(self, cluster: Site) -> Later:
        node = cluster.nodes[self.node]
        if node.ended_ns is not None:
            return
        known = xids.get(self.xid)
        if known.effect in (xids.FAULT, xids.DECODED):
            noticed_ns = cluster.now_ns + self.detection_ns
            yield noticed_ns, GpuUnhealthy(self.node, self.xid)
            yield max(cluster.now_ns + self.duration_ns, noticed_ns + EVICTION_NS), GpuBack(self.node)
            return
        row = cluster.fleet.node_by_name[node.name]
        device = devices(cluster, row) - 1
        if device < 0:
            return
        node.health.observe(XidSeen(cluster.now_ns, node.gpu_uuid(device), self.xid))
        said = f"Xid {self.xid}: {known.name}"
        cluster.events.add(cluster.now_ns, f"Node {node.name}", "Warning", "GPUXid", said)
        for pod in on_device(cluster, row, device) if known.effect == xids.APPLICATION else ():
            yield from container_ends(cluster, pod, Cause.PERMANENT, 1, said)


def container_ends(cluster: Site, pod: SimulatedPod, cause: Cause, code: int, said: str) -> Later:
    """The pod's container ends with an error: who owns the pod is told, or its kubelet starts it again."""
    if pod.started_ns is None or pod.terminating:
        return
    if pod.workload.controller is not None:
        pod.workload.controller.exits(cluster, pod, cause, code, said)
        return
    cluster.events.add(cluster.now_ns, f"Pod {pod.key}", "Warning", "Failed", said)
    yield crash(cluster, pod, said, code, said), PodStarted(pod)


@dataclass(slots=True)
class GpuUnhealthy:
    """The node's agent has noticed an Xid of the last GPU that is healthy. Where the health of the GPU says so, the
    statuses of its pods do; the pods are evicted next."""

    node: str
    xid: int = FALLEN_OFF

    def handle(self, cluster: Site) -> Later:
        node = cluster.nodes[self.node]
        if node.ended_ns is not None:
            return
        row = cluster.fleet.node_by_name[node.name]
        there = [n for n in range(devices(cluster, row)) if node.health.healthy(node.gpu_uuid(n))]
        if not there:
            return
        device = there[-1]
        if not _offers(cluster, row, device):
            message = f"gpu-failure: GPU {device} of {node.name} offers nothing while its MIG layout is being changed"
            cluster.events.add(cluster.now_ns, "Scenario", "Warning", "FaultHitNothing", message)
            return
        change = node.health.observe(XidSeen(cluster.now_ns, node.gpu_uuid(device), self.xid))
        if change is None:
            return
        cluster.events.add(cluster.now_ns, f"Node {node.name}", "Warning", "GPUUnhealthy", change.message)
        _note_health(cluster, node)
        for pod in on_device(cluster, row, device):
            cluster.mirror.pod_changed(pod)
        cluster.mirror.node_changed(node)
        yield cluster.now_ns + EVICTION_NS, GpuLost(self.node)


@dataclass(slots=True)
class GpuLost:
    """The pods on the node's last GPU, which is unhealthy, are evicted, and the device plugin offers one GPU less. That
    waits while the MIG layout of the GPU is being changed."""

    node: str

    def handle(self, cluster: Site) -> Later:
        node = cluster.nodes[self.node]
        if node.ended_ns is None and not lose_gpu(cluster, node):
            yield cluster.now_ns + EVICTION_NS, self


@dataclass(slots=True)
class GpuBack:
    """The GPU was reset, and NVML asks for nothing more."""

    node: str

    def handle(self, cluster: Site) -> Later:
        node = cluster.nodes[self.node]
        if node.ended_ns is None:
            restore_gpu(cluster, node)
        return ()


def lose_gpu(cluster: Site, node: SimulatedNode) -> bool:
    """Where the last GPU of the node is unhealthy, the pods on it end, their workloads make others, and the device
    plugin offers one GPU less. False: that has to wait, as the GPU offers nothing while its MIG layout is changed."""
    row = cluster.fleet.node_by_name[node.name]
    device = devices(cluster, row) - 1
    if device < 0 or node.health.healthy(node.gpu_uuid(device)):
        return True
    offered = _offers(cluster, row, device)
    if not offered:
        return False
    for pod in on_device(cluster, row, device):
        pods.lose(cluster, pod, Cause.NODE)
    _offer(cluster, row, {name: -n for name, n in offered.items()})
    cluster.mirror.node_changed(node)
    cluster.wake("node")
    return True


def restore_gpu(cluster: Site, node: SimulatedNode) -> None:
    """The first GPU that is missing was reset, and is offered where it is healthy now; where none is missing yet, the
    last one was reset."""
    row = cluster.fleet.node_by_name[node.name]
    device = devices(cluster, row)
    missing = device < node.gpus
    gpu = node.gpu_uuid(device if missing else device - 1)
    node.health.observe(ResetSeen(cluster.now_ns, gpu))
    node.health.observe(HealthReading(cluster.now_ns, gpu, recovery=0, remap_pending=False))
    _note_health(cluster, node)
    if not node.health.healthy(gpu):
        message = node.health.causes(gpu)[0].message
        cluster.events.add(cluster.now_ns, f"Node {node.name}", "Warning", "GPUUnhealthy", message)
        return
    if not missing:
        return
    _offer(cluster, row, _offers(cluster, row, device))
    cluster.events.add(cluster.now_ns, f"Node {node.name}", "Normal", "GPUHealthy", "the GPU was reset")
    cluster.mirror.node_changed(node)
    cluster.wake("node")


def _note_health(cluster: Site, node: SimulatedNode) -> None:
    """The node's condition says since when a GPU of it is unhealthy."""
    row = cluster.fleet.node_by_name[node.name]
    if all(node.health.healthy(node.gpu_uuid(n)) for n in range(node.gpus)):
        cluster.fleet.note(row, ailing_ns=None)
    elif cluster.fleet.node(row).ailing_ns is None:
        cluster.fleet.note(row, ailing_ns=cluster.now_ns)


def on_device(cluster: Site, row: int, device: int) -> list[SimulatedPod]:
    """The pods on a GPU, on its MIG instances and replicas."""
    specs = (cluster.fleet.pod(holder).spec for holder in cluster.fleet.holders(row, device))
    return [cluster.pods[spec.namespace, spec.name] for spec in specs]


def devices(cluster: Site, row: int) -> int:
    """How many GPUs of the node are there now: the first ones."""
    return int((cluster.fleet.devices[row] != NO_DEVICE).sum())


def _offers(cluster: Site, row: int, device: int) -> dict[str, int]:
    """What one of the node's GPUs adds to its allocatable."""
    node = cluster.fleet.node(row)
    cut = node.cuts[device] if device < len(node.cuts) else Cut()
    return cut.offers(node.spec.device_resource)


def _offer(cluster: Site, row: int, more: dict[str, int]) -> None:
    there = cluster.fleet.allocatable_of(row)
    cluster.fleet.set_allocatable(row, {**there, **{name: there.get(name, 0) + n for name, n in more.items()}})
