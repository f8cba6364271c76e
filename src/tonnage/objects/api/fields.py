"""The fields of every kind that is served, with their types: what is unknown, and what has the wrong type.

The table is ``api_types.csv``; ``api_rules.csv`` holds what the schemas of custom kinds demand beyond it. Refusals are
worded as kube-apiserver v1.36.3 does, which hands on what encoding/json says.
"""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache, partial
from importlib.resources import files
from typing import Any, NamedTuple, TypeAlias

from tonnage.objects import quantity

JsonObject: TypeAlias = dict[str, Any]

_FIELD = re.compile(r"(?P<name>[^!:]+)(?P<required>!?):(?P<shape>(\[\]|\{\})*)(?P<of>.+)")
_QUANTITY = re.compile(r"([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)")
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)")
SCALARS = frozenset(
    {"string", "int32", "int64", "bool", "double", "quantity", "time", "microtime", "int-or-string", "bytes", "raw"}
)
"""Types that are not structs. ``raw`` is anything."""
_JSON = {str: "string", bool: "bool", int: "number", float: "number", list: "array", dict: "object"}


@dataclass(frozen=True, slots=True)
class FieldType:
    """A field. ``shape``: ``[]`` and ``{}`` from the outside in; ``of``: a scalar or the name of a struct."""

    name: str
    shape: tuple[str, ...]
    of: str
    required: bool = False
    rules: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # by place: "", "[]", "{}"


Struct: TypeAlias = Mapping[str, FieldType]


def _rows(name: str) -> Iterator[dict[str, str]]:
    text = files("tonnage.objects.api").joinpath(name).read_text(encoding="utf-8")
    return csv.DictReader(line for line in text.splitlines() if not line.startswith("#"))


@cache
def packages() -> dict[str, str]:
    """The package of each struct, e.g. ``io.k8s.api.core.v1`` of Pod."""
    return {row["type"]: row["package"] for row in _rows("api_types.csv")}


class _Structs(Mapping[str, Struct]):
    """Structs whose fields are read from the table's text when somebody asks: few of its kinds are in one program."""

    def __init__(self) -> None:
        self._texts = {row["type"]: row["fields"] for row in _rows("api_types.csv")}
        self._rules = _rules()
        self._read: dict[str, Struct] = {}

    def __getitem__(self, name: str) -> Struct:
        found = self._read.get(name)
        if found is None:
            found = self._read[name] = {
                one.name: one for one in map(partial(self._field, name), self._texts[name].split())
            }
        return found

    def __iter__(self) -> Iterator[str]:
        return iter(self._texts)

    def __len__(self) -> int:
        return len(self._texts)

    def __contains__(self, name: object) -> bool:
        return name in self._texts

    def _field(self, struct: str, text: str) -> FieldType:
        match = _FIELD.fullmatch(text)
        if match is None:
            raise ValueError(f"api_types.csv: {struct}: {text!r} is not a field")
        shape = tuple(re.findall(r"\[\]|\{\}", match["shape"]))
        rules = self._rules.get((struct, match["name"]), {})
        return FieldType(match["name"], shape, match["of"], bool(match["required"]), rules)


@cache
def structs() -> Mapping[str, Struct]:
    """The fields of each struct."""
    return _Structs()


def _rules() -> dict[tuple[str, str], dict[str, dict[str, Any]]]:
    found: dict[tuple[str, str], dict[str, dict[str, Any]]] = {}
    for row in _rows("api_rules.csv"):
        name, place = re.fullmatch(r"(\w+)((?:\[\]|\{\})*)", row["field"]).groups()  # type: ignore[union-attr]
        try:
            value = json.loads(row["value"])
        except ValueError:
            value = row["value"]
        if row["rule"] == "pattern":
            value = row["value"]
        found.setdefault((row["type"], name), {}).setdefault(place, {})[row["rule"]] = value
    return found


def unknown_fields(kind: str, obj: JsonObject) -> list[str]:
    """The path of every field that the kind does not have, in the order in which they stand. A kind of no name may have
    any."""
    return [found.path for found in unknown(obj, kind)]


def prune(kind: str, obj: JsonObject) -> list[str]:
    """Remove every field that the kind does not have; returns what :func:`unknown_fields` would have said."""
    gone = list(unknown(obj, kind))
    for one in gone:
        del one.holder[one.key]
    return [one.path for one in gone]


class UnknownField(NamedTuple):
    """A field that ``struct`` does not have: its path, what holds it, and its name there."""

    path: str
    holder: JsonObject
    key: str
    struct: str


def unknown(value: Any, struct: str, path: str = "") -> Iterator[UnknownField]:
    """Every field of a struct, and of what is in it, that its type does not have."""
    fields = structs().get(struct)
    if fields is None or not isinstance(value, dict):
        return
    for key, inner in value.items():
        here = f"{path}.{key}" if path else key
        known = fields.get(key)
        if known is None:
            yield UnknownField(here, value, key, struct)
        else:
            yield from unknown_inside(inner, known, here)


def unknown_inside(value: Any, known: FieldType, path: str) -> Iterator[UnknownField]:
    """The same of what stands in a field of this type."""
    if known.of not in SCALARS:
        yield from _inside(value, known.shape, known.of, path)


def _inside(value: Any, shape: tuple[str, ...], struct: str, path: str) -> Iterator[UnknownField]:
    if not shape:
        yield from unknown(value, struct, path)
    elif shape[0] == "[]" and isinstance(value, list):
        for index, item in enumerate(value):
            yield from _inside(item, shape[1:], struct, f"{path}[{index}]")
    elif shape[0] == "{}" and isinstance(value, dict):
        for key, item in value.items():
            yield from _inside(item, shape[1:], struct, f"{path}.{key}")


def wrong_types(kind: str, obj: JsonObject) -> Iterator[tuple[str, str]]:
    """Path and text of all that keeps an object, or a part of one (``kind``: ObjectMeta), from being decoded, as
    kube-apiserver says it.

    The API answers 400 with ``{kind} in version "{version}" cannot be handled as a {kind}: `` before the first.
    """
    yield from _wrong(obj, kind, "", "")


def _wrong(value: JsonObject, struct: str, path: str, said: str) -> Iterator[tuple[str, str]]:
    """``path`` has list indices and map keys, ``said`` has not: so are the paths of encoding/json."""
    fields = structs().get(struct, {})
    for key, inner in value.items():
        known = fields.get(key)
        if known is not None and inner is not None:
            here, named = (f"{one}.{key}" if one else key for one in (path, said))
            yield from _value(inner, known, known.shape, struct, here, named)


def _value(
    value: Any, known: FieldType, shape: tuple[str, ...], struct: str, path: str, said: str
) -> Iterator[tuple[str, str]]:
    if value is None:
        return
    if shape:
        if not isinstance(value, list if shape[0] == "[]" else dict):
            yield path, _unmarshal(value, struct, said, _go(known, shape))
            return
        for key, item in enumerate(value) if isinstance(value, list) else value.items():
            inner = f"{path}[{key}]" if isinstance(value, list) else f"{path}.{key}"
            yield from _value(item, known, shape[1:], struct, inner, said)
    elif known.of in SCALARS:
        yield from ((path, text) for text in _scalar(value, known, struct, said))
    elif isinstance(value, dict):
        yield from _wrong(value, known.of, path, said)
    else:
        yield path, _unmarshal(value, struct, said, _go(known, shape))


def _scalar(value: Any, known: FieldType, struct: str, path: str) -> Iterator[str]:
    kind = known.of
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    match kind:
        case "string" | "bytes":
            fits = isinstance(value, str)
        case "bool":
            fits = isinstance(value, bool)
        case "int32" | "int64":
            bits = int(kind[3:]) - 1
            whole = is_number and int(value) == value
            fits = whole and -(2**bits) <= value < 2**bits
        case "double":
            fits = is_number
        case "int-or-string":
            fits, kind = isinstance(value, str) or (is_number and int(value) == value), "int32"
        case "quantity":
            yield from _quantity(value)
            return
        case "time" | "microtime":
            yield from _time(value, kind)
            return
        case _:
            return
    if not fits:
        yield _unmarshal(value, struct, path, kind)


def _quantity(value: Any) -> Iterator[str]:
    if isinstance(value, str | int | float) and not isinstance(value, bool):
        try:
            quantity.parse(value)
        except ValueError:
            if _QUANTITY.fullmatch(str(value)):
                yield "unable to parse quantity's suffix"
                return
        else:
            return
    yield "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"


def _time(value: Any, kind: str) -> Iterator[str]:
    layout = "2006-01-02T15:04:05.000000Z07:00" if kind == "microtime" else "2006-01-02T15:04:05Z07:00"
    if not isinstance(value, str):
        yield f"json: cannot unmarshal {_json(value)} into Go value of type string"
    elif not _TIME.fullmatch(value):
        yield f'parsing time "{value}" as "{layout}": cannot parse "{value}" as "2006"'


def _json(value: Any) -> str:
    return _JSON.get(type(value), "null")


def _unmarshal(value: Any, struct: str, path: str, go: str) -> str:
    """encoding/json's words: list indices and map keys are not part of its paths, and a number says which."""
    shown = _json(value)
    if shown == "number" and go in ("int32", "int64"):
        shown = f"number {value}"
    return f"json: cannot unmarshal {shown} into Go struct field {struct}.{path} of type {go}"


def _go(known: FieldType, shape: tuple[str, ...]) -> str:
    """The Go type of a field, as encoding/json names it."""
    text = {"bytes": "[]uint8", "raw": "map[string]interface {}"}.get(known.of, known.of)
    if known.of not in SCALARS:
        text = f"v1.{known.of}"
    elif known.of == "quantity":
        return "v1.ResourceList"
    return "".join("[]" if step == "[]" else "map[string]" for step in shape) + text
