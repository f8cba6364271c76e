"""Amounts of resources, as containers and nodes have them.

Source: kubernetes/kubernetes pkg/apis/core/validation/validation.go (ValidateResourceQuantityValue), pkg/apis/core/v1/
helper/helpers.go (IsNativeResource, IsOvercommitAllowed); staging/src/k8s.io/apimachinery/pkg/api/resource quantity.go
(ParseQuantity, MilliValue) and amount.go (AsScaledInt64) for :func:`is_whole`, whose answers are those of
kube-apiserver v1.36.3.
"""

from __future__ import annotations

import re
from math import ceil
from typing import Any

from tonnage.objects.api.canonical import canonical_quantity
from tonnage.objects.api.errors import NOT_NEGATIVE, FieldError, amount, invalid_value


def is_native(name: str) -> bool:
    """Whether the resource is Kubernetes' own: it may be a fraction. All others are counted."""
    return "/" not in name or "kubernetes.io/" in name


_NUMBER = re.compile(r"[+-]?0*([0-9]*)\.?([0-9]*)(.*)")
_DIGITS, _LEAST_SCALE = 18, -9
"""A decimal quantity of so many digits, and of no smaller a unit, is an integer and a power of ten there."""
_WRAPPING = (1, 2, 3, 6, 9)
"""Powers of ten by which that integer is multiplied whatever it becomes; by others what is too large becomes 0."""
_POWERS = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}


def is_whole(written: Any) -> bool:
    """Whether the API server takes a quantity for a whole number: it looks at thousandths in 64 bits, where what is too
    large wraps around or is 0. So 1Ei is no whole number there, and 10E is one."""
    value = amount(written)
    if value is None:
        return True
    whole, fraction, suffix = _NUMBER.fullmatch(str(written)).groups()  # type: ignore[union-attr]
    if not suffix.endswith("i"):
        power = _POWERS[suffix] if suffix in _POWERS else int(suffix[1:])
        scale = power - len(fraction) + 3
        if len(whole) + len(fraction) <= _DIGITS and scale - 3 >= _LEAST_SCALE and scale > 0:
            milli = int(whole + fraction or "0") * 10 ** min(scale, 2 * _DIGITS)
            return (scale not in _WRAPPING and milli >= _HALF) or _wrapped(milli) % 1000 == 0
    elif abs(value) >= _HALF:
        return True  # cut off at 2⁶³ − 1, the thousandths of which wrap to −1000
    return _wrapped(ceil(abs(value) * 1000)) % 1000 == 0


_HALF = 1 << 63


def _wrapped(number: int) -> int:
    """As a signed integer of 64 bits."""
    return (number + _HALF) % (1 << 64) - _HALF


def resource_amount(path: str, name: str, written: Any) -> list[FieldError]:
    """What is wrong with an amount of the resource ``name``; of what is no quantity decoding says so."""
    value, shown = amount(written), canonical_quantity(written)
    causes: list[FieldError] = []
    if value is None:
        return causes
    if value < 0:
        causes.append(invalid_value(path, shown, NOT_NEGATIVE))
    if not is_native(name) and not is_whole(written):
        causes.append(invalid_value(path, shown, "must be an integer"))
    return causes


def of_pods(name: str) -> bool:
    """Whether a pod as a whole may ask for a resource."""
    return name in ("cpu", "memory") or name.startswith("hugepages-")
