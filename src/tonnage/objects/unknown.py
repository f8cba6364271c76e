"""Fields that an object's kind does not have: a typing error that the API server would ignore or refuse."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from functools import cache, lru_cache
from typing import Any, get_args, get_origin

import msgspec

from tonnage.objects.api import fields as api
from tonnage.objects.known import unread

_KUBERNETES = tuple(f"tonnage.objects.{group}" for group in ("apps", "autoscaling", "base", "batch", "core", "policy"))
"""Whose structs are those of Kubernetes' own kinds, by the same names: the API's own table knows their fields."""


def fields(value: Any, type_: Any, path: str = "") -> Iterator[tuple[str, str, str]]:
    """(path, message, hint) of every field that ``type_`` does not have and Kubernetes does not know there."""
    members = read_members(type_)
    if members is None or not isinstance(value, dict):
        return
    table = _table(type_)
    for key, inner in value.items():
        here = f"{path}.{key}" if path else key
        struct, known = members.get(key), table.get(key)
        if struct is not None:
            for at, item in _items(inner, here, by_name=key in _maps(type_)):
                yield from fields(item, struct, at)
        elif known is not None:
            for one in api.unknown_inside(inner, known, here):
                yield one.path, f"unknown field {one.key!r}", _near(one.key, tuple(api.structs()[one.struct]))
        elif key not in members and key not in unread(type_.__name__):
            yield here, f"unknown field {key!r}", _near(key, (*members, *table, *unread(type_.__name__)))


def _items(value: Any, path: str, *, by_name: bool) -> Iterator[tuple[str, Any]]:
    """Where a list's items stand, the values of a map (``by_name``), or the value itself."""
    if isinstance(value, list):
        yield from ((f"{path}[{index}]", item) for index, item in enumerate(value))
    elif by_name and isinstance(value, dict):
        yield from ((f"{path}.{name}", item) for name, item in value.items())
    else:
        yield path, value


def _table(type_: type[msgspec.Struct]) -> api.Struct:
    """The fields that Kubernetes' own kinds have, of which not all are read; nothing of other kinds' structs."""
    return api.structs().get(type_.__name__, {}) if type_.__module__.startswith(_KUBERNETES) else {}


@cache
def read_members(type_: Any) -> dict[str, type[msgspec.Struct] | None] | None:
    """The fields of a struct as they are written, each with the struct in it if there is one."""
    if not (isinstance(type_, type) and issubclass(type_, msgspec.Struct)):
        return None
    return {field.encode_name: struct_in(field.type) for field in msgspec.structs.fields(type_)}


@cache
def _maps(type_: type[msgspec.Struct]) -> frozenset[str]:
    """The fields of a struct, as they are written, that are maps."""
    return frozenset(one.encode_name for one in msgspec.structs.fields(type_) if get_origin(one.type) is dict)


def struct_in(type_: Any) -> type[msgspec.Struct] | None:
    """The struct inside ``X``, ``X | None``, ``list[X]`` and ``dict[str, X]``."""
    if isinstance(type_, type) and issubclass(type_, msgspec.Struct):
        return type_
    return next((found for argument in get_args(type_) if (found := struct_in(argument))), None)


@lru_cache(maxsize=1024)
def _near(key: str, names: tuple[str, ...]) -> str:
    known = {name.lower(): name for name in names}
    near = difflib.get_close_matches(key.lower(), known, 1)
    return f"did you mean {known[near[0]]}?" if near else "it has no effect"
