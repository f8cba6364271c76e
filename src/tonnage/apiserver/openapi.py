"""The API's description in OpenAPI, by which kubectl validates, explains and merges.

Made from the table of fields (``api_types.csv``, ``api_rules.csv``), of how lists merge (``merge_keys.csv``) and of the
resources that are served. Descriptions are the docstrings of :mod:`tonnage.objects` and ``api_words.csv``: our words.
Extensions (x-kubernetes-*) are those that kubectl and client libraries read; source: OpenAPI of kube-apiserver v1.36.3.
"""

from __future__ import annotations

import csv
import hashlib
from collections.abc import Iterator
from functools import cache, lru_cache
from importlib.resources import files
from typing import Any, TypeAlias

import msgspec

from tonnage.apiserver import openapi_paths
from tonnage.apiserver.openapi_words import of_field, of_type
from tonnage.kube.resources import ALL, Resource
from tonnage.objects.api.fields import SCALARS, FieldType, packages, structs

JsonObject: TypeAlias = dict[str, Any]

_META = "io.k8s.apimachinery.pkg.apis.meta.v1"
_NAMED = {
    "quantity": "io.k8s.apimachinery.pkg.api.resource.Quantity",
    "time": f"{_META}.Time",
    "microtime": f"{_META}.MicroTime",
    "int-or-string": "io.k8s.apimachinery.pkg.util.intstr.IntOrString",
}
_SCALARS: dict[str, JsonObject] = {
    "string": {"type": "string"},
    "bytes": {"type": "string", "format": "byte"},
    "bool": {"type": "boolean"},
    "int32": {"type": "integer", "format": "int32"},
    "int64": {"type": "integer", "format": "int64"},
    "double": {"type": "number", "format": "double"},
    "raw": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
}
_LEAVES: dict[str, JsonObject] = {
    _NAMED["quantity"]: {
        "description": "An amount: 500m, 8, 32Gi, 1e3.",
        "oneOf": [{"type": "string"}, {"type": "number"}],
    },
    _NAMED["time"]: {"description": "A time in UTC, in seconds.", "type": "string", "format": "date-time"},
    _NAMED["microtime"]: {"description": "A time in UTC, in microseconds.", "type": "string", "format": "date-time"},
    _NAMED["int-or-string"]: {
        "description": "A number, or a string such as a percentage or a port's name.",
        "format": "int-or-string",
        "oneOf": [{"type": "integer"}, {"type": "string"}],
    },
}
_CUSTOM_LEAVES: dict[str, JsonObject] = {
    "time": {"type": "string", "format": "date-time"},
    "int-or-string": {"anyOf": [{"type": "integer"}, {"type": "string"}], "x-kubernetes-int-or-string": True},
}
_PATCH = f"{_META}.Patch"
_ALWAYS = ("DeleteOptions", "Status", "ListMeta", "ObjectMeta")
_SUBRESOURCE_KINDS = {"scale": "Scale", "binding": "Binding", "eviction": "Eviction"}
_encode = msgspec.json.Encoder().encode


Served: TypeAlias = tuple[Resource, ...]


@lru_cache(maxsize=8)
def _roots(served: Served) -> dict[str, Served]:
    """The resources under each path: ``api/v1``, ``apis/apps/v1``, …"""
    found: dict[str, list[Resource]] = {}
    for resource in served:
        found.setdefault(resource.root.lstrip("/"), []).append(resource)
    return {root: tuple(resources) for root, resources in found.items()}


def index(served: Served = ALL) -> JsonObject:
    """What ``/openapi/v3`` answers: where the description of each group and version is."""
    paths = {}
    for root in _roots(served):
        digest = hashlib.sha256(document(root, served) or b"").hexdigest().upper()
        paths[root] = {"serverRelativeURL": f"/openapi/v3/{root}?hash={digest}"}
    return {"paths": paths}


@lru_cache(maxsize=256)
def document(path: str, served: Served = ALL) -> bytes | None:
    """The OpenAPI v3 description at ``path`` (``api/v1``, ``apis/apps/v1``) as JSON; None where there is none."""
    resources = _roots(served).get(path.strip("/"))
    if resources is None:
        return None
    paths: JsonObject = {}
    for resource in resources:
        paths |= openapi_paths.of(resource, name_of(resource))
    return _encode(
        {
            "openapi": "3.0.0",
            "info": {"title": "Kubernetes", "version": "v1.36.3"},
            "paths": paths,
            "components": {"schemas": _schemas(resources, "#/components/schemas/")},
        }
    )


@lru_cache(maxsize=8)
def v2(served: Served = ALL) -> bytes:
    """What ``/openapi/v2`` answers, as JSON: the schemas of all kinds."""
    return _encode(
        {
            "swagger": "2.0",
            "info": {"title": "Kubernetes", "version": "v1.36.3"},
            "paths": {},
            "definitions": _schemas(served, "#/definitions/"),
        }
    )


V2_PROTOBUF = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
"""The content type of :func:`v2_protobuf`."""


@cache
def v2_protobuf() -> bytes:
    """``/openapi/v2`` in protobuf, the one form in which kubectl asks for it: version and title, without any schema.

    kubectl asks when v3 does not have a kind, and then only has to find that there is none here either.
    Source: github.com/google/gnostic-models openapiv2/OpenAPIv2.proto (Document: swagger = 1, info = 2, paths = 8).
    """

    def text(number: int, value: bytes) -> bytes:
        return bytes((number << 3 | 2, len(value))) + value

    return text(1, b"2.0") + text(2, text(1, b"Kubernetes") + text(2, b"v1.36.3")) + text(8, b"")


def schema_name(struct: str) -> str:
    """``io.k8s.api.core.v1.Pod`` of ``Pod``."""
    return f"{packages()[struct]}.{struct}"


def name_of(resource: Resource) -> str:
    """The name of a kind's schema: ``org.kubeflow.v1.PyTorchJob`` of one that a CRD defines."""
    if not resource.open:
        return schema_name(resource.kind)
    group = resource.group if resource.custom else f"{(resource.group or 'core').partition('.')[0]}.api.k8s.io"
    return ".".join((*reversed(group.split(".")), resource.version, resource.kind))


def _schemas(resources: tuple[Resource, ...], prefix: str) -> dict[str, JsonObject]:
    """The schemas of these resources and of everything that is in them."""
    found: dict[str, JsonObject] = {name: dict(leaf) for name, leaf in _LEAVES.items()}
    found[_PATCH] = {"description": "A patch.", "type": "object"}
    wanted = [
        *_ALWAYS,
        *(_SUBRESOURCE_KINDS[name] for r in resources for name in r.subresources if name in _SUBRESOURCE_KINDS),
    ]
    for resource in resources:
        if resource.custom or resource.open:
            found[name_of(resource)] = _custom(resource, prefix)
        else:
            wanted.append(resource.kind)
        found[f"{name_of(resource)}List"] = _list(resource, prefix)
    while wanted:
        struct = wanted.pop()
        if schema_name(struct) in found:
            continue
        found[schema_name(struct)] = _struct(struct, prefix)
        wanted += _inner(struct)
    for resource in resources:
        found[name_of(resource)]["x-kubernetes-group-version-kind"] = [_kind(resource, resource.kind)]
    versions = sorted({(r.group, r.version) for r in resources})
    found[schema_name("DeleteOptions")]["x-kubernetes-group-version-kind"] = [
        {"group": group, "kind": "DeleteOptions", "version": version} for group, version in versions
    ]
    for name, kind, group in (
        ("Scale", "Scale", "autoscaling"),
        ("Eviction", "Eviction", "policy"),
        ("Binding", "Binding", ""),
    ):
        if schema_name(name) in found:
            gvk = {"group": group, "kind": kind, "version": "v1"}
            found[schema_name(name)]["x-kubernetes-group-version-kind"] = [gvk]
    return dict(sorted(found.items()))


def _kind(resource: Resource, kind: str) -> JsonObject:
    return {"group": resource.group, "kind": kind, "version": resource.version}


def _list(resource: Resource, prefix: str) -> JsonObject:
    item = {"allOf": [{"$ref": prefix + name_of(resource)}], "default": {}}
    return {
        "description": f"A list of {resource.plural}.",
        "type": "object",
        "required": ["items"],
        "properties": {
            "apiVersion": {"type": "string"},
            "items": {"type": "array", "items": item},
            "kind": {"type": "string"},
            "metadata": {"allOf": [{"$ref": prefix + schema_name("ListMeta")}], "default": {}},
        },
        "x-kubernetes-group-version-kind": [_kind(resource, f"{resource.kind}List")],
    }


def _inner(struct: str) -> Iterator[str]:
    return (known.of for known in structs()[struct].values() if known.of not in SCALARS)


def _struct(struct: str, prefix: str) -> JsonObject:
    """The schema of one struct of a built-in kind."""
    fields = structs()[struct]
    schema = _opened(struct, with_words="apiVersion" in fields)
    schema["properties"] = {
        name: {**_described(struct, known), **_shaped(known, known.shape, prefix), **_merging(struct, known)}
        for name, known in fields.items()
    }
    return schema


def _opened(struct: str, *, with_words: bool) -> JsonObject:
    """The head of a schema. What a struct within a kind is, its field says: kubectl explain prints both."""
    schema: JsonObject = {"description": of_type(struct)} if with_words and of_type(struct) else {}
    schema["type"] = "object"
    required = [known.name for known in structs()[struct].values() if known.required]
    return {**schema, "required": required} if required else schema


def _described(struct: str, known: FieldType) -> JsonObject:
    text = of_field(struct, known.name) or (of_type(known.of) if known.of not in SCALARS else "")
    return {"description": text} if text else {}


def _shaped(known: FieldType, shape: tuple[str, ...], prefix: str) -> JsonObject:
    if shape:
        inner = _shaped(known, shape[1:], prefix)
        if "allOf" in inner:
            inner = {**inner, "default": {}}
        return (
            {"type": "array", "items": inner} if shape[0] == "[]" else {"type": "object", "additionalProperties": inner}
        )
    if known.of in _SCALARS:
        return dict(_SCALARS[known.of])
    name = _NAMED.get(known.of) or schema_name(known.of)
    return {"allOf": [{"$ref": prefix + name}]}


@cache
def _merge_rows() -> dict[tuple[str, str], dict[str, str]]:
    text = files("tonnage.apiserver").joinpath("merge_keys.csv").read_text(encoding="utf-8")
    rows = csv.DictReader(line for line in text.splitlines() if not line.startswith("#"))
    return {(row["type"], row["field"]): row for row in rows}


def _merging(struct: str, known: FieldType) -> JsonObject:
    """How kubectl merges the field."""
    row = _merge_rows().get((struct, known.name), {})
    found: JsonObject = {}
    if known.shape[:1] == ("[]",):
        found["x-kubernetes-list-type"] = row.get("merge") or "atomic"
        if row.get("keys"):
            found["x-kubernetes-list-map-keys"] = row["keys"].split("+")
    elif row.get("merge") == "atomic":
        found["x-kubernetes-map-type"] = "atomic"
    if row.get("patch_key"):
        found["x-kubernetes-patch-merge-key"] = row["patch_key"]
    if row.get("patch_strategy"):
        found["x-kubernetes-patch-strategy"] = row["patch_strategy"].replace("+", ",")
    return found


# ---- custom kinds: one schema with everything in it ----


def custom_schema(resource: Resource) -> JsonObject:
    """The structural schema of a custom kind, as a CRD has it: without metadata, which every kind has."""
    return _nested(resource.kind, "")


def _custom(resource: Resource, prefix: str) -> JsonObject:
    if resource.open:
        words = {name: {"type": "string"} for name in ("apiVersion", "kind")}
        schema: JsonObject = {"type": "object", "properties": words, "x-kubernetes-preserve-unknown-fields": True}
    else:
        schema = _nested(resource.kind, prefix)
    schema["properties"]["metadata"] = {"allOf": [{"$ref": prefix + schema_name("ObjectMeta")}]}
    return schema


def _nested(struct: str, prefix: str) -> JsonObject:
    fields = structs()[struct]
    schema = _opened(struct, with_words="apiVersion" in fields)
    schema["properties"] = {
        name: {**_described(struct, known), **_place(known, "", prefix)}
        for name, known in fields.items()
        if known.of != "ObjectMeta"
    }
    return schema


def _place(known: FieldType, place: str, prefix: str) -> JsonObject:
    shape = known.shape[place.count("[]") + place.count("{}") :]
    rules = dict(known.rules.get(place, {}))
    if shape:
        inner = _place(known, place + shape[0], prefix)
        if shape[0] == "[]":
            return {"type": "array", "items": inner, **rules}
        return {"type": "object", "additionalProperties": inner, **rules}
    if known.of not in SCALARS:
        return {**_nested(known.of, prefix), **rules}
    return {**(_CUSTOM_LEAVES.get(known.of) or _SCALARS[known.of]), **rules}
