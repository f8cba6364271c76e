"""Selectors of classes and requests, put to devices: what matches, and which selector excluded the others."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, Protocol, TypeAlias, runtime_checkable

from tonnage.dra.pools import PoolDevice
from tonnage.dra.slice_shapes import SliceShape
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


@runtime_checkable
class ColumnMatcher(DeviceMatcher, Protocol):
    """One that knows what it looks at, so that it need not be asked of devices which have that alike."""

    def looked_at(self, attributes: Sequence[Mapping[str, DeviceAttribute]]) -> bytes | None:
        """What it looks at of the attributes of these devices, encoded: of devices whose driver, capacities and shares
        are alike too it says the same, one by one. None: it cannot say so."""
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


Answer: TypeAlias = bool | str
"""Of one selector about one device; a text: why it has no value."""


class Selectors:
    """Compiled selectors, each compiled once, and their answers: for each device, and for equal slices at once."""

    def __init__(self, compiler: Compiler) -> None:
        self._compiler = compiler
        self._compiled: dict[str, DeviceMatcher | str] = {}
        self._looks: dict[str, ColumnMatcher | None] = {}
        self._answers: dict[str, dict[PoolDevice, Answer]] = {}
        self._columns: dict[tuple[str, str, SliceShape, bytes], list[Answer]] = {}
        self._joined: dict[tuple[tuple[str, ...], tuple[int, ...]], list[Match]] = {}

    def of_slice(self, expressions: tuple[str, ...], shape: SliceShape, devices: Sequence[PoolDevice]) -> list[Match]:
        """The answers of selectors that are put to the devices of a slice one after the other, until one is not
        true."""
        if not expressions:
            return [MATCHES] * len(devices)
        attributes = [one.device.attributes for one in devices]
        columns = [self._column(text, shape, devices, attributes) for text in expressions]
        key = expressions, tuple(map(id, columns))
        known = self._joined.get(key)
        if known is None:
            known = [self._match(expressions, columns, number, one) for number, one in enumerate(devices)]
            if None not in columns:
                self._joined[key] = known
        return known

    def _match(
        self, expressions: Sequence[str], columns: Sequence[list[Answer] | None], number: int, device: PoolDevice
    ) -> Match:
        for at, (text, column) in enumerate(zip(expressions, columns, strict=True)):
            answer = column[number] if column is not None else self._answer(text, device)
            if answer is not True:
                return NoValue(at, answer) if isinstance(answer, str) else at
        return MATCHES

    def _column(
        self,
        text: str,
        shape: SliceShape,
        devices: Sequence[PoolDevice],
        attributes: Sequence[Mapping[str, DeviceAttribute]],
    ) -> list[Answer] | None:
        """The answers for the devices of a slice, where they are those of any slice which is so far alike."""
        matcher, looks = self._matcher(text), self._looks[text]
        seen: bytes | None = b""
        if devices and not isinstance(matcher, str):
            seen = looks.looked_at(attributes) if looks is not None else None
        if seen is None:
            return None
        key = (text, devices[0].id.driver if devices else "", shape, seen)
        known = self._columns.get(key)
        if known is None:
            known = self._columns[key] = [self._ask(text, one) for one in devices]
        return known

    def _answer(self, text: str, device: PoolDevice) -> Answer:
        known = self._answers.setdefault(text, {})
        answer = known.get(device)
        if answer is None:
            answer = known[device] = self._ask(text, device)
        return answer

    def _matcher(self, text: str) -> DeviceMatcher | str:
        matcher = self._compiled.get(text)
        if matcher is None:
            try:
                matcher = self._compiler(text)
            except SELECTOR_ERRORS as error:
                matcher = f"CEL compile error: {error}"
            self._compiled[text] = matcher
            self._looks[text] = matcher if isinstance(matcher, ColumnMatcher) else None
        return matcher

    def _ask(self, text: str, asked: PoolDevice) -> Answer:
        matcher = self._matcher(text)
        if isinstance(matcher, str):
            return matcher
        device = asked.device
        try:
            return matcher.matches(
                asked.id.driver, device.attributes, device.capacity, bool(device.allow_multiple_allocations)
            )
        except SELECTOR_ERRORS as error:
            return f"CEL runtime error: {error}"
