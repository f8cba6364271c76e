"""Values of expressions, as Python has them.

bool, int, float, str, bytes, list, dict and None are themselves; an int is signed and fits 64 bits. The rest is here.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from tonnage.cel.failures import Err, ErrorKind
from tonnage.cel.quantity import INT_MAX, INT_MIN, Quantity

Value = Any
"""A value, or an error that stands for one."""
UINT_MAX = 2**64 - 1


class UInt(int):
    """An unsigned number. Equal to the signed one of the same value."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Timestamp:
    """Nanoseconds since 1970."""

    ns: int


@dataclass(frozen=True, slots=True)
class Duration:
    """Nanoseconds."""

    ns: int


@dataclass(frozen=True, slots=True)
class Maybe:
    """An optional value: ``present`` or not."""

    present: bool
    value: Value = None


NONE = Maybe(False)


@dataclass(frozen=True, slots=True)
class TypeName:
    """A type as a value."""

    name: str


_NUMBER = "(0|[1-9][0-9]*)"
_SEMVER = re.compile(rf"{_NUMBER}\.{_NUMBER}\.{_NUMBER}(?:-([0-9A-Za-z.-]+))?(?:\+([0-9A-Za-z.-]+))?", re.ASCII)


@dataclass(frozen=True, slots=True, order=False)
class Semver:
    """A semantic version. Builds do not count when versions are compared; ``order`` is what is compared."""

    text: str
    major: int
    minor: int
    patch: int
    order: tuple[Any, ...] = field(repr=False)

    @classmethod
    def parse(cls, text: str) -> Semver:
        """Raises ValueError for what is none, such as ``1.2`` or ``v1.2.3``."""
        return _semver(text)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Semver) and self.order == other.order

    def __hash__(self) -> int:
        return hash(self.order)


@lru_cache(maxsize=4096)
def _semver(text: str) -> Semver:
    match = _SEMVER.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is not a semantic version, expected e.g. 1.2.3 or 1.2.3-beta.1")
    numbers = [int(match[i]) for i in (1, 2, 3)]
    pre = match[4].split(".") if match[4] is not None else []
    build = match[5].split(".") if match[5] is not None else []
    wrong = [p for p in pre if not p or (p.isdigit() and len(p) > 1 and p[0] == "0")] + [b for b in build if not b]
    if wrong or max(numbers) > UINT_MAX:
        raise ValueError(
            f"{text!r} is not a semantic version: {wrong[0] if wrong else 'a number'} cannot be a part of it"
        )
    parts = tuple((0, int(p), "") if p.isdigit() else (1, 0, p) for p in pre)
    major, minor, patch = numbers
    return Semver(text, major, minor, patch, (major, minor, patch, not pre, parts))


class Names(dict[str, Value]):
    """Attributes or capacities of one domain. What is not text is not a name, and asking for it is harmless."""

    __slots__ = ()


class Domains(dict[str, Names]):
    """Attributes or capacities of a device by domain. A domain that is not there is looked up as an empty map."""

    __slots__ = ()

    def __missing__(self, key: object) -> Names:
        return Names()


MISSING = object()
NAMES: dict[type, str] = {
    bool: "bool",
    int: "int",
    UInt: "uint",
    float: "double",
    str: "string",
    bytes: "bytes",
    type(None): "null_type",
    list: "list",
    dict: "map",
    Domains: "map",
    Names: "map",
    Timestamp: "google.protobuf.Timestamp",
    Duration: "google.protobuf.Duration",
    Maybe: "optional_type",
    TypeName: "type",
    Quantity: "kubernetes.Quantity",
    Semver: "kubernetes.Semver",
}
_STRICT = (Quantity, Semver)
"""Values that refuse to be compared with what is of another type."""
UNHASHABLE = (Semver, bytes)
"""Values that Kubernetes cannot look up among constants: the whole evaluation ends."""
NUMBERS = frozenset((int, UInt, float))
_PLAIN = frozenset((str, int, UInt, float, bytes))


def name_of(value: Value) -> str:
    """The name of a value's type."""
    return NAMES.get(type(value)) or str(getattr(value, "type_name", type(value).__name__))


def no_overload(*arguments: Value) -> Err:
    """The error of a function that does not take such values."""
    return Err(ErrorKind.OVERLOAD, "no such overload for " + ", ".join(name_of(one) for one in arguments))


def equal(a: Value, b: Value) -> Value:
    """``a == b``, or an error where the left one refuses the comparison."""
    if a is None or b is None:
        return a is b
    return same(a, b)


def mixed(kind: type, other: type) -> bool:
    """Whether one is a double and the other an integer, which then counts as a double, so that those near 2^63 are
    equal to it. Source: cel-go, common/types/compare.go."""
    return kind is not other and float in (kind, other) and kind in NUMBERS and other in NUMBERS


def same(a: Value, b: Value) -> Value:
    """Equality as the left value has it, null not set apart."""
    kind, other = type(a), type(b)
    if kind in _PLAIN:
        if mixed(kind, other):
            return float(a) == float(b)
        return other in _PLAIN and a == b
    if kind is bool:
        return a is b
    if kind in _STRICT:
        if kind is not other or (kind is Quantity and b.derived):
            return no_overload(b)
        return bool(a.nano == b.nano) if kind is Quantity else bool(a == b)
    if kind is list:
        return other is list and len(a) == len(b) and all(equal(x, y) is not False for x, y in zip(a, b, strict=True))
    if isinstance(a, dict):
        return isinstance(b, dict) and len(a) == len(b) and all(_same_entry(a[k], find(b, k)) for k in a)
    if kind is Maybe:
        return other is Maybe and a.present == b.present and (not a.present or equal(a.value, b.value))
    if a is None:
        return b is None
    return kind is other and bool(a == b)


def _same_entry(mine: Value, found: Value) -> bool:
    return found is not MISSING and equal(mine, found) is not False


def find(mapping: dict[Any, Value], key: Value) -> Value:
    """The value of a key, MISSING when there is none. Whole numbers of any type are one key; true is not 1."""
    try:
        value = mapping.get(key, MISSING)
    except TypeError:
        return MISSING
    if value is not MISSING and (isinstance(key, bool) or key in {0, 1}):
        boolean = isinstance(key, bool)
        return value if any(known == key and isinstance(known, bool) == boolean for known in mapping) else MISSING
    return value


def contains(elements: Iterable[Value], value: Value) -> bool:
    """Whether one of the elements is equal to the value."""
    return any(same(value, element) is True for element in elements)


def whole(value: int) -> Value:
    """A signed result, or overflow."""
    return value if INT_MIN <= value <= INT_MAX else Err(ErrorKind.OVERFLOW, "integer overflow")


def unsigned(value: int) -> Value:
    """An unsigned result, or overflow."""
    return UInt(value) if 0 <= value <= UINT_MAX else Err(ErrorKind.OVERFLOW, "unsigned integer overflow")


def size(value: Value) -> int:
    """What a value counts for in costs: the length of what has one, otherwise 1."""
    kind = type(value)
    if kind is str or kind is list or kind is bytes or kind is dict or kind is Names or kind is Domains:
        return len(value)
    return int(value.cost_size) if hasattr(kind, "cost_size") else 1
