"""Constraints of a claim: an attribute that devices have in common, or in which they all differ.

A constraint's state is a set of values and passes from device to device: None before the first. Of a common
attribute it is what all devices so far have in common, of a distinct one what any of them has."""

from __future__ import annotations

from typing import TypeAlias

from tonnage.dra.pools import PoolDevice
from tonnage.objects.dra import DeviceAttribute, DeviceConstraint

Values: TypeAlias = frozenset[tuple[str, object]]
"""Values with the name of their type; a list has several."""

LIST = frozenset({("list", "")})
"""Value of a list where the gate for lists is off: it goes with nothing else."""


def attribute(device: PoolDevice, name: str, *, lists: bool) -> Values | None:
    """The values of a fully qualified attribute; None where the device has it not. A name without domain is of the
    driver's."""
    held = device.device.attributes
    found = held.get(name)
    if found is None:
        domain, _, own = name.partition("/")
        found = held.get(own) if own and domain == device.id.driver else None
    return None if found is None else _values(found, lists=lists)


def _values(found: DeviceAttribute, *, lists: bool) -> Values | None:
    several: tuple[tuple[str, list[int] | list[bool] | list[str]], ...] = (
        ("int", found.int_values),
        ("bool", found.bool_values),
        ("string", found.string_values),
        ("version", found.version_values),
    )
    for kind, values in several:
        if values:
            return frozenset((kind, value) for value in values) if lists else LIST
    for kind, value in (
        ("int", found.int_value),
        ("bool", found.bool_value),
        ("string", found.string_value),
        ("version", found.version_value),
    ):
        if value is not None:
            return frozenset({(kind, value)})
    return None


class Constraint:
    """One constraint of a claim."""

    def __init__(self, written: DeviceConstraint, *, lists: bool) -> None:
        self.common = written.match_attribute is not None
        self.attribute = written.match_attribute or written.distinct_attribute or ""
        self._requests = frozenset(written.requests)
        self._lists = lists

    def concerns(self, request: str, subrequest: str) -> bool:
        """Whether devices of the request count; ``subrequest``: its name, if one was chosen."""
        return (
            not self._requests
            or request in self._requests
            or (bool(subrequest) and f"{request}/{subrequest}" in self._requests)
        )

    def of(self, device: PoolDevice) -> Values | None:
        """The values that count of a device."""
        return attribute(device, self.attribute, lists=self._lists)

    def after(self, state: Values | None, values: Values | None) -> Values | None:
        """The state once a device with these values is added; None where it must not be."""
        if values is None:
            return None
        if state is None:
            return values
        if values is LIST:
            return None
        if self.common:
            return (state & values) or None
        return None if state & values else state | values
