"""Values, operators and functions of the formula language (:mod:`tonnage.scaling.formula`)."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from typing import TypeAlias, Union

from msgspec import Struct

Value: TypeAlias = Union[float, int, bool, "list[Value]", None]


class FormulaError(ValueError):
    """A formula that cannot be read or evaluated."""


class Function(Struct, frozen=True):
    """A function of arguments. With ``predicate`` its second argument is asked of each item of the first."""

    of: Callable[[Sequence[Value]], Value]
    predicate: bool = False


def number(value: Value, what: str) -> float | int:
    """The value as a number: true, false, nil and arrays are none."""
    if value is None or isinstance(value, bool | list):
        shown = "nil" if value is None else value
        raise FormulaError(f"{what} needs a number, not {shown}")
    return value


def binary(sign: str, left: Value, right: Value) -> Value:
    """``left sign right``, but for those that do not evaluate both sides. Division is always of floats."""
    if sign in ("==", "!="):
        return (left == right) == (sign == "==")
    if sign == "in":
        if not isinstance(right, list):
            raise FormulaError("in needs an array on its right")
        return left in right
    a, b = number(left, sign), number(right, sign)
    if sign in ("<", "<=", ">", ">="):
        return {"<": a < b, "<=": a <= b, ">": a > b, ">=": a >= b}[sign]
    if sign == "..":
        return [*range(_whole(a, sign), _whole(b, sign) + 1)]
    return _arithmetic(sign, a, b)


def _arithmetic(sign: str, a: float, b: float) -> float:
    if sign == "+":
        return a + b
    if sign == "-":
        return a - b
    if sign == "*":
        return a * b
    if sign == "/":
        if b:
            return a / b
        return math.nan if a == 0 or math.isnan(a) else math.copysign(math.inf, a)
    if sign == "%":
        if (whole := _whole(b, sign)) == 0:
            raise FormulaError("the right side of % is 0")
        return int(math.fmod(_whole(a, sign), whole))
    try:
        return math.pow(a, b)
    except OverflowError:
        return math.inf
    except ValueError:
        return math.nan


def _whole(value: float, sign: str) -> int:
    if not isinstance(value, int):
        raise FormulaError(f"{sign} is of whole numbers: wrap the triggers in int()")
    return value


def _numbers(arguments: Sequence[Value], name: str) -> list[float]:
    """Arguments and the items of arrays among them."""
    found: list[float] = []
    for one in arguments:
        found += _numbers(one, name) if isinstance(one, list) else [number(one, name)]
    return found


def _some(arguments: Sequence[Value], name: str) -> list[float]:
    found = _numbers(arguments, name)
    if not found:
        raise FormulaError(f"{name}() needs at least one number")
    return found


def _one(name: str, of: Callable[[float], float]) -> Function:
    def call(arguments: Sequence[Value]) -> Value:
        if len(arguments) != 1:
            raise FormulaError(f"{name}() takes one number, not {len(arguments)}")
        return of(number(arguments[0], name))

    return Function(call)


def _rounded(value: float) -> float:
    """Half away from zero, as Go rounds."""
    return math.copysign(math.floor(abs(value) + 0.5), value) if math.isfinite(value) else value


def _kept(of: Callable[[float], float]) -> Callable[[float], float]:
    return lambda value: float(of(value)) if math.isfinite(value) else value


def _asked(arguments: Sequence[Value]) -> list[bool]:
    """What the predicate says of each item; without one the items themselves."""
    answers = arguments[-1]
    assert isinstance(answers, list)
    if not all(isinstance(one, bool) for one in answers):
        raise FormulaError("the condition on the items is not true or false")
    return [one is True for one in answers]


def _filter(arguments: Sequence[Value]) -> Value:
    items = arguments[0]
    assert isinstance(items, list)
    return [item for item, kept in zip(items, _asked(arguments), strict=True) if kept]


def _length(arguments: Sequence[Value]) -> Value:
    if len(arguments) != 1 or not isinstance(arguments[0], list):
        raise FormulaError("len() takes one array")
    return len(arguments[0])


def _sum(arguments: Sequence[Value]) -> Value:
    return sum(_numbers(arguments[-1:], "sum"))


FUNCTIONS: dict[str, Function] = {
    "max": Function(lambda arguments: max(_some(arguments, "max"))),
    "min": Function(lambda arguments: min(_some(arguments, "min"))),
    "mean": Function(lambda arguments: float(statistics.fmean(_some(arguments, "mean")))),
    "median": Function(lambda arguments: float(statistics.median(_some(arguments, "median")))),
    "abs": _one("abs", abs),
    "ceil": _one("ceil", _kept(math.ceil)),
    "floor": _one("floor", _kept(math.floor)),
    "round": _one("round", _rounded),
    "int": _one("int", math.trunc),
    "float": _one("float", float),
    "len": Function(_length),
    "sum": Function(_sum, predicate=True),
    "map": Function(lambda arguments: arguments[-1], predicate=True),
    "filter": Function(_filter, predicate=True),
    "count": Function(lambda arguments: sum(_asked(arguments)), predicate=True),
    "all": Function(lambda arguments: all(_asked(arguments)), predicate=True),
    "any": Function(lambda arguments: any(_asked(arguments)), predicate=True),
    "none": Function(lambda arguments: not any(_asked(arguments)), predicate=True),
    "one": Function(lambda arguments: sum(_asked(arguments)) == 1, predicate=True),
}
"""What is evaluated, by name."""
