"""The pods that DaemonSets have on a node: every node that admits one has it, before any other pod is placed there.

Source: kubernetes/kubernetes v1.36 pkg/controller/daemon/daemon_controller.go (NodeShouldRunDaemonPod).
"""

from __future__ import annotations

from tonnage.fleet.rows import PodSpec
from tonnage.fleet.state import Conflict, Fleet
from tonnage.objects import core, selectors


def start(
    fleet: Fleet, row: int, namespace: str, name: str, template: core.PodTemplateSpec, owner: str
) -> PodSpec | Conflict | None:
    """Bind the pod of a DaemonSet to the node of this row. ``template``: as admission completes it; ``owner``: how its
    pods name the DaemonSet. None where the node is none of its nodes, Conflict where it has no room for it."""
    node = fleet.node(row)
    if not selectors.node_admits(template.spec, node.labels, node.taints, node.spec.name):
        return None
    meta = template.metadata
    spec = PodSpec(namespace, f"{name}-{node.spec.name}", "", dict(meta.labels), template.spec, owner, daemon=True)
    pod = fleet.add_pod(spec)
    try:
        fleet.bind(pod, row)
    except Conflict as conflict:
        fleet.remove_pod(pod)
        return conflict
    return spec
