"""CapacityBuffers, by the rules of their CRD (kubernetes-sigs/karpenter v1.14.0 pkg/apis/autoscaling/v1beta1)."""

from __future__ import annotations

from tonnage.objects.buffers import CapacityBuffer
from tonnage.objects.validate.common import Report


def capacity_buffer(obj: CapacityBuffer, report: Report) -> None:
    """What an API server with the CRD refuses."""
    spec = obj.spec
    if spec.pod_template_ref is not None and spec.scalable_ref is not None:
        report.add("spec.scalableRef", "podTemplateRef is given too", "set one of them")
    if spec.pod_template_ref is not None and spec.replicas is None and not spec.limits:
        report.add("spec.podTemplateRef", "neither replicas nor limits say for how many pods", "set replicas or limits")
    for name, value in (("replicas", spec.replicas), ("percentage", spec.percentage)):
        if value is not None and value < 0:
            report.refuse(f"spec.{name}", value, "0 or more")
    for name, written in spec.limits.items():
        report.quantity(f"spec.limits.{name}", written)
