"""The forms of an answer: objects as they are stored, Tables, and metadata only."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import msgspec

from tonnage.apiserver import tables
from tonnage.apiserver.request import Form
from tonnage.apiserver.status import with_warnings
from tonnage.apiserver.store import Stored
from tonnage.kube.resources import Resource
from tonnage.kube.transport import Reply

JsonObject: TypeAlias = dict[str, Any]
_encode = msgspec.json.Encoder().encode


def reply(status: int, body: Any, warnings: Sequence[str] = ()) -> Reply:
    """An answer; ``body`` is encoded unless it is bytes. Warnings are shown to the user by kubectl."""
    headers = with_warnings(warnings)
    return Reply(status, body if isinstance(body, bytes) else _encode(body), headers)


def one(resource: Resource, stored: Stored, form: Form, now_s: float) -> bytes:
    """One object."""
    if form.kind == "table":
        table = tables.table(resource, [stored.object], now_s, form.include)
        table["metadata"] = {"resourceVersion": stored.object["metadata"].get("resourceVersion", "")}
        return _encode(table)
    return _encode(_metadata(stored.object)) if form.kind == "metadata" else stored.raw


def many(
    resource: Resource, found: Sequence[Stored], version: int, form: Form, now_s: float, more: JsonObject | None = None
) -> bytes:
    """A list. ``more``: further metadata of the list (continue, remainingItemCount)."""
    meta = {"resourceVersion": str(version), **(more or {})}
    if form.kind == "table":
        table = tables.table(resource, [stored.object for stored in found], now_s, form.include)
        table["metadata"] = meta
        return _encode(table)
    kind, api_version = f"{resource.kind}List", resource.api_version
    items = [stored.raw for stored in found]
    if form.kind == "metadata":
        kind, api_version = "PartialObjectMetadataList", "meta.k8s.io/v1"
        items = [_encode(_metadata(stored.object)) for stored in found]
    head = _encode({"kind": kind, "apiVersion": api_version, "metadata": meta})
    return b"".join((head[:-1], b',"items":[', b",".join(items), b"]}"))


def bookmark(resource: Resource, version: int, form: Form, initial_end: bool) -> bytes:
    """The object of a BOOKMARK: how far a watch is, and whether its initial state is complete."""
    meta: JsonObject = {"resourceVersion": str(version)}
    if initial_end:
        meta["annotations"] = {"k8s.io/initial-events-end": "true"}
    if form.kind == "table":
        table = {"kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": meta, "columnDefinitions": [], "rows": []}
        return _encode(table)
    if form.kind == "metadata":
        return _encode({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": meta})
    return _encode({"kind": resource.kind, "apiVersion": resource.api_version, "metadata": meta})


def _metadata(obj: JsonObject) -> JsonObject:
    return {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": obj["metadata"]}
