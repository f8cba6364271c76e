"""Selectors of classes and requests, put to devices: what matches, and which selector excluded the others."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, Protocol, TypeAlias

from tonnage.dra.pools import PoolDevice
from tonnage.errors import InputError
from tonnage.objects.dra import DeviceAttribute, DeviceCapacity


class DeviceMatcher(Protocol):
    """A compiled CEL expression over one device."""

    def matches(
        self,
        driver: str,
        attributes: Mapping[str, DeviceAttribute],
        capacity: Mapping[str, DeviceCapacity],
        allow_multiple_allocations: bool,
    ) -> bool:
        """Whether it is true of the device. Raises one of :data:`SELECTOR_ERRORS` where it has no value: a key that the
        device has not, a result that is no truth value, too high a cost."""
        ...


Compiler: TypeAlias = Callable[[str], DeviceMatcher]
"""Makes a matcher of an expression; raises one of :data:`SELECTOR_ERRORS` for what is no expression."""

SELECTOR_ERRORS = (InputError, ValueError, ArithmeticError)
"""What compiling and matching may raise."""

MATCHES, ABSENT = -1, -2
"""Of a device: every selector is true; or it is not looked at, as it has binding conditions and the gate is off."""


class NoValue(NamedTuple):
    """A selector that has no value for a device: its place among the selectors, and why."""

    selector: int
    error: str


Match: TypeAlias = int | NoValue
"""MATCHES, ABSENT, the number of the first selector that is false, or why there is no answer."""


class Selectors:
    """Compiled selectors, each compiled once, and their answers for each device."""

    def __init__(self, compiler: Compiler) -> None:
        self._compiler = compiler
        self._compiled: dict[str, DeviceMatcher | str] = {}
        self._answers: dict[str, dict[PoolDevice, bool | str]] = {}

    def match(self, expressions: Sequence[str], device: PoolDevice) -> Match:
        """The answer of selectors that are put to a device one after the other, until one is not true."""
        for at, text in enumerate(expressions):
            known = self._answers.setdefault(text, {})
            answer = known.get(device)
            if answer is None:
                answer = known[device] = self._ask(text, device)
            if answer is not True:
                return NoValue(at, answer) if isinstance(answer, str) else at
        return MATCHES

    def _ask(self, text: str, asked: PoolDevice) -> bool | str:
        matcher = self._compiled.get(text)
        if matcher is None:
            try:
                matcher = self._compiler(text)
            except SELECTOR_ERRORS as error:
                matcher = f"CEL compile error: {error}"
            self._compiled[text] = matcher
        if isinstance(matcher, str):
            return matcher
        device = asked.device
        try:
            return matcher.matches(
                asked.id.driver, device.attributes, device.capacity, bool(device.allow_multiple_allocations)
            )
        except SELECTOR_ERRORS as error:
            return f"CEL runtime error: {error}"
