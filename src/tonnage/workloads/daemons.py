"""The pods that DaemonSets have on a node: each node that is for them has one, before any other pod is placed there.

Source: kubernetes/kubernetes v1.36 pkg/controller/daemon/daemon_controller.go (NodeShouldRunDaemonPod).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from tonnage.fleet.filters import FOREIGN_CUDA, NO_CUDA, NO_FEATURE, OPEN, cuda_refusal, refusal
from tonnage.fleet.ports import NO_PORTS, clash
from tonnage.fleet.rows import FleetPod
from tonnage.fleet.state import Conflict, Fleet
from tonnage.objects import core, selectors


@dataclass(frozen=True, slots=True)
class DaemonFit:
    """Whether a node should get a pod of a DaemonSet, and whether one that it has may stay."""

    run: bool
    stay: bool


def fit(spec: core.PodSpec, labels: Mapping[str, str], taints: Iterable[core.Taint], name: str) -> DaemonFit:
    """What the DaemonSet controller makes of a node; ``spec``: with the tolerations that its pods get."""
    elsewhere = bool(spec.node_name) and spec.node_name != name
    if elsewhere or not selectors.node_selector_matches(spec, labels, name):
        return DaemonFit(False, False)
    taints = tuple(taints)
    if selectors.untolerated(taints, spec.tolerations, selectors.HARD_EFFECTS) is None:
        return DaemonFit(True, True)
    return DaemonFit(False, selectors.untolerated(taints, spec.tolerations, ("NoExecute",)) is None)


def start(
    fleet: Fleet, row: int, namespace: str, name: str, template: core.PodTemplateSpec, owner: str
) -> FleetPod | Conflict | None:
    """Bind the pod of a DaemonSet to the node of this row. ``template``: as admission completes it; ``owner``: how its
    pods name the DaemonSet. None where the node is none of its nodes, Conflict where it cannot be placed there."""
    node = fleet.node(row)
    if not fit(template.spec, node.labels, node.taints, node.spec.name).run:
        return None
    meta = template.metadata
    spec = FleetPod(
        namespace,
        f"{name}-{node.spec.name}",
        "",
        dict(meta.labels),
        template.spec,
        owner,
        daemon=True,
        annotations=meta.annotations,
    )
    pod = fleet.add_pod(spec)
    try:
        _check(fleet, pod, row)
        fleet.bind(pod, row)
    except Conflict as conflict:
        fleet.remove_pod(pod)
        return conflict
    return spec


def _check(fleet: Fleet, pod: int, row: int) -> None:
    """Raises Conflict, in the scheduler's words, where it would not place the pod on its node, whatever is free."""
    node, pod_class = fleet.node(row), fleet.pod_class(pod)
    shape = fleet.classes.shapes[pod_class.shape]
    why = refusal(shape, node)
    if why == NO_CUDA:
        raise Conflict(f"node {node.spec.name}: {FOREIGN_CUDA}: {cuda_refusal(shape, node.labels)}")
    if why != OPEN:
        raise Conflict(f"node {node.spec.name}: {NO_FEATURE}")
    taken = (port for other in node.pods for port in fleet.pod_class(other).ports)
    if pod_class.ports and clash(pod_class.ports, taken) is not None:
        raise Conflict(f"node {node.spec.name}: {NO_PORTS}")
