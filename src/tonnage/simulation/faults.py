"""What breaks in a scenario: spot interruptions, lost nodes, GPUs that fail, instance types out of stock."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tonnage.simulation.cluster import SimulatedCluster
from tonnage.simulation.events import Later
from tonnage.simulation.life import GpuBack, GpuLost, NodeLost, SpotNotice
from tonnage.simulation.objects import Offering
from tonnage.simulation.scenario import FaultSpec, duration_ns


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
                yield cluster.now_ns, GpuLost(node.name)
                yield cluster.now_ns + duration_ns(spec.duration), GpuBack(node.name)
            else:
                yield cluster.now_ns, NodeLost(node.name, "node failure")


@dataclass(slots=True)
class OutOfStock:
    """EC2 has nothing left of an instance type for a while. Nobody knows before a launch is refused."""

    spec: FaultSpec
    offerings: tuple[Offering, ...]

    def handle(self, cluster: SimulatedCluster) -> Later:
        until_ns = cluster.now_ns + duration_ns(self.spec.duration)
        for offering in self.offerings:
            cluster.out_of_stock[offering] = max(until_ns, cluster.out_of_stock.get(offering, 0))
        return ()


def schedule_faults(faults: Sequence[FaultSpec], cluster: SimulatedCluster, offerings: Sequence[Offering]) -> None:
    """Put the scenario's faults on the queue. ``offerings``: all that EC2 sells."""
    for fault in faults:
        at = duration_ns(fault.at)
        if fault.kind == "out-of-stock":
            held = tuple(o for o in offerings if o[0] == fault.instance_type)
            cluster.queue.push(at, OutOfStock(fault, held))
        else:
            cluster.queue.push(at, Fault(fault))
