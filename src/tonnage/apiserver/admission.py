"""What admission does before an object is stored: what needs to look at other objects.

Source: kubernetes/kubernetes v1.36 staging/src/k8s.io/apiserver/pkg/admission/plugin/namespace/lifecycle and
plugin/pkg/admission/{priority,storage}.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import msgspec

from tonnage.apiserver.status import forbidden, not_found
from tonnage.apiserver.store import Store
from tonnage.facts.labels import STORAGE_CLASS
from tonnage.kube.resources import NAMESPACES, PODS, PRIORITY_CLASSES, STORAGE_CLASSES, Resource
from tonnage.objects.api.refused import SYSTEM_CLASSES
from tonnage.objects.storage import StorageClass
from tonnage.workloads.volumes.book import default_class

JsonObject: TypeAlias = dict[str, Any]
PriorityClasses: TypeAlias = Callable[[str], JsonObject | None]
"""A PriorityClass by name; the global default, if there is one, for an empty name."""

IMMORTAL = ("default", "kube-system", "kube-public")
"""Namespaces that may not be deleted."""


def namespace_open(store: Store, resource: Resource, namespace: str, name: str) -> None:
    """Raises Refusal (404, 403) when nothing can be made in the namespace."""
    found = store.get(NAMESPACES, "", namespace)
    if found is None:
        raise not_found(NAMESPACES, namespace)
    if "deletionTimestamp" in found.object["metadata"]:
        message = f"namespace {namespace} is being terminated"
        cause = {"reason": "NamespaceTerminating", "message": message, "field": "metadata.namespace"}
        why = f"unable to create new content in namespace {namespace} because it is being terminated"
        raise forbidden(resource, name, why, [cause])


def may_be_deleted(resource: Resource, name: str) -> None:
    """Raises Refusal (403) for what must stay."""
    if resource is NAMESPACES and name in IMMORTAL:
        raise forbidden(resource, name, "this namespace may not be deleted")


def priority_classes(store: Store) -> PriorityClasses:
    """Finds a PriorityClass by name; the global default (the lowest of several) for an empty name."""

    def find(name: str) -> JsonObject | None:
        if name:
            found = store.get(PRIORITY_CLASSES, "", name)
            return found.object if found is not None else None
        known = [one.object for one in store.items(PRIORITY_CLASSES)[0]]
        defaults = [one for one in known if one.get("globalDefault")]
        return min(defaults, key=lambda one: int(one["value"]), default=None)

    return find


def set_storage_class(store: Store, claim: JsonObject) -> None:
    """Give a claim that names no class the default one, in place: an empty name is one, and stays.

    Source: kubernetes/kubernetes v1.36 plugin/pkg/admission/storage/storageclass/setdefault."""
    spec, annotations = claim.setdefault("spec", {}), claim["metadata"].get("annotations") or {}
    if spec.get("storageClassName") is not None or STORAGE_CLASS in annotations:
        return
    known = (msgspec.convert(one.object, StorageClass, strict=False) for one in store.items(STORAGE_CLASSES)[0])
    default = default_class(known)
    if default is not None:
        spec["storageClassName"] = default.name


def set_priority(pod: JsonObject, classes: PriorityClasses | None) -> None:
    """A pod's priority and preemptionPolicy by its PriorityClass, in place; 0 where ``classes`` is None.

    Raises Refusal (403) for a class that ``classes`` does not know, or a priority that contradicts it."""
    spec, own = pod["spec"], str(pod.get("metadata", {}).get("name", ""))
    name = spec.get("priorityClassName", "")
    found = classes(name) if classes is not None else None
    if found is None and name in SYSTEM_CLASSES:
        found = {"metadata": {"name": name}, "value": SYSTEM_CLASSES[name]}
    if found is None and name and classes is not None:
        raise forbidden(PODS, own, f"no PriorityClass with name {name} was found")
    value = found.get("value", 0) if found else 0
    given = spec.get("priority")
    if given is not None and given != value:
        why = (
            f"the integer value of priority ({given}) must not be provided in pod spec; "
            f"priority admission controller computed {value} from the given PriorityClass name"
        )
        raise forbidden(PODS, own, why)
    spec["priority"] = value
    if found and not name:
        spec["priorityClassName"] = found["metadata"]["name"]
    spec.setdefault("preemptionPolicy", (found or {}).get("preemptionPolicy") or "PreemptLowerPriority")
