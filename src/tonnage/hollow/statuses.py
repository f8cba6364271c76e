"""What a kubelet and a cloud write about simulated machines: the bodies of nodes, pods, claims and their statuses."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from tonnage.facts.labels import BETA_OS, CAPACITY_TYPE, HOSTNAME, INSTANCE_TYPE, OS, ZONE
from tonnage.fleet.features import KUBELET
from tonnage.fleet.rows import NodeRow
from tonnage.hollow.conditions import condition
from tonnage.machines.objects import End, SimulatedNode, SimulatedPod
from tonnage.node.health_effects import CONDITION, HealthPolicy, of_node
from tonnage.objects import core, karpenter
from tonnage.objects.quantity import quantities

JsonObject = dict[str, Any]

KUBELET_VERSION = "v1.36.3"
ANNOTATION = "tonnage.dev/simulated"
"""On every node (and so every pod) that is not real."""
FINALIZER = "karpenter.sh/termination"
GATED = "ReadinessGatesNotReady"
"""Why a pod whose containers are all Ready is not (kubernetes/kubernetes pkg/kubelet/status/generate.go)."""


def node_body(node: SimulatedNode, row: NodeRow, capacity: Mapping[str, int]) -> JsonObject:
    """The Node as its kubelet registers it."""
    labels = {
        HOSTNAME: node.name,
        OS: "linux",
        BETA_OS: "linux",
        **row.labels,
    }
    annotations = {ANNOTATION: "true"}
    if row.do_not_disrupt:
        annotations[karpenter.DO_NOT_DISRUPT] = "true"
    spec: JsonObject = {"providerID": provider_id(node)}
    if row.taints:
        spec["taints"] = [msgspec.to_builtins(taint) for taint in row.taints]
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": node.name, "labels": labels, "annotations": annotations},
        "spec": spec,
        "status": {
            "capacity": quantities({name: amount for name, amount in capacity.items() if amount}),
            "nodeInfo": _node_info(node),
            "addresses": [{"type": "Hostname", "address": node.name}],
        },
    }


def _node_info(node: SimulatedNode) -> JsonObject:
    return {
        "machineID": node.uid,
        "systemUUID": node.uid,
        "bootID": node.uid,
        "kernelVersion": "simulated",
        "osImage": "Simulated machine",
        "containerRuntimeVersion": "simulated://1",
        "kubeletVersion": KUBELET_VERSION,
        "kubeProxyVersion": "",
        "operatingSystem": "linux",
        "architecture": "amd64",
    }


def provider_id(node: SimulatedNode) -> str:
    """How the cloud names the instance."""
    return f"simulated:///{node.zone}/{node.name}"


def node_status(
    node: SimulatedNode, allocatable: Mapping[str, int], capacity: Mapping[str, int], at: str, gone: Iterable[str] = ()
) -> JsonObject:
    """The status that changes over the node lifecycle. Without its device plugin it has no GPUs yet, in capacity
    neither; of a resource that is ``gone`` a kubelet says that there are none."""
    ready = node.kubelet_ready and node.ended_ns is None
    reason, message = ("KubeletReady", "kubelet is posting ready status") if ready else ("KubeletNotReady", "starting")
    conditions = [
        condition("MemoryPressure", False, "KubeletHasSufficientMemory", "kubelet has sufficient memory", at),
        condition("DiskPressure", False, "KubeletHasNoDiskPressure", "kubelet has no disk pressure", at),
        condition("PIDPressure", False, "KubeletHasSufficientPID", "kubelet has sufficient PID available", at),
        condition("Ready", ready, reason, message, at),
    ]
    if node.health.seen:  # the agent has something to say
        said = of_node(node.health, [node.gpu_uuid(n) for n in range(node.gpus)], HealthPolicy())
        conditions.append(condition(CONDITION, said.status == "True", said.reason, said.message, at))
    there = {name: amount for name, amount in capacity.items() if amount and (name in allocatable or "/" not in name)}
    none = dict.fromkeys(gone, 0)
    return {
        "capacity": quantities({name: 0 for name in none if not capacity.get(name)} | there),
        "allocatable": quantities(none | {name: amount for name, amount in allocatable.items() if amount}),
        "conditions": [{**c, "lastHeartbeatTime": at} for c in conditions],
        "declaredFeatures": list(KUBELET),
    }


def claim_labels(node: SimulatedNode) -> JsonObject:
    """What the launch decided, as Karpenter writes it on the NodeClaim."""
    return {INSTANCE_TYPE: node.instance_type, ZONE: node.zone, CAPACITY_TYPE: node.capacity_type}


def claim_status(name: str, node: SimulatedNode, registered: bool, capacity: Mapping[str, int], at: str) -> JsonObject:
    """The status of a NodeClaim whose instance runs (Karpenter's conditions)."""
    initialized = node.ready_ns is not None
    steps = (("Launched", True), ("Registered", registered), ("Initialized", initialized), ("Ready", initialized))
    conditions = [condition(step, done, step if done else "NotReady", "", at) for step, done in steps]
    status: JsonObject = {
        "providerID": provider_id(node),
        "capacity": quantities({key: amount for key, amount in capacity.items() if amount}),
        "allocatable": quantities({key: amount for key, amount in node.allocatable.items() if amount}),
        "conditions": conditions,
    }
    if registered:
        status["nodeName"] = node.name
    return status


def pod_status(
    pod: SimulatedPod, spec: core.PodSpec, at: Mapping[str, str], failing: tuple[str, str] | None
) -> JsonObject:
    """The status of a bound pod. ``at``: RFC 3339 times of ``bound``, ``started`` and ``ready``, as far as known, and
    of the begin (``began``) and the end (``ended``) of the run before this one."""
    started, ready = "started" in at, "ready" in at and failing is None
    last = at.get("ready") or at.get("started") or at["bound"]
    names = [container.name for container in spec.containers]
    not_ready = "" if ready else f"containers with unready status: [{' '.join(names)}]"
    gone = {"reason": None, "message": None}  # what was said while it was not ready
    why = gone if ready else {"reason": "ContainersNotReady", "message": not_ready}
    gated = started and pod.failing is not None and pod.failing.event.startswith(GATED)
    contained = ready or gated
    inner, why = (gone, {"reason": GATED, "message": _message(pod)}) if gated else (why, why)
    conditions = [
        {"type": "PodReadyToStartContainers", "status": "True" if started else "False", "lastTransitionTime": last},
        {"type": "Initialized", "status": "True", "lastTransitionTime": at["bound"]},
        {"type": "Ready", "status": "True" if ready else "False", "lastTransitionTime": last, **why},
        {"type": "ContainersReady", "status": "True" if contained else "False", "lastTransitionTime": last, **inner},
        {"type": "PodScheduled", "status": "True", "lastTransitionTime": at["bound"]},
    ]
    status: JsonObject = {
        "phase": "Running" if started else "Pending",
        "startTime": at["bound"],
        "conditions": conditions,
        "containerStatuses": [
            _container(pod, c, at, started=started, ready=contained, failing=failing) for c in spec.containers
        ],
    }
    return status


def _message(pod: SimulatedPod) -> str:
    """What is said of a pod that does not serve, without the reason."""
    return pod.failing.event.partition(": ")[2] if pod.failing is not None else ""


def _last_state(end: End, at: Mapping[str, str]) -> JsonObject:
    """How the container's last run ended."""
    ended: JsonObject = {"exitCode": end.exit_code, "reason": end.reason, "message": end.message}
    return {"terminated": ended | {"startedAt": at["began"], "finishedAt": at["ended"]}}


def pod_succeeded(pod: SimulatedPod, spec: core.PodSpec, at: Mapping[str, str], ended: str) -> JsonObject:
    """The status of a pod whose containers have ended without an error. ``at``: as for :func:`pod_status`."""
    status = pod_status(pod, spec, at, None)
    for one in status["conditions"]:
        if one["type"] in ("Ready", "ContainersReady"):
            one |= {"status": "False", "reason": "PodCompleted", "message": None, "lastTransitionTime": ended}
    for container in status["containerStatuses"]:
        terminated = {"exitCode": 0, "reason": "Completed", "startedAt": at["started"], "finishedAt": ended}
        container |= {"ready": False, "started": False, "state": {"terminated": terminated}}
    return {**status, "phase": "Succeeded"}


def pod_failed(
    pod: SimulatedPod, spec: core.PodSpec, at: Mapping[str, str], failing: tuple[str, str] | None
) -> JsonObject:
    """The status of a pod whose container has ended with an error and is not started again. ``at``: as for
    :func:`pod_status`."""
    assert pod.last_end is not None
    status = pod_status(pod, spec, at, None)
    for one in status["conditions"]:
        if one["type"] in ("Ready", "ContainersReady"):
            one |= {"status": "False", "reason": "PodFailed", "message": None, "lastTransitionTime": at["ended"]}
    for container in status["containerStatuses"]:
        container.pop("lastState", None)
        container |= {"ready": False, "started": False, "state": _last_state(pod.last_end, at)}
    return {**status, "phase": "Failed"}


def _container(
    pod: SimulatedPod,
    container: core.Container,
    at: Mapping[str, str],
    *,
    started: bool,
    ready: bool,
    failing: tuple[str, str] | None,
) -> JsonObject:
    if failing is not None:
        state: JsonObject = {"waiting": {"reason": failing[0], **({"message": failing[1]} if failing[1] else {})}}
    elif started:
        state = {"running": {"startedAt": at["started"]}}
    else:
        state = {"waiting": {"reason": "ContainerCreating"}}
    return {
        "name": container.name,
        "image": container.image,
        "imageID": "",
        "ready": ready,
        "started": started and failing is None,
        "restartCount": max(0, pod.starts - 1),
        "state": state,
        **({"lastState": _last_state(pod.last_end, at)} if pod.last_end is not None else {}),
        **({"containerID": f"simulated://{pod.uid}"} if started else {}),
    }
