"""What generated code calls while it runs: looking things up, and tests of what a value is."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from tonnage.cel.failures import Abort, Err, ErrorKind
from tonnage.cel.quantity import INT_MAX
from tonnage.cel.values import MISSING, UNHASHABLE, Domains, Maybe, Names, UInt, Value, find, name_of, no_overload, same

ABSENT = object()
"""What an optional look-up did not find."""
UNSET = object()
"""A name that nobody has asked for yet."""
_KEYS = (str, int, UInt, float, bool)


def _look_up(holder: Value, key: Value) -> Value:
    """The value, ABSENT, or an error for a key that such a holder never has."""
    if type(key) not in _KEYS:
        return Err(ErrorKind.INDEX, f"a {name_of(key)} is no key")
    if type(holder) is Domains:
        return holder[key]
    if type(holder) is Names or type(holder) is dict:
        found = find(holder, key)
        return ABSENT if found is MISSING else found
    if type(holder) is list:
        if type(key) is bool or type(key) is str or (type(key) is float and not key.is_integer()) or key > INT_MAX:
            return Err(ErrorKind.INDEX, f"{key!r} is not an index of a list")
        return holder[int(key)] if 0 <= key < len(holder) else ABSENT
    return ABSENT


def index(holder: Value, key: Value) -> Value:
    """``holder[key]``"""
    found = _look_up(holder, key)
    if found is ABSENT:
        return Err(ErrorKind.BOUNDS if type(holder) is list else ErrorKind.NO_KEY, f"no such key: {key!r}")
    return found


def index_maybe(holder: Value, key: Value) -> Value:
    """``holder[?key]``: ABSENT where there is nothing."""
    return _look_up(holder, key)


def has(holder: Value, key: Value) -> Value:
    """Whether ``holder.key`` is there."""
    found = _look_up(holder, key)
    return found if type(found) is Err else found is not ABSENT


def has_maybe(holder: Value, key: Value) -> Value:
    """Likewise, after an optional look-up."""
    found = _look_up(holder, key)
    return found if type(found) is Err or found is ABSENT else True


def opened(value: Value) -> Value:
    """What an optional holds, ABSENT when nothing."""
    if type(value) is Maybe:
        return value.value if value.present else ABSENT
    return value


def plain(value: Value) -> Value:
    """What regular expressions that are constants look at: an optional is as good as what it holds."""
    while type(value) is Maybe:
        value = value.value
    return value


def matched(search: Callable[[str], object], value: Value) -> Value:
    """Whether a regular expression is found in a value of any type."""
    text = plain(value)
    return search(text) is not None if type(text) is str else no_overload(value)


def logical(value: Value) -> Value:
    """A term of && or ||, or a condition: what is no bool is an error."""
    return value if type(value) is bool or type(value) is Err else no_overload(value)


def conjoined(before: Value, term: Value) -> Value:
    """``before && term`` where before is true or an error."""
    if term is False or before is True:
        return logical(term)
    return before


def disjoined(before: Value, term: Value) -> Value:
    """``before || term`` where before is false or an error."""
    if term is True or before is False:
        return logical(term)
    return before


def elements(over: Value) -> Value:
    """What a loop with one variable goes through."""
    if type(over) is list:
        return over
    if isinstance(over, dict):
        return list(over)
    return Err(ErrorKind.OVERLOAD, f"a {name_of(over)} has no elements")


def pairs(over: Value) -> Value:
    """What a loop with two variables goes through."""
    if type(over) is list:
        return list(enumerate(over))
    if isinstance(over, dict):
        return list(over.items())
    return Err(ErrorKind.OVERLOAD, f"a {name_of(over)} has no elements")


def member(value: Value, constants: frozenset[tuple[bool, Any]]) -> bool:
    """Whether a value is one of the constants of a list."""
    if type(value) is float:
        return any(not truth and same(value, one) is True for truth, one in constants)
    if type(value) in _KEYS:
        return (type(value) is bool, value) in constants
    if type(value) in UNHASHABLE:
        raise Abort(ErrorKind.INTERNAL)
    return False


def mapped(entries: Iterable[tuple[Value, Value]]) -> Value:
    """A map, the last of equal keys counting."""
    try:
        return dict(entries)
    except TypeError:
        return Err(ErrorKind.INTERNAL, "a key cannot be looked up")


def kept(value: Value) -> Value:
    """An element or entry with a question mark: what the optional holds, or ABSENT."""
    return opened(value) if type(value) is Maybe else Err(ErrorKind.ARGUMENT, "a value that is not optional")
