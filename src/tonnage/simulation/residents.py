"""Pods that stand on nodes before a run begins, as a dump of a cluster has them: they keep their places.

A Deployment, StatefulSet or training workload of the manifests makes its first pods where its own stand. Pods of which
nothing here makes others (whose owner is not among the objects) are there by themselves.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from tonnage.objects import apps, core
from tonnage.objects.base import KubeObject
from tonnage.workloads.membership import asked
from tonnage.workloads.owners import is_over, owner_key, stands, workload_of


class Residents:
    """Whose the pods among the objects are. ``workloads``: those that make their pods here, by namespace/kind/name;
    ``nodes``: those that are there."""

    def __init__(self, objects: Iterable[KubeObject], workloads: Collection[str], nodes: Collection[str]) -> None:
        given, self._nodes = tuple(objects), nodes
        makers = (*apps.replicated(given), *(one for one in given if isinstance(one, apps.DaemonSet)))
        self._makers = {owner_key(one.namespace, one.kind, one.name) for one in makers} | set(workloads)
        self._standing: dict[str, dict[str, str]] = {}
        for pod in given:
            if isinstance(pod, core.Pod) and stands(pod) and (maker := self._maker(pod)):
                self._standing.setdefault(maker, {})[pod.name] = pod.spec.node_name

    def is_alone(self, pod: core.Pod) -> bool:
        """Whether the pod is there although nothing here makes it: a bare one, or a stranger's on its node."""
        if is_over(pod) or self._maker(pod):
            return False
        return not pod.metadata.owner_references or stands(pod)

    def of(self, maker: str, pods: Iterable[core.Pod] = ()) -> dict[str, str]:
        """The node of each of the pods that stand already, by name: of a workload, or of these bare ``pods``."""
        known = self._standing.get(maker, {}) | {pod.name: pod.spec.node_name for pod in pods if stands(pod)}
        return {pod: node for pod, node in known.items() if node in self._nodes}

    def _maker(self, pod: core.Pod) -> str:
        """Who makes the pod here; empty for nobody."""
        if not pod.metadata.owner_references:
            return ""
        meta = pod.metadata
        near = (one.workload for one in asked(pod.namespace, meta.labels, meta.annotations, pod.spec))
        return next((key for key in (workload_of(pod), *near) if key in self._makers), None) or ""
