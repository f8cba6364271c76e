"""ResourceClaims of pods: made from templates, reserved for pods that came without a scheduler, given up when pods end.

Source of the rules: kubernetes/kubernetes v1.36 pkg/controller/resourceclaim/controller.go. Claims of PodGroups (gate
DRAWorkloadResourceClaims, off) are left out.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tonnage.apiserver.controllers.context import Context
from tonnage.apiserver.controllers.meta import (
    Key,
    annotations_of,
    controller_reference,
    controller_uid,
    generated_name,
    is_deleting,
    key_of,
    pod_is_terminal,
    spec_of,
    status_of,
    uid_of,
)
from tonnage.apiserver.lifecycle import LETTERS
from tonnage.fleet.claim_needs import PodClaim, pod_claims
from tonnage.kube.resources import PODS, RESOURCE_CLAIM_TEMPLATES, RESOURCE_CLAIMS, Resource
from tonnage.kube.transport import ApiError
from tonnage.kube.verbs import JsonObject
from tonnage.objects.dra import DELETE_PROTECTION, MOST_CONSUMERS, POD_CLAIM_NAME

_LONGEST = 57
"""Characters of a name before what is drawn."""
_SUFFIX = 5
_POD, _CLAIM = "pod:", "claim:"
"""What the namespace in a key begins with, by what the key stands for."""


class ResourceClaims:
    """The resource claim controller."""

    name = "resource-claim-controller"

    def __init__(self, context: Context) -> None:
        self._context = context

    def changed(self, resource: Resource, old: JsonObject | None, new: JsonObject | None) -> None:
        one = new or old
        assert one is not None
        if resource == RESOURCE_CLAIMS:
            if new is not None:
                self._look_at(_CLAIM, key_of(new))
            for pod in self._users(one):
                self._look_at(_POD, key_of(pod))
        elif resource == RESOURCE_CLAIM_TEMPLATES and new is not None:
            for pod in self._context.cache.in_namespace_of(PODS, key_of(new)[0]):
                if any(claim.template == key_of(new)[1] for claim in _claims(pod)):
                    self._look_at(_POD, key_of(pod))
        elif resource == PODS and (spec_of(one).get("resourceClaims") or _extended(one)):
            if new is None or _is_done(new):
                for name in (*(name for _, name in _names(one)), _extended(one)):
                    if name:
                        self._look_at(_CLAIM, (key_of(one)[0], name))
            else:
                self._look_at(_POD, key_of(new))

    def _look_at(self, what: str, key: Key) -> None:
        self._context.queue.add((self.name, (what + key[0], key[1])))

    def _users(self, claim: JsonObject) -> Iterator[JsonObject]:
        owner = self._context.cache.find(controller_uid(claim))
        if owner is not None:
            if owner[0] == PODS:
                yield owner[1]
            return
        namespace, name = key_of(claim)
        for pod in self._context.cache.in_namespace_of(PODS, namespace):
            if spec_of(pod).get("resourceClaims") and any(one == name for _, one in _names(pod)):
                yield pod

    def sync(self, key: Key) -> None:
        if key[0].startswith(_POD):
            self._sync_pod((key[0].removeprefix(_POD), key[1]))
        else:
            self._sync_claim((key[0].removeprefix(_CLAIM), key[1]))

    # ---- pods ----

    def _sync_pod(self, key: Key) -> None:
        pod = self._context.cache.get(PODS, key)
        if pod is None or is_deleting(pod) or _is_done(pod):
            return
        made = {}
        for claim in _claims(pod):
            if claim.template:
                found = self._claim_for(pod, claim)
                if found is None:
                    return  # the template is waited for
                made[claim.name] = found
        if made and made != dict(_statuses(pod)):
            said = [{"name": name, "resourceClaimName": claim} for name, claim in sorted(made.items())]
            pod = self._context.writer.patch(PODS, pod, {"status": {"resourceClaimStatuses": said}}, "status")
        if spec_of(pod).get("nodeName"):
            self._reserve_all(pod)

    def _claim_for(self, pod: JsonObject, claim: PodClaim) -> str | None:
        """The name of the claim that was made for the pod, or is made now."""
        cache, (namespace, name) = self._context.cache, key_of(pod)
        known = dict(_statuses(pod)).get(claim.name)
        of_pod = cache.dependents(uid_of(pod), RESOURCE_CLAIMS)
        mine = [one for one in of_pod if annotations_of(one).get(POD_CLAIM_NAME) == claim.name]
        if mine:
            return next((key_of(one)[1] for one in mine if key_of(one)[1] == known), key_of(mine[0])[1])
        template = cache.get(RESOURCE_CLAIM_TEMPLATES, (namespace, claim.template))
        if template is None:
            why = f'PodResourceClaim {claim.name}: resource claim template "{claim.template}": not found'
            self._context.recorder.event(self.name, PODS, pod, "FailedResourceClaimCreation", why, "Warning")
            return None
        given = spec_of(template)
        meta = given.get("metadata") or {}
        body: JsonObject = {
            "apiVersion": RESOURCE_CLAIMS.api_version,
            "kind": RESOURCE_CLAIMS.kind,
            "metadata": {
                "name": generated_name(_base(name, claim.name), self._suffix()),
                "namespace": namespace,
                "labels": meta.get("labels") or {},
                "annotations": {**(meta.get("annotations") or {}), POD_CLAIM_NAME: claim.name},
                "ownerReferences": [{**controller_reference(PODS, pod), "blockOwnerDeletion": False}],
            },
            "spec": given.get("spec") or {},
        }
        try:
            return key_of(self._context.writer.create(RESOURCE_CLAIMS, body))[1]
        except ApiError as error:
            why = f"PodResourceClaim {claim.name}: create ResourceClaim: {error.message}"
            self._context.recorder.event(self.name, PODS, pod, "FailedResourceClaimCreation", why, "Warning")
            raise

    def _suffix(self) -> str:
        return "".join(self._context.random.choices(LETTERS, k=_SUFFIX))

    def _reserve_all(self, pod: JsonObject) -> None:
        """Whoever gave the pod its node may have reserved nothing."""
        for _, name in _names(pod):
            claim = self._context.cache.get(RESOURCE_CLAIMS, (key_of(pod)[0], name))
            if claim is None or status_of(claim).get("allocation") is None:
                continue
            consumers = status_of(claim).get("reservedFor") or []
            if len(consumers) < MOST_CONSUMERS and all(one.get("uid") != uid_of(pod) for one in consumers):
                mine = {"resource": "pods", "name": key_of(pod)[1], "uid": uid_of(pod)}
                status = {**status_of(claim), "reservedFor": [*consumers, mine]}
                self._context.writer.put_status(RESOURCE_CLAIMS, claim, status)

    # ---- claims ----

    def _sync_claim(self, key: Key) -> None:
        claim = self._context.cache.get(RESOURCE_CLAIMS, key)
        if claim is None:
            return
        writer = self._context.writer
        before = status_of(claim).get("reservedFor") or []
        left = [one for one in before if self._still_needs(key[0], one)]
        unused = not left and (len(left) < len(before) or is_deleting(claim))
        if len(left) < len(before) or (unused and status_of(claim).get("allocation") is not None):
            status = {**status_of(claim), "reservedFor": left}
            if unused:
                status.pop("allocation", None)
            claim = writer.put_status(RESOURCE_CLAIMS, claim, status)
        finalizers = claim["metadata"].get("finalizers") or []
        if unused and DELETE_PROTECTION in finalizers and status_of(claim).get("allocation") is None:
            rest = [one for one in finalizers if one != DELETE_PROTECTION]
            claim = writer.put(RESOURCE_CLAIMS, {**claim, "metadata": {**claim["metadata"], "finalizers": rest}})
        if self._is_of_done_pod(claim) and not is_deleting(claim):
            writer.delete(RESOURCE_CLAIMS, claim)

    def _still_needs(self, namespace: str, consumer: dict[str, Any]) -> bool:
        """Whether it still needs the claim: a pod that has not ended, or what is not known here."""
        if consumer.get("apiGroup") or consumer.get("resource") != "pods":
            return True
        pod = self._context.cache.get(PODS, (namespace, consumer.get("name", "")))
        if pod is None and not self._context.cache.is_gone(consumer.get("uid", "")):
            pod = self._context.writer.read(PODS, (namespace, consumer.get("name", "")))
        return pod is not None and uid_of(pod) == consumer.get("uid") and not _is_done(pod)

    def _is_of_done_pod(self, claim: JsonObject) -> bool:
        """Whether it was made for a pod that has ended and has no users; that of a pod that is gone goes with it."""
        if status_of(claim).get("reservedFor"):
            return False
        found = self._context.cache.find(controller_uid(claim))
        return found is not None and found[0] == PODS and _is_done(found[1])


def _claims(pod: JsonObject) -> list[PodClaim]:
    return list(pod_claims(spec_of(pod).get("resourceClaims") or ()))


def _statuses(pod: JsonObject) -> Iterator[tuple[str, str]]:
    for one in status_of(pod).get("resourceClaimStatuses") or ():
        yield one.get("name", ""), one.get("resourceClaimName") or ""


def _names(pod: JsonObject) -> Iterator[tuple[PodClaim, str]]:
    """Each claim of the pod with its name; empty where it is not made yet."""
    made = dict(_statuses(pod))
    for one in _claims(pod):
        yield one, one.claim or made.get(one.name, "")


def _extended(pod: JsonObject) -> str:
    """The name of the claim that a scheduler made for the pod's extended resources; empty: there is none."""
    return str((status_of(pod).get("extendedResourceClaimStatus") or {}).get("resourceClaimName", ""))


def _is_done(pod: JsonObject) -> bool:
    """Whether it runs no more, nor ever will."""
    return pod_is_terminal(pod) or (is_deleting(pod) and not spec_of(pod).get("nodeName"))


def _base(pod: str, claim: str) -> str:
    """What names of claims of the pod begin with; of long names as much of each as its part in both."""
    whole = f"{pod}-{claim}-"
    if len(whole) <= _LONGEST:
        return whole
    return f"{pod[: len(pod) * _LONGEST // len(whole)]}-{claim[: len(claim) * _LONGEST // len(whole)]}"
