"""A cluster under the slo policy in miniature: pods on kept and on launched nodes, and arrivals at a steady rate."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import msgspec

from tonnage.decisions import Scale
from tonnage.fleet.gangs import Gang
from tonnage.fleet.snapshot import PodView, Snapshot, WorkloadView
from tonnage.fleet.state import Fleet, FleetNode, FleetPod
from tonnage.objects import core
from tonnage.scaling import slo
from tonnage.scheduling.seats import SchedulerSeats
from tonnage.units import NS_PER_S

GPU = "nvidia.com/gpu"
A, B = "inference/a", "inference/b"
TICK_S = 15


def target(workload: str = A, **changes: Any) -> slo.Target:
    """1 request/s and 10 in flight a replica; 2 to 10 replicas; a cold start of 60 s, held 300 s, drained in 180 s."""
    one = slo.Target(workload, 1.0, 10.0, 2, 10, 60 * NS_PER_S, 300 * NS_PER_S, 180 * NS_PER_S, 1.64)
    return replace(one, **changes)


class Cluster:
    """Kept nodes ``kept-1``, … and launched nodes ``bought-1``, … of some GPUs each, and pods put on them by hand."""

    def __init__(self, kept: int = 1, bought: int = 0, gpus: int = 8) -> None:
        self.fleet = Fleet()
        self.replicas: dict[str, int] = {}
        self.gangs: dict[str, Gang] = {}
        self.views: dict[str, list[PodView]] = {}
        names = [f"kept-{i}" for i in range(1, kept + 1)] + [f"bought-{i}" for i in range(1, bought + 1)]
        for name in names:
            pool = "pool" if name.startswith("bought") else ""
            room = {"cpu": 10**6, "memory": 2**50, "pods": 100, GPU: gpus}
            self.fleet.add_node(FleetNode(name, room, {}, device_resource=GPU, node_pool=pool))

    def pods(
        self,
        workload: str,
        *nodes: str,
        ready: bool = True,
        replicas: int | None = None,
        gpus: int = 1,
        more: dict[str, Any] | None = None,
    ) -> Cluster:
        """Add pods of a workload on these nodes ("" is none); ``replicas`` are as many as its pods unless given.

        ``more``: further fields of the pods' spec.
        """
        views = self.views.setdefault(workload, [])
        for node in nodes:
            name = f"{workload.rpartition('/')[2]}-{len(views):02d}"
            container = {"name": "vllm", "resources": {"requests": {GPU: str(gpus)} if gpus else {"cpu": "1"}}}
            spec = msgspec.convert({"containers": [container], **(more or {})}, core.PodSpec)
            row = self.fleet.add_pod(FleetPod("inference", name, name, {}, spec, workload))
            if node:
                self.fleet.bind(row, self.fleet.node_by_name[node])
            bound, up = (0 if node else None), (0 if node and ready else None)
            views.append(PodView(row, "inference", name, node, 0, bound, up))
        self.replicas[workload] = len(views) if replicas is None else replicas
        return self

    def gang(self, key: str, size: int) -> Cluster:
        """Add a gang of this many pods of one GPU, which wait."""
        namespace, _, name = key.rpartition("/")
        container = {"name": "train", "resources": {"requests": {GPU: "1"}}}
        spec = msgspec.convert({"containers": [container]}, core.PodSpec)
        for number in range(size):
            pod = f"{name}-{number}"
            self.fleet.add_pod(FleetPod(namespace, pod, pod, {}, spec, gang=key))
        self.gangs[key] = Gang(key, size)
        return self

    def snapshot(self, second: float) -> Snapshot:
        views = {
            key: WorkloadView("Deployment", "inference", key.rpartition("/")[2], self.replicas[key], tuple(pods))
            for key, pods in self.views.items()
        }
        return Snapshot(round(second * NS_PER_S), self.fleet, views, gangs=self.gangs)


class Loop:
    """Ticks the policy every 15 s over one cluster; arrivals come in equal gaps unless a count is given."""

    def __init__(self, cluster: Cluster, *targets: slo.Target) -> None:
        self.seats = SchedulerSeats()
        self.cluster, self.targets = cluster, targets or (target(),)
        self.memory: dict[str, slo.Memory] = {}
        self.now_s = 0
        self.received = dict.fromkeys((t.workload for t in self.targets), 0.0)

    def tick(
        self,
        rate: float | dict[str, float] | None = 0.0,
        in_flight: float | dict[str, float] = 0.0,
        *,
        cold_starts_s: Sequence[float] = (),
        ticks: int = 1,
    ) -> dict[str, Scale]:
        """Let time pass at these arrivals a second (None: no data); the decisions of the last tick by workload."""
        decisions: list[Scale] = []
        for _ in range(ticks):
            self.now_s += TICK_S
            readings = {}
            for one in self.targets:
                per_s = rate[one.workload] if isinstance(rate, dict) else rate
                held = in_flight[one.workload] if isinstance(in_flight, dict) else in_flight
                if per_s is not None:
                    self.received[one.workload] += per_s * TICK_S
                count = None if per_s is None else self.received[one.workload]
                cold = tuple(round(s * NS_PER_S) for s in cold_starts_s)
                readings[one.workload] = slo.TrafficReading(count, held, cold)
            snapshot = self.cluster.snapshot(self.now_s)
            decisions, self.memory = slo.decide(snapshot, self.targets, readings, self.memory, self.seats)
        return {f"{d.target.namespace}/{d.target.name}": d for d in decisions}

    def read(self, count: float | None, in_flight: float) -> dict[str, Scale]:
        """Let a tick pass in which the counter of the first workload says this (None: no data)."""
        if count is None:
            return self.tick(None, in_flight)
        self.received[self.targets[0].workload] = count
        return self.tick(0.0, in_flight)
