"""autoscaling.x-k8s.io: room that an autoscaler keeps free, and the PodTemplates (v1) that say what for.

Source: kubernetes-sigs/karpenter v1.14.0 pkg/apis/autoscaling/v1beta1; the Cluster Autoscaler's capacitybuffer API is
the same.
"""

from __future__ import annotations

from tonnage.objects.base import Field, KubeObject
from tonnage.objects.core import PodTemplateSpec
from tonnage.objects.quantity import Written

ACTIVE = "buffer.x-k8s.io/active-capacity"
"""The strategy that launches nodes."""


class StoredPodTemplate(KubeObject, kw_only=True):
    """v1 PodTemplate."""

    template: PodTemplateSpec


class TemplateReference(Field, frozen=True, kw_only=True):
    """A PodTemplate of the same namespace."""

    name: str


class ScalableReference(Field, frozen=True, kw_only=True):
    """A workload of the same namespace that has replicas."""

    kind: str
    name: str
    api_group: str = ""


class CapacityBufferSpec(Field, frozen=True, kw_only=True):
    """Room for pods: ``replicas`` of them, or ``percentage`` of the replicas of ``scalable_ref``, the larger of
    the two; no more than ``limits`` have room for, and as many as those have where neither is given."""

    provisioning_strategy: str = ACTIVE
    pod_template_ref: TemplateReference | None = None
    scalable_ref: ScalableReference | None = None
    replicas: int | None = None
    percentage: int | None = None
    limits: dict[str, Written] = {}


class CapacityBuffer(KubeObject, kw_only=True):
    """autoscaling.x-k8s.io CapacityBuffer."""

    spec: CapacityBufferSpec
