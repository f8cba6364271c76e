"""What OpenAPI says of Kubernetes' own kinds, and CRDs of custom ones, in the terms of the API server's tables.

Sources: ``definitions`` of ``/openapi/v2`` (the swagger.json of a Kubernetes release has the same), and
CustomResourceDefinitions of apiextensions.k8s.io/v1. OpenAPI v2 is enough: what v3 has besides (defaults, oneOf) is in
no table.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple, TypeAlias

Json: TypeAlias = dict[str, Any]
Row: TypeAlias = tuple[str, ...]

RULES = (
    "default",
    "enum",
    "maxItems",
    "maxLength",
    "maxProperties",
    "maximum",
    "minItems",
    "minLength",
    "minimum",
    "pattern",
    "x-kubernetes-list-map-keys",
    "x-kubernetes-list-type",
)
"""What is taken over from a CRD's schema, besides types and required fields."""
_META = "io.k8s.apimachinery.pkg.apis.meta.v1."
_LEAVES = {
    f"{_META}Time": "time",
    f"{_META}MicroTime": "microtime",
    f"{_META}FieldsV1": "raw",
    "io.k8s.apimachinery.pkg.api.resource.Quantity": "quantity",
    "io.k8s.apimachinery.pkg.util.intstr.IntOrString": "int-or-string",
    "io.k8s.apimachinery.pkg.runtime.RawExtension": "raw",
}
_STRINGS = {"date-time": "time", "byte": "bytes"}
_REF = "#/definitions/"


class Unread(Exception):
    """A source says something for which the tables have no form; the text says where."""


class Field(NamedTuple):
    """``shape``: ``[]`` and ``{}`` from the outside in, ``of``: a scalar or the name of a struct (for built-in kinds
    with its package)."""

    name: str
    required: bool
    shape: str
    of: str


class Struct(NamedTuple):
    """A type with its fields by name; ``rules``: (field and place, rule, value), as ``api_rules.csv`` has them."""

    package: str
    name: str
    fields: tuple[Field, ...]
    rules: tuple[Row, ...] = ()

    def row(self) -> Row:
        """As ``api_types.csv`` has it."""
        texts = (f"{f.name}{'!' * f.required}:{f.shape}{short(f.of)}" for f in self.fields)
        return (self.package, self.name, " ".join(texts))


def short(name: str) -> str:
    """``Pod`` of ``io.k8s.api.core.v1.Pod``."""
    return name.rpartition(".")[2]


# ---- Kubernetes' own kinds ----


def definition_of(definitions: Json, group: str, version: str, kind: str) -> str:
    """The name under which a kind is defined. Raises Unread when it is not."""
    wanted = {"group": group, "kind": kind, "version": version}
    for name, schema in definitions.items():
        if wanted in schema.get("x-kubernetes-group-version-kind", ()) and short(name) == kind:
            return str(name)
    raise Unread(f"OpenAPI has no {kind} of {group or 'core'}/{version}")


def built_in(definitions: Json, roots: Iterable[str], unread: Mapping[str, str]) -> dict[str, Struct]:
    """The types of these definitions and of all that is in them, by the name of the definition.

    ``unread``: by ``Type.field`` the type that stands for what the table leaves out.
    """
    found: dict[str, Struct] = {}
    todo = list(roots)
    while todo:
        name = todo.pop()
        if name in found:
            continue
        package, _, kind = name.rpartition(".")
        schema = definitions[name]
        required = schema.get("required", ())
        fields = []
        for field, inner in sorted(schema.get("properties", {}).items()):
            shape, of = _built_in_type(inner, f"{name}.{field}")
            if f"{kind}.{field}" in unread:
                shape, of = "", unread[f"{kind}.{field}"]
            fields.append(Field(field, field in required, shape, of))
            if "." in of:
                todo.append(of)
        found[name] = Struct(package, kind, tuple(fields))
    names: dict[str, str] = {}
    for name in found:
        if names.setdefault(short(name), name) != name:
            raise Unread(f"two types have one name in the tables: {names[short(name)]} and {name}")
    return found


def _built_in_type(schema: Json, where: str) -> tuple[str, str]:
    if "$ref" in schema:
        name = schema["$ref"].removeprefix(_REF)
        return "", _LEAVES.get(name, name)
    if schema.get("type") == "array":
        shape, of = _built_in_type(schema["items"], where)
        return f"[]{shape}", of
    if schema.get("type") == "object" and "additionalProperties" in schema:
        shape, of = _built_in_type(schema["additionalProperties"], where)
        return "{}" + shape, of
    return "", _scalar(schema, where)


def _scalar(schema: Json, where: str) -> str:
    kind, form = schema.get("type"), schema.get("format", "")
    if kind == "string":
        return _STRINGS.get(form, "string")
    if kind == "integer":
        return "int32" if form == "int32" else "int64"
    if kind in ("boolean", "number", "object"):
        return {"boolean": "bool", "number": "double", "object": "raw"}[kind]
    raise Unread(f"{where}: a field of type {kind} has no form in the tables")


# ---- how fields merge ----


def merging(definitions: Json, structs: Mapping[str, Struct]) -> list[Row]:
    """The rows of ``merge_keys.csv``: each field that merges in a way of its own, and what leads to it.

    A row: type, field, shape (list, map, struct), child, merge, keys, patch key, patch strategy.
    """
    rows: dict[str, dict[str, Row]] = {}
    for name, struct in structs.items():
        made = {field.name: _merging(definitions, name, field) for field in struct.fields}
        rows[name] = {field: row for field, row in made.items() if any(row[4:])}
    while led := list(_led(structs, rows)):
        for name, row in led:
            rows[name][row[1]] = row
    return sorted(row for fields in rows.values() for row in fields.values())


def _led(structs: Mapping[str, Struct], rows: Mapping[str, dict[str, Row]]) -> Iterator[tuple[str, Row]]:
    """Rows that still lack the struct to which they lead: of structs, and of lists and structs that merge."""
    for name, struct in structs.items():
        for field in struct.fields:
            own = rows[name].get(field.name)
            if not rows.get(field.of) or (own is None and field.shape):
                continue
            row = own or _row(struct.name, field, "", "", "", "", "")
            if not row[3] and row[4] != "atomic":
                yield name, (*row[:3], short(field.of), *row[4:])


def _row(of: str, field: Field, *rest: str) -> Row:
    return (of, field.name, "list" if field.shape[:2] == "[]" else "map" if field.shape else "struct", *rest)


def _merging(definitions: Json, name: str, field: Field) -> Row:
    schema = definitions[name]["properties"][field.name]
    of = definitions.get(schema.get("$ref", "").removeprefix(_REF), {})
    kind = schema.get("x-kubernetes-list-type") or schema.get("x-kubernetes-map-type")
    kind = kind or of.get("x-kubernetes-map-type", "")
    if kind == "granular" or (kind == "atomic" and field.shape[:2] == "[]"):
        kind = ""  # the rule
    keys = "+".join(schema.get("x-kubernetes-list-map-keys", ()))
    strategy = schema.get("x-kubernetes-patch-strategy", "").replace(",", "+")
    return _row(short(name), field, "", kind, keys, schema.get("x-kubernetes-patch-merge-key", ""), strategy)


# ---- custom kinds ----


def version_of(crd: Json, version: str) -> Json:
    """One version of a CRD. Raises Unread when it has none of the name."""
    for one in crd["spec"]["versions"]:
        if one["name"] == version:
            return dict(one)
    raise Unread(f"the CRD {crd['metadata']['name']} has no version {version}")


def custom(crds: Iterable[tuple[Json, str]]) -> list[Struct]:
    """The types of (CRD, version), all of one group and version, and of all that is in them.

    A struct within a kind has no name of its own: it is called by where it stands; equal ones at several places share
    the shortest of these names, of equally long ones the first.
    """
    found: dict[str, Struct] = {}
    for crd, version in crds:
        spec = crd["spec"]
        package = ".".join((*reversed(spec["group"].split(".")), version))
        schema = version_of(crd, version)["schema"]["openAPIV3Schema"]
        _collect(schema, package, spec["names"]["kind"], found)
    while (renamed := _renamed(found)) != found:
        found = renamed
    return [found[name] for name in sorted(found)]


def _collect(schema: Json, package: str, name: str, found: dict[str, Struct]) -> None:
    fields, rules = [], []
    for field, inner in sorted(schema["properties"].items()):
        if field == "metadata" and inner == {"type": "object"}:
            fields.append(Field(field, False, "", "ObjectMeta"))
            continue
        shape, leaf, seen = _custom_type(inner)
        of = name + field[0].upper() + field[1:] if "properties" in leaf else _custom_scalar(leaf, f"{name}.{field}")
        fields.append(Field(field, field in schema.get("required", ()), shape, of))
        rules += [(field + place, rule, value) for place, rule, value in seen]
        if "properties" in leaf:
            _collect(leaf, package, of, found)
    found[name] = Struct(package, name, tuple(fields), tuple(sorted(rules)))


def _custom_type(schema: Json) -> tuple[str, Json, list[Row]]:
    """Shape, innermost schema, and the rules at each place on the way."""
    shape = ""
    rules: list[Row] = []
    while True:
        rules += [(shape, rule, _text(schema[rule])) for rule in RULES if rule in schema]
        if schema.get("type") == "array":
            shape, schema = f"{shape}[]", schema["items"]
        elif schema.get("type") == "object" and isinstance(schema.get("additionalProperties"), dict):
            shape, schema = shape + "{}", schema["additionalProperties"]
        else:
            return shape, schema, rules


def _custom_scalar(schema: Json, where: str) -> str:
    if schema.get("x-kubernetes-int-or-string"):
        return "int-or-string"
    if "type" not in schema and schema.get("x-kubernetes-preserve-unknown-fields"):
        return "raw"
    return _scalar(schema, where)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _renamed(structs: Mapping[str, Struct]) -> dict[str, Struct]:
    """With equal structs under one name each."""
    by_content: dict[Any, list[str]] = {}
    for struct in structs.values():
        by_content.setdefault((struct.package, struct.fields, struct.rules), []).append(struct.name)
    names = {name: min(same, key=lambda one: (len(one), one)) for same in by_content.values() for name in same}
    return {
        struct.name: struct._replace(fields=tuple(f._replace(of=names.get(f.of, f.of)) for f in struct.fields))
        for struct in structs.values()
        if names[struct.name] == struct.name
    }


# ---- columns ----


_CONDITION = re.compile(r"""\[\?\(@\.type\s*==\s*['"](\w+)['"]\)\]""")


def columns(crd: Json, version: str) -> Iterator[Row]:
    """(name, type, format, priority, path) of what `kubectl get` prints of a custom kind, its name first."""
    yield ("Name", "string", "name", "0", "")
    age = {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"}
    for one in version_of(crd, version).get("additionalPrinterColumns") or [age]:
        path = _CONDITION.sub(r"[\1]", one["jsonPath"]).removeprefix(".")
        if "?" in path or "@" in path:
            raise Unread(f"the column {one['name']} of {crd['metadata']['name']} has a path of another form: {path}")
        yield (one["name"], one["type"], one.get("format", ""), str(one.get("priority", 0)), path)
