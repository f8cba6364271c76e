"""The paths of a resource in OpenAPI, with the query parameters that kubectl looks for before it uses them.

Source: OpenAPI of kube-apiserver v1.36.3.
"""

from __future__ import annotations

from typing import Any, TypeAlias

from tonnage.apiserver.request import SERVED
from tonnage.kube.resources import Resource
from tonnage.kube.transport import APPLY_PATCH, JSON, JSON_PATCH, MERGE_PATCH, STRATEGIC_PATCH

JsonObject: TypeAlias = dict[str, Any]

_PATCH = "io.k8s.apimachinery.pkg.apis.meta.v1.Patch"
_STATUS = "io.k8s.apimachinery.pkg.apis.meta.v1.Status"
_OF_SUBRESOURCE = {
    "scale": ("autoscaling", "v1", "Scale", "io.k8s.api.autoscaling.v1.Scale"),
    "binding": ("", "v1", "Binding", "io.k8s.api.core.v1.Binding"),
    "eviction": ("policy", "v1", "Eviction", "io.k8s.api.policy.v1.Eviction"),
}
_POSTED = ("binding", "eviction")
_PARAMETERS: dict[str, tuple[str, str]] = {
    "dryRun": ("string", "All: check and answer, but store nothing."),
    "fieldManager": ("string", "Who writes, for managedFields."),
    "fieldValidation": ("string", "What becomes of unknown fields: Ignore, Warn or Strict."),
    "force": ("boolean", "Take fields over from other managers (server-side apply)."),
    "labelSelector": ("string", "Only objects with these labels."),
    "fieldSelector": ("string", "Only objects with these field values."),
    "limit": ("integer", "At most this many objects in one answer."),
    "continue": ("string", "The rest of a list, from the token of its last answer."),
    "resourceVersion": ("string", "The version to begin from."),
    "resourceVersionMatch": ("string", "Exact or NotOlderThan."),
    "timeoutSeconds": ("integer", "How long to answer at most."),
    "watch": ("boolean", "Go on with every change."),
    "allowWatchBookmarks": ("boolean", "Say from time to time how far the watch is."),
    "sendInitialEvents": ("boolean", "Begin a watch with what there is."),
    "gracePeriodSeconds": ("integer", "How long to wait before the end."),
    "propagationPolicy": ("string", "What becomes of dependents: Orphan, Background or Foreground."),
    "orphanDependents": ("boolean", "The old form of propagationPolicy."),
}
_WRITE = ("dryRun", "fieldManager", "fieldValidation")
_LIST = (
    "allowWatchBookmarks",
    "continue",
    "fieldSelector",
    "labelSelector",
    "limit",
    "resourceVersion",
    "resourceVersionMatch",
    "sendInitialEvents",
    "timeoutSeconds",
    "watch",
)
_DELETE = ("dryRun", "gracePeriodSeconds", "orphanDependents", "propagationPolicy")
_OPERATIONS: dict[str, tuple[str, str, tuple[str, ...]]] = {
    "list": ("get", "list", _LIST),
    "create": ("post", "create", _WRITE),
    "deletecollection": ("delete", "delete", (*_DELETE, "fieldSelector", "labelSelector")),
    "get": ("get", "read", ()),
    "replace": ("put", "replace", _WRITE),
    "patch": ("patch", "patch", (*_WRITE, "force")),
    "delete": ("delete", "delete", _DELETE),
}
_ACTIONS = {"list": "list", "create": "post", "deletecollection": "deletecollection", "get": "get", "replace": "put"}


def of(resource: Resource, schema: str) -> JsonObject:
    """The paths of a resource; ``schema`` is the name of its kind's schema."""
    namespace = "{namespace}" if resource.namespaced else ""
    gvk = {"group": resource.group, "kind": resource.kind, "version": resource.version}
    paths: JsonObject = {}
    if resource.namespaced:
        paths[resource.path()] = _item(resource, ("list",), gvk, schema, "")
    paths[resource.path(namespace)] = _item(resource, ("list", "create", "deletecollection"), gvk, schema, "")
    one = resource.path(namespace, "{name}")
    paths[one] = _item(resource, ("get", "replace", "patch", "delete"), gvk, schema, "")
    for name in resource.subresources:
        if name not in SERVED:
            continue
        inner, of_inner = gvk, schema
        if name in _OF_SUBRESOURCE:
            group, version, kind, of_inner = _OF_SUBRESOURCE[name]
            inner = {"group": group, "kind": kind, "version": version}
        verbs = ("create",) if name in _POSTED else ("replace",) if name == "finalize" else ("get", "replace", "patch")
        paths[f"{one}/{name}"] = _item(resource, verbs, inner, of_inner, name)
    return paths


def _item(resource: Resource, verbs: tuple[str, ...], gvk: JsonObject, schema: str, subresource: str) -> JsonObject:
    placed = [_path_parameter("namespace", "The object's namespace.")] if resource.namespaced else []
    named = [_path_parameter("name", "The object's name.")]
    is_one = subresource or "get" in verbs
    item: JsonObject = {_OPERATIONS[verb][0]: _operation(resource, verb, gvk, schema, subresource) for verb in verbs}
    if verbs == ("list",) and resource.namespaced:
        placed = []
    item["parameters"] = [*(named if is_one else []), *placed]
    return item


def _path_parameter(name: str, words: str) -> JsonObject:
    return {
        "name": name,
        "in": "path",
        "description": words,
        "required": True,
        "schema": {"type": "string", "uniqueItems": True},
    }


def _operation(resource: Resource, verb: str, gvk: JsonObject, schema: str, subresource: str) -> JsonObject:
    method, word, parameters = _OPERATIONS[verb]
    place = "Namespaced" if resource.namespaced else ""
    title = subresource.title()
    group = "".join(part.title() for part in (resource.group or "core").split("."))
    about = f"{resource.kind}{' ' + subresource if subresource else ''}"
    operation: JsonObject = {
        "description": f"{word} {about}",
        "operationId": f"{verb}{group}{resource.version.title()}{place}{resource.kind}{title}",
        "parameters": [_query_parameter(name) for name in parameters],
        "responses": {"200": _answer(f"{schema}List" if verb == "list" else _STATUS if word == "delete" else schema)},
        "x-kubernetes-action": _ACTIONS.get(verb, verb),
        "x-kubernetes-group-version-kind": gvk,
    }
    if method in ("post", "put"):
        operation["requestBody"] = {"content": {JSON: _schema(schema)}, "required": True}
    if method == "patch":
        kinds = (APPLY_PATCH, JSON_PATCH, MERGE_PATCH, *(() if resource.custom else (STRATEGIC_PATCH,)))
        operation["requestBody"] = {"content": {kind: _schema(_PATCH) for kind in kinds}, "required": True}
    return operation


def _query_parameter(name: str) -> JsonObject:
    type_, words = _PARAMETERS[name]
    schema = {"type": type_, "uniqueItems": True}
    return {"name": name, "in": "query", "description": words, "schema": schema}


def _schema(name: str) -> JsonObject:
    return {"schema": {"$ref": f"#/components/schemas/{name}"}}


def _answer(name: str) -> JsonObject:
    return {"description": "OK", "content": {JSON: _schema(name)}}
