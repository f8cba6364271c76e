"""apps/v1."""

from __future__ import annotations

from typing import Any

from tonnage.objects import selectors
from tonnage.objects.base import Field, KubeObject
from tonnage.objects.core import LabelSelector, Pod, PodTemplateSpec


class DeploymentSpec(Field, frozen=True, kw_only=True):
    """``replicas`` defaults to 1."""

    selector: LabelSelector
    template: PodTemplateSpec
    replicas: int = 1
    strategy: dict[str, Any] = {}
    min_ready_seconds: int = 0


class Deployment(KubeObject, kw_only=True):
    """apps/v1 Deployment."""

    spec: DeploymentSpec

    def selects(self, pod: Pod) -> bool:
        """Whether the pod is in its namespace and has the labels that it selects."""
        same = (self.namespace or "default") == (pod.namespace or "default")
        return same and selectors.matches(self.spec.selector, pod.metadata.labels)


class DaemonSetSpec(Field, frozen=True, kw_only=True):
    """One pod on every node that the template fits."""

    selector: LabelSelector
    template: PodTemplateSpec


class DaemonSet(KubeObject, kw_only=True):
    """apps/v1 DaemonSet."""

    spec: DaemonSetSpec
