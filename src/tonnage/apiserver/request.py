"""What a request asks for: its path, its query and the form of the answer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import msgspec
import yaml

from tonnage.apiserver.kinds import Kinds
from tonnage.apiserver.status import (
    DOCS,
    StatusError,
    bad_options,
    bad_request,
    no_such_path,
    not_acceptable,
    not_supported,
    unsupported_media,
)
from tonnage.kube.resources import NAMESPACES, Resource
from tonnage.kube.transport import JSON
from tonnage.objects.api import errors, protobuf

SERVED = ("status", "scale", "binding", "eviction", "finalize")
"""Subresources that work here."""
_KNOWN = {
    "log": "logs of containers are",
    "exec": "kubectl exec is",
    "attach": "kubectl attach is",
    "portforward": "kubectl port-forward is",
    "proxy": "the proxy to pods, nodes and services is",
    "ephemeralcontainers": "kubectl debug with ephemeral containers is",
    "resize": "resizing the containers of a running pod is",
    "token": "service account tokens are",
}
_ELSEWHERE = (
    "secrets",
    "endpoints",
    "replicationcontrollers",
    "podtemplates",
    "componentstatuses",
    "bindings",
    "statefulsets",
    "controllerrevisions",
    "cronjobs",
)
"""Resources of served groups that are not served. Reading them is 404: kubectl takes that for "there are none"."""
_OPTIONS = {"POST": "CreateOptions", "PATCH": "PatchOptions", "DELETE": "DeleteOptions"}
_LIMIT = 2**31


@dataclass(frozen=True, slots=True)
class ApiRequest:
    """One request. ``path`` without the query, decoded; ``query`` with the last value of each parameter. ``warnings``:
    what its client is to be told, also where it is refused."""

    method: str
    path: str
    query: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    content_type: str = JSON
    accept: str = JSON
    user_agent: str = ""
    warnings: list[str] = field(default_factory=list)

    def number(self, name: str) -> int:
        """A parameter that is a count; 0 when it is not given. Raises Refusal (400)."""
        text = self.query.get(name, "")
        if text and (not text.isdigit() or int(text) >= _LIMIT):
            raise bad_request(f"{name}: Invalid value: {text!r}: expected a whole number")
        return int(text or 0)

    def is_set(self, name: str) -> bool:
        """A parameter that is true or false."""
        return self.query.get(name, "") in ("true", "1", "True")

    def decoded(self) -> dict[str, Any]:
        """The body as an object. Raises Refusal (400, 415)."""
        kind = self.content_type.partition(";")[0].strip() or JSON
        if kind == protobuf.CONTENT_TYPE:
            return decode_protobuf(self.body)
        if kind not in (JSON, "application/yaml"):
            raise unsupported_media()
        return decode(self.body, as_yaml=kind != JSON)


def decode_protobuf(body: bytes) -> dict[str, Any]:
    """A body in protobuf as an object. Raises Refusal (400)."""
    try:
        return protobuf.decode(body)
    except protobuf.Malformed as error:
        raise bad_request(f"the object provided is unrecognized: couldn't read the protobuf body: {error}") from error


def decode(body: bytes, *, as_yaml: bool = False) -> dict[str, Any]:
    """A body as an object. Raises Refusal (400)."""
    try:
        found = yaml.safe_load(body) if as_yaml else msgspec.json.decode(body)
        if b"null" in body:
            _fill_lists(found)
    except (msgspec.DecodeError, yaml.YAMLError, UnicodeDecodeError) as error:
        raise bad_request(f"the object provided is unrecognized: couldn't read the body: {error}") from error
    if not isinstance(found, dict):
        raise bad_request("the object provided is unrecognized: the body must be a JSON object")
    return found


@dataclass(frozen=True, slots=True)
class Route:
    """Where a path leads: a collection (no ``name``), an object, or its subresource."""

    resource: Resource
    namespace: str = ""
    name: str = ""
    subresource: str = ""


def route(path: str, kinds: Kinds) -> Route:
    """Where a path leads. Raises Refusal (404, 405)."""
    parts = path.strip("/").split("/")
    depth = 2 if parts[0] == "api" else 3
    root, rest = "/" + "/".join(parts[:depth]), parts[depth:]
    if root not in kinds.roots or not rest or "" in rest:
        raise no_such_path()
    if rest[0] == "watch":
        raise not_supported("the old watch paths are")
    namespace = ""
    if (
        rest[0] == "namespaces"
        and len(rest) > 2
        and not (root == NAMESPACES.root and rest[2] in NAMESPACES.subresources)
    ):
        namespace, rest = rest[1], rest[2:]
    resource = kinds.find(root, rest[0])
    if resource is None or len(rest) > 3 or (namespace and not resource.namespaced):
        if len(rest) > 2 and rest[2] in _KNOWN:
            raise not_supported(_KNOWN[rest[2]])
        if resource is None and rest[0] in _ELSEWHERE:
            raise StatusError(404, "NotFound", f"{rest[0]} are not supported here: {DOCS}", {})
        raise no_such_path()
    name, subresource = (*rest[1:], "", "")[:2]
    if subresource and (subresource not in SERVED or subresource not in resource.subresources):
        raise not_supported(_KNOWN[subresource]) if subresource in _KNOWN else no_such_path()
    if name and resource.namespaced and not namespace:
        raise no_such_path()
    return Route(resource, namespace, name, subresource)


@dataclass(slots=True)
class WriteOptions:
    """How a write is meant. ``warnings`` collects what to tell the client."""

    manager: str = "unknown"
    dry_run: bool = False
    validation: str = "Warn"
    force: bool = False
    warnings: list[str] = field(default_factory=list)

    @classmethod
    def of(cls, request: ApiRequest) -> WriteOptions:
        """From a query. Raises Refusal (400)."""
        query = request.query
        kind = _OPTIONS.get(request.method, "UpdateOptions")
        if query.get("dryRun", "") not in ("", "All"):
            raise bad_options(kind, errors.unsupported("dryRun", [query["dryRun"]], ["All"]))
        validation = query.get("fieldValidation", "") or "Warn"
        if validation not in ("Ignore", "Warn", "Strict"):
            known = ["", "Ignore", "Strict", "Warn"]
            raise bad_options(kind, errors.unsupported("fieldValidation", validation, known))
        manager = query.get("fieldManager", "") or request.user_agent.partition("/")[0] or "unknown"
        return cls(manager[:128], query.get("dryRun") == "All", validation, request.is_set("force"), request.warnings)


@dataclass(frozen=True, slots=True)
class Form:
    """The form of an answer: objects as they are, a Table, their metadata only, or aggregated discovery."""

    kind: Literal["object", "table", "metadata", "discovery"] = "object"
    include: str = "Metadata"
    version: str = ""


def form(request: ApiRequest) -> Form:
    """The first form that the client accepts and the server speaks. Raises Refusal (406)."""
    wanted = [part for part in request.accept.split(",") if part.strip()] or [JSON]
    for part in wanted:
        media, *pairs = (one.strip() for one in part.split(";"))
        if media not in (JSON, "application/*", "*/*"):
            continue
        parameters = dict(pair.split("=", 1) for pair in pairs if "=" in pair)
        found = _form(parameters, request.query.get("includeObject", "") or "Metadata")
        if found is not None:
            return found
    raise not_acceptable()


def _form(parameters: Mapping[str, str], include: str) -> Form | None:
    shape, group, version = (parameters.get(key, "") for key in ("as", "g", "v"))
    if not shape:
        return Form()
    if group == "meta.k8s.io" and version == "v1":
        if shape == "Table":
            return Form("table", include)
        if shape in ("PartialObjectMetadata", "PartialObjectMetadataList"):
            return Form("metadata")
    if shape == "APIGroupDiscoveryList" and group == "apidiscovery.k8s.io" and version in ("v2", "v2beta1"):
        return Form("discovery", version=version)
    return None


def _fill_lists(value: Any) -> None:
    """In place: null in a list of objects is an object without fields, as Go decodes it."""
    if isinstance(value, dict):
        for inner in value.values():
            _fill_lists(inner)
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            if inner is None:
                value[index] = {}
            else:
                _fill_lists(inner)
