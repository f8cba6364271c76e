"""What the embedded API does to an object before it stores it: fills in, checks, and drops what it does not know.

Of built-in kinds :mod:`tonnage.objects.api` knows it, of custom ones :mod:`tonnage.apiserver.custom`. Everything
works on JSON objects in place. The order of a write is :func:`unknown_fields` or :func:`prune`, :func:`wrong_type`,
:func:`apply_defaults`, :func:`invalid`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from tonnage.apiserver import custom, definitions
from tonnage.apiserver.admission import PriorityClasses, set_priority
from tonnage.kube.resources import CRDS, PODS, Resource
from tonnage.objects.api import fields, updates
from tonnage.objects.api import warnings as warned
from tonnage.objects.api.defaults import fill_in
from tonnage.objects.api.errors import FieldError
from tonnage.objects.api.refused import refused, refused_metadata

JsonObject: TypeAlias = dict[str, Any]


def apply_defaults(
    resource: Resource,
    obj: JsonObject,
    *,
    priority_classes: PriorityClasses | None = None,
    cluster_ip: Callable[[JsonObject], str] | None = None,
) -> JsonObject:
    """Fill in what is not written, in place; returns the object. Doing it twice changes nothing more.

    ``priority_classes`` finds a PriorityClass by name (the global default for ""); without it a pod's priority is 0.
    ``cluster_ip`` gives a Service its address; without it the address follows from namespace and name.

    Raises Refusal (403) for a pod whose PriorityClass does not exist or whose priority contradicts it.
    """
    if resource.custom:
        custom.fill_in(resource, obj)
        return obj
    fill_in(resource.kind, obj, cluster_ip=cluster_ip)
    if resource is PODS and ("priority" not in obj["spec"] or priority_classes is not None):
        set_priority(obj, priority_classes)
    return obj


def invalid(resource: Resource, obj: JsonObject, old: JsonObject | None = None) -> list[FieldError]:
    """Everything for which the API would answer 422, once defaults are filled in. ``old``: what an update replaces."""
    causes = refused_metadata(resource.kind, obj)
    causes += custom.refused(resource, obj) if resource.custom else refused(resource.kind, obj)
    if old is None:
        return causes
    if resource == CRDS:
        return causes + definitions.changed(obj, old)
    return causes + updates.changed(resource.struct or ("" if resource.custom else resource.kind), obj, old)


def warnings(resource: Resource, obj: JsonObject) -> list[str]:
    """What the API takes and warns of."""
    return [] if resource.custom else [one.message for one in warned.warnings(resource.kind, obj)]


def unknown_fields(resource: Resource, obj: JsonObject) -> list[str]:
    """Every field that the kind does not have, as ``unknown field "spec.foo"``."""
    return _said(resource, fields.unknown_fields(resource.struct, obj))


def prune(resource: Resource, obj: JsonObject) -> list[str]:
    """Remove every field that the kind does not have; returns what :func:`unknown_fields` would have said."""
    return _said(resource, fields.prune(resource.struct, obj))


def _said(resource: Resource, paths: list[str]) -> list[str]:
    """Of a built-in kind as they stand, of a custom one sorted."""
    return [f'unknown field "{path}"' for path in (sorted(paths) if resource.custom else paths)]


def wrong_type(resource: Resource, obj: JsonObject) -> str:
    """What keeps an object from being decoded, as kube-apiserver says it; empty when nothing does. Of a custom kind
    only the metadata is looked at here: the rest is :func:`invalid`'s (422)."""
    if resource.custom:
        meta = obj.get("metadata")
        found = fields.wrong_types("ObjectMeta", meta if isinstance(meta, dict) else {})
    else:
        found = fields.wrong_types(resource.kind, obj)
    return next((text for _, text in found), "")
