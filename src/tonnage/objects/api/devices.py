"""What kube-apiserver v1.36 refuses of ResourceSlices and DeviceTaintRules.

Source: kubernetes/kubernetes v1.36 pkg/apis/resource/validation/validation.go.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any, TypeAlias

from tonnage.objects.api.device_names import driver, each, named, pool, qualified, taint, too_long, too_many
from tonnage.objects.api.errors import (
    FieldError,
    amount,
    forbidden,
    invalid_value,
    label_faults,
    qualified_faults,
    required,
    said,
    subdomain_faults,
)
from tonnage.objects.api.placing import node_selector

JsonObject: TypeAlias = dict[str, Any]

_MOST_DEVICES, _MOST_TIED_DEVICES = 128, 64
_MOST_SETS, _MOST_COUNTERS, _MOST_CONSUMED = 8, 32, 2
_MOST_NAMES, _MOST_VALUES, _MOST_TAINTS, _MOST_OPTIONS, _MOST_CONDITIONS = 32, 48, 16, 10, 4
_LONGEST_VALUE = 64
_SEMVER = re.compile(
    r"(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)"
    r"(-(0|[1-9]\d*|\d*[a-zA-Z-][0-9a-zA-Z-]*)(\.(0|[1-9]\d*|\d*[a-zA-Z-][0-9a-zA-Z-]*))*)?"
    r"(\+[0-9a-zA-Z-]+(\.[0-9a-zA-Z-]+)*)?",
    re.ASCII,
)
_WHERE = ("nodeName", "nodeSelector", "allNodes", "perDeviceNodeSelection")
_APART = (
    "exactly one of `nodeName`, `nodeSelector`, or `allNodes` is required when `perDeviceNodeSelection` is set to true "
    "in the ResourceSlice spec"
)
_TOGETHER = (
    "`nodeName`, `nodeSelector` and `allNodes` can only be set if `perDeviceNodeSelection` is set to true in the "
    "ResourceSlice spec"
)


# ---- taint rules ----


def device_taint_rule(obj: JsonObject) -> list[FieldError]:
    """A DeviceTaintRule."""
    spec = obj.get("spec") or {}
    chosen = spec.get("deviceSelector") or {}
    rules: dict[str, Callable[[str, str], list[FieldError]]] = {
        "driver": driver,
        "pool": pool,
        "device": lambda field, text: named(field, text, label_faults),
    }
    errors: list[FieldError] = []
    for name, rule in rules.items():
        if chosen.get(name) is not None:
            errors += rule(f"spec.deviceSelector.{name}", chosen[name])
    return [*errors, *taint("spec.taint", spec.get("taint") or {})]


# ---- slices ----


def resource_slice(obj: JsonObject) -> list[FieldError]:
    """A ResourceSlice."""
    spec = obj.get("spec") or {}
    of_pool = spec.get("pool") or {}
    errors = driver("spec.driver", spec.get("driver", "")) + pool("spec.pool.name", of_pool.get("name", ""))
    count, generation = of_pool.get("resourceSliceCount") or 0, of_pool.get("generation") or 0
    if count <= 0:
        errors.append(invalid_value("spec.pool.resourceSliceCount", count, "must be greater than zero"))
    if generation < 0:
        errors.append(invalid_value("spec.pool.generation", generation, "must be greater than or equal to zero"))
    errors += _where("spec", spec, _WHERE, f"exactly one of {', '.join(f'`{one}`' for one in _WHERE)} is required")
    devices = spec.get("devices")
    if spec.get("sharedCounters") is not None and devices is not None:
        errors.append(invalid_value("spec", "", "only one of `sharedCounters` or `devices` is allowed"))
    most = _MOST_TIED_DEVICES if any(_is_tied(one) for one in devices or ()) else _MOST_DEVICES
    apart = bool(spec.get("perDeviceNodeSelection"))
    errors += each("spec.devices", devices, most, lambda at, one: _device(at, one, apart=apart), _name)
    return errors + each("spec.sharedCounters", spec.get("sharedCounters"), _MOST_SETS, _counter_set, _name)


def _name(item: Mapping[str, Any]) -> Any:
    return item.get("name", "")


def _is_tied(one: Mapping[str, Any]) -> bool:
    lists = any(
        values.get(kind) is not None
        for values in (one.get("attributes") or {}).values()
        for kind in ("bools", "ints", "strings", "versions")
    )
    return bool(one.get("taints") or one.get("consumesCounters")) or lists


def _where(path: str, given: Mapping[str, Any], names: Iterable[str], wanted: str) -> list[FieldError]:
    """From which nodes something can be reached is said in one way."""
    errors: list[FieldError] = []
    written = []
    for name in names:
        value, at = given.get(name), f"{path}.{name}"
        if value is None:
            continue
        if name == "nodeName":
            if not value:
                errors.append(invalid_value(at, value, "must be either unset or set to a non-empty string"))
                continue
            errors += said(at, value, subdomain_faults(value))
        elif name == "nodeSelector":
            errors += node_selector(at, value)
            if len(value.get("nodeSelectorTerms") or ()) != 1:
                why = "must have exactly one node selector term"
                errors.append(invalid_value(f"{at}.nodeSelectorTerms", value.get("nodeSelectorTerms"), why))
        elif not value:
            errors.append(invalid_value(at, value, "must be either unset or set to true"))
            continue
        written.append(f"`{name}`")
    if not written:
        errors.append(required(path, wanted))
    elif len(written) > 1:
        errors.append(invalid_value(path, f"{{{', '.join(written)}}}", f"{wanted}, but multiple fields are set"))
    return errors


def _counter_set(path: str, given: Mapping[str, Any]) -> list[FieldError]:
    errors = named(f"{path}.name", given.get("name", ""), label_faults)
    return errors + _counters(f"{path}.counters", given.get("counters"))


def _counters(path: str, given: Mapping[str, Any] | None) -> list[FieldError]:
    if not given:
        return [required(path)]
    errors = too_many(path, len(given), _MOST_COUNTERS)
    return errors or [error for name in given for error in said(path, name, label_faults(name))]


def _consumption(path: str, given: Mapping[str, Any]) -> list[FieldError]:
    errors = named(f"{path}.counterSet", given.get("counterSet", ""), label_faults)
    return errors + _counters(f"{path}.counters", given.get("counters"))


def _device(path: str, one: JsonObject, *, apart: bool) -> list[FieldError]:
    errors = named(f"{path}.name", one.get("name", ""), label_faults)
    attributes, capacity = one.get("attributes") or {}, one.get("capacity") or {}
    if len(attributes) + len(capacity) > _MOST_NAMES:
        why = f"the total number of attributes and capacities must not exceed {_MOST_NAMES}"
        errors.append(invalid_value(path, len(attributes) + len(capacity), why))
    lists = ([given for given in of.values() if isinstance(given, list)] for of in attributes.values())
    values = sum(sum(map(len, one)) or 1 for one in lists)
    if values > _MOST_VALUES:
        why = f"the total number of attribute values must not exceed {_MOST_VALUES}"
        errors.append(invalid_value(path, values, why))
    for name, of in attributes.items():
        errors += qualified(f"{path}.attributes", name) + _attribute(f"{path}.attributes[{name}]", of)
    for name, of in capacity.items():
        errors += qualified(f"{path}.capacity", name)
        errors += _capacity(f"{path}.capacity[{name}]", of, shared=bool(one.get("allowMultipleAllocations")))
    errors += each(f"{path}.taints", one.get("taints"), _MOST_TAINTS, taint)
    errors += each(
        f"{path}.consumesCounters",
        one.get("consumesCounters"),
        _MOST_CONSUMED,
        _consumption,
        lambda given: given.get("counterSet", ""),
    )
    where = _WHERE[:3]
    if apart:
        errors += _where(path, one, where, _APART)
    elif any(one.get(name) is not None for name in where):
        errors.append(invalid_value(path, None, _TOGETHER))
    return errors + _conditions(path, one)


def _conditions(path: str, one: Mapping[str, Any]) -> list[FieldError]:
    names = ("bindingConditions", "bindingFailureConditions")
    binding, failure = (one.get(name) or [] for name in names)
    errors: list[FieldError] = []
    for name, given in zip(names, (binding, failure), strict=True):
        at = f"{path}.{name}"
        errors += each(at, given, _MOST_CONDITIONS, lambda here, text: said(here, text, qualified_faults(text)), str)
    for number, text in enumerate(failure):
        if text in binding:
            why = "bindingFailureConditions must not overlap with bindingConditions"
            errors.append(invalid_value(f"{path}.bindingFailureConditions[{number}]", text, why))
    if bool(binding) is not bool(failure):
        missing, has = reversed(names) if binding else names
        errors.append(invalid_value(f"{path}.{missing}", [], f"{missing} are required to use {has}"))
    return errors


def _attribute(path: str, of: Mapping[str, Any]) -> list[FieldError]:
    written = {name: value for name, value in of.items() if value is not None}
    errors: list[FieldError] = []
    for name, value in written.items():
        if isinstance(value, list) and not value:
            errors.append(invalid_value(f"{path}.{name}", value, "must not be empty if specified"))
        for at, text in enumerate(value if isinstance(value, list) else [value]):
            here = f"{path}.{name}[{at}]" if isinstance(value, list) else f"{path}.{name}"
            if name in ("version", "versions") and not _SEMVER.fullmatch(text):
                errors.append(invalid_value(here, text, "must be a string compatible with semver.org spec 2.0.0"))
            if isinstance(text, str):
                errors += too_long(here, text, _LONGEST_VALUE)
    if len(written) != 1:
        errors.append(invalid_value(path, dict(of) if written else "", "exactly one value must be specified"))
    return errors


# ---- capacity ----


def _capacity(path: str, of: Mapping[str, Any], *, shared: bool) -> list[FieldError]:
    policy, path = of.get("requestPolicy"), f"{path}.requestPolicy"
    if policy is None:
        return []
    if not shared:
        return [forbidden(path, "allowMultipleAllocations must be true")]
    values, limits = policy.get("validValues") or [], policy.get("validRange")
    if values and limits is not None:
        why = 'exactly one policy can be specified, cannot specify "validValues" and "validRange" at the same time'
        return [forbidden(path, why)]
    kind = "validValues" if values else "validRange" if limits is not None else ""
    if not kind:
        return []
    default = policy.get("default")
    if default is None:
        return [required(f"{path}.default", f"required when {kind} is defined")]
    has = of.get("value", 0)
    here = f"{path}.{kind}"
    return _values(here, default, has, values) if values else _range(here, default, has, limits or {})


def _value(written: Any) -> Any:
    found = amount(written)
    return 0 if found is None else found


def _values(path: str, default: Any, has: Any, values: Sequence[Any]) -> list[FieldError]:
    errors = too_many(path, len(values), _MOST_OPTIONS)
    for at, (one, after) in enumerate(pairwise(values)):
        if _value(one) > _value(after):
            errors.append(invalid_value(f"{path}[{at + 1}]", str(after), "values must be sorted in ascending order"))
    for at, one in enumerate(values):
        if _value(one) > _value(has):
            errors.append(invalid_value(f"{path}[{at}]", str(one), f"option is larger than capacity value: {has}"))
    if _value(default) not in [_value(one) for one in values]:
        errors.append(invalid_value(path, str(default), "default value is not valid according to the requestPolicy"))
    return errors


def _range(path: str, default: Any, has: Any, given: Mapping[str, Any]) -> list[FieldError]:
    least, most, step = given.get("min"), given.get("max"), given.get("step")
    if least is None:
        return [required(f"{path}.min", "required when validRange is defined")]
    wrong: list[tuple[bool, str, Any, str]] = [
        (_value(least) > _value(has), "min", least, f"min is larger than capacity value: {has}"),
        (_value(default) < _value(least), "min", default, f"default is less than min: {least}"),
    ]
    if most is not None:
        wrong += [
            (_value(least) > _value(most), "max", least, f"min is larger than max: {most}"),
            (_value(most) > _value(has), "max", most, f"max is larger than capacity value: {has}"),
            (_value(default) > _value(most), "max", default, f"default is more than max: {most}"),
        ]
    if step is not None and _value(step) > 0:
        one = _value(least) + _value(step)
        wrong.append((one > _value(has), "step", step, f"one step {one} is larger than capacity value: {has}"))
        why = f"value is not a multiple of a given step ({step}) from ({least})"
        for value in (default, most):
            if value is not None:
                wrong.append(((_value(value) - _value(least)) % _value(step) != 0, "step", value, why))
    return [invalid_value(f"{path}.{name}", str(value), why) for is_wrong, name, value, why in wrong if is_wrong]
