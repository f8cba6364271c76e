"""Selectors in CEL, put to devices as slices publish them."""

from __future__ import annotations

from collections.abc import Mapping

from tonnage.cel.device import Attribute, CompiledSelector, Device, compile_selector
from tonnage.cel.failures import ErrorKind, EvaluationError
from tonnage.cel.values import Semver
from tonnage.dra.features import Features
from tonnage.dra.selecting import Compiler, DeviceMatcher
from tonnage.objects.dra import DeviceAttribute, DeviceCapacity


class _Seen:
    """Devices as selectors see them, each made once. A device is known by its attributes and capacities, which it has
    to itself and which are kept as long as it is."""

    def __init__(self, *, lists: bool) -> None:
        self._lists = lists
        self._known: dict[tuple[str, int, int, bool], tuple[Device, object, object]] = {}

    def device(
        self,
        driver: str,
        attributes: Mapping[str, DeviceAttribute],
        capacity: Mapping[str, DeviceCapacity],
        allow_multiple_allocations: bool,
    ) -> Device:
        key = (driver, id(attributes), id(capacity), allow_multiple_allocations)
        known = self._known.get(key)
        if known is None:
            values = {name: _value(name, one, lists=self._lists) for name, one in attributes.items()}
            amounts = {name: str(one.value) for name, one in capacity.items()}
            known = Device(driver, values, amounts, allow_multiple_allocations), attributes, capacity
            self._known[key] = known
        return known[0]


class _Matcher:
    def __init__(self, selector: CompiledSelector, seen: _Seen) -> None:
        self._selector = selector
        self._seen = seen

    def matches(
        self,
        driver: str,
        attributes: Mapping[str, DeviceAttribute],
        capacity: Mapping[str, DeviceCapacity],
        allow_multiple_allocations: bool,
    ) -> bool:
        return self._selector.selects(self._seen.device(driver, attributes, capacity, allow_multiple_allocations))


def cel_compiler(features: Features | None = None) -> Compiler:
    """What compiles the selectors of an ``Allocator`` with these gates. Its matchers raise EvaluationError for what has
    no value, its compilation CompileError."""
    lists = features.list_type_attributes if features is not None else False
    seen = _Seen(lists=lists)

    def compiler(text: str) -> DeviceMatcher:
        return _Matcher(compile_selector(text, list_attributes=lists), seen)

    return compiler


def _value(name: str, attribute: DeviceAttribute, *, lists: bool) -> Attribute:
    if lists:
        for many in (attribute.int_values, attribute.bool_values, attribute.string_values):
            if many:
                return list(many)  # type: ignore[return-value]
        if attribute.version_values:
            return [_version(name, one) for one in attribute.version_values]
    for one in (attribute.int_value, attribute.bool_value, attribute.string_value):
        if one is not None:
            return one
    if attribute.version_value is None:
        raise EvaluationError(ErrorKind.ARGUMENT.value, f"attribute {name} has no value that the gates allow")
    return _version(name, attribute.version_value)


def _version(name: str, text: str) -> Semver:
    try:
        return Semver.parse(text)
    except ValueError as error:
        raise EvaluationError(ErrorKind.CONVERSION.value, f"attribute {name}: {error}") from None
