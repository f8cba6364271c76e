"""apps/v1."""

from __future__ import annotations

from typing import Any

from tonnage.objects.base import Field, KubeObject
from tonnage.objects.core import LabelSelector, PodTemplateSpec


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


class DaemonSetSpec(Field, frozen=True, kw_only=True):
    """One pod on every node that the template fits."""

    selector: LabelSelector
    template: PodTemplateSpec


class DaemonSet(KubeObject, kw_only=True):
    """apps/v1 DaemonSet."""

    spec: DaemonSetSpec
