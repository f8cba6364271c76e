"""Fields that an object's kind does not have: a typing error that the API server would ignore or refuse."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from functools import cache
from typing import Any, get_args

import msgspec

from tonnage.objects.known import unread


def fields(value: Any, type_: Any, path: str = "") -> Iterator[tuple[str, str, str]]:
    """(path, message, hint) of every field that ``type_`` does not have and Kubernetes does not know there."""
    members = read_members(type_)
    if members is None or not isinstance(value, dict):
        return
    for key, inner in value.items():
        here = f"{path}.{key}" if path else key
        if key not in members:
            if key not in unread(type_.__name__):
                yield here, f"unknown field {key!r}", _hint(key, type_)
            continue
        struct = members[key]
        if struct is None:
            continue
        if isinstance(inner, list):
            for index, item in enumerate(inner):
                yield from fields(item, struct, f"{here}[{index}]")
        else:
            yield from fields(inner, struct, here)


@cache
def read_members(type_: Any) -> dict[str, type[msgspec.Struct] | None] | None:
    """The fields of a struct as they are written, each with the struct in it if there is one."""
    if not (isinstance(type_, type) and issubclass(type_, msgspec.Struct)):
        return None
    return {field.encode_name: struct_in(field.type) for field in msgspec.structs.fields(type_)}


def struct_in(type_: Any) -> type[msgspec.Struct] | None:
    """The struct inside ``X``, ``X | None`` and ``list[X]``."""
    if isinstance(type_, type) and issubclass(type_, msgspec.Struct):
        return type_
    return next((found for argument in get_args(type_) if (found := struct_in(argument))), None)


@cache
def _hint(key: str, type_: type[msgspec.Struct]) -> str:
    known = {name.lower(): name for name in (*(read_members(type_) or ()), *unread(type_.__name__))}
    near = difflib.get_close_matches(key.lower(), known, 1)
    return f"did you mean {known[near[0]]}?" if near else "it has no effect"
