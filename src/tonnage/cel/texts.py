"""Functions of strings. Source: cel-go ext/strings.go (version 2), k8s.io/apiserver pkg/cel/library/regex.go."""

from __future__ import annotations

from typing import Any

from tonnage.cel import regex
from tonnage.cel.failures import Err, ErrorKind
from tonnage.cel.registry import function
from tonnage.cel.values import Value, no_overload

_LOWER = {c: c + 32 for c in range(65, 91)}
_UPPER = {c: c - 32 for c in range(97, 123)}
_SPACE = "\t\n\v\f\r \x85\xa0\u1680" + "".join(map(chr, range(0x2000, 0x200B))) + "\u2028\u2029\u202f\u205f\u3000"
_QUOTED = str.maketrans(
    {
        "\a": "\\a",
        "\b": "\\b",
        "\f": "\\f",
        "\n": "\\n",
        "\r": "\\r",
        "\t": "\\t",
        "\v": "\\v",
        "\\": "\\\\",
        '"': '\\"',
    }
)


def _outside(at: int) -> Err:
    return Err(ErrorKind.RANGE, f"index out of range: {at}")


@function("contains", takes=(str, str))
def _contains(a: str, b: str) -> Value:
    return b in a


@function("startsWith", takes=(str, str))
def _starts(a: str, b: str) -> Value:
    return a.startswith(b)


@function("endsWith", takes=(str, str))
def _ends(a: str, b: str) -> Value:
    return a.endswith(b)


@function("matches", takes=(str, str))
def _matches(a: str, b: str) -> Value:
    try:
        return regex.compiled(b).search(a) is not None
    except regex.NotRe2 as error:
        return Err(ErrorKind.REGEX, str(error))


@function("find", takes=(str, str))
def _find(a: str, b: str) -> Value:
    try:
        match = regex.compiled(b).search(a)
    except regex.NotRe2 as error:
        return Err(ErrorKind.REGEX, str(error))
    return match[0] if match else ""


@function("findAll", takes=(str, str))
@function("findAll", takes=(str, str, int))
def _find_all(a: str, b: str, count: int = -1) -> Value:
    try:
        return regex.find_all(b, a, count)
    except regex.NotRe2 as error:
        return Err(ErrorKind.REGEX, str(error))


@function("charAt", takes=(str, int))
def _char_at(a: str, at: int) -> Value:
    return a[at : at + 1] if 0 <= at <= len(a) else _outside(at)


@function("indexOf", takes=(str, str))
@function("indexOf", takes=(str, str, int))
def _index_of(a: str, b: str, start: int = 0) -> Value:
    if b == "":
        return start
    return a.find(b, start) if start >= 0 else _outside(start)


@function("lastIndexOf", takes=(str, str))
def _last_index_of(a: str, b: str) -> Value:
    return a.rfind(b)


@function("lastIndexOf", takes=(str, str, int))
def _last_index_before(a: str, b: str, start: int) -> Value:
    if b == "":
        return start
    if start < 0:
        return _outside(start)
    return -1 if start >= len(a) else a.rfind(b, 0, start + len(b))


@function("lowerAscii", takes=(str,))
def _lower(a: str) -> Value:
    return a.lower() if a.isascii() else a.translate(_LOWER)


@function("upperAscii", takes=(str,))
def _upper(a: str) -> Value:
    return a.upper() if a.isascii() else a.translate(_UPPER)


@function("replace", takes=(str, str, str))
@function("replace", takes=(str, str, str, int))
def _replace(a: str, old: str, new: str, count: int = -1) -> Value:
    return a.replace(old, new, count if count >= 0 else -1)


@function("split", takes=(str, str))
@function("split", takes=(str, str, int))
def _split(a: str, separator: str, count: int = -1) -> Value:
    if count == 0:
        return []
    if separator:
        return a.split(separator, count - 1 if count > 0 else -1)
    return list(a) if count < 0 or count >= len(a) else [*a[: count - 1], a[count - 1 :]]


@function("substring", takes=(str, int))
def _tail(a: str, start: int) -> Value:
    return a[start:] if 0 <= start <= len(a) else _outside(start)


@function("substring", takes=(str, int, int))
def _substring(a: str, start: int, end: int) -> Value:
    if start > end:
        return Err(ErrorKind.RANGE, f"invalid substring range. start: {start}, end: {end}")
    outside = [at for at in (start, end) if not 0 <= at <= len(a)]
    return _outside(outside[0]) if outside else a[start:end]


@function("trim", takes=(str,))
def _trim(a: str) -> Value:
    return a.strip(_SPACE)


@function("strings.quote", takes=(str,))
def _quote(a: str) -> Value:
    return f'"{a.translate(_QUOTED)}"'


@function("join", takes=(list,))
@function("join", takes=(list, str))
def _join(a: list[Any], separator: str = "") -> Value:
    wrong = [one for one in a if type(one) is not str]
    if wrong and type(a[0]) is not str:
        return no_overload(a)
    return Err(ErrorKind.ARGUMENT, f"join: {wrong[0]!r} is no string") if wrong else separator.join(a)
