"""ResourceClaims of a pod, written before it is bound: their devices, and that they are reserved for it.

Source: kubernetes/kubernetes v1.36 pkg/scheduler/framework/plugins/dynamicresources (bindClaim, Unreserve).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from tonnage.decisions import Applied, ClaimAllocation, ExtendedClaim, Outcome, Ref, Stale
from tonnage.kube.clock import rfc3339
from tonnage.kube.resources import PODS, RESOURCE_CLAIMS
from tonnage.kube.transport import ApiError
from tonnage.kube.verbs import Client, JsonObject
from tonnage.objects.dra import DELETE_PROTECTION, EXTENDED_CLAIM

TRIES = 5
"""How often a claim is read again that somebody else has written meanwhile."""


def reserve(client: Client, pod: Ref, claim: Ref, given: ClaimAllocation | None, at_ns: int) -> Outcome:
    """Write what the claim is ``given``, as of ``at_ns``, unless it has that already, and reserve it for the pod; one
    for the pod's extended resources is made before, and named in the pod's status after that. Raises ClientError."""
    made = given.extended if given is not None else None
    if made is not None and (refused := _make(client, pod, claim, made)) is not None:
        return refused
    outcome = _reserve(client, pod, claim, given, at_ns)
    if made is not None and isinstance(outcome, Applied):
        mappings = [msgspec.to_builtins(one) for one in made.mappings]
        said = {"extendedResourceClaimStatus": {"resourceClaimName": claim.name, "requestMappings": mappings}}
        client.patch(
            PODS, pod.name, {"metadata": {"uid": pod.uid}, "status": said}, pod.namespace, subresource="status"
        )
    return outcome


def _make(client: Client, pod: Ref, claim: Ref, made: ExtendedClaim) -> Stale | None:
    """Make the claim for extended resources, unless an earlier call has; why not."""
    owner = {"apiVersion": "v1", "kind": "Pod", "name": pod.name, "uid": pod.uid, "controller": True}
    requests = [msgspec.to_builtins(one) for one in made.requests]
    meta = {"name": claim.name, "annotations": {EXTENDED_CLAIM: "true"}, "ownerReferences": [owner]}
    body = {
        "apiVersion": RESOURCE_CLAIMS.api_version,
        "kind": RESOURCE_CLAIMS.kind,
        "metadata": {**meta, "namespace": claim.namespace},
        "spec": {"devices": {"requests": requests}},
    }
    try:
        client.create(RESOURCE_CLAIMS, body, claim.namespace)
    except ApiError as error:
        if error.reason != "AlreadyExists":
            raise
        found = client.get(RESOURCE_CLAIMS, claim.name, claim.namespace)
        asked = [
            (one["name"], one["exactly"]["deviceClassName"], one["exactly"].get("count", 1))
            for one in found["spec"]["devices"].get("requests", ())
            if "exactly" in one
        ]
        wanted = [(one.name, one.exactly.device_class_name, one.exactly.count) for one in made.requests if one.exactly]
        owners = [one.get("uid") for one in found["metadata"].get("ownerReferences", ())]
        if owners != [pod.uid] or asked != wanted:
            return Stale(f"{claim} is there already, and of another pod or for other devices")
    return None


def _reserve(client: Client, pod: Ref, claim: Ref, given: ClaimAllocation | None, at_ns: int) -> Outcome:
    wanted: JsonObject | None = msgspec.to_builtins(given.allocation) if given is not None else None
    if wanted is not None:
        wanted["allocationTimestamp"] = rfc3339(at_ns)

    def change(found: JsonObject) -> Outcome | None:
        if found["metadata"].get("deletionTimestamp"):
            return Stale(f"{claim} is being deleted")
        status = found.setdefault("status", {})
        has = status.get("allocation")
        if has is None and wanted is None:
            return Stale(f"{claim} has no devices any more")
        if has is not None and wanted is not None and _devices(has) != _devices(wanted):
            return Stale(f"{claim} has been allocated otherwise")
        consumers = status.setdefault("reservedFor", [])
        reserved = any(one.get("uid") == pod.uid for one in consumers)
        if has is not None and reserved:
            return Applied()
        if has is None:
            finalizers = found["metadata"].setdefault("finalizers", [])
            if DELETE_PROTECTION not in finalizers:
                finalizers.append(DELETE_PROTECTION)
                found["metadata"] = client.replace(RESOURCE_CLAIMS, found, claim.namespace)["metadata"]
            status["allocation"] = wanted
        if not reserved:
            consumers.append({"resource": "pods", "name": pod.name, "uid": pod.uid})
        return None

    return _changed(client, claim, change)


def release(client: Client, pod: Ref, claim: Ref, given: ClaimAllocation | None) -> Outcome:
    """The claim is not reserved for the pod any more, and has no devices where they were ``given`` with that and
    nobody else has reserved it; one for the pod's extended resources is deleted. Raises ClientError."""
    if given is not None and given.extended is not None:
        return _delete(client, pod, claim)

    def change(found: JsonObject) -> Outcome | None:
        status = found.get("status") or {}
        before = status.get("reservedFor") or []
        status["reservedFor"] = [one for one in before if one.get("uid") != pod.uid]
        has = status.get("allocation")
        mine = (
            given is not None and has is not None and _devices(has) == _devices(msgspec.to_builtins(given.allocation))
        )
        if mine and not status["reservedFor"]:
            status.pop("allocation")
        elif len(status["reservedFor"]) == len(before):
            return Applied()
        return None

    return _changed(client, claim, change)


def _delete(client: Client, pod: Ref, claim: Ref) -> Outcome:
    """Delete the claim that was made for the pod's extended resources. Raises ClientError."""

    def once() -> Outcome:
        found = client.get(RESOURCE_CLAIMS, claim.name, claim.namespace)
        meta = found["metadata"]
        if all(one.get("uid") != pod.uid for one in meta.get("ownerReferences", ())):
            return Stale(f"{claim} is of another pod")
        rest = [one for one in meta.get("finalizers", ()) if one != DELETE_PROTECTION]
        if len(rest) < len(meta.get("finalizers", ())):
            client.replace(RESOURCE_CLAIMS, {**found, "metadata": {**meta, "finalizers": rest}}, claim.namespace)
        client.delete(RESOURCE_CLAIMS, claim.name, claim.namespace, uid=meta["uid"])
        return Applied()

    try:
        return _written(once)
    except ApiError as error:
        if error.code != 404:
            raise
        return Applied()


def _changed(client: Client, claim: Ref, change: Callable[[JsonObject], Outcome | None]) -> Outcome:
    """Write the claim's status as changed, or what the change says. Raises ClientError."""

    def once() -> Outcome:
        found = client.get(RESOURCE_CLAIMS, claim.name, claim.namespace)
        if claim.uid not in ("", found["metadata"].get("uid")):
            return Stale(f"{claim} is gone")
        said = change(found)
        if said is not None:
            return said
        client.replace(RESOURCE_CLAIMS, found, claim.namespace, "status")
        return Applied()

    return _written(once)


def _written(once: Callable[[], Outcome]) -> Outcome:
    """What a read and a write come to, retried where somebody else wrote first. Raises ClientError."""
    for tries in range(TRIES):
        try:
            return once()
        except ApiError as error:
            if error.code != 409 or tries + 1 == TRIES:
                raise
    raise AssertionError("the last try returns or raises")


def is_reserved(client: Client, pod: Ref, claim: Ref) -> bool:
    """Whether the claim has devices and is reserved for the pod. Raises ClientError."""
    status = client.get(RESOURCE_CLAIMS, claim.name, claim.namespace).get("status") or {}
    return status.get("allocation") is not None and any(
        one.get("uid") == pod.uid for one in status.get("reservedFor") or ()
    )


def _devices(allocation: JsonObject) -> list[tuple[Any, ...]]:
    """What tells allocations of a claim apart."""
    names = ("request", "driver", "pool", "device", "shareID")
    return [tuple(one.get(name) for name in names) for one in allocation.get("devices", {}).get("results", ())]
