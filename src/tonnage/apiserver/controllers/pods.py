"""Making and deleting pods for a controller, with the events that tell of it.

Source of the messages: kubernetes/kubernetes v1.36 pkg/controller/controller_utils.go, RealPodControl.
"""

from __future__ import annotations

import re
from typing import Any

from tonnage.apiserver.controllers.context import Context
from tonnage.apiserver.controllers.meta import (
    controller_reference,
    controller_uid,
    generated_name,
    is_deleting,
    key_of,
    uid_of,
)
from tonnage.apiserver.lifecycle import LETTERS
from tonnage.kube.resources import NAMESPACES, PODS, Resource
from tonnage.kube.transport import ApiError
from tonnage.kube.verbs import JsonObject
from tonnage.objects.api.errors import SUBDOMAIN

_SUFFIX = 5


def create(
    context: Context, component: str, resource: Resource, owner: JsonObject, template: dict[str, Any]
) -> JsonObject | None:
    """Make one pod of a template, controlled by ``owner``; None when its namespace takes no new objects.

    Raises ApiError when the API refuses it, after an event FailedCreate.
    """
    namespace, name = key_of(owner)
    prefix = f"{name}-" if len(name) < 253 and re.fullmatch(SUBDOMAIN, name) else name
    metadata = template.get("metadata") or {}
    body: JsonObject = {
        "apiVersion": PODS.api_version,
        "kind": PODS.kind,
        "metadata": {
            "generateName": prefix,
            "namespace": namespace,
            "ownerReferences": [controller_reference(resource, owner)],
            **{part: metadata[part] for part in ("labels", "annotations", "finalizers") if metadata.get(part)},
        },
        "spec": template.get("spec") or {},
    }
    while True:
        body["metadata"]["name"] = _free_name(context, namespace, prefix)
        try:
            pod = context.writer.create(PODS, body)
        except ApiError as error:
            if error.reason == "AlreadyExists":
                found = context.writer.read(PODS, (namespace, body["metadata"]["name"]))
                if found is not None and controller_uid(found) == uid_of(owner):
                    return found
                continue  # somebody else's: another name
            if _namespace_ends(context, namespace, error):
                return None
            message = f"Error creating: {error.message}"
            context.recorder.event(component, resource, owner, "FailedCreate", message, "Warning")
            raise
        context.recorder.event(
            component, resource, owner, "SuccessfulCreate", f"Created pod: {pod['metadata']['name']}"
        )
        return pod


def delete(context: Context, component: str, resource: Resource, owner: JsonObject, pod: JsonObject) -> None:
    """Delete a pod. Raises ApiError when the API refuses, after an event FailedDelete."""
    try:
        context.writer.delete(PODS, pod)
    except ApiError as error:
        message = f"Error deleting: {error.message}"
        context.recorder.event(component, resource, owner, "FailedDelete", message, "Warning")
        raise
    context.recorder.event(component, resource, owner, "SuccessfulDelete", f"Deleted pod: {key_of(pod)[1]}")


def _free_name(context: Context, namespace: str, prefix: str) -> str:
    while True:
        suffix = "".join(context.random.choices(LETTERS, k=_SUFFIX))
        name = generated_name(prefix, suffix)
        if context.cache.get(PODS, (namespace, name)) is None:
            return name


def _namespace_ends(context: Context, namespace: str, error: ApiError) -> bool:
    if error.code not in (403, 404):
        return False
    known = context.cache.get(NAMESPACES, ("", namespace))
    return "being terminated" in error.message or (known is not None and is_deleting(known))
