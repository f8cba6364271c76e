"""The life of a simulated pod until now, told as `kubectl describe` would, with what it waits for and until when."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from tonnage.decisions import Ref
from tonnage.health.blocker import REFUSED
from tonnage.health.told import COMES, ENDED, FAILS, RUNS, SERVES, STARTS, Told, of_blockers
from tonnage.simulation.blocked import of_workload
from tonnage.simulation.cluster import SimulatedCluster
from tonnage.simulation.objects import Claim, Pod
from tonnage.simulation.recorder import Recorder
from tonnage.units import GIB, NS_PER_S

TOLD = 6
"""Events that are told."""


def of_pod(cluster: SimulatedCluster, recorder: Recorder, key: tuple[str, str]) -> Told | None:
    """What has become of the pod (namespace, name); None where its place is all that can be told, or it never was."""
    pod = cluster.pods.get(key)
    if pod is None:
        return _gone(cluster, recorder, key)
    about, events = pod.key, tuple(_events(cluster, pod.key))
    blocked = of_blockers(about, [b for b in of_workload(cluster, pod.workload, pod.name) if b.stage != REFUSED])
    if blocked is not None:
        return msgspec.structs.replace(blocked, details=(*blocked.details, *events))
    if pod.failing is not None:
        starts = f" after {pod.starts} starts" if pod.starts > 1 else ""
        return Told(about, FAILS, f"crash-loops{starts}: {pod.failing.cause}", events, rule=pod.failing.rule)
    if pod.bound_ns is None:
        return _coming(cluster, pod)
    if pod.ready_ns is not None:
        word = "serves" if pod.workload.service is not None else "runs"
        state = SERVES if pod.workload.service is not None else RUNS
        return Told(about, state, f"{word} on {pod.node} since {_clock(pod.ready_ns)}", events)
    return Told(about, STARTS, f"is on {pod.node}: {_starting(cluster, pod)}", events)


def _gone(cluster: SimulatedCluster, recorder: Recorder, key: tuple[str, str]) -> Told | None:
    about = "/".join(key)
    evicted = [r for r in recorder.decisions if r.kind == "Evict" and r.target == str(Ref("Pod", key[1], key[0]))]
    if evicted:
        last = evicted[-1]
        return Told(about, ENDED, f"is gone: {last.summary} at {_clock(int(last.t_s * NS_PER_S))}: {last.verdict}")
    events = tuple(_events(cluster, about))
    return Told(about, ENDED, f"is gone: {events[-1]}", events) if events else None


def _coming(cluster: SimulatedCluster, pod: Pod) -> Told | None:
    for claim in cluster.claims.values():
        if any((ref.namespace, ref.name) == (pod.namespace, pod.name) for ref in claim.launch.pods):
            node = f"{claim.launch.claim.name} ({claim.launch.instance_type})"
            since, until = _clock(claim.created_ns), _clock(_expected_ns(cluster, claim))
            line = f"waits for node {node}: asked for at {since}, expected at {until}"
            return Told(pod.key, COMES, line, tuple(_events(cluster, pod.key)))
    return None


def _expected_ns(cluster: SimulatedCluster, claim: Claim) -> int:
    """When such a node usually has its GPUs, since it was asked for."""
    d = cluster.durations
    usual = d.launch_s + d.register_s + d.ready_s + d.device_plugin_s
    return max(cluster.now_ns, claim.created_ns + int(usual * NS_PER_S))


def _starting(cluster: SimulatedCluster, pod: Pod) -> str:
    node, image = cluster.nodes[pod.node], pod.template.spec.containers[0].image
    pulled = node.image_ready_ns.get(image)
    if pod.started_ns is None and pulled is not None and pulled > cluster.now_ns:
        return f"pulling image {image} until {_clock(pulled)}"
    if pod.started_ns is None:
        return "its container is being created"
    server = pod.workload.server
    if server is None:
        return f"running since {_clock(pod.started_ns)}, not Ready yet"
    loaded = node.weights_ready_ns.get(server.model, 0)
    if loaded > cluster.now_ns:
        return f"loading the weights of {server.model} ({server.weight_bytes / GIB:.1f} GiB) until {_clock(loaded)}"
    return f"the engine starts since {_clock(pod.started_ns)}: compilation and CUDA graphs"


def _events(cluster: SimulatedCluster, key: str) -> Iterator[str]:
    found = [event for event in cluster.events.rows.values() if event.object == f"Pod {key}"]
    for event in found[-TOLD:]:
        times = f" (x{event.count})" if event.count > 1 else ""
        yield f"{_clock(event.t_ns)} {event.reason}: {event.message}{times}"


def _clock(t_ns: int) -> str:
    seconds = t_ns // NS_PER_S
    return f"{seconds // 3600}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"


def pods_of(cluster: SimulatedCluster, ref: Ref) -> Sequence[Pod]:
    """The pods of a workload, by name."""
    if ref.kind == "Deployment":
        found = cluster.workloads.get(f"{ref.namespace}/{ref.name}")
        return found.active if found is not None else ()
    wanted = f"{ref.namespace}/{ref.kind.lower()}/{ref.name}"
    return [pod for t in cluster.training.values() if wanted in (t.origin, t.key) for pod in t.workload.active]
