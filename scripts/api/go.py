"""What stands in Go sources of Kubernetes and in no description of its API: protobuf's field numbers, printed columns.

Read by their form, which gofmt and Kubernetes' generators hold to: one field or column a line.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple, TypeAlias

from scripts.api.schemas import Row, Unread

Sources: TypeAlias = Callable[[str], Iterable[str]]
"""The texts of a Go package's files, by its import path."""

_STRUCT = re.compile(r"^type (\w+) struct \{\n(.*?)^\}", re.M | re.S)
_NAMED = re.compile(r"^type (\w+) =? ?(?!struct\b|interface\b)([\w.\[\]*]+)", re.M)
_FIELD = re.compile(r"^\t(?:\w+\s+)?([\w.*\[\]]+)\s+`([^`]*)`", re.M)
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


class _Type(NamedTuple):
    """The fields of a struct, or what another type is made of, with the imports of its file, by their names there."""

    text: str
    imports: Mapping[str, str]


class _Reader:
    """Go packages, read as they are needed."""

    def __init__(self, sources: Sources) -> None:
        self._sources = sources
        self._packages: dict[str, tuple[dict[str, _Type], dict[str, _Type]]] = {}

    def _package(self, path: str) -> tuple[dict[str, _Type], dict[str, _Type]]:
        """Structs and other types of a package."""
        if path not in self._packages:
            structs: dict[str, _Type] = {}
            named: dict[str, _Type] = {}
            for text in self._sources(path):
                imports = {alias or found.rpartition("/")[2]: found for alias, found in _IMPORT.findall(text)}
                structs |= {name: _Type(body, imports) for name, body in _STRUCT.findall(text)}
                named |= {name: _Type(of, imports) for name, of in _NAMED.findall(text)}
            self._packages[path] = structs, named
        return self._packages[path]

    def struct(self, path: str, name: str) -> _Type:
        """Raises Unread when the package has none of the name."""
        structs, _ = self._package(path)
        if name not in structs:
            raise Unread(f"{path}: no struct {name} is found")
        return structs[name]

    def resolve(self, path: str, of: _Type) -> tuple[str, Name | None]:
        """``*``, ``[]`` or ``{}`` with the type's name in the table; the struct that it is, if it is one."""
        shape, text = "", of.text
        while match := _SHAPE.match(text):
            shape += "{}" if match[0].startswith("map") else match[0]
            text = text[match.end() :]
        alias, _, name = text.rpartition(".")
        if not alias and name in _SCALARS:
            return (shape + _SCALARS[name]).replace("[]byte", "bytes"), None
        path = of.imports.get(alias, alias) if alias else path
        if (path, name) in _SPECIAL:
            return shape + _SPECIAL[path, name], None
        structs, named = self._package(path)
        if name in structs:
            return shape + name, (path, name)
        if name not in named:
            raise Unread(f"{path}: no type {name} is found")
        inner, struct = self.resolve(path, named[name])
        return shape + inner, struct


def protobuf(sources: Sources, roots: Iterable[Name], unread: Iterable[str]) -> list[Row]:
    """(type, fields) of ``protobuf.csv``: these structs and all that is in them. ``unread``: fields to leave out, as
    ``Type.field``. Raises Unread for what has no form there."""
    left_out = frozenset(unread)
    reader = _Reader(sources)
    found: dict[str, tuple[Name, str]] = {}
    todo = list(roots)
    while todo:
        path, name = todo.pop()
        if name in found:
            if found[name][0] != (path, name):
                raise Unread(f"two structs have one name in the tables: {found[name][0]} and {(path, name)}")
            continue
        struct = reader.struct(path, name)
        fields = []
        for field in _fields(struct.text):
            if f"{name}.{field.name}" in left_out:
                continue
            shape, inner = reader.resolve(path, _Type(field.type, struct.imports))
            fields.append(f"{field.name}:{field.number}:{_marked(shape, field.kept)}")
            todo += [inner] if inner else []
        found[name] = ((path, name), " ".join(fields))
    return [(name, fields) for name, (_, fields) in sorted(found.items())]


class _Field(NamedTuple):
    name: str  # "-" of an embedded struct
    number: str
    type: str
    kept: bool  # written when it is zero


def _fields(body: str) -> Iterator[_Field]:
    for type_, tags in _FIELD.findall(body):
        json = re.search(r'json:"([^"]*)"', tags)
        number = re.search(r'protobuf:"\w+,(\d+)', tags)
        if json is None or number is None:
            continue  # TypeMeta, which stands in the envelope
        spelt, _, options = json[1].partition(",")
        yield _Field(spelt or "-", number[1], type_, not re.search("omitempty|omitzero", options))


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
        lines = [line for line in body.splitlines() if line.strip() and not line.strip().startswith("//")]
        rows = [_column(line) for line in lines]
        for kind in kinds.get(variable, ()):
            found[kind] = rows
    return found


def _column(line: str) -> Row:
    texts = dict(re.findall(r'(Name|Type|Format): "([^"]*)"', line))
    priority = re.search(r"Priority: (\d+)", line)
    if not {"Name", "Type"} <= texts.keys():
        raise Unread(f"printers.go: no column is read from {line.strip()}")
    return (texts["Name"], texts["Type"], texts.get("Format", ""), priority[1] if priority else "0")
