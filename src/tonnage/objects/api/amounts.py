"""Amounts of resources, as containers and nodes have them.

Source: kubernetes/kubernetes pkg/apis/core/validation/validation.go (ValidateResourceQuantityValue), pkg/apis/core/v1/
helper/helpers.go (IsNativeResource, IsOvercommitAllowed).
"""

from __future__ import annotations

from typing import Any

from tonnage.objects.api.canonical import canonical_quantity
from tonnage.objects.api.errors import NOT_NEGATIVE, FieldError, amount, invalid_value


def is_native(name: str) -> bool:
    """Whether the resource is Kubernetes' own: it may be a fraction. All others are counted."""
    return "/" not in name or "kubernetes.io/" in name


def resource_amount(path: str, name: str, written: Any) -> list[FieldError]:
    """What is wrong with an amount of the resource ``name``; of what is no quantity decoding says so."""
    value, shown = amount(written), canonical_quantity(written)
    causes: list[FieldError] = []
    if value is None:
        return causes
    if value < 0:
        causes.append(invalid_value(path, shown, NOT_NEGATIVE))
    if not is_native(name) and value.denominator != 1:
        causes.append(invalid_value(path, shown, "must be an integer"))
    return causes


def of_pods(name: str) -> bool:
    """Whether a pod as a whole may ask for a resource."""
    return name in ("cpu", "memory") or name.startswith("hugepages-")
