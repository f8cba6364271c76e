"""Readiness that comes and goes: a probe that fails now and then on a server that serves all the same."""

from __future__ import annotations

from dataclasses import dataclass

from tonnage.machines import pods
from tonnage.machines.events import Later
from tonnage.machines.objects import SimulatedPod
from tonnage.machines.site import Site


@dataclass(slots=True)
class ReadinessLost:
    """The probe of a pod fails: for half of ``period_ns`` it is no endpoint of its Service, then it is one again, until
    ``until_ns``. What it has in flight goes on."""

    pod: SimulatedPod
    period_ns: int
    until_ns: int

    def handle(self, cluster: Site) -> Later:
        pod = self.pod
        if pods.gone(pod) or pod.ready_ns is None or cluster.now_ns >= self.until_ns:
            return
        pods.pod_unready(cluster, pod, "readiness probe failed")
        back_ns = min(cluster.now_ns + self.period_ns // 2, self.until_ns)
        yield back_ns, ReadinessBack(pod, pod.starts)
        yield cluster.now_ns + self.period_ns, self


@dataclass(slots=True)
class ReadinessBack:
    """The probe succeeds again, unless the container has ended since."""

    pod: SimulatedPod
    start: int

    def handle(self, cluster: Site) -> Later:
        pod = self.pod
        if not pods.gone(pod) and pod.running_since(self.start) and pod.ready_ns is None:
            pods.pod_ready(cluster, pod)
        return ()
