"""Reading Kubernetes' protobuf encoding of request bodies.

kubectl from 1.35 on sends the objects of built-in kinds in this form when it makes them itself (kubectl create, the
evictions of kubectl drain). Answers are JSON, which it takes too. The fields are in ``protobuf.csv``.
Source of the envelope: kubernetes/kubernetes v1.36 staging/src/k8s.io/apimachinery/pkg/runtime/serializer/protobuf.
"""

from __future__ import annotations

import base64
import csv
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from importlib.resources import files
from typing import Any, TypeAlias

import msgspec

from tonnage.apiserver.status import bad_request

JsonObject: TypeAlias = dict[str, Any]

MAGIC = b"k8s\x00"
_SCALARS = ("string", "int", "bool", "double")
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_EMBEDDED = "-"


class _Malformed(Exception):
    """The bytes are not what the field's type says."""


@dataclass(frozen=True, slots=True)
class _Field:
    name: str
    shape: str  # a scalar, a special type or a struct's name
    repeated: bool
    mapped: bool
    kept: bool  # also when it is zero or empty


@cache
def _structs() -> dict[str, dict[int, _Field]]:
    text = files("tonnage.apiserver").joinpath("protobuf.csv").read_text(encoding="utf-8")
    rows = csv.DictReader(line for line in text.splitlines() if not line.startswith("#"))
    return {row["type"]: dict(map(_field, row["fields"].split())) for row in rows}


def _field(text: str) -> tuple[int, _Field]:
    name, number, shape = text.split(":")
    bare = shape.lstrip("!*").removeprefix("[]").removeprefix("{}")
    return int(number), _Field(name, bare, "[]" in shape, "{}" in shape, shape[0] in "!*")


def decode(body: bytes) -> JsonObject:
    """The object in a body, as its JSON form. Raises Refusal (400)."""
    try:
        if not body.startswith(MAGIC):
            raise _Malformed("it does not begin as Kubernetes' protobuf does")
        envelope = dict(_parts(body[len(MAGIC) :]))
        head = dict(_parts(_bytes(envelope.get(1, b""))))
        api_version, kind = (_bytes(head.get(number, b"")).decode() for number in (1, 2))
        if kind not in _structs():
            raise _Malformed(f"the kind {kind} is not known")
        return {"kind": kind, "apiVersion": api_version, **_message(kind, _bytes(envelope.get(2, b"")))}
    except (_Malformed, UnicodeDecodeError, struct.error, ValueError, OverflowError) as error:
        raise bad_request(f"the object provided is unrecognized: couldn't read the protobuf body: {error}") from error


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
                raise _Malformed("it is cut short")
        else:
            raise _Malformed(f"wire type {wire} is not used by Kubernetes")
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
    raise _Malformed("a number is cut short")


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
    raise _Malformed(f"the type {shape} is not known")


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
        raise _Malformed("a number is expected")
    return raw - 2**64 if raw >= 2**63 else raw


def _bytes(raw: int | bytes) -> bytes:
    if not isinstance(raw, bytes):
        raise _Malformed("bytes are expected")
    return raw
