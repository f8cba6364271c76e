"""Selectors in CEL, put to devices as slices publish them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from tonnage.cel.device import Attribute, CompiledSelector, Device, compile_selector
from tonnage.cel.failures import ErrorKind, EvaluationError
from tonnage.cel.quantity import Quantity
from tonnage.cel.values import Semver
from tonnage.dra.features import Features
from tonnage.dra.selecting import Compiler, DeviceMatcher
from tonnage.objects.dra import DeviceAttribute, DeviceCapacity


class _Seen:
    """Devices as selectors see them. A device is known by its attributes and capacities, which it has to itself and
    which are kept as long as it is."""

    def __init__(self, *, lists: bool) -> None:
        self.lists = lists
        self._known: dict[tuple[str, int, int, bool], tuple[Device, object, object]] = {}
        self._versions: set[str | None] = set()
        self._sound: dict[int, tuple[bool, object]] = {}

    def device(
        self,
        driver: str,
        attributes: Mapping[str, DeviceAttribute],
        capacity: Mapping[str, DeviceCapacity],
        allow_multiple_allocations: bool,
    ) -> Device:
        """The device, made once."""
        key = (driver, id(attributes), id(capacity), allow_multiple_allocations)
        known = self._known.get(key)
        if known is None:
            made = self.made(driver, attributes, capacity, allow_multiple_allocations)
            known = self._known[key] = made, attributes, capacity
        return known[0]

    def made(
        self,
        driver: str,
        attributes: Mapping[str, DeviceAttribute],
        capacity: Mapping[str, DeviceCapacity],
        allow_multiple_allocations: bool,
    ) -> Device:
        """A device with these."""
        values = {name: _value(name, one, lists=self.lists) for name, one in attributes.items()}
        amounts = {name: str(one.value) for name, one in capacity.items()}
        return Device(driver, values, amounts, allow_multiple_allocations)

    def have_values(self, attributes: Sequence[Mapping[str, DeviceAttribute]]) -> bool:
        """Whether every attribute of these devices has a value that the gates allow, so that devices can be made of
        them."""
        if not self.lists:
            rest = {
                one.version_value
                for of_device in attributes
                for one in of_device.values()
                if one.string_value is None and one.int_value is None and one.bool_value is None
            }
            if rest <= self._versions:
                return True
        try:
            for of_device in attributes:
                for name, one in of_device.items():
                    _value(name, one, lists=self.lists)
        except EvaluationError:
            return False
        if not self.lists:
            self._versions |= rest
        return True

    def are_sound(self, attributes: Sequence[Mapping[str, DeviceAttribute]]) -> bool:
        """The same of the devices of a slice, looked at once."""
        known = self._sound.get(id(attributes[0]))
        if known is None:
            known = self._sound[id(attributes[0])] = self.have_values(attributes), attributes[0]
        return known[0]

    def are_amounts(self, capacity: Mapping[str, DeviceCapacity]) -> bool:
        """Whether every capacity is an amount."""
        try:
            for one in capacity.values():
                Quantity.parse(str(one.value))
        except ValueError:
            return False
        return True


class _Matcher:
    """A selector, which is put to as much of a device as it looks at."""

    def __init__(self, selector: CompiledSelector, seen: _Seen) -> None:
        self._selector = selector
        self._seen = seen
        self._attributes = _names(selector.reads.attributes if selector.reads is not None else ())
        self._capacity = _names(selector.reads.capacity if selector.reads is not None else ())
        self._encoder = msgspec.msgpack.Encoder()

    def matches(
        self,
        driver: str,
        attributes: Mapping[str, DeviceAttribute],
        capacity: Mapping[str, DeviceCapacity],
        allow_multiple_allocations: bool,
    ) -> bool:
        seen = self._seen
        if self._selector.reads is None or not (seen.have_values([attributes]) and seen.are_amounts(capacity)):
            return self._selector.selects(seen.device(driver, attributes, capacity, allow_multiple_allocations))
        own = {name: one for name, one in attributes.items() if name in self._attributes}
        has = {name: one for name, one in capacity.items() if name in self._capacity}
        return self._selector.selects(seen.made(driver, own, has, allow_multiple_allocations))

    def looked_at(self, attributes: Sequence[Mapping[str, DeviceAttribute]]) -> bytes | None:
        if self._selector.reads is None or not self._seen.are_sound(attributes):
            return None
        found = [[one.get(name) for one in attributes] for name in self._attributes]
        for qualified, plain in zip(found[::2], found[1::2], strict=True):
            if any(qualified) and any(plain):
                return None  # a device may have both, of which the later counts
        return self._encoder.encode(found)


def _names(read: Iterable[tuple[str, str]]) -> tuple[str, ...]:
    """The names under which devices may have these: qualified, and of the driver's own domain."""
    return tuple(written for domain, name in read for written in (f"{domain}/{name}", name))


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
