"""Fields that an object's kind does not have: a typing error that the API server would ignore or refuse."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from functools import cache, lru_cache
from typing import Any, NamedTuple, TypeAlias, get_args, get_origin

import msgspec

from tonnage.objects.api import fields as api
from tonnage.objects.known import unread

_KUBERNETES = tuple(f"tonnage.objects.{group}" for group in ("apps", "autoscaling", "base", "batch", "core", "policy"))
"""Whose structs are those of Kubernetes' own kinds, by the same names: the API's own table knows their fields."""


class _Map(NamedTuple):
    """Values of one struct by any name."""

    of: type[msgspec.Struct]


_Known: TypeAlias = dict[str, type[msgspec.Struct] | _Map | api.FieldType | None]


def fields(value: Any, type_: Any, path: str = "") -> Iterator[tuple[str, str, str]]:
    """(path, message, hint) of every field that ``type_`` does not have and Kubernetes does not know there."""
    if read_members(type_) is not None and isinstance(value, dict):
        for at, message, hint in _unknown(value, _known(type_)):
            yield (f"{path}{at}" if path else at[1:]), message, hint


def _unknown(value: dict[str, Any], known: _Known) -> list[tuple[str, str, str]]:
    """The same; paths begin with a dot. Most objects have no such field: no path is made until one is found."""
    found: list[tuple[str, str, str]] = []
    for key, inner in value.items():
        if key not in known:
            found.append((f".{key}", f"unknown field {key!r}", _near(key, tuple(known))))
            continue
        within = known[key]
        if within is None:
            continue
        if isinstance(within, api.FieldType):
            if isinstance(inner, dict | list):
                for one in api.unknown_inside(inner, within, f".{key}"):
                    near = _near(one.key, tuple(api.structs()[one.struct]))
                    found.append((one.path, f"unknown field {one.key!r}", near))
        elif isinstance(within, _Map):
            for name, item in inner.items() if isinstance(inner, dict) else ():
                if isinstance(item, dict) and (more := _unknown(item, _known(within.of))):
                    found += ((f".{key}.{name}{at}", message, hint) for at, message, hint in more)
        elif isinstance(inner, list):
            for index, item in enumerate(inner):
                if isinstance(item, dict) and (more := _unknown(item, _known(within))):
                    found += ((f".{key}[{index}]{at}", message, hint) for at, message, hint in more)
        elif isinstance(inner, dict) and (more := _unknown(inner, _known(within))):
            found += ((f".{key}{at}", message, hint) for at, message, hint in more)
    return found


@cache
def _known(type_: type[msgspec.Struct]) -> _Known:
    """Every field of a struct that Kubernetes knows: its struct where that is read here, its type in the API's table
    where it has fields by that, None where nothing in it has a name that could be wrong."""
    known: _Known = dict(read_members(type_) or {})
    for one in msgspec.structs.fields(type_):
        struct = known[one.encode_name]
        if get_origin(one.type) is dict and isinstance(struct, type):
            known[one.encode_name] = _Map(struct)
    for name, field in _table(type_).items():
        if known.get(name) is None:
            known[name] = None if field.of in api.SCALARS else field
    return known | dict.fromkeys(sorted(unread(type_.__name__) - known.keys()))


def _table(type_: type[msgspec.Struct]) -> api.Struct:
    """The fields that Kubernetes' own kinds have, of which not all are read; nothing of other kinds' structs."""
    return api.structs().get(type_.__name__, {}) if type_.__module__.startswith(_KUBERNETES) else {}


@cache
def read_members(type_: Any) -> dict[str, type[msgspec.Struct] | None] | None:
    """The fields of a struct as they are written, each with the struct in it if there is one."""
    if not (isinstance(type_, type) and issubclass(type_, msgspec.Struct)):
        return None
    return {field.encode_name: struct_in(field.type) for field in msgspec.structs.fields(type_)}


def struct_in(type_: Any) -> type[msgspec.Struct] | None:
    """The struct inside ``X``, ``X | None``, ``list[X]`` and ``dict[str, X]``; none where a mapping of any names may
    stand beside it."""
    if isinstance(type_, type) and issubclass(type_, msgspec.Struct):
        return type_
    if get_origin(type_) is not dict and any(get_origin(argument) is dict for argument in get_args(type_)):
        return None
    return next((found for argument in get_args(type_) if (found := struct_in(argument))), None)


@lru_cache(maxsize=1024)
def _near(key: str, names: tuple[str, ...]) -> str:
    known = {name.lower(): name for name in names}
    near = difflib.get_close_matches(key.lower(), known, 1)
    return f"did you mean {known[near[0]]}?" if near else "it has no effect"
