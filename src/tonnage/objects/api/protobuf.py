"""Kubernetes' protobuf encoding of objects of built-in kinds, from and to their JSON form.

kubectl from 1.35 on sends what it makes itself in this form (kubectl create, the evictions of kubectl drain); the
bindings and events of the controllers go out in it, which an API server reads with less work than JSON. The fields are
in ``protobuf.csv``. Source of the envelope: kubernetes/kubernetes v1.36
staging/src/k8s.io/apimachinery/pkg/runtime/serializer/protobuf.
"""

from __future__ import annotations

import base64
import csv
import struct
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from functools import cache, lru_cache
from importlib.resources import files
from typing import Any, TypeAlias

import msgspec

JsonObject: TypeAlias = dict[str, Any]

CONTENT_TYPE = "application/vnd.kubernetes.protobuf"
MAGIC = b"k8s\x00"
_SCALARS = ("string", "int", "bool", "double")
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_EMBEDDED = "-"


class Malformed(ValueError):
    """Bytes, or an object, that are not what the table of fields says."""


class _Field(msgspec.Struct, frozen=True):
    name: str
    shape: str  # a scalar, a special type or a struct's name
    repeated: bool
    mapped: bool
    kept: bool  # also when it is zero or empty


@cache
def _structs() -> dict[str, dict[int, _Field]]:
    text = files("tonnage.objects.api").joinpath("protobuf.csv").read_text(encoding="utf-8")
    rows = csv.DictReader(line for line in text.splitlines() if not line.startswith("#"))
    return {row["type"]: dict(map(_field, row["fields"].split())) for row in rows}


def _field(text: str) -> tuple[int, _Field]:
    name, number, shape = text.split(":")
    bare = shape.lstrip("!*").removeprefix("[]").removeprefix("{}")
    return int(number), _Field(name, bare, "[]" in shape, "{}" in shape, shape[0] in "!*")


def decode(body: bytes) -> JsonObject:
    """The object in a body, as its JSON form. Raises Malformed."""
    try:
        if not body.startswith(MAGIC):
            raise Malformed("it does not begin as Kubernetes' protobuf does")
        envelope = dict(_parts(body[len(MAGIC) :]))
        head = dict(_parts(_bytes(envelope.get(1, b""))))
        api_version, kind = (_bytes(head.get(number, b"")).decode() for number in (1, 2))
        if kind not in _structs():
            raise Malformed(f"the kind {kind} is not known")
        return {"kind": kind, "apiVersion": api_version, **_message(kind, _bytes(envelope.get(2, b"")))}
    except (struct.error, ValueError, OverflowError) as error:
        raise Malformed(str(error)) from error


def encode(body: JsonObject) -> bytes:
    """The body of an object, from its JSON form: what is null is left out, zeros are written.

    Raises Malformed for kinds and fields that the table does not have, and values of other types."""
    kind = body.get("kind", "")
    if kind not in _structs():
        raise Malformed(f"the kind {kind} is not known")
    try:
        fields = {name: value for name, value in body.items() if name not in ("kind", "apiVersion")}
        return _head(body["apiVersion"], kind) + _sized(_put_message(kind, fields))
    except (AttributeError, TypeError, KeyError, ValueError, struct.error) as error:
        raise Malformed(f"{kind}: {error}") from error


def _parts(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """(field number, value) of a message, in order."""
    at = 0
    while at < len(data):
        tag, at = _varint(data, at)
        number, wire = tag >> 3, tag & 7
        value: int | bytes
        if wire == _VARINT:
            value, at = _varint(data, at)
        elif wire in (_BYTES, _FIXED64, _FIXED32):
            size = {_FIXED64: 8, _FIXED32: 4}.get(wire, 0)
            if wire == _BYTES:
                size, at = _varint(data, at)
            value, at = data[at : at + size], at + size
            if at > len(data):
                raise Malformed("it is cut short")
        else:
            raise Malformed(f"wire type {wire} is not used by Kubernetes")
        yield number, value


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while at < len(data) and shift < 70:
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at += 1
        if byte < 0x80:
            return value, at
        shift += 7
    raise Malformed("a number is cut short")


def _to_varint(value: int) -> bytes:
    """A number of 64 bits, the negative ones as those above the half."""
    value %= 2**64
    found = bytearray()
    while value > 0x7F:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    found.append(value)
    return bytes(found)


def _message(of: str, data: bytes) -> JsonObject:
    found: JsonObject = {}
    fields = _structs()[of]
    for number, raw in _parts(data):
        known = fields.get(number)
        if known is None:
            continue
        if known.name == _EMBEDDED:
            found.update(_message(known.shape, _bytes(raw)))
        elif known.mapped:
            entry = dict(_parts(_bytes(raw)))
            key = _bytes(entry.get(1, b"")).decode()
            found.setdefault(known.name, {})[key] = _value(known.shape, entry.get(2, _zero(known.shape)))
        elif known.repeated:
            found.setdefault(known.name, []).append(_value(known.shape, raw))
        else:
            value = _value(known.shape, raw)
            if known.kept or value not in (None, "", 0, {}):
                found[known.name] = value
    return found


def _zero(shape: str) -> int | bytes:
    return 0 if shape in ("int", "bool") else b""


def _value(shape: str, raw: int | bytes) -> Any:
    if shape in _SCALARS:
        return _scalar(shape, raw)
    data = _bytes(raw)
    if shape == "bytes":
        return base64.b64encode(data).decode()
    if shape in _structs():
        return _message(shape, data)
    parts = dict(_parts(data))
    if shape == "quantity":
        return _bytes(parts.get(1, b"")).decode()
    if shape == "intorstring":
        return _bytes(parts.get(3, b"")).decode() if parts.get(1) else _signed(parts.get(2, 0))
    if shape in ("time", "microtime"):
        return _time(shape, parts)
    if shape in ("fields", "raw"):
        text = _bytes(parts.get(1, b""))
        return msgspec.json.decode(text) if text else None
    raise Malformed(f"the type {shape} is not known")


def _scalar(shape: str, raw: int | bytes) -> Any:
    if shape == "string":
        return _bytes(raw).decode()
    if shape == "double":
        return struct.unpack("<d", _bytes(raw))[0]
    return bool(raw) if shape == "bool" else _signed(raw)


def _time(shape: str, parts: dict[int, int | bytes]) -> str | None:
    if not parts:
        return None
    moment = datetime.fromtimestamp(_signed(parts.get(1, 0)), UTC).strftime("%Y-%m-%dT%H:%M:%S")
    return f"{moment}.{_signed(parts.get(2, 0)) // 1000:06d}Z" if shape == "microtime" else f"{moment}Z"


def _signed(raw: int | bytes) -> int:
    """A varint as a signed number of 64 bits."""
    if not isinstance(raw, int):
        raise Malformed("a number is expected")
    return raw - 2**64 if raw >= 2**63 else raw


def _bytes(raw: int | bytes) -> bytes:
    if not isinstance(raw, bytes):
        raise Malformed("bytes are expected")
    return raw


# ---- writing ----

_Put: TypeAlias = Callable[[list[bytes], Any], object]
"""Adds a field to what is being written."""
_MANY = 1024
_SIZES = [_to_varint(size) for size in range(_MANY)]


@lru_cache(256)
def _head(api_version: str, kind: str) -> bytes:
    """All that comes before the object's own bytes, and the tag of these."""
    type_meta = _field_of(1, api_version.encode()) + _field_of(2, kind.encode())
    return MAGIC + _field_of(1, type_meta) + _tag(2, _BYTES)


def _tag(number: int, wire: int) -> bytes:
    return _to_varint(number << 3 | wire)


def _sized(data: bytes) -> bytes:
    return _to_varint(len(data)) + data


def _field_of(number: int, data: bytes) -> bytes:
    return _tag(number, _BYTES) + _sized(data)


def _put_message(of: str, value: JsonObject) -> bytes:
    parts: list[bytes] = []
    fields = _puts(of)
    for name, one in value.items():
        if one is not None:
            fields[name](parts, one)
    return b"".join(parts)


@cache
def _puts(of: str) -> dict[str, _Put]:
    """How each field of a struct is written."""
    found: dict[str, _Put] = {}
    for number, known in _structs()[of].items():
        if known.name == _EMBEDDED:
            for name, put in _puts(known.shape).items():
                found[name] = _within(number, put)
        else:
            found[known.name] = _put_field(number, known)
    return found


def _within(number: int, put: _Put) -> _Put:
    """Of a struct whose fields stand in the outer object. Messages of one number that follow each other are one."""

    def add(parts: list[bytes], value: Any) -> None:
        inner: list[bytes] = []
        put(inner, value)
        parts.append(_field_of(number, b"".join(inner)))

    return add


def _put_field(number: int, known: _Field) -> _Put:
    if known.mapped:
        key, of = _put_value(1, "string"), _put_value(2, known.shape)
        tag = _tag(number, _BYTES)

        def add(parts: list[bytes], value: dict[str, Any]) -> None:
            for name, one in value.items():
                entry: list[bytes] = []
                key(entry, name)
                of(entry, one)
                parts += (tag, _sized(b"".join(entry)))

        return add
    put = _put_value(number, known.shape)
    if not known.repeated:
        return put

    def each(parts: list[bytes], value: Iterable[Any]) -> None:
        for one in value:
            put(parts, one)

    return each


def _put_value(number: int, shape: str) -> _Put:
    """One value of a type."""
    if shape in ("int", "bool"):
        plain, whole = _tag(number, _VARINT), _integer if shape == "int" else _boolean
        return lambda parts, value: parts.extend((plain, _to_varint(whole(value))))
    if shape == "double":
        fixed = _tag(number, _FIXED64)
        return lambda parts, value: parts.extend((fixed, struct.pack("<d", value)))
    tag, of = _tag(number, _BYTES), _bytes_of(shape)

    def add(parts: list[bytes], value: Any) -> None:
        data = of(value)
        size = len(data)
        parts += (tag, _SIZES[size] if size < _MANY else _to_varint(size), data)

    return add


def _integer(value: Any) -> int:
    if type(value) is not int or not -(2**63) <= value < 2**63:
        raise Malformed(f"{value!r}: expected a whole number of 64 bits")
    return value


def _boolean(value: Any) -> bool:
    if type(value) is not bool:
        raise Malformed(f"{value!r}: expected true or false")
    return value


def _bytes_of(shape: str) -> Callable[[Any], bytes]:
    """What stands between the length of a value and the next field."""
    if shape == "string":
        return str.encode
    if shape in _structs():
        return lambda value: _put_message(shape, value)
    return _SPECIAL[shape]


def _int_or_string(value: int | str) -> bytes:
    if isinstance(value, str):
        return _tag(1, _VARINT) + _to_varint(1) + _field_of(3, value.encode())
    return _tag(1, _VARINT) + _to_varint(0) + _tag(2, _VARINT) + _to_varint(_integer(value))


@lru_cache(256)
def _moment(text: str) -> bytes:
    """Seconds since the epoch, and nanoseconds."""
    at = datetime.fromisoformat(text)
    nanos = at.microsecond * 1000
    found = _tag(1, _VARINT) + _to_varint(int(at.replace(microsecond=0).timestamp()))
    return found + (_tag(2, _VARINT) + _to_varint(nanos) if nanos else b"")


_SPECIAL: dict[str, Callable[[Any], bytes]] = {
    "bytes": base64.b64decode,
    "quantity": lambda value: _field_of(1, str(value).encode()),
    "intorstring": _int_or_string,
    "time": _moment,
    "microtime": _moment,
    "fields": lambda value: _field_of(1, msgspec.json.encode(value)),
    "raw": lambda value: _field_of(1, msgspec.json.encode(value)),
}
