"""All objects of some kinds as a cluster has them now, with the verbs that read: what `kubectl get` would print."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import msgspec

from tonnage.kube.resources import NAMESPACES, Resource
from tonnage.kube.transport import ApiError
from tonnage.kube.verbs import Client, JsonObject

NOT_FOUND, FORBIDDEN = 404, 403


class _Entry(msgspec.Struct):
    name: str
    kind: str
    namespaced: bool = False
    verbs: tuple[str, ...] = ()


class _Resources(msgspec.Struct):
    resources: tuple[_Entry, ...] = ()


@dataclass(slots=True)
class Listing:
    """``objects``: each with its apiVersion and kind, without managedFields. ``left``: what could not be read, and
    why."""

    objects: list[JsonObject] = field(default_factory=list)
    left: list[str] = field(default_factory=list)

    def as_list(self) -> bytes:
        """A ``List`` in JSON, one object a line."""
        items = b",\n".join(msgspec.json.encode(one) for one in self.objects)
        return b'{"apiVersion":"v1","kind":"List","items":[\n' + items + b"\n]}\n"


def read(client: Client, kinds: Iterable[tuple[str, str]], namespace: str = "") -> Listing:
    """The objects of these kinds, (apiVersion, kind) each, in this order; those with a namespace in ``namespace`` alone
    where one is given. Kinds that the server does not have, as their CRD is missing, are passed over; an object that it
    has under several versions is read once.

    Raises ApiError, Unreachable or LostReply where the server does not answer; what it does not allow to be read is
    named in ``left``."""
    found = Listing()
    known: dict[str, tuple[_Entry, ...]] = {}
    seen: set[str] = set()
    for api_version, kind in kinds:
        if api_version not in known:
            known[api_version] = _resources(client, api_version)
        for entry in known[api_version]:
            if entry.kind == kind and "/" not in entry.name and "list" in entry.verbs:
                _add(client, _resource(api_version, entry), namespace, found, seen)
    return found


def exists(client: Client, namespace: str) -> bool:
    """Whether there is such a namespace, or that may not be asked. Raises as :func:`read` does."""
    try:
        client.get(NAMESPACES, namespace)
    except ApiError as error:
        if error.code not in (NOT_FOUND, FORBIDDEN):
            raise
        return error.code == FORBIDDEN
    return True


def _resources(client: Client, api_version: str) -> tuple[_Entry, ...]:
    root = f"/apis/{api_version}" if "/" in api_version else f"/api/{api_version}"
    try:
        return msgspec.json.decode(client.call("GET", root).body, type=_Resources).resources
    except ApiError as error:
        if error.code != NOT_FOUND:
            raise
        return ()


def _resource(api_version: str, entry: _Entry) -> Resource:
    group, _, version = api_version.rpartition("/")
    return Resource(group, version, entry.kind, entry.name, entry.kind.lower(), entry.namespaced)


def _add(client: Client, resource: Resource, namespace: str, found: Listing, seen: set[str]) -> None:
    try:
        items = client.list(resource, namespace if resource.namespaced else "")
    except ApiError as error:
        if error.code != FORBIDDEN:
            raise
        found.left.append(f"{resource.plural}: {error}")
        return
    for item in items:
        metadata: dict[str, Any] = item.get("metadata") or {}
        uid = metadata.get("uid", "")
        if uid and uid in seen:
            continue
        seen.add(uid)
        metadata.pop("managedFields", None)
        found.objects.append({**item, "apiVersion": resource.api_version, "kind": resource.kind})
