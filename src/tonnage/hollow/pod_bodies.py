"""Pods as their controllers write them: from the template of their workload, owned by it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from copy import deepcopy
from typing import Any

import msgspec

from tonnage.kube.verbs import JsonObject
from tonnage.objects import core
from tonnage.objects.decode import without_nulls
from tonnage.objects.templates import mappings


def owner_reference(owner: JsonObject) -> JsonObject:
    """As its controller writes it on what it makes."""
    meta = owner["metadata"]
    named = {"apiVersion": owner["apiVersion"], "kind": owner["kind"], "name": meta["name"], "uid": meta["uid"]}
    return {**named, "controller": True, "blockOwnerDeletion": True}


def written_spec(spec: core.PodSpec, body: Mapping[str, Any]) -> JsonObject:
    """The spec of a pod, with all that its workload's template says beyond what is read here.

    The restart policy is the controller's; priorities follow from the class."""
    wanted = _without_admission(spec)
    found = next((raw for raw in _templates(body) if _read(raw) == wanted), None)
    if found is None:
        made: JsonObject = msgspec.to_builtins(spec)
        for admitted in ("priority", "preemptionPolicy"):
            made.pop(admitted, None)
    else:
        made = deepcopy(found)
    if spec.restart_policy != "Always" or "restartPolicy" in made:
        made["restartPolicy"] = spec.restart_policy
    return made


def _templates(value: Any) -> Iterator[JsonObject]:
    """Everything in an object that looks like the spec of a pod."""
    return (one for one in mappings(value) if isinstance(one.get("containers"), list))


def _read(raw: JsonObject) -> core.PodSpec | None:
    try:
        return _without_admission(msgspec.convert(without_nulls(raw), core.PodSpec))
    except msgspec.ValidationError:
        return None


def _without_admission(spec: core.PodSpec) -> core.PodSpec:
    """What of a spec neither a controller nor admission sets."""
    return msgspec.structs.replace(spec, restart_policy="", priority=None, preemption_policy="")


def job_labels(owner: JsonObject) -> dict[str, str]:
    """Of a Job: the labels by which it knows its pods."""
    if (owner["apiVersion"], owner["kind"]) != ("batch/v1", "Job"):
        return {}
    found: dict[str, str] = owner["spec"]["template"].get("metadata", {}).get("labels") or {}
    return dict(found)
