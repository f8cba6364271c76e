"""Builders for pods, nodes and fleets, with short defaults. Specs are written as in YAML, in camelCase."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from tonnage.decisions import Bind, Decision, Wait
from tonnage.fleet.snapshot import Snapshot
from tonnage.fleet.state import Fleet, FleetNode, FleetPod
from tonnage.objects import core
from tonnage.scheduling import place
from tonnage.units import GIB

GPU = "nvidia.com/gpu"
ZONE = "topology.kubernetes.io/zone"
HOSTNAME = "kubernetes.io/hostname"


def node(
    name: str,
    *,
    cpu: float = 8,
    memory_gib: float = 32,
    gpus: int = 0,
    pods: int = 110,
    zone: str = "",
    labels: dict[str, str] | None = None,
    taints: Sequence[str] = (),
    **more: Any,
) -> FleetNode:
    """A node; taints as kubectl writes them (``key=value:Effect``). ``device_resource``: for GPUs that come later."""
    allocatable = {"cpu": round(cpu * 1000), "memory": round(memory_gib * GIB), "pods": pods}
    if gpus:
        allocatable[GPU] = gpus
    return FleetNode(
        name,
        allocatable | more.pop("resources", {}),
        ({ZONE: zone} if zone else {}) | (labels or {}),
        tuple(taint(one) for one in taints),
        uid=f"uid-{name}",
        device_resource=more.pop("device_resource", GPU if gpus else ""),
        zone=zone,
        **more,
    )


def taint(text: str) -> core.Taint:
    """``key=value:Effect`` or ``key:Effect``."""
    pair, _, effect = text.rpartition(":")
    key, _, value = pair.partition("=")
    return core.Taint(key=key, value=value, effect=effect)


def requests(
    cpu: float = 1, memory_gib: float = 1, gpus: int = 0, resources: dict[str, str] | None = None
) -> dict[str, str]:
    """Quantities as they stand in a manifest."""
    written = {"cpu": f"{round(cpu * 1000)}m", "memory": f"{round(memory_gib * 1024)}Mi"} | (resources or {})
    return written | ({GPU: str(gpus)} if gpus else {})


def pod_spec(
    cpu: float = 1,
    memory_gib: float = 1,
    gpus: int = 0,
    *,
    resources: dict[str, str] | None = None,
    **fields: Any,
) -> core.PodSpec:
    """A pod's spec with one container; ``fields`` are those of the manifest (``nodeSelector``, ``affinity``, …)."""
    container = {"name": "main", "resources": {"requests": requests(cpu, memory_gib, gpus, resources)}}
    return msgspec.convert({"containers": [container]} | fields, core.PodSpec)


def pod(
    name: str,
    cpu: float = 1,
    memory_gib: float = 1,
    gpus: int = 0,
    *,
    namespace: str = "default",
    labels: dict[str, str] | None = None,
    priority: int = 0,
    created_ns: int = 0,
    spec: core.PodSpec | None = None,
    annotations: dict[str, str] | None = None,
    **fields: Any,
) -> FleetPod:
    """A pod; ``fields`` go to its spec."""
    spec = spec or pod_spec(cpu, memory_gib, gpus, **fields)
    uid = f"uid-{namespace}-{name}"
    return FleetPod(
        namespace,
        name,
        uid,
        labels or {},
        spec,
        priority=priority,
        created_ns=created_ns,
        annotations=annotations or {},
    )


def fleet(
    *nodes: FleetNode, pods: Iterable[FleetPod] = (), bound: dict[str, Iterable[FleetPod]] | None = None
) -> Fleet:
    """A fleet of these nodes with pods pending, and pods bound to the nodes named."""
    made = Fleet()
    for one in nodes:
        made.add_node(one)
    for name, there in (bound or {}).items():
        for one in there:
            made.bind(made.add_pod(one), made.node_by_name[name])
    for one in pods:
        made.add_pod(one)
    return made


# ---- rules about other pods, as in YAML ----


def label_selector(**labels: str) -> dict[str, Any]:
    """A selector by labels."""
    return {"matchLabels": labels}


def affinity_term(key: str = ZONE, namespaces: Sequence[str] = (), **labels: str) -> dict[str, Any]:
    """A term of pod (anti-)affinity."""
    return {"topologyKey": key, "labelSelector": label_selector(**labels), "namespaces": list(namespaces)}


def near(*terms: dict[str, Any]) -> dict[str, Any]:
    """An affinity that requires the pods selected nearby."""
    return {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": list(terms)}}


def away(*terms: dict[str, Any]) -> dict[str, Any]:
    """An affinity that forbids the pods selected nearby."""
    return {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": list(terms)}}


def on_nodes(*terms: dict[str, Any]) -> dict[str, Any]:
    """A required node affinity; any of the terms must hold."""
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": list(terms)}}}


def expression(key: str, operator: str, *values: str) -> dict[str, Any]:
    """One requirement."""
    return {"key": key, "operator": operator, "values": list(values)}


def spread(
    key: str = ZONE, max_skew: int = 1, *, selector: dict[str, str] | None = None, **fields: Any
) -> dict[str, Any]:
    """A topology spread constraint over the pods with these labels (default: ``app: web``)."""
    return {
        "maxSkew": max_skew,
        "topologyKey": key,
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": selector or {"app": "web"}},
    } | fields


# ---- what the scheduler says ----


def decide(made: Fleet, **settings: Any) -> list[Decision]:
    """The scheduler's decisions."""
    return place.decide(Snapshot(0, made), place.Settings(**settings))


def placed(made: Fleet, **settings: Any) -> dict[str, str]:
    """Pod name → node name, of the pods that would be bound now."""
    return {d.pod.name: d.node.name for d in decide(made, **settings) if isinstance(d, Bind)}


def verdict(made: Fleet, name: str, **settings: Any) -> str:
    """Why the pod waits."""
    (reason,) = (d.reason.verdict for d in decide(made, **settings) if isinstance(d, Wait) and d.pod.name == name)
    return reason


def apply(made: Fleet, decisions: Iterable[Decision]) -> None:
    """Bind what was decided."""
    for decision in decisions:
        if isinstance(decision, Bind):
            row = made.pod_by_key[decision.pod.namespace, decision.pod.name]
            made.bind(row, made.node_by_name[decision.node.name], decision.devices)
