"""What a call costs at run time.

A unit is a simple step; strings cost a tenth of a unit a character, regular expressions a quarter of a unit a character
of the pattern. Sources: cel-go interpreter/runtimecost.go and the trackers of ext/lists.go and ext/sets.go,
k8s.io/apiserver pkg/cel/library/cost.go.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from tonnage.cel.quantity import Quantity
from tonnage.cel.values import Semver, Value, size

LIMIT = 1_000_000
"""Of an evaluation for one device (resource.k8s.io CELSelectorExpressionMaxCost)."""
LIST, MAP = 10, 30
"""To make a list or a map."""

Cost = Callable[..., int]
"""Of the arguments and the result."""


def traversed(count: int) -> int:
    """Reading so many characters."""
    return math.ceil(count * 0.1)


def _traversal(value: Value) -> int:
    if isinstance(value, str):
        return int(len(value.encode()) * 0.1)
    if isinstance(value, bytes):
        return int(len(value) * 0.1)
    if isinstance(value, list):
        return sum(_traversal(one) for one in value)
    if isinstance(value, dict):
        return sum(_traversal(key) + _traversal(one) for key, one in value.items())
    return 1


def _once(*values: Value) -> int:
    return traversed(size(values[0]))


def _twice(*values: Value) -> int:
    return math.ceil(size(values[0]) * 2 * 0.1)


def _made(*values: Value) -> int:
    return math.ceil(size(values[-1]) * 2 * 0.1)


def _smaller(*values: Value) -> int:
    return traversed(min(size(values[0]), size(values[1])))


def _both(*values: Value) -> int:
    return traversed(size(values[0]) + size(values[1]))


def _pattern(*values: Value) -> int:
    return math.ceil((1.0 + size(values[0])) * 0.1) * math.ceil(size(values[1]) * 0.25)


def _inside(*values: Value) -> int:
    return traversed(size(values[0])) * traversed(size(values[1]))


def _holder(*values: Value) -> int:
    return size(values[1])


def _elements(*values: Value) -> int:
    return _traversal(values[0])


def _allocated(factor: float, count: int) -> int:
    return int(count * factor) + 1 + LIST


def _result_list(*values: Value) -> int:
    return _allocated(1, size(values[-1]))


def _flattened(*values: Value) -> int:
    depth = values[1] if len(values) == 3 else 1
    return _allocated(depth, size(values[0]))


def _compared(elements: list[Any]) -> int:
    factor = 2.1 if elements and isinstance(elements[0], str | bytes) else 2.0
    return _allocated(factor, len(elements) ** 2)


def _sorted(*values: Value) -> int:
    return _compared(values[0])


def _sorted_by(*values: Value) -> int:
    return _compared(values[1])


def _sets(factor: int) -> Cost:
    return lambda *values: 1 + size(values[0]) * size(values[1]) * factor


def _within(*values: Value) -> int:
    return traversed(2 * size(values[0]))


def _within_text(*values: Value) -> int:
    return _within(*values) + traversed(size(values[1]))


def _subnet(*values: Value) -> int:
    return _within(*values) + traversed(size(values[0])) + 1


def _subnet_text(*values: Value) -> int:
    return _subnet(*values) + traversed(size(values[1]))


def _equality(*values: Value) -> int:
    return 1 if hasattr(values[0], "cost_size") or isinstance(values[0], Quantity | Semver) else _smaller(*values)


_BY_FUNCTION: dict[str, Cost] = {
    **dict.fromkeys(("isSorted", "sum", "max", "min", "indexOf", "lastIndexOf"), _elements),
    **dict.fromkeys(("lowerAscii", "upperAscii", "substring", "trim", "cidr", "isIP", "isCIDR", "ip"), _once),
    **dict.fromkeys(("quantity", "isQuantity", "semver", "isSemver"), _once),
    **dict.fromkeys(("replace", "split", "ip.isCanonical"), _twice),
    "join": _made,
    "find": _pattern,
    "findAll": _pattern,
    "_==_": _equality,
}
_BY_OVERLOAD: dict[str, Cost] = {
    **dict.fromkeys(("list_slice", "lists_range", "list_reverse"), _result_list),
    **dict.fromkeys(("list_flatten", "list_flatten_int"), _flattened),
    "list_distinct": _sorted,
    **dict.fromkeys(("list_sets_contains_list", "list_sets_intersects_list"), _sets(1)),
    "list_sets_equivalent_list": _sets(2),
    "cidr_contains_ip_string": _within_text,
    "cidr_contains_ip_ip": _within,
    "cidr_contains_cidr_string": _subnet_text,
    "cidr_contains_cidr": _subnet,
    **dict.fromkeys(("starts_with_string", "ends_with_string", "string_to_bytes", "bytes_to_string"), _once),
    "strings_quote": _once,
    "in_list": _holder,
    **{
        f"{word}_{t}": _smaller
        for word in ("less", "less_equals", "greater", "greater_equals")
        for t in ("string", "bytes")
    },
    "not_equals": _smaller,
    "add_string": _both,
    "add_bytes": _both,
    "matches_string": _pattern,
    "contains_string": _inside,
}
SORTS = {"_sort": _sorted, "_sortByAssociatedKeys": _sorted_by}


def of(function: str, overload: str) -> Cost | int:
    """What a call costs: a number, or a function of its arguments and its result."""
    if overload == "cidr_ip":
        return 1
    if function in ("sort", "@sortByAssociatedKeys") and overload:
        return next(cost for end, cost in SORTS.items() if overload.endswith(end))
    if function in ("containsIP", "containsCIDR") and not overload:
        return _within if function == "containsIP" else _subnet
    return _BY_OVERLOAD.get(overload) or _BY_FUNCTION.get(function) or 1
