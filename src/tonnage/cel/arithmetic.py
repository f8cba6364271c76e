"""Operators and conversions. Source: cel-go common/types."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any

from tonnage.cel import times
from tonnage.cel.failures import Abort, Err, ErrorKind
from tonnage.cel.quantity import INT_MAX, INT_MIN
from tonnage.cel.registry import function
from tonnage.cel.values import (
    MISSING,
    NUMBERS,
    UINT_MAX,
    UNHASHABLE,
    Duration,
    Timestamp,
    TypeName,
    UInt,
    Value,
    contains,
    equal,
    find,
    mixed,
    name_of,
    no_overload,
    unsigned,
    whole,
)


@function("_+_", takes=(int, int))
def _add_int(a: int, b: int) -> Value:
    return whole(a + b)


@function("_-_", takes=(int, int))
def _subtract_int(a: int, b: int) -> Value:
    return whole(a - b)


@function("_*_", takes=(int, int))
def _multiply_int(a: int, b: int) -> Value:
    return whole(a * b)


@function("_+_", takes=(UInt, UInt))
def _add_uint(a: int, b: int) -> Value:
    return unsigned(int(a) + int(b))


@function("_-_", takes=(UInt, UInt))
def _subtract_uint(a: int, b: int) -> Value:
    return unsigned(int(a) - int(b))


@function("_*_", takes=(UInt, UInt))
def _multiply_uint(a: int, b: int) -> Value:
    return unsigned(int(a) * int(b))


@function("_/_", takes=(int, int))
def _divide_int(a: int, b: int) -> Value:
    if b == 0:
        return Err(ErrorKind.ZERO, "division by zero")
    return whole(abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1))


@function("_%_", takes=(int, int))
def _modulo_int(a: int, b: int) -> Value:
    if b == 0:
        return Err(ErrorKind.ZERO, "modulus by zero")
    if a == INT_MIN and b == -1:
        return Err(ErrorKind.OVERFLOW, "integer overflow")
    return (abs(a) % abs(b)) * (-1 if a < 0 else 1)


@function("_/_", takes=(UInt, UInt))
def _divide_uint(a: int, b: int) -> Value:
    return unsigned(int(a) // int(b)) if b else Err(ErrorKind.ZERO, "division by zero")


@function("_%_", takes=(UInt, UInt))
def _modulo_uint(a: int, b: int) -> Value:
    return unsigned(int(a) % int(b)) if b else Err(ErrorKind.ZERO, "modulus by zero")


@function("_+_", takes=(float, float))
def _add_double(a: float, b: float) -> Value:
    return a + b


@function("_-_", takes=(float, float))
def _subtract_double(a: float, b: float) -> Value:
    return a - b


@function("_*_", takes=(float, float))
def _multiply_double(a: float, b: float) -> Value:
    return a * b


@function("_/_", takes=(float, float))
def _divide_double(a: float, b: float) -> Value:
    if b == 0.0:
        if a == 0.0 or math.isnan(a):
            return math.nan
        return math.copysign(math.inf, a) * math.copysign(1.0, b)
    return a / b


@function("_+_", takes=(str, str))
@function("_+_", takes=(bytes, bytes))
@function("_+_", takes=(list, list))
def _join(a: Any, b: Any) -> Value:
    return a + b


@function("-_", takes=(int,))
def _negate(a: int) -> Value:
    return whole(-a)


@function("-_", takes=(float,))
def _negate_double(a: float) -> Value:
    return -a


@function("!_", takes=(bool,))
def _not(a: bool) -> Value:
    return not a


def compare(a: Value, b: Value) -> Value:
    """-1, 0 or 1, or an error for what has no order."""
    kind, other = type(a), type(b)
    if kind in NUMBERS and other in NUMBERS:
        if math.isnan(a) or math.isnan(b):
            return Err(ErrorKind.OVERLOAD, "NaN values cannot be ordered")
        if mixed(kind, other):
            a, b = float(a), float(b)
        return (a > b) - (a < b)
    if kind is not other:
        return no_overload(a, b)
    if kind is str:
        return (a > b) - (a < b)
    if kind is bytes or kind is bool:
        return (a > b) - (a < b)
    if kind is Duration or kind is Timestamp:
        return (a.ns > b.ns) - (a.ns < b.ns)
    return no_overload(a, b)


def _relation(holds: Callable[[int], bool]) -> Callable[[Value, Value], Value]:
    def related(a: Value, b: Value) -> Value:
        order = compare(a, b)
        return order if type(order) is Err else holds(order)

    return related


function("_<_", takes=(object, object))(_relation(lambda order: order < 0))
function("_<=_", takes=(object, object))(_relation(lambda order: order <= 0))
function("_>_", takes=(object, object))(_relation(lambda order: order > 0))
function("_>=_", takes=(object, object))(_relation(lambda order: order >= 0))
function("_==_", takes=(object, object))(equal)


@function("_!=_", takes=(object, object))
def _differ(a: Value, b: Value) -> Value:
    return equal(a, b) is not True


@function("@in", takes=(object, list))
def _in_list(a: Value, b: list[Value]) -> Value:
    return contains(b, a)


@function("@in", takes=(object, dict))
def _in_map(a: Value, b: dict[Any, Value]) -> Value:
    if type(a) in UNHASHABLE and b and type(b) is dict:
        raise Abort(ErrorKind.INTERNAL)
    return find(b, a) is not MISSING


@function("size", takes=(str,))
@function("size", takes=(bytes,))
@function("size", takes=(list,))
@function("size", takes=(dict,))
def _size(a: Any) -> Value:
    return len(a)


@function("dyn", takes=(object,))
@function("bool", takes=(bool,))
@function("bytes", takes=(bytes,))
@function("double", takes=(float,))
@function("int", takes=(int,))
@function("uint", takes=(UInt,))
@function("string", takes=(str,))
@function("duration", takes=(Duration,))
@function("timestamp", takes=(Timestamp,))
def _identity(a: Value) -> Value:
    return a


@function("type", takes=(object,))
def _type(a: Value) -> Value:
    return TypeName(name_of(a))


def _cannot(a: Value, target: str) -> Err:
    return Err(ErrorKind.CONVERSION, f"{a!r} is no {target}")


@function("bool", takes=(str,))
def _to_bool(a: str) -> Value:
    if a in ("1", "t", "T", "true", "TRUE", "True"):
        return True
    return False if a in ("0", "f", "F", "false", "FALSE", "False") else _cannot(a, "bool")


@function("bytes", takes=(str,))
def _to_bytes(a: str) -> Value:
    return a.encode()


@function("double", takes=(int,))
@function("double", takes=(UInt,))
def _to_double(a: int) -> Value:
    return float(a)


_FLOAT = re.compile(r"[+-]?((\d+\.?\d*|\.\d+)(e[+-]?\d+)?|inf(inity)?|nan)", re.ASCII | re.IGNORECASE)


@function("double", takes=(str,))
def _parse_double(a: str) -> Value:
    if not _FLOAT.fullmatch(a):
        return _cannot(a, "double")
    value = float(a)
    return _cannot(a, "double") if math.isinf(value) and "n" not in a.lower() else value


@function("int", takes=(float,))
def _truncate(a: float) -> Value:
    if not -(2.0**63) < a < 2.0**63:
        return Err(ErrorKind.OVERFLOW, "integer overflow")
    return int(a)


@function("uint", takes=(float,))
def _truncate_unsigned(a: float) -> Value:
    if not 0 <= a < 2.0**64:
        return Err(ErrorKind.OVERFLOW, "unsigned integer overflow")
    return UInt(int(a))


@function("int", takes=(UInt,))
def _signed(a: int) -> Value:
    return whole(int(a))


@function("uint", takes=(int,))
def _unsigned(a: int) -> Value:
    return unsigned(a)


@function("int", takes=(str,))
def _parse_int(a: str) -> Value:
    value = int(a) if re.fullmatch(r"[+-]?[0-9]+", a) else None
    return value if value is not None and INT_MIN <= value <= INT_MAX else _cannot(a, "int")


@function("uint", takes=(str,))
def _parse_uint(a: str) -> Value:
    value = int(a) if re.fullmatch(r"[0-9]+", a) else None
    return UInt(value) if value is not None and value <= UINT_MAX else _cannot(a, "uint")


@function("string", takes=(int,))
@function("string", takes=(UInt,))
def _int_to_string(a: int) -> Value:
    return str(int(a))


@function("string", takes=(bool,))
def _bool_to_string(a: bool) -> Value:
    return "true" if a else "false"


@function("string", takes=(bytes,))
def _decode(a: bytes) -> Value:
    try:
        return a.decode()
    except UnicodeDecodeError:
        return Err(ErrorKind.CONVERSION, "bytes are no UTF-8")


@function("string", takes=(float,))
def _double_to_string(a: float) -> Value:
    return times.general_float(a)
