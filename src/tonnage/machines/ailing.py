"""Pods that never serve as they are: what their kubelet does instead, and what it says."""

from __future__ import annotations

from dataclasses import dataclass

from tonnage.facts.restarts import backoffs
from tonnage.health.blocker import CRASHING, CREATING, NOT_READY, Blocker
from tonnage.machines import pods
from tonnage.machines.blocked import blocked
from tonnage.machines.crashes import OOM_KILLED, crash, reason_of
from tonnage.machines.events import Event, Later
from tonnage.machines.objects import End, Failing, SimulatedPod
from tonnage.machines.site import Site
from tonnage.units import NS_PER_S
from tonnage.workloads.failures import Cause

IMPORTS_S = 15
"""Seconds until an engine that refuses its arguments or finds no driver has said so: Python and PyTorch load first."""
PROGRAM_S = 2
"""The same of any other program."""
NO_ENGINE = "engine-does-not-start"
"""The rule of an engine that ends with an error where it is, for a cause that no finding names."""
KILLED, TERMINATED = 137, 143
"""Exit codes: of SIGKILL, as for memory, and of SIGTERM, as after a probe has failed too often."""


def mark(cluster: Site, pod: SimulatedPod, stage: str, rule: str, cause: str, event: str) -> None:
    """From now on the pod is one that does not serve, for this cause. ``event``: reason and message, as kubectl has."""
    since = cluster.now_ns if pod.failing is None else pod.failing.since_ns
    pod.failing = Failing(since, stage, rule, cause, event)
    pods.count_ready(cluster, pod.workload)


# ---- containers that are never created ----


def uses_image(blocker: Blocker) -> bool:
    """Whether the kubelet pulls the image before it stops: volumes come before it, variables after it."""
    return not blocker.reason.startswith("Failed") and "Image" not in blocker.reason


@dataclass(slots=True)
class ContainerNotCreated:
    """The kubelet tries again and again, later each time."""

    pod: SimulatedPod
    blocker: Blocker
    again: Event
    tries: int = 0

    def handle(self, cluster: Site) -> Later:
        pod, blocker = self.pod, self.blocker
        if pods.gone(pod):
            return
        now = blocked(cluster, pod, CREATING)
        if now is None:  # what was missing has been made since
            pod.failing = None
            yield cluster.now_ns, self.again
            return
        self.blocker = blocker = now
        self.tries += 1
        reason, message = shown(blocker)
        mark(cluster, pod, CREATING, blocker.rule, blocker.message, f"{reason}: {message}")
        waiting = "ContainerCreating" if blocker.reason.startswith("Failed") else blocker.reason or reason
        cluster.mirror.pod_failing(pod, waiting, "" if waiting == "ContainerCreating" else blocker.said)
        cluster.events.add(cluster.now_ns, f"Pod {pod.key}", "Warning", reason, message)
        yield cluster.now_ns + max(1, backoffs()["kubelet"].delay_s(self.tries)) * NS_PER_S, self


def shown(blocker: Blocker) -> tuple[str, str]:
    """(reason, message) of the event that the kubelet writes."""
    said = blocker.said or blocker.message
    if blocker.reason.startswith("Failed"):
        return blocker.reason, said
    if blocker.stage == CREATING:
        return "Failed", said if "Image" in blocker.reason else f"Error: {said}"
    if blocker.stage == NOT_READY:
        return blocker.reason or "Unhealthy", said
    return "BackOff", said


# ---- containers that end, or that never become Ready ----


def stops(cluster: Site, pod: SimulatedPod, again: Event | None = None) -> bool:
    """Whether the pod, whose container has started, is blocked: it will end after a while, or is never Ready.
    ``again``: its next start, where that is the kubelet's doing."""
    blocker = blocked(cluster, pod, CRASHING, NOT_READY)
    if blocker is None:
        return False
    cluster.mirror.pod_changed(pod)
    if blocker.stage == NOT_READY:
        reason, message = shown(blocker)
        mark(cluster, pod, NOT_READY, blocker.rule, blocker.message, f"{reason}: {message}")
        cluster.events.add(cluster.now_ns, f"Pod {pod.key}", "Warning", reason, message)
        return True
    if pod.failing is None:
        mark(cluster, pod, CRASHING, blocker.rule, blocker.message, "")
    ends_ns = cluster.now_ns + runs_s(pod, blocker) * NS_PER_S
    cluster.queue.push(ends_ns, ContainerEnds(pod, pod.starts, blocker, again))
    return True


def runs_s(pod: SimulatedPod, blocker: Blocker) -> int:
    """Seconds that the container runs before it ends."""
    for container in pod.template.spec.containers if killed_by_probe(blocker) else ():
        probe = container.startup_probe or container.liveness_probe
        if probe is not None:
            return max(1, probe.initial_delay_seconds + probe.period_seconds * probe.failure_threshold)
    return IMPORTS_S if is_engine(pod) else PROGRAM_S


def killed_by_probe(blocker: Blocker) -> bool:
    """Whether the kubelet ends the container, as a probe fails too often."""
    return blocker.said.startswith(("Startup probe", "Liveness probe"))


def is_engine(pod: SimulatedPod) -> bool:
    """Whether its first container is an LLM engine."""
    return pod.workload.server is not None or "vllm" in pod.template.spec.containers[0].image


@dataclass(slots=True)
class ContainerEnds:
    """The container ends with an error; the kubelet, or the framework of the workload, starts it again."""

    pod: SimulatedPod
    start: int
    blocker: Blocker
    again: Event | None

    def handle(self, cluster: Site) -> Later:
        pod, blocker = self.pod, self.blocker
        if pods.gone(pod) or not pod.running_since(self.start):
            return
        said = blocker.said or blocker.message
        code = KILLED if blocker.reason == OOM_KILLED else TERMINATED if killed_by_probe(blocker) else 1
        mark(cluster, pod, CRASHING, blocker.rule, blocker.message, f"BackOff: {said}")
        if pod.workload.controller is None:
            assert self.again is not None
            yield crash(cluster, pod, said, code, blocker.reason), self.again
            return
        assert pod.started_ns is not None
        pod.last_end = End(code, reason_of(code, blocker.reason), said, pod.started_ns, cluster.now_ns)
        cause = Cause.OOM if blocker.reason == OOM_KILLED else Cause.PERMANENT
        pod.workload.controller.exits(cluster, pod, cause, code, said)
