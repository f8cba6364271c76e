"""The subresources scale and binding.

Source: kubernetes/kubernetes v1.36 pkg/registry/apps/{deployment,replicaset}/storage and pkg/registry/core/pod/storage.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import msgspec

from tonnage.apiserver import admitting_pods
from tonnage.apiserver.lifecycle import set_condition, stamp
from tonnage.apiserver.request import WriteOptions
from tonnage.apiserver.status import (
    StatusError,
    bad_request,
    conflict,
    invalid,
    modified,
    precondition_failed,
)
from tonnage.apiserver.store import Stored
from tonnage.apiserver.writes import Writes
from tonnage.kube.resources import NODE_POOLS, PODS, Resource
from tonnage.objects.api import errors

JsonObject: TypeAlias = dict[str, Any]
_encode = msgspec.json.Encoder().encode
SCALE_KIND = "Scale.autoscaling"


def scale_of(resource: Resource, obj: JsonObject) -> JsonObject:
    """The autoscaling/v1 Scale of a workload."""
    kept = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
    spec, status = obj.get("spec", {}), obj.get("status", {})
    shown: JsonObject = {"replicas": status.get("nodes" if resource is NODE_POOLS else "replicas", 0)}
    selector = selector_text(spec.get("selector"))
    if selector:
        shown["selector"] = selector
    return {
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": {key: obj["metadata"][key] for key in kept if key in obj["metadata"]},
        "spec": {"replicas": spec["replicas"]} if spec.get("replicas") else {},
        "status": shown,
    }


def stored_scale(resource: Resource, stored: Stored) -> Stored:
    """The Scale as an answer."""
    scale = scale_of(resource, stored.object)
    return Stored(stored.key, stored.version, _encode(scale), scale)


def selector_text(selector: Any) -> str:
    """A label selector as a query has it."""
    if not isinstance(selector, dict):
        return ""
    parts = [f"{key}={value}" for key, value in sorted((selector.get("matchLabels") or {}).items())]
    for one in selector.get("matchExpressions") or ():
        key, operator, values = one.get("key", ""), one.get("operator"), ",".join(sorted(one.get("values") or ()))
        text = {
            "In": f"{key} in ({values})",
            "NotIn": f"{key} notin ({values})",
            "Exists": key,
            "DoesNotExist": f"!{key}",
        }
        parts.append(text.get(operator, ""))
    return ",".join(sorted(part for part in parts if part))


def update_scale(
    writes: Writes,
    resource: Resource,
    namespace: str,
    name: str,
    change: Callable[[JsonObject], JsonObject],
    options: WriteOptions,
) -> Stored:
    """Set a workload's replicas by what ``change`` makes of its Scale. Raises Refusal (400, 404, 409, 422)."""

    def replicas(old: JsonObject) -> JsonObject:
        before = old["metadata"]
        scale = change(scale_of(resource, old))
        if scale.get("kind", "Scale") != "Scale":
            raise bad_request(f"the kind in the data ({scale['kind']}) does not match the expected kind (Scale)")
        meta = scale.get("metadata") or {}
        if meta.get("name", name) != name:
            raise bad_request(f"the name of the object ({meta['name']}) does not match the name on the URL ({name})")
        if meta.get("uid") not in (None, "", before["uid"]):
            raise precondition_failed(resource, name, "UID", meta["uid"], before["uid"])
        if meta.get("resourceVersion") not in (None, "", before["resourceVersion"]):
            raise modified(resource, name)
        wanted = (scale.get("spec") or {}).get("replicas", 0)
        if not isinstance(wanted, int) or isinstance(wanted, bool):
            raise bad_request("spec.replicas of a Scale must be a whole number")
        if wanted < 0:
            cause = errors.invalid_value("spec.replicas", wanted, "must be greater than or equal to 0")
            raise invalid(resource, name, [cause], kind=SCALE_KIND)
        old["spec"] = {**old.get("spec", {}), "replicas": wanted}
        return old

    return stored_scale(resource, writes.update(resource, namespace, name, replicas, options, "scale"))


def bind(writes: Writes, namespace: str, name: str, binding: JsonObject, options: WriteOptions) -> None:
    """Bind a pod to a node. Raises Refusal (400, 404, 409, 422)."""
    meta, target = binding.get("metadata") or {}, binding.get("target") or {}
    if binding.get("kind", "Binding") != "Binding":
        raise bad_request(f"the kind in the data ({binding['kind']}) does not match the expected kind (Binding)")
    if meta.get("name", name) != name:
        raise bad_request("name in URL does not match name in Binding object")
    if target.get("kind", "Node") not in ("Node", ""):
        why = f'target.kind: Unsupported value: "{target["kind"]}": supported values: "Node", "<empty>"'
        raise StatusError(500, "", why)
    if not target.get("name"):
        raise StatusError(500, "", "target.name: Required value")
    with writes.store.lock:
        old = writes.read(PODS, namespace, name)
        pod = old.apart("metadata", "spec", "status")
        _check_bindable(pod, meta)
        pod["spec"]["nodeName"] = target["name"]
        for key in ("labels", "annotations"):
            if meta.get(key):
                pod["metadata"][key] = {**(pod["metadata"].get(key) or {}), **meta[key]}
        admitting_pods.label(writes.store, pod)
        set_condition(pod, {"type": "PodScheduled", "status": "True"}, stamp(writes.clock()))
        writes.server_managed(PODS, old, pod, options)


def _check_bindable(pod: JsonObject, meta: JsonObject) -> None:
    name, spec, why = pod["metadata"]["name"], pod["spec"], ""
    for what, key in (("UID", "uid"), ("ResourceVersion", "resourceVersion")):
        given, found = meta.get(key), pod["metadata"][key]
        if given not in (None, "", found):
            raise precondition_failed(PODS, name, what, given, found)
    if "deletionTimestamp" in pod["metadata"]:
        why = f"pod {name} is being deleted, cannot be assigned to a host"
    if not why and spec.get("nodeName"):
        why = f'pod {name} is already assigned to node "{spec["nodeName"]}"'
    if not why and spec.get("schedulingGates"):
        why = f"pod {name} has non-empty .spec.schedulingGates"
    if why:
        raise conflict(PODS, name, why, what="pods/binding")
