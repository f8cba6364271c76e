"""What a pod asks for that is not placed here: such a pod is left waiting, with the reason, and never bound blindly."""

from __future__ import annotations

from collections.abc import Container

from tonnage.fleet.rows import FleetPod
from tonnage.workloads.naming import named_by

LEFT_CLAIM = "an earlier attempt to bind the pod has left resourceclaim"


def gated(pod: FleetPod) -> str:
    """What holds the pod back before any scheduler looks at it; empty where nothing does."""
    names = ", ".join(gate.name for gate in pod.spec.scheduling_gates)
    return f"it has scheduling gates: {names}" if names else ""


def beyond(pod: FleetPod, nodes: int, *, strict: bool, absent: Container[str] = ()) -> str:
    """Why the pod waits whatever the nodes are, of which there are this many; empty when it can be placed.

    A ResourceClaim that does not exist, or is being deleted, is waited for; so is one of which nobody knows here. A
    claim for a volume that does not exist, or is not bound and should be, is too. ``strict``: a pod that names a pod
    group which is not known here is not bound alone: its group is placed whole or not at all; but where groups of that
    project are ``absent`` (:data:`tonnage.workloads.naming.PROJECTS`) there can be none, and it is a pod as any other.
    """
    spec = pod.spec
    if pod.volumes.waits:
        return f"0/{nodes} nodes are available: {pod.volumes.waits}"
    if (
        strict
        and not pod.volumes.known
        and any(one.get("persistentVolumeClaim") or one.get("ephemeral") for one in spec.volumes)
    ):
        return "persistent volume claims are not known here yet"
    if pod.claims.waits:
        return f"0/{nodes} nodes are available: {pod.claims.waits}"
    if pod.claims.held is not None:
        return f"0/{nodes} nodes are available: {LEFT_CLAIM} {pod.claims.held[1]}"
    if spec.resource_claims and not pod.claims.known:
        return "resource claims are not known here yet"
    if strict and not pod.gang:
        for project, group, _ in named_by(pod.namespace, pod.labels, pod.annotations, spec):
            if project not in absent:
                return f"the pods of group {group}, which is not known here, are not placed by this scheduler"
    return ""
