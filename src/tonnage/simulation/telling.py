"""The life of a simulated pod until now, told as `kubectl describe` would, with what it waits for and until when."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from tonnage.decisions import Ref
from tonnage.health.blocker import REFUSED
from tonnage.health.told import COMES, ENDED, FAILS, RUNS, SERVES, STARTS, WAITS, Told, of_blockers
from tonnage.machines.blocked import of_workload
from tonnage.machines.cluster import SimulatedCluster
from tonnage.machines.objects import SimulatedNodeClaim, SimulatedPod
from tonnage.machines.training.workload import Training
from tonnage.simulation.findings.unserved import ENDED as WORKLOAD_FAILED
from tonnage.simulation.findings.waiting import NO_STOCK, STOCK_HELP, Reasons, clock
from tonnage.simulation.recorder import Recorder
from tonnage.units import GIB, NS_PER_S

TOLD = 6
"""Events that are told."""


def of_pod(cluster: SimulatedCluster, recorder: Recorder, key: tuple[str, str]) -> Told | None:
    """What has become of the pod (namespace, name); None where its place is all that can be told, or it never was."""
    pod = cluster.pods.get(key)
    if pod is None:
        return _gone(cluster, recorder, key)
    about, events = pod.key, tuple(_events(cluster, f"Pod {pod.key}"))
    blocked = of_blockers(about, [b for b in of_workload(cluster, pod.workload, pod.name) if b.stage != REFUSED])
    if blocked is not None:
        return msgspec.structs.replace(blocked, details=(*blocked.details, *events))
    if pod.failing is not None:
        starts = f" after {pod.starts} starts" if pod.starts > 1 else ""
        return Told(about, FAILS, f"crash-loops{starts}: {pod.failing.cause}", events, rule=pod.failing.rule)
    if pod.bound_ns is None:
        return _coming(cluster, pod) or _waiting(cluster, recorder, pod, events)
    if pod.started_ns is None and pod.last_end is not None and pod.again_ns > cluster.now_ns:
        return Told(about, FAILS, _crashed(pod), events)
    if pod.ready_ns is not None:
        word = "serves" if pod.workload.service is not None else "runs"
        state = SERVES if pod.workload.service is not None else RUNS
        return Told(about, state, f"{word} on {pod.node} since {clock(pod.ready_ns)}", events)
    return Told(about, STARTS, f"is on {pod.node}: {_starting(cluster, pod)}", events)


def _gone(cluster: SimulatedCluster, recorder: Recorder, key: tuple[str, str]) -> Told | None:
    about = "/".join(key)
    for training in cluster.training.values():
        if training.makes(*key) and (training.over or training.not_before_ns.get(key[1], 0) > cluster.now_ns):
            return _of_training(cluster, about, training)
    evicted = [r for r in recorder.decisions if r.kind == "Evict" and r.target == str(Ref("Pod", key[1], key[0]))]
    if evicted:
        last = evicted[-1]
        return Told(about, ENDED, f"is gone: {last.summary} at {clock(int(last.t_s * NS_PER_S))}: {last.verdict}")
    events = tuple(_events(cluster, f"Pod {about}"))
    return Told(about, ENDED, f"is gone: {events[-1]}", events) if events else None


def _crashed(pod: SimulatedPod) -> str:
    """Between two starts of a container that has ended with an error."""
    assert pod.last_end is not None
    end, times = pod.last_end, f"{pod.crashes} times in a row" if pod.crashes > 1 else "once"
    said = f": {end.message}" if end.message and end.message != f"exit code {end.exit_code}" else ""
    return (
        f"is in CrashLoopBackOff: its container has crashed {times}, last at {clock(end.ended_ns)} with exit code "
        f"{end.exit_code} ({end.reason}){said}; it starts again at {clock(pod.again_ns)}"
    )


def _waiting(cluster: SimulatedCluster, recorder: Recorder, pod: SimulatedPod, events: tuple[str, ...]) -> Told | None:
    """Of a pending pod what its place does not tell: who was preferred, and why no node is launched."""
    reasons = Reasons(cluster, recorder)
    preempted, said = reasons.preempted(pod), reasons.told(pod)
    if preempted:
        return Told(pod.key, WAITS, f"was {preempted} and is pending" + (f": {said}" if said else ""), events)
    if reasons.stock(pod):
        return Told(pod.key, WAITS, f"is pending: {said}", events, STOCK_HELP, rule=NO_STOCK)
    return None


def of_workload_object(cluster: SimulatedCluster, ref: Ref) -> Told | None:
    """What has become of a workload that has no pods now; None of one that is not known here."""
    deployment = cluster.workloads.get(ref.workload)
    if deployment is not None:
        return Told(str(ref), RUNS, "has no pods: its replicas are 0") if not deployment.replicas else None
    mine = f"{ref.namespace}/{ref.kind.lower()}/{ref.name}"
    found = [training for training in cluster.training.values() if mine in (training.origin, training.key)]
    told = [_of_training(cluster, str(ref), training) for training in found]
    return next((one for one in told if not one.well), told[0] if told else None)


def _of_training(cluster: SimulatedCluster, about: str, training: Training) -> Told:
    events = tuple(_events(cluster, f"Training {training.key}"))
    if training.over:
        ended = clock(training.ended_ns or 0)
        if training.withdrawn:
            return Told(about, ENDED, f"was deleted or suspended at {ended}", events)
        if training.failed:
            return Told(about, FAILS, f"failed at {ended}: {training.verdict}", events, rule=WORKLOAD_FAILED)
        return Told(about, ENDED, f"finished at {ended}", events)
    if not training.arrived:
        return Told(about, COMES, f"is created at {clock(training.arrival_ns)}")
    again_ns = min((at for at in training.not_before_ns.values() if at > cluster.now_ns), default=None)
    if again_ns is not None:
        times = f"{training.restarts} restart{'s' if training.restarts != 1 else ''}"
        line = f"is in back-off ({times}): {training.said}; its pods are recreated at {clock(again_ns)}"
        return Told(about, WAITS, line, events)
    return Told(about, WAITS, "has no pods yet", events)


def _coming(cluster: SimulatedCluster, pod: SimulatedPod) -> Told | None:
    for claim in cluster.cloud.claims.values():
        if any((ref.namespace, ref.name) == (pod.namespace, pod.name) for ref in claim.launch.pods):
            node = f"{claim.launch.claim.name} ({claim.launch.instance_type})"
            since, until = clock(claim.created_ns), clock(_expected_ns(cluster, claim))
            line = f"waits for node {node}: requested at {since}, expected at {until}"
            return Told(pod.key, COMES, line, tuple(_events(cluster, f"Pod {pod.key}")))
    return None


def _expected_ns(cluster: SimulatedCluster, claim: SimulatedNodeClaim) -> int:
    """When such a node usually has its GPUs, since it was asked for."""
    d = cluster.physics.durations
    usual = d.launch_s + d.register_s + d.ready_s + d.device_plugin_s
    return max(cluster.now_ns, claim.created_ns + int(usual * NS_PER_S))


def _starting(cluster: SimulatedCluster, pod: SimulatedPod) -> str:
    node, image = cluster.nodes[pod.node], pod.template.spec.containers[0].image
    pulled = node.image_ready_ns.get(image)
    if pod.started_ns is None and pulled is not None and pulled > cluster.now_ns:
        return f"pulling image {image} until {clock(pulled)}"
    if pod.started_ns is None:
        return "its container is being created"
    server = pod.workload.server
    if server is None:
        return f"running since {clock(pod.started_ns)}, not Ready yet"
    loaded = node.weights_ready_ns.get(server.model, 0)
    if loaded > cluster.now_ns:
        return f"loading the weights of {server.model} ({server.weight_bytes / GIB:.1f} GiB) until {clock(loaded)}"
    return f"the engine has been starting since {clock(pod.started_ns)}: compilation and CUDA graphs"


def _events(cluster: SimulatedCluster, about: str) -> Iterator[str]:
    found = [event for event in cluster.events.rows.values() if event.object == about]
    for event in found[-TOLD:]:
        times = f" (x{event.count})" if event.count > 1 else ""
        yield f"{clock(event.t_ns)} {event.reason}: {event.message}{times}"


def pods_of(cluster: SimulatedCluster, ref: Ref) -> Sequence[SimulatedPod]:
    """The pods of a workload, by name."""
    found = cluster.workloads.get(ref.workload)
    if found is not None:
        return found.active
    wanted = f"{ref.namespace}/{ref.kind.lower()}/{ref.name}"
    return [pod for t in cluster.training.values() if wanted in (t.origin, t.key) for pod in t.workload.active]
