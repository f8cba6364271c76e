"""Reading objects as JSON dicts: metadata, owners, conditions, times. Nothing here changes its arguments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, TypeAlias

import msgspec

from tonnage.kube.resources import Resource
from tonnage.kube.verbs import JsonObject
from tonnage.objects import core
from tonnage.objects.core import LabelSelector

Key: TypeAlias = tuple[str, str]
"""Namespace (empty for none) and name."""

FOREGROUND = "foregroundDeletion"
ORPHAN = "orphan"
_EMPTY: dict[str, Any] = {}


def key_of(obj: JsonObject) -> Key:
    """Namespace and name."""
    metadata = obj["metadata"]
    return metadata.get("namespace") or "", metadata["name"]


def uid_of(obj: JsonObject) -> str:
    """The uid; empty before the API gave one."""
    uid: str = obj["metadata"].get("uid", "")
    return uid


def version_of(obj: JsonObject) -> int:
    """The resourceVersion as a number; 0 without one."""
    text = obj["metadata"].get("resourceVersion") or "0"
    return int(text) if text.isdigit() else 0


def generation_of(obj: JsonObject) -> int:
    """metadata.generation; 0 for kinds without one."""
    return int(obj["metadata"].get("generation") or 0)


def labels_of(obj: JsonObject) -> dict[str, str]:
    """metadata.labels."""
    return obj["metadata"].get("labels") or _EMPTY


def annotations_of(obj: JsonObject) -> dict[str, str]:
    """metadata.annotations."""
    return obj["metadata"].get("annotations") or _EMPTY


def spec_of(obj: JsonObject) -> dict[str, Any]:
    """The spec."""
    return obj.get("spec") or _EMPTY


def status_of(obj: JsonObject) -> dict[str, Any]:
    """The status."""
    return obj.get("status") or _EMPTY


def owners_of(obj: JsonObject) -> list[dict[str, Any]]:
    """metadata.ownerReferences."""
    return obj["metadata"].get("ownerReferences") or []


def controller_of(obj: JsonObject) -> dict[str, Any] | None:
    """The owner that controls the object."""
    return next((owner for owner in owners_of(obj) if owner.get("controller")), None)


def controller_uid(obj: JsonObject) -> str:
    """The uid of the owner that controls the object; empty for an orphan."""
    owner = controller_of(obj)
    return owner["uid"] if owner else ""


def is_deleting(obj: JsonObject) -> bool:
    """Whether somebody asked for its deletion."""
    return bool(obj["metadata"].get("deletionTimestamp"))


def controller_reference(resource: Resource, owner: JsonObject) -> dict[str, Any]:
    """The owner reference that a controller puts on what it makes."""
    return {
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }


def condition_of(obj_or_status: Mapping[str, Any], kind: str) -> dict[str, Any] | None:
    """The condition of this type in a status."""
    conditions: Sequence[dict[str, Any]] = obj_or_status.get("conditions") or ()
    return next((condition for condition in conditions if condition.get("type") == kind), None)


def stamp(seconds: float) -> str:
    """RFC 3339 with whole seconds, as metav1.Time is written."""
    return datetime.fromtimestamp(int(seconds), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def stamp_micro(seconds: float) -> str:
    """RFC 3339 with microseconds, as metav1.MicroTime is written."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def seconds_of(text: str | None) -> float | None:
    """Seconds since the epoch of an RFC 3339 time; None for none."""
    return datetime.fromisoformat(text).timestamp() if text else None


def selector_of(raw: Mapping[str, Any] | None) -> LabelSelector | None:
    """A typed selector for :func:`tonnage.objects.selectors.matches`."""
    return None if raw is None else msgspec.convert(raw, LabelSelector)


def pod_ready_since(pod: JsonObject) -> float | None:
    """When the pod became ready; None when it is not. A ready pod without a time counts as ready for ever (0)."""
    condition = condition_of(status_of(pod), "Ready")
    if condition is None or condition.get("status") != "True":
        return None
    return seconds_of(condition.get("lastTransitionTime")) or 0.0


def pod_is_terminal(pod: JsonObject) -> bool:
    """Whether it succeeded or failed."""
    return status_of(pod).get("phase") in core.FINISHED


def pod_is_active(pod: JsonObject) -> bool:
    """Neither ended nor being deleted."""
    return not pod_is_terminal(pod) and not is_deleting(pod)


def pod_is_available(pod: JsonObject, min_ready_s: int, now: float) -> bool:
    """Ready for at least ``min_ready_s`` seconds."""
    since = pod_ready_since(pod)
    return since is not None and (min_ready_s <= 0 or since + min_ready_s <= now)


def generated_name(base: str, suffix: str) -> str:
    """A name as the API server makes it of generateName: at most 63 characters. Source: apiserver storage/names."""
    return base[: 63 - len(suffix)] + suffix
