"""Protocol buffers as the kubelet's APIs use them: strings, booleans, integers, messages, lists and maps of strings.

A message is a struct whose fields carry their numbers: ``ids: Annotated[list[str], 1] = []``. What a message has beyond
that is skipped, and a field that is not sent has its default, as proto3 has it. Source:
protobuf.dev/programming-guides/encoding.
"""

from __future__ import annotations

import types
from collections.abc import Hashable, Iterator
from functools import lru_cache
from typing import Any, NamedTuple, TypeVar, cast, get_args, get_origin, get_type_hints

T = TypeVar("T")

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5


class WireError(ValueError):
    """Bytes that are not a message."""


class _Field(NamedTuple):
    name: str
    number: int
    type: Any
    repeated: bool
    mapped: bool


@lru_cache(maxsize=256)
def _fields(type_: Hashable) -> dict[int, _Field]:
    found = {}
    for name, hint in get_type_hints(type_, include_extras=True).items():
        plain, at = get_args(hint)
        inner = [arg for arg in get_args(plain) if arg is not types.NoneType]
        kind = get_origin(plain)
        repeated, mapped = kind is list, kind is dict
        found[at] = _Field(name, at, inner[0] if inner and not mapped else plain, repeated, mapped)
    return found


def encode(message: Any) -> bytes:
    """The bytes of a message; defaults are left out."""
    out = bytearray()
    for field in _fields(cast(Hashable, type(message))).values():
        value = getattr(message, field.name)
        if value is None or (not value and not field.repeated):
            continue
        if field.mapped:
            for key, text in sorted(value.items()):
                _put_bytes(out, field.number, _entry(key, text))
        elif field.repeated and field.type is int:
            if value:
                _put_bytes(out, field.number, b"".join(_varint(one) for one in value))
        else:
            for one in value if field.repeated else [value]:
                _put(out, field.number, one)
    return bytes(out)


def _put(out: bytearray, at: int, value: Any) -> None:
    if isinstance(value, int):
        out += _varint(at << 3 | _VARINT) + _varint(int(value))
    elif isinstance(value, str):
        _put_bytes(out, at, value.encode())
    else:
        _put_bytes(out, at, encode(value))


def _put_bytes(out: bytearray, at: int, content: bytes) -> None:
    out += _varint(at << 3 | _BYTES) + _varint(len(content)) + content


def _entry(key: str, text: str) -> bytes:
    out = bytearray()
    _put(out, 1, key)
    _put(out, 2, text)
    return bytes(out)


def _varint(value: int) -> bytes:
    value &= (1 << 64) - 1
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def decode(type_: type[T], content: bytes) -> T:
    """The message in these bytes. Raises WireError for what is none."""
    given: dict[str, Any] = {}
    fields = _fields(cast(Hashable, type_))
    for at, value in _parts(content):
        field = fields.get(at)
        if field is None:
            continue
        if field.mapped:
            if not isinstance(value, bytes):
                raise WireError(f"field {at}: expected an entry")
            entry = dict(_parts(value))
            given.setdefault(field.name, {})[_text(entry.get(1, b""))] = _text(entry.get(2, b""))
        elif field.repeated:
            packed = field.type is int and isinstance(value, bytes)
            values = _packed(value) if packed and isinstance(value, bytes) else [_value(field, value)]
            given.setdefault(field.name, []).extend(values)
        else:
            given[field.name] = _value(field, value)
    return type_(**given)


def _value(field: _Field, value: int | bytes) -> Any:
    if field.type in (int, bool):
        if not isinstance(value, int):
            raise WireError(f"field {field.number}: expected a number")
        signed = value - (1 << 64) if value >> 63 else value
        return bool(value) if field.type is bool else signed
    if not isinstance(value, bytes):
        raise WireError(f"field {field.number}: expected bytes")
    return _text(value) if field.type is str else decode(field.type, value)


def _text(value: int | bytes) -> str:
    if not isinstance(value, bytes):
        raise WireError("expected a text")
    try:
        return value.decode()
    except UnicodeDecodeError as error:
        raise WireError(str(error)) from error


def _packed(content: bytes) -> list[int]:
    at, found = 0, []
    while at < len(content):
        value, at = _read_varint(content, at)
        found.append(value)
    return found


def _parts(content: bytes) -> Iterator[tuple[int, int | bytes]]:
    """(field number, value) of everything in a message."""
    at = 0
    while at < len(content):
        tag, at = _read_varint(content, at)
        kind = tag & 7
        if kind == _VARINT:
            value, at = _read_varint(content, at)
            yield tag >> 3, value
            continue
        if kind == _BYTES:
            length, at = _read_varint(content, at)
        elif kind in (_FIXED64, _FIXED32):
            length = 8 if kind == _FIXED64 else 4
        else:
            raise WireError(f"wire type {kind} is not used")
        if at + length > len(content):
            raise WireError("cut off")
        yield tag >> 3, content[at : at + length]
        at += length


def _read_varint(content: bytes, at: int) -> tuple[int, int]:
    value, shift = 0, 0
    while at < len(content) and shift < 64:
        byte = content[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value & ((1 << 64) - 1), at
    raise WireError("cut off")
