"""An object's lifecycle: what the server sets when it is made and changed, and how it goes.

Source: kubernetes/kubernetes v1.36 staging/src/k8s.io/apiserver/pkg/registry/{rest,generic/registry}, and the
strategies under pkg/registry.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from random import Random
from typing import Any, TypeAlias
from uuid import UUID

from tonnage.apiserver.status import (
    bad_options,
    bad_request,
    conflict,
    invalid,
)
from tonnage.facts.labels import NAMESPACE_NAME
from tonnage.kube.resources import (
    DAEMON_SETS,
    DEPLOYMENTS,
    JOBS,
    NAMESPACES,
    NODES,
    PDBS,
    PODS,
    PRIORITY_CLASSES,
    REPLICA_SETS,
    STATEFUL_SETS,
    Resource,
)
from tonnage.objects import core
from tonnage.objects.api import errors

JsonObject: TypeAlias = dict[str, Any]

ORPHAN, FOREGROUND = "orphan", "foregroundDeletion"
LETTERS = "bcdfghjklmnpqrstvwxz2456789"
_LONGEST_BASE = 58  # of a generated name, before the five letters
_BY_SPEC = (DEPLOYMENTS, REPLICA_SETS, DAEMON_SETS, STATEFUL_SETS, JOBS, PDBS, PODS)
_KEPT = ("uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "generation", "selfLink")
_DEFAULT_GRACE_S = 30


def stamp(now_s: float) -> str:
    """Seconds since the epoch as the API writes times."""
    return datetime.fromtimestamp(now_s, UTC).isoformat(timespec="seconds")[:-6] + "Z"  # of strftime's time, a third


def stamped(text: str) -> float:
    """A time of the API as seconds since the epoch."""
    return datetime.fromisoformat(text).timestamp()


def without_nulls(value: Any) -> Any:
    """An object's part without the keys whose value is null: to the API they are not there. Changes it in place."""
    if isinstance(value, dict):
        for key in [key for key, one in value.items() if one is None]:
            del value[key]
        for one in value.values():
            if isinstance(one, dict | list):
                without_nulls(one)
    elif isinstance(value, list):
        for one in value:
            if isinstance(one, dict | list):
                without_nulls(one)
    return value


def generated(base: str, random: Random) -> str:
    """A name from generateName."""
    return base[:_LONGEST_BASE] + "".join(random.choice(LETTERS) for _ in range(5))


def born(resource: Resource, obj: JsonObject, now_s: float, random: Random) -> None:
    """Set what the server sets on a new object; drop what only it may set."""
    meta = obj["metadata"]
    for key in (*_KEPT, "resourceVersion", "managedFields"):
        meta.pop(key, None)
    if not meta.get("name") and meta.get("generateName"):
        meta["name"] = generated(meta["generateName"], random)
    meta["uid"] = str(UUID(int=random.getrandbits(128), version=4))
    meta["creationTimestamp"] = stamp(now_s)
    if _has_generation(resource):
        meta["generation"] = 1
    if "status" in resource.subresources and resource is not NODES:  # a kubelet registers its node with its status
        obj.pop("status", None)
        if not resource.custom:
            obj["status"] = {}
    if resource is NAMESPACES:
        obj["status"] = {"phase": "Active"}
        obj.setdefault("spec", {}).setdefault("finalizers", ["kubernetes"])
        meta.setdefault("labels", {})[NAMESPACE_NAME] = meta.get("name", "")


def _has_generation(resource: Resource) -> bool:
    return resource.custom or resource in _BY_SPEC or resource is PRIORITY_CLASSES


def carried_over(resource: Resource, old: JsonObject, new: JsonObject, subresource: str) -> JsonObject:
    """``new`` with what an update may not change taken from ``old`` (both used up): identity, and the status, or, of a
    status update, all but the status."""
    before = old["metadata"]
    if subresource == "status":
        meta = {**before, **_versions(new["metadata"])} if resource.custom else new["metadata"]
        if resource is DEPLOYMENTS:
            meta.pop("labels", None)
            meta |= {"labels": before["labels"]} if "labels" in before else {}
        status = {"status": new["status"]} if "status" in new else {}
        rest = {key: value for key, value in old.items() if key not in ("metadata", "status")}
        new = {**rest, "metadata": meta, **status}
    elif subresource == "finalize":
        finalizers = new.get("spec", {}).get("finalizers", [])
        meta = {**before, **_versions(new["metadata"])}
        new = {**old, "metadata": meta, "spec": {**old.get("spec", {}), "finalizers": finalizers}}
    elif "status" in resource.subresources:
        new.pop("status", None)
        if "status" in old:
            new["status"] = old["status"]
    if resource is NAMESPACES and subresource != "finalize":
        new.setdefault("spec", {})["finalizers"] = old.get("spec", {}).get("finalizers", [])
    meta = new["metadata"]
    for key in _KEPT:
        if key in before:
            meta[key] = before[key]
        else:
            meta.pop(key, None)
    return new


def _versions(meta: Mapping[str, Any]) -> dict[str, Any]:
    return {key: meta[key] for key in ("resourceVersion", "managedFields") if key in meta}


def changed_generation(resource: Resource, old: JsonObject, new: JsonObject) -> None:
    """Count the generation up when what is asked for changed."""
    if not _has_generation(resource) or resource is PRIORITY_CLASSES or "generation" not in old["metadata"]:
        return
    if _asked(resource, old) != _asked(resource, new):
        new["metadata"]["generation"] = old["metadata"]["generation"] + 1


def _asked(resource: Resource, obj: JsonObject) -> Any:
    if resource is DEPLOYMENTS:
        return obj.get("spec"), obj["metadata"].get("annotations") or {}
    if not resource.custom:
        return obj.get("spec")
    apart = ("metadata", "status") if "status" in resource.subresources else ("metadata",)
    return {key: value for key, value in obj.items() if key not in apart}


def finalizers_not_added(resource: Resource, old: JsonObject, new: JsonObject) -> list[errors.FieldError]:
    """What is wrong when an object that is being deleted gets new finalizers."""
    if "deletionTimestamp" not in old["metadata"]:
        return []
    had = old["metadata"].get("finalizers") or ()
    added = [one for one in new["metadata"].get("finalizers") or () if one not in had]
    if not added:
        return []
    listed = ", ".join(f'"{one}"' for one in added)
    why = f"no new finalizers can be added if the object is being deleted, found new finalizers []string{{{listed}}}"
    return [errors.forbidden("metadata.finalizers", why)]


# ---- how it goes ----


@dataclass(frozen=True, slots=True)
class DeleteOptions:
    """meta/v1 DeleteOptions. ``grace_s`` None: the object's own; ``propagation`` empty: the resource's."""

    grace_s: int | None = None
    propagation: str = ""
    uid: str = ""
    resource_version: str = ""
    dry_run: bool = False

    @classmethod
    def of(cls, body: Mapping[str, Any], query: Mapping[str, str]) -> DeleteOptions:
        """From a body, or from the query without one. Raises Refusal (400, 422)."""
        given: dict[str, Any] = dict(body) if body else dict(query)
        grace = given.get("gracePeriodSeconds")
        try:
            grace_s = None if grace in (None, "") else int(grace)
        except (TypeError, ValueError) as error:
            raise bad_request(f"gracePeriodSeconds: Invalid value: {grace!r}: expected a whole number") from error
        propagation = str(given.get("propagationPolicy") or "")
        orphan = given.get("orphanDependents")
        if propagation not in ("", "Orphan", "Background", "Foreground"):
            supported = ["Foreground", "Background", "Orphan", "nil"]
            raise bad_options("DeleteOptions", errors.unsupported("propagationPolicy", propagation, supported))
        if propagation and orphan is not None:
            why = "orphanDependents and deletionPropagation cannot be both set"
            raise bad_options("DeleteOptions", errors.invalid_value("propagationPolicy", propagation, why))
        if not propagation and orphan is not None:
            propagation = "Orphan" if orphan in (True, "true", "1") else "Background"
        preconditions = given.get("preconditions") or {}
        dry = given.get("dryRun") or query.get("dryRun") or ()
        return cls(
            grace_s,
            propagation,
            str(preconditions.get("uid") or ""),
            str(preconditions.get("resourceVersion") or ""),
            "All" in dry if isinstance(dry, list | tuple) else dry == "All",
        )


def check_preconditions(resource: Resource, obj: JsonObject, options: DeleteOptions) -> None:
    """Raises Refusal (409) when it is not the object, or not the version, that is meant."""
    meta = obj["metadata"]
    for what, given, found in (
        ("UID", options.uid, meta["uid"]),
        ("ResourceVersion", options.resource_version, meta["resourceVersion"]),
    ):
        if given and given != found:
            why = (
                f"the {what} in the precondition ({given}) does not match the {what} in record ({found}). "
                "The object might have been deleted and then recreated"
                if what == "UID"
                else f"the {what} in the precondition ({given}) does not match the {what} in record ({found}). "
                "The object might have been modified"
            )
            raise conflict(resource, meta["name"], why, what=resource.kind)


def deletion_asked(resource: Resource, old: JsonObject, new: JsonObject, options: DeleteOptions, now_s: float) -> bool:
    """Mark ``new`` (a copy of ``old`` that the caller owns) as being deleted; True when it goes at once."""
    meta = new["metadata"]
    _propagate(meta, options)
    if resource is NAMESPACES:
        new.setdefault("status", {})["phase"] = "Terminating"
    if (
        resource is not PODS
        and not meta.get("finalizers")
        and not (resource is NAMESPACES and new["spec"]["finalizers"])
    ):
        return True
    if "deletionTimestamp" not in meta:
        grace = _grace(old, options) if resource is PODS else 0
        meta["deletionTimestamp"] = stamp(now_s + grace)
        if resource is not NAMESPACES:
            meta["deletionGracePeriodSeconds"] = grace
        if meta.get("generation"):
            meta["generation"] += 1
    elif resource is PODS and options.grace_s is not None and options.grace_s < meta["deletionGracePeriodSeconds"]:
        asked_at = stamped(meta["deletionTimestamp"]) - meta["deletionGracePeriodSeconds"]
        meta["deletionGracePeriodSeconds"] = max(0, options.grace_s)
        meta["deletionTimestamp"] = stamp(asked_at + meta["deletionGracePeriodSeconds"])
    return is_done(resource, new)


def _grace(pod: JsonObject, options: DeleteOptions) -> int:
    """Seconds that a pod has to stop. A pod that never ran, or no longer runs, needs none."""
    spec = pod.get("spec", {})
    grace = options.grace_s if options.grace_s is not None else spec.get("terminationGracePeriodSeconds")
    if not spec.get("nodeName") or pod.get("status", {}).get("phase") in core.FINISHED:
        return 0
    if grace is None:
        return _DEFAULT_GRACE_S
    return 1 if grace < 0 else int(grace)


def _propagate(meta: JsonObject, options: DeleteOptions) -> None:
    """Record what is to become of the dependents: the garbage collector acts on these finalizers."""
    if not options.propagation:
        return
    wanted = {"Orphan": ORPHAN, "Foreground": FOREGROUND}.get(options.propagation)
    kept = [one for one in meta.get("finalizers") or () if one not in (ORPHAN, FOREGROUND) or one == wanted]
    if wanted and wanted not in kept:
        kept.append(wanted)
    if kept:
        meta["finalizers"] = kept
    else:
        meta.pop("finalizers", None)


def is_done(resource: Resource, obj: JsonObject) -> bool:
    """Whether an object that was asked to go has nothing left to wait for."""
    meta = obj["metadata"]
    if "deletionTimestamp" not in meta or meta.get("finalizers") or meta.get("deletionGracePeriodSeconds"):
        return False
    return not (resource is NAMESPACES and obj.get("spec", {}).get("finalizers"))


def set_condition(obj: JsonObject, condition: JsonObject, now: str) -> None:
    """Put a condition into a pod's status, in place of the one of its type; its time moves when its status does."""
    status = obj.setdefault("status", {})
    conditions = list(status.get("conditions") or ())
    types = [one.get("type") for one in conditions]
    at = types.index(condition["type"]) if condition["type"] in types else len(types)
    before = conditions[at] if at < len(conditions) else {}
    since = before.get("lastTransitionTime") if before.get("status") == condition["status"] else None
    conditions[at : at + 1] = [{"lastProbeTime": None, "lastTransitionTime": since or now, **condition}]
    status["conditions"] = conditions


def name_given(resource: Resource, obj: JsonObject) -> None:
    """Raises Refusal (422) for an object with neither name nor generateName."""
    if not obj["metadata"].get("name"):
        raise invalid(
            resource,
            "",
            [errors.required("metadata.name", "name or generateName is required")],
        )
