"""Whose a pod is, by the owners that it names, and where it stands already."""

from __future__ import annotations

from tonnage.decisions import Ref
from tonnage.facts.labels import POD_TEMPLATE_HASH
from tonnage.objects import core


def belongs_to_node(pod: core.Pod) -> bool:
    """Whether the pod is a DaemonSet's or the node's own (a static pod)."""
    return any(owner.kind in ("DaemonSet", "Node") and owner.controller for owner in pod.metadata.owner_references)


def workload_of(pod: core.Pod) -> str | None:
    """The Deployment of the pod (:func:`owner_key`), or whatever else controls it.

    A ReplicaSet of a Deployment is named after it and the hash of the pod's template, which is a label of the pod."""
    owner = next((o for o in pod.metadata.owner_references if o.controller), None)
    if owner is None:
        return None
    template = pod.metadata.labels.get(POD_TEMPLATE_HASH)
    if owner.kind == "ReplicaSet" and template:
        return owner_key(pod.namespace, "Deployment", owner.name.removesuffix(f"-{template}"))
    return owner_key(pod.namespace, owner.kind, owner.name)


def owner_key(namespace: str, kind: str, name: str) -> str:
    """How what makes pods is named (:attr:`tonnage.decisions.Ref.workload`)."""
    return Ref(kind, name, namespace).workload


def is_over(pod: core.Pod) -> bool:
    """Whether its containers have ended for good, or it is being deleted."""
    return pod.status.phase in core.FINISHED or pod.metadata.deletion_timestamp is not None


def stands(pod: core.Pod) -> bool:
    """Whether the pod is on a node, as its status confirms, and holds what it asks for there: no scheduler is asked
    about it."""
    return bool(pod.spec.node_name and pod.status.phase) and not is_over(pod)


def is_running(pod: core.Pod) -> bool:
    """Whether its status says that it is on a node and runs: nothing keeps it from doing so."""
    return stands(pod) and pod.status.phase == "Running"
