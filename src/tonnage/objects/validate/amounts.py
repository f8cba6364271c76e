"""Quotas, limits, volumes and claims: what they count in has to be quantities.

Source: kubernetes/kubernetes pkg/apis/core/validation/validation.go (ValidateResourceQuota, ValidateLimitRange,
ValidatePersistentVolume, ValidatePersistentVolumeClaim) and pkg/apis/node/validation/validation.go.
"""

from __future__ import annotations

from typing import Any

from tonnage.objects.base import KubeObject
from tonnage.objects.validate.common import Report

_LIMITS = ("max", "min", "default", "defaultRequest", "maxLimitRequestRatio")
_AT = ("spec.hard", "status.hard", "status.used", "spec.capacity", "status.capacity", "overhead.podFixed")


def amounts(_: KubeObject, report: Report) -> None:
    """Every quantity of an object of one of these kinds."""
    for path in (*_AT, "spec.resources.requests", "spec.resources.limits"):
        _each(path, report.at(path), report)
    limits = report.at("spec.limits")
    for index, one in enumerate(limits if isinstance(limits, list) else ()):
        for name in _LIMITS:
            _each(f"spec.limits[{index}].{name}", one.get(name) if isinstance(one, dict) else None, report)


def _each(path: str, written: Any, report: Report) -> None:
    for name, value in written.items() if isinstance(written, dict) else ():
        report.quantity(f"{path}.{name}", value)
