"""Faults of what autoscalers see rather than of what serves: metrics that are missing, late or NaN, pods that are Ready
now and then."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tonnage.documents import duration_ns
from tonnage.machines.cluster import SimulatedCluster
from tonnage.machines.events import Later
from tonnage.machines.flapping import ReadinessLost
from tonnage.machines.scrape_troubles import GPU_EXPORTER
from tonnage.simulation.fault_entries import GPUS, LATE_SCRAPES, PERIOD, SCRAPE_FAILURE, FaultSpec


@dataclass(slots=True)
class MetricsFault:
    """For a while Prometheus does not reach the exporters of some Services or of GPUs, or reads NaN there, or has their
    samples late; what they measure goes on."""

    spec: FaultSpec

    def handle(self, cluster: SimulatedCluster) -> Later:
        spec, troubles = self.spec, cluster.records.troubles
        struck = list(self._targets(cluster))
        if not struck:
            message = f"{spec.kind}: no such Service with traffic"
            cluster.events.add(cluster.now_ns, "Scenario", "Warning", "FaultHitNothing", message)
        until_ns = cluster.now_ns + duration_ns(spec.duration)
        for name in struck:
            if spec.kind == LATE_SCRAPES:
                before_ns, _ = troubles.late.get(name, (0, 0))
                troubles.late[name] = max(until_ns, before_ns), duration_ns(spec.delay)
                continue
            failing = troubles.unscraped if spec.kind == SCRAPE_FAILURE else troubles.not_a_number
            failing[name] = max(until_ns, failing.get(name, 0))
        return ()

    def _targets(self, cluster: SimulatedCluster) -> Iterator[str]:
        if self.spec.exporter == GPUS:
            yield GPU_EXPORTER
            return
        for one in cluster.services:
            if self.spec.service in ("", one.name):
                yield one.name


@dataclass(slots=True)
class ReadinessFlapping:
    """The readiness of some pods of a Deployment, those that are Ready first by name, comes and goes for a while."""

    spec: FaultSpec

    def handle(self, cluster: SimulatedCluster) -> Later:
        spec, workload = self.spec, cluster.workloads.get(self.spec.workload)
        ready = [pod for pod in workload.active if pod.ready_ns is not None] if workload is not None else []
        ready = [pod for pod in ready if spec.pod in ("", pod.name)]
        if not ready:
            message = f"{spec.kind}: no such pod is Ready"
            cluster.events.add(cluster.now_ns, "Scenario", "Warning", "FaultHitNothing", message)
        until_ns, period_ns = cluster.now_ns + duration_ns(spec.duration), duration_ns(spec.period or PERIOD)
        for pod in sorted(ready, key=lambda pod: pod.name)[: spec.count]:
            yield cluster.now_ns, ReadinessLost(pod, period_ns, until_ns)
