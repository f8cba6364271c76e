"""What the embedded API tells about itself: version, groups, resources, health.

Source of the formats: kubernetes/kubernetes v1.36 apimachinery meta/v1 (APIGroupList, APIResourceList) and
api/apidiscovery/v2.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeAlias

from tonnage.apiserver import openapi
from tonnage.apiserver.kinds import Kinds
from tonnage.apiserver.render import reply
from tonnage.apiserver.request import SERVED, ApiRequest, form
from tonnage.apiserver.status import not_supported
from tonnage.kube.resources import Resource
from tonnage.kube.transport import Reply

JsonObject: TypeAlias = dict[str, Any]

VERSION = "v1.36.3+tonnage"
_VERBS = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")
_SUBRESOURCES: dict[str, tuple[tuple[str, ...], tuple[str, str, str] | None]] = {
    "status": (("get", "patch", "update"), None),
    "scale": (("get", "patch", "update"), ("autoscaling", "v1", "Scale")),
    "binding": (("create",), ("", "v1", "Binding")),
    "eviction": (("create",), ("policy", "v1", "Eviction")),
    "finalize": (("update",), None),
}
_ROOTS = (
    "/api",
    "/apis",
    "/healthz",
    "/livez",
    "/metrics",
    "/openapi/v2",
    "/openapi/v3",
    "/readyz",
    "/version",
)
_ELSEWHERE = {
    "metrics.k8s.io": "metrics.k8s.io (kubectl top) is",
    "rbac.authorization.k8s.io": "RBAC is",
    "authorization.k8s.io": "access reviews (kubectl auth can-i) are",
    "authentication.k8s.io": "token reviews are",
    "networking.k8s.io": "networking.k8s.io is",
    "admissionregistration.k8s.io": "admission webhooks are",
    "apiregistration.k8s.io": "APIServices are",
    "autoscaling/v1": "autoscaling/v1 (as older kubectl autoscale writes; use autoscaling/v2) is",
}


def answer(request: ApiRequest, kinds: Kinds) -> Reply | None:
    """The answer to a request for one of these paths; None for other paths."""
    path = request.path.rstrip("/") or "/"
    if path in ("/healthz", "/livez", "/readyz"):
        return Reply(200, b"ok", {"content-type": "text/plain; charset=utf-8"})
    if path == "/version":
        return reply(200, version())
    if path == "/":
        return reply(200, {"paths": sorted({*_ROOTS, *kinds.roots})})
    if path == "/openapi/v2":
        if "protobuf" in request.accept:
            return Reply(200, openapi.v2_protobuf(), {"content-type": openapi.V2_PROTOBUF})
        form(request)
        return reply(200, openapi.v2(kinds.served))
    if path == "/openapi/v3":
        return reply(200, openapi.index(kinds.served))
    if path.startswith("/openapi/v3/"):
        document = openapi.document(path.removeprefix("/openapi/v3/"), kinds.served)
        return None if document is None else reply(200, document)
    if path in ("/api", "/apis"):
        return _groups(request, path, kinds)
    if path in kinds.roots:
        return reply(200, _resource_list(path, kinds))
    parts = path.split("/")
    if len(parts) == 3 and parts[1] == "apis" and parts[2] in _grouped(kinds):
        return reply(200, {"kind": "APIGroup", "apiVersion": "v1", **_group(parts[2], kinds)})
    if parts[1] == "apis":
        for name, what in _ELSEWHERE.items():
            if path.startswith(f"/apis/{name}"):
                raise not_supported(what)
    return None


def version() -> JsonObject:
    """What /version says."""
    return {
        "major": "1",
        "minor": "36",
        "gitVersion": VERSION,
        "gitCommit": "",
        "gitTreeState": "clean",
        "buildDate": "1970-01-01T00:00:00Z",
        "goVersion": "",
        "compiler": "python",
        "platform": "any/any",
    }


def _grouped(kinds: Kinds) -> dict[str, dict[str, list[Resource]]]:
    """Resources by group and version."""
    groups: dict[str, dict[str, list[Resource]]] = {}
    for resource in kinds.served:
        groups.setdefault(resource.group, {}).setdefault(resource.version, []).append(resource)
    return groups


def _group(name: str, kinds: Kinds) -> JsonObject:
    versions = [{"groupVersion": f"{name}/{one}", "version": one} for one in _grouped(kinds)[name]]
    return {"name": name, "versions": versions, "preferredVersion": versions[0]}


def _groups(request: ApiRequest, path: str, kinds: Kinds) -> Reply:
    wanted = form(request)
    names = [name for name in _grouped(kinds) if bool(name) is (path == "/apis")]
    if wanted.kind == "discovery":
        body = {
            "kind": "APIGroupDiscoveryList",
            "apiVersion": f"apidiscovery.k8s.io/{wanted.version}",
            "metadata": {},
            "items": [_aggregated(name, kinds) for name in names],
        }
        found = reply(200, body)
        kind = f"application/json;g=apidiscovery.k8s.io;v={wanted.version};as=APIGroupDiscoveryList"
        return Reply(found.status, found.body, {**found.headers, "content-type": kind})
    if path == "/api":
        return reply(200, {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []})
    return reply(200, {"kind": "APIGroupList", "apiVersion": "v1", "groups": [_group(name, kinds) for name in names]})


def _served(resource: Resource) -> Iterator[tuple[str, tuple[str, ...], tuple[str, str, str]]]:
    for name in resource.subresources:
        if name in SERVED:
            verbs, kind = _SUBRESOURCES[name]
            yield name, verbs, kind or (resource.group, resource.version, resource.kind)


def _resource_list(root: str, kinds: Kinds) -> JsonObject:
    listed: list[JsonObject] = []
    for resource in kinds.served:
        if resource.root != root:
            continue
        entry: JsonObject = {
            "name": resource.plural,
            "singularName": resource.singular,
            "namespaced": resource.namespaced,
            "kind": resource.kind,
            "verbs": list(_VERBS),
        }
        entry |= _found_by(resource)
        listed.append(entry)
        for name, verbs, (group, api_version, kind) in _served(resource):
            sub = {"name": f"{resource.plural}/{name}", "singularName": "", "namespaced": resource.namespaced}
            foreign = {} if group == resource.group else {"group": group, "version": api_version}
            listed.append({**sub, **foreign, "kind": kind, "verbs": list(verbs)})
    group_version = root.removeprefix("/apis/") if root != "/api/v1" else "v1"
    return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": group_version, "resources": listed}


def _found_by(resource: Resource) -> JsonObject:
    """Its short names and categories, where it has any."""
    found = {"shortNames": list(resource.short_names), "categories": list(resource.categories)}
    return {key: names for key, names in found.items() if names}


def _aggregated(group: str, kinds: Kinds) -> JsonObject:
    versions = []
    for name, resources in _grouped(kinds)[group].items():
        entries = []
        for resource in resources:
            entry: JsonObject = {
                "resource": resource.plural,
                "responseKind": {"group": resource.group, "version": resource.version, "kind": resource.kind},
                "scope": "Namespaced" if resource.namespaced else "Cluster",
                "singularResource": resource.singular,
                "verbs": list(_VERBS),
            }
            entry |= _found_by(resource)
            subresources = [
                {"subresource": sub, "responseKind": {"group": g, "version": v, "kind": k}, "verbs": list(verbs)}
                for sub, verbs, (g, v, k) in _served(resource)
            ]
            if subresources:
                entry["subresources"] = subresources
            entries.append(entry)
        versions.append({"version": name, "freshness": "Current", "resources": entries})
    return {"metadata": {"name": group} if group else {}, "versions": versions}
