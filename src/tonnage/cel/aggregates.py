"""Functions of lists, maps, sets and optional values.

Sources: cel-go ext/lists.go (version 3), ext/sets.go, ext/comprehensions.go, cel/library.go (optional types),
k8s.io/apiserver pkg/cel/library/lists.go.
"""

from __future__ import annotations

from functools import cmp_to_key
from itertools import pairwise
from typing import Any

from tonnage.cel.arithmetic import compare
from tonnage.cel.failures import Err, ErrorKind
from tonnage.cel.registry import dispatcher, function
from tonnage.cel.values import MISSING, NONE, Duration, Maybe, Timestamp, UInt, Value, contains, find, no_overload, same

LONGEST = 1_000_000
"""Elements of a list that a function makes: more cost more than any evaluation may."""


@function("slice", takes=(list, int, int))
def _slice(a: list[Any], start: int, end: int) -> Value:
    if start < 0 or end < 0 or start > end or len(a) < end:
        return Err(ErrorKind.RANGE, f"cannot slice({start}, {end}), the list has {len(a)} elements")
    return a[start:end]


@function("flatten", takes=(list,))
@function("flatten", takes=(list, int))
def _flatten(a: list[Any], depth: int = 1) -> Value:
    if depth < 0:
        return Err(ErrorKind.ARGUMENT, "the depth cannot be negative")
    found: list[Any] = []
    for one in a:
        if type(one) is list and depth:
            found.extend(_flatten(one, depth - 1))
        else:
            found.append(one)
    return found


@function("lists.range", takes=(int,))
def _range(n: int) -> Value:
    return list(range(n)) if n <= LONGEST else Err(ErrorKind.COST, "too long")


@function("reverse", takes=(list,))
def _reverse(a: list[Any]) -> Value:
    return a[::-1]


@function("distinct", takes=(list,))
def _distinct(a: list[Any]) -> Value:
    found: list[Any] = []
    for one in a:
        if not any(same(one, other) is True for other in found):
            found.append(one)
    return found


@function("sort", takes=(list,))
def _sort(a: list[Any]) -> Value:
    return _sort_by(a, a)


@function("@sortByAssociatedKeys", takes=(list, list))
def _sort_by(a: list[Any], keys: list[Any]) -> Value:
    if len(a) != len(keys):
        return Err(ErrorKind.ARGUMENT, "not as many keys as elements")
    if not a:
        return a
    if type(keys[0]) is not type(keys[-1]) or len({type(key) for key in keys}) > 1:
        return Err(ErrorKind.ARGUMENT, "list elements must have the same type")
    if type(compare(keys[0], keys[0])) is Err and keys[0] == keys[0]:
        return Err(ErrorKind.ARGUMENT, "list elements must be comparable")

    def order(i: int, j: int) -> int:
        outcome = compare(keys[i], keys[j])
        return 0 if type(outcome) is Err else int(outcome)

    return [a[i] for i in sorted(range(len(a)), key=cmp_to_key(order))]


_ORDERED = (int, UInt, float, bool, Duration, Timestamp, str, bytes)
"""Types of which the first element of a list must be, or no signature takes it."""


@function("isSorted", takes=(list,))
def _is_sorted(a: list[Any]) -> Value:
    if a and type(a[0]) not in _ORDERED:
        return no_overload(a)
    for before, after in pairwise(a):
        outcome = compare(before, after)
        if type(outcome) is Err:
            return outcome
        if outcome > 0:
            return False
    return True


def _extreme(sign: int, name: str) -> None:
    @function(name, takes=(list,))
    def extreme(a: list[Any]) -> Value:
        if not a:
            return Err(ErrorKind.ARGUMENT, f"{name} called on empty list")
        if type(a[0]) not in _ORDERED:
            return no_overload(a)
        found = a[0]
        for one in a[1:]:
            outcome = compare(found, one)
            if type(outcome) is Err:
                return outcome
            if outcome == sign:
                found = one
        return found


_extreme(1, "min")
_extreme(-1, "max")
_ADD = dispatcher("_+_")


@function("sum", takes=(list,))
def _sum(a: list[Any]) -> Value:
    if a and type(a[0]) not in (int, UInt, float, Duration):
        return no_overload(a)
    total = a[0] if a else 0
    for one in a[1:]:
        total = _ADD(total, one)
        if type(total) is Err:
            return total
    return total


@function("indexOf", takes=(list, object))
def _index_of(a: list[Any], b: Value) -> Value:
    return next((i for i, one in enumerate(a) if same(one, b) is True), -1)


@function("lastIndexOf", takes=(list, object))
def _last_index_of(a: list[Any], b: Value) -> Value:
    return next((i for i in range(len(a) - 1, -1, -1) if same(a[i], b) is True), -1)


@function("sets.contains", takes=(list, list))
def _set_contains(a: list[Any], b: list[Any]) -> Value:
    return all(contains(a, one) for one in b)


@function("sets.equivalent", takes=(list, list))
def _set_equivalent(a: list[Any], b: list[Any]) -> Value:
    return bool(_set_contains(a, b) and _set_contains(b, a))


@function("sets.intersects", takes=(list, list))
def _set_intersects(a: list[Any], b: list[Any]) -> Value:
    return any(contains(b, one) for one in a)


@function("cel.@mapInsert", takes=(dict, object, object))
def _insert(a: dict[Any, Value], key: Value, value: Value) -> Value:
    return _insert_all(a, {key: value})


@function("cel.@mapInsert", takes=(dict, dict))
def _insert_all(a: dict[Any, Value], b: dict[Any, Value]) -> Value:
    twice = [key for key in b if find(a, key) is not MISSING]
    return Err(ErrorKind.ARGUMENT, f"insert failed: key {twice[0]!r} already exists") if twice else {**a, **b}


@function("optional.of", takes=(object,))
def _of(a: Value) -> Value:
    return Maybe(True, a)


@function("optional.none", takes=())
def _none() -> Value:
    return NONE


@function("optional.ofNonZeroValue", takes=(object,))
def _of_non_zero(a: Value) -> Value:
    if type(a) is Duration or type(a) is Timestamp:
        return Maybe(True, a) if a.ns or type(a) is Timestamp else NONE
    if type(a) is Maybe:
        return Maybe(True, a) if a.present else NONE
    empty = a is None or a is False or (isinstance(a, int | float | str | bytes | list | dict) and not a)
    return NONE if empty else Maybe(True, a)


@function("value", takes=(Maybe,))
def _value(a: Maybe) -> Value:
    return a.value if a.present else Err(ErrorKind.ARGUMENT, "optional.none() dereference")


@function("hasValue", takes=(Maybe,))
def _has_value(a: Maybe) -> Value:
    return a.present


@function("first", takes=(list,))
def _first(a: list[Any]) -> Value:
    return Maybe(True, a[0]) if a else NONE


@function("last", takes=(list,))
def _last(a: list[Any]) -> Value:
    return Maybe(True, a[-1]) if a else NONE


@function("optional.unwrap", takes=(list,))
@function("unwrapOpt", takes=(list,))
def _unwrap(a: list[Any]) -> Value:
    wrong = [one for one in a if type(one) is not Maybe]
    return no_overload(wrong[0]) if wrong else [one.value for one in a if one.present]
