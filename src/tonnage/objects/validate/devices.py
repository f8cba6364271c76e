"""Objects of resource.k8s.io, in the form of v1: what kube-apiserver refuses, and what would be no quantity.

The rules are :mod:`tonnage.objects.api`'s.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tonnage.objects.api.refused import refused
from tonnage.objects.base import KubeObject
from tonnage.objects.validate.common import Report


def devices(obj: KubeObject, report: Report) -> None:
    """One object. Its rules compare quantities, so they are put to it once all of them are."""
    written = [report.quantity(path, value) for path, value in _quantities(report.written.get("spec"), "spec")]
    if None not in written:
        report.refused(refused(obj.kind, dict(report.written)))


def _quantities(value: Any, path: str) -> Iterator[tuple[str, Any]]:
    """Where quantities stand: values of capacities and counters, their policies, and what requests ask for."""
    if isinstance(value, list):
        for at, item in enumerate(value):
            yield from _quantities(item, f"{path}[{at}]")
    elif isinstance(value, dict):
        for key, inner in value.items():
            here = f"{path}.{key}"
            if key in ("capacity", "counters") and isinstance(inner, dict):
                yield from _amounts(inner, here)
            elif key != "parameters":
                yield from _quantities(inner, here)


def _amounts(given: dict[str, Any], path: str) -> Iterator[tuple[str, Any]]:
    for name, one in given.items():
        here = f"{path}.{name}"
        if isinstance(one, dict) and "value" in one:
            yield f"{here}.value", one["value"]
            policy = one.get("requestPolicy") or {}
            if "default" in policy:
                yield f"{here}.requestPolicy.default", policy["default"]
            for at, option in enumerate(policy.get("validValues") or ()):
                yield f"{here}.requestPolicy.validValues[{at}]", option
            for of, limit in (policy.get("validRange") or {}).items():
                yield f"{here}.requestPolicy.validRange.{of}", limit
        elif name == "requests" and isinstance(one, dict):
            yield from ((f"{here}.{of}", amount) for of, amount in one.items())
