"""What stands in Go sources of Kubernetes and in no description of its API: protobuf's field numbers, printed columns.

Read by their form, which gofmt and Kubernetes' generators hold to: one field or column a line.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from typing import NamedTuple, TypeAlias

from scripts.api.schemas import Row, Unread

Sources: TypeAlias = Callable[[str], Iterable[str]]
"""The texts of a Go package's files, by its import path."""

_STRUCT = re.compile(r"^type (\w+) struct \{\n(.*?)^\}", re.M | re.S)
_NAMED = re.compile(r"^type (\w+) =? ?(?!struct\b|interface\b)([\w.\[\]*]+)", re.M)
_FIELD = re.compile(r"^\t(?:(\w+)\s+)?([\w.*\[\]]+)\s+`([^`]*)`", re.M)
_IMPORT = re.compile(r'^(?:import|\t)\s*(?:(\w+) )?"([^"]+)"$', re.M)
_SHAPE = re.compile(r"\[\]|map\[[\w.]+\]|\*")
_COLUMNS = re.compile(r"^\t(\w+) := \[\]metav1\.TableColumnDefinition\{\n(.*?)^\t\}", re.M | re.S)
_HANDLER = re.compile(r"h\.TableHandler\((\w+), print(\w+)\)")
_SCALARS = {
    "string": "string",
    "bool": "bool",
    "int": "int",
    "int32": "int",
    "int64": "int",
    "float64": "double",
    "byte": "byte",
}
_META = "k8s.io/apimachinery/pkg/apis/meta/v1"
_SPECIAL = {
    (_META, "Time"): "time",
    (_META, "MicroTime"): "microtime",
    (_META, "FieldsV1"): "fields",
    ("k8s.io/apimachinery/pkg/api/resource", "Quantity"): "quantity",
    ("k8s.io/apimachinery/pkg/util/intstr", "IntOrString"): "intorstring",
    ("k8s.io/apimachinery/pkg/runtime", "RawExtension"): "raw",
}

Name: TypeAlias = tuple[str, str]
"""Import path of a package, and a type in it."""


class _Package(NamedTuple):
    structs: Mapping[str, str]
    named: Mapping[str, str]
    imports: Mapping[str, str]


def protobuf(sources: Sources, roots: Iterable[Name], unread: Iterable[str]) -> list[Row]:
    """(type, fields) of ``protobuf.csv``: these structs and all that is in them. ``unread``: fields to leave out, as
    ``Type.field``. Raises Unread for what has no form there."""
    left_out = frozenset(unread)

    @cache
    def package(path: str) -> _Package:
        structs: dict[str, str] = {}
        named: dict[str, str] = {}
        imports: dict[str, str] = {}
        for text in sources(path):
            structs |= dict(_STRUCT.findall(text))
            named |= dict(_NAMED.findall(text))
            imports |= {alias or path.rpartition("/")[2]: path for alias, path in _IMPORT.findall(text)}
        return _Package(structs, named, imports)

    def resolve(path: str, text: str) -> tuple[str, Name | None]:
        """Shape and type of a field: ``*``, ``[]`` or ``{}``, with a scalar or special type; a struct besides."""
        shape = ""
        while match := _SHAPE.match(text):
            shape += "{}" if match[0].startswith("map") else match[0]
            text = text[match.end() :]
        alias, _, name = text.rpartition(".")
        if not alias and name in _SCALARS:
            return (shape + _SCALARS[name]).replace("[]byte", "bytes"), None
        path = package(path).imports[alias] if alias else path
        if (path, name) in _SPECIAL:
            return shape + _SPECIAL[path, name], None
        if name in package(path).structs:
            return shape + name, (path, name)
        if name not in package(path).named:
            raise Unread(f"{path}: no type {name} is found")
        inner, struct = resolve(path, package(path).named[name])
        return shape + inner, struct

    found: dict[str, tuple[Name, str]] = {}
    todo = list(roots)
    while todo:
        path, name = todo.pop()
        if name in found:
            if found[name][0] != (path, name):
                raise Unread(f"two structs have one name in the tables: {found[name][0]} and {(path, name)}")
            continue
        if name not in package(path).structs:
            raise Unread(f"{path}: no struct {name} is found")
        fields = []
        for field in _fields(package(path).structs[name]):
            if f"{name}.{field.name}" in left_out:
                continue
            shape, struct = resolve(path, field.type)
            fields.append(f"{field.name}:{field.number}:{_marked(shape, field.kept)}")
            todo += [struct] if struct else []
        found[name] = ((path, name), " ".join(fields))
    return [(name, fields) for name, (_, fields) in sorted(found.items())]


class _Field(NamedTuple):
    name: str  # "-" of an embedded struct
    number: str
    type: str
    kept: bool  # written when it is zero


def _fields(body: str) -> Iterator[_Field]:
    for name, type_, tags in _FIELD.findall(body):
        json = re.search(r'json:"([^"]*)"', tags)
        number = re.search(r'protobuf:"\w+,(\d+)', tags)
        if json is None or number is None:
            continue  # TypeMeta, which stands in the envelope
        spelt, _, options = json[1].partition(",")
        yield _Field(spelt or "-", number[1], type_, "omitempty" not in options)


def _marked(shape: str, kept: bool) -> str:
    """With ``!`` where a zero is written: of scalars, and of pointers to them."""
    return f"!{shape}" if kept and shape.lstrip("*") in ("string", "int", "bool", "double") else shape


def columns(printers: str) -> dict[str, list[Row]]:
    """(name, type, format, priority) of the columns of each kind, from printers.go."""
    kinds: dict[str, list[str]] = {}
    for variable, kind in _HANDLER.findall(printers):
        kinds.setdefault(variable, []).append(kind)
    found: dict[str, list[Row]] = {}
    for variable, body in _COLUMNS.findall(printers):
        rows = [_column(line) for line in body.splitlines() if line.strip() and not line.strip().startswith("//")]
        for kind in kinds.get(variable, ()):
            found[kind] = rows
    return found


def _column(line: str) -> Row:
    texts = dict(re.findall(r'(Name|Type|Format): "([^"]*)"', line))
    priority = re.search(r"Priority: (\d+)", line)
    if not {"Name", "Type"} <= texts.keys():
        raise Unread(f"printers.go: no column is read from {line.strip()}")
    return (texts["Name"], texts["Type"], texts.get("Format", ""), priority[1] if priority else "0")
