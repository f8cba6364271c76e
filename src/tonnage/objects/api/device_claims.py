"""What kube-apiserver v1.36 refuses of DeviceClasses, ResourceClaims and ResourceClaimTemplates, but for the text of
CEL.

Source: kubernetes/kubernetes v1.36 pkg/apis/resource/validation/validation.go.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, TypeAlias

from tonnage.objects.api.device_names import EFFECTS, driver, each, fully_qualified, named, too_long
from tonnage.objects.api.errors import (
    FieldError,
    invalid_value,
    label_faults,
    one_of,
    qualified_faults,
    required,
    said,
    subdomain_faults,
    template_metadata,
    unsupported,
    value_faults,
)

JsonObject: TypeAlias = dict[str, Any]

_MOST, _MOST_WAYS = 32, 8
_LONGEST_EXPRESSION = _LONGEST_PARAMETERS = 10 * 1024
_MODES = ("All", "ExactCount")
_EITHER = "exactly one of `exactly` or `firstAvailable` is required"
_REFERENCE = "must be the name of a request in the claim or the name of a request and a subrequest separated by '/'"
_EXTENDED = re.compile(r"[a-z0-9.-]+/[A-Za-z0-9][A-Za-z0-9_.-]*")


def resource_claim(obj: JsonObject) -> list[FieldError]:
    """A ResourceClaim, but for its status."""
    return _claim("spec.devices", (obj.get("spec") or {}).get("devices") or {})


def resource_claim_template(obj: JsonObject) -> list[FieldError]:
    """A ResourceClaimTemplate."""
    spec = obj.get("spec") or {}
    errors = template_metadata("spec.metadata", spec.get("metadata") or {})
    return errors + _claim("spec.spec.devices", (spec.get("spec") or {}).get("devices") or {})


def device_class(obj: JsonObject) -> list[FieldError]:
    """A DeviceClass."""
    spec = obj.get("spec") or {}
    errors = each("spec.selectors", spec.get("selectors"), _MOST, _selector)
    errors += each("spec.config", spec.get("config"), _MOST, _opaque)
    name = spec.get("extendedResourceName")
    if name is not None and not _is_extended(name):
        errors.append(invalid_value("spec.extendedResourceName", name, "must be a valid extended resource name"))
    return errors


def _is_extended(name: str) -> bool:
    domain = name.partition("/")[0]
    own = domain == "kubernetes.io" or domain.endswith(".kubernetes.io") or name.startswith("requests.")
    return bool(_EXTENDED.fullmatch(name)) and not own and not qualified_faults(f"requests.{name}")


def _claim(path: str, devices: JsonObject) -> list[FieldError]:
    names: dict[str, list[str]] = {
        one.get("name", ""): [way.get("name", "") for way in one.get("firstAvailable") or ()]
        for one in devices.get("requests") or ()
    }
    errors = each(f"{path}.requests", devices.get("requests"), _MOST, _request, lambda one: one.get("name", ""))
    errors += each(
        f"{path}.constraints", devices.get("constraints"), _MOST, lambda at, one: _constraint(at, one, names)
    )
    return errors + each(
        f"{path}.config",
        devices.get("config"),
        _MOST,
        lambda at, one: _references(f"{at}.requests", one.get("requests"), names) + _opaque(at, one),
    )


def _request(path: str, one: JsonObject) -> list[FieldError]:
    errors = named(f"{path}.name", one.get("name", ""), label_faults)
    exactly, ways = one.get("exactly"), one.get("firstAvailable")
    if exactly is not None and ways:
        return [*errors, invalid_value(path, None, f"{_EITHER}, but multiple fields are set")]
    if ways:
        return errors + each(f"{path}.firstAvailable", ways, _MOST_WAYS, _subrequest, lambda way: way.get("name", ""))
    return [*errors, required(path, _EITHER)] if exactly is None else errors + _way(f"{path}.exactly", exactly)


def _subrequest(path: str, way: JsonObject) -> list[FieldError]:
    return named(f"{path}.name", way.get("name", ""), label_faults) + _way(path, way)


def _way(path: str, way: JsonObject) -> list[FieldError]:
    errors = named(f"{path}.deviceClassName", way.get("deviceClassName", ""), subdomain_faults)
    errors += each(f"{path}.selectors", way.get("selectors"), _MOST, _selector)
    mode, count = way.get("allocationMode") or "ExactCount", way.get("count") or 0
    if mode not in _MODES:
        errors.append(unsupported(f"{path}.allocationMode", mode, _MODES))
    elif mode == "All" and count:
        why = "must not be specified when allocationMode is 'All'"
        errors.append(invalid_value(f"{path}.count", count, why))
    elif count < 0:
        errors.append(invalid_value(f"{path}.count", count, "must be greater than zero"))
    for at, one in enumerate(way.get("tolerations") or ()):
        errors += _toleration(f"{path}.tolerations[{at}]", one)
    return errors


def _toleration(path: str, one: Mapping[str, Any]) -> list[FieldError]:
    key, operator, value, effect = (one.get(name) or "" for name in ("key", "operator", "value", "effect"))
    errors = said(f"{path}.key", key, qualified_faults(key)) if key else []
    if operator == "Exists" and value:
        errors.append(invalid_value(f"{path}.value", value, "must be empty for operator `Exists`"))
    elif operator not in ("", "Equal", "Exists"):
        errors.append(unsupported(f"{path}.operator", operator, ("Equal", "Exists")))
    elif operator != "Exists":
        errors += said(f"{path}.value", value, value_faults(value))
    return errors + (one_of(f"{path}.effect", effect, EFFECTS) if effect else [])


def _selector(path: str, one: Mapping[str, Any]) -> list[FieldError]:
    """A selector that compiles, with lists as attributes where it needs them."""
    cel = one.get("cel")
    if cel is None:
        return [required(f"{path}.cel")]
    from tonnage.cel.device import compile_selector  # seldom needed
    from tonnage.cel.failures import CelError

    at, text = f"{path}.cel.expression", cel.get("expression") or ""
    errors = too_long(at, text, _LONGEST_EXPRESSION)
    if not errors:
        try:
            compile_selector(text, list_attributes=True)
        except CelError as error:
            errors.append(invalid_value(at, text, f"compilation failed: {error}"))
    return errors


def _constraint(path: str, one: Mapping[str, Any], names: Mapping[str, list[str]]) -> list[FieldError]:
    errors = _references(f"{path}.requests", one.get("requests"), names)
    for name in ("matchAttribute", "distinctAttribute"):
        if one.get(name) is not None:
            return errors + fully_qualified(f"{path}.{name}", one[name])
    why = 'exactly one of "matchAttribute" or "distinctAttribute" is required, but multiple fields are set'
    return [*errors, required(path, why)]


def _references(path: str, given: Any, names: Mapping[str, list[str]]) -> list[FieldError]:
    def reference(at: str, name: str) -> list[FieldError]:
        request, slash, way = name.partition("/")
        known = request in names and (not slash or way in names[request])
        return [] if known else [invalid_value(at, name, _REFERENCE)]

    return each(path, given, _MOST, reference, str)


def _opaque(path: str, one: Mapping[str, Any]) -> list[FieldError]:
    opaque = one.get("opaque")
    if opaque is None:
        return [required(f"{path}.opaque")]
    errors, at = driver(f"{path}.opaque.driver", opaque.get("driver") or ""), f"{path}.opaque.parameters"
    parameters = opaque.get("parameters")
    if parameters is None:
        return [*errors, required(at)]
    if not isinstance(parameters, dict):
        return [*errors, invalid_value(at, "<value omitted>", "must be a valid JSON object")]
    return errors + too_long(at, json.dumps(parameters, separators=(",", ":")), _LONGEST_PARAMETERS)
