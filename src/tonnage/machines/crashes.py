"""Containers that end with an error, which of the pods on the same GPUs end with them, and how the kubelet starts them
again: later each time."""

from __future__ import annotations

from tonnage.facts.restarts import backoffs
from tonnage.machines import pods, sharing
from tonnage.machines.objects import End, SimulatedPod
from tonnage.machines.site import Site
from tonnage.units import NS_PER_S

SIGNALLED = 128
"""Exit codes from here on tell that a signal ended the container, which frameworks take as worth another try."""


OOM_KILLED = "OOMKilled"


def reason_of(exit_code: int, reason: str = "") -> str:
    """Why a container ended, as its state says."""
    return OOM_KILLED if reason == OOM_KILLED else "Error" if exit_code else "Completed"


def crash(cluster: Site, pod: SimulatedPod, why: str, exit_code: int = 1, reason: str = "") -> int:
    """The container of a pod without a controller ends with an error. Returns when it starts again.

    A container that ran for twice the longest back-off is not in a crash loop (kubernetes/kubernetes pkg/kubelet)."""
    backoff = backoffs()["kubelet"]
    now = cluster.now_ns
    if pod.replica is not None and pod.workload.service is not None:
        pod.workload.service.kill(pod.replica, now)
        pods.account(cluster, pod)
    sharing.leave(cluster, pod)
    ran = now - pod.started_ns if pod.started_ns is not None else 0
    pod.last_end = End(exit_code, reason_of(exit_code, reason), why, now - ran, now)
    pod.crashes = 1 if ran >= 2 * backoff.most_s * NS_PER_S else pod.crashes + 1
    pod.replica, pod.busy_ns, pod.started_ns, pod.ready_ns = None, 0, None, None
    pods.count_ready(cluster, pod.workload)
    cluster.mirror.pod_failing(pod, "CrashLoopBackOff", why)
    cluster.events.add(now, f"Pod {pod.key}", "Warning", "BackOff", why)
    start = cluster.vary("container", cluster.physics.durations.container_start_s)
    pod.again_ns = now + backoff.delay_s(pod.crashes) * NS_PER_S + start
    return pod.again_ns


def taken_along(cluster: Site, pod: SimulatedPod, exit_code: int, *, oom: bool) -> list[SimulatedPod]:
    """The pods that end with this one, by name. ``oom``: its engine finds no memory on the GPU.

    Where turns are taken the memory of a GPU belongs to all who are not limited, and who finds none ends. A client of
    MPS that a signal ends takes all others on its GPU along, one that finds no memory within its limit ends alone
    (measured: :data:`tonnage.partitioning.mps.ISOLATION`)."""
    one = pod.sharer
    if one is None:
        return []
    hit: set[str] = set()
    for card in one.cores:
        for other in card.sharers:
            if card.mps:
                felt = exit_code >= SIGNALLED and not oom
            else:
                felt = oom and one.limit is None and other.limit is None
            if felt and other is not one:
                hit.add(other.pod)
    return [cluster.pod_of(key) for key in sorted(hit)]
