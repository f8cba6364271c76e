"""StatefulSets: pods with numbers, each with claims of its own, made in order or at once, and the status that says so.

Templates of former revisions are not kept: a pod that is recreated always has the newest, also below a partition.
Claims stay when pods or the set go (persistentVolumeClaimRetentionPolicy is Retain).

Source of behaviour and messages: kubernetes/kubernetes v1.36 pkg/controller/statefulset (stateful_set_control.go,
stateful_pod_control.go).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from copy import deepcopy
from typing import Any
from zlib import crc32

from tonnage.apiserver.controllers.context import Context
from tonnage.apiserver.controllers.meta import (
    Key,
    condition_of,
    controller_reference,
    controller_uid,
    generation_of,
    is_deleting,
    key_of,
    labels_of,
    pod_is_available,
    pod_is_terminal,
    spec_of,
    status_of,
    uid_of,
)
from tonnage.facts.labels import REVISION_HASH
from tonnage.kube.resources import PODS, STATEFUL_SETS, VOLUME_CLAIMS, Resource
from tonnage.kube.transport import ApiError
from tonnage.kube.verbs import JsonObject
from tonnage.workloads import stateful

Pods = Mapping[int, JsonObject]


class StatefulSets:
    """The StatefulSet controller."""

    name = "statefulset-controller"

    def __init__(self, context: Context) -> None:
        self._context = context

    def changed(self, resource: Resource, old: JsonObject | None, new: JsonObject | None) -> None:
        if resource is STATEFUL_SETS and new is not None:
            self._context.queue.add((self.name, key_of(new)))
        elif resource is PODS:
            for pod in (old, new):
                found = self._context.cache.find(controller_uid(pod)) if pod is not None else None
                if found is not None and found[0] is STATEFUL_SETS:
                    self._context.queue.add((self.name, key_of(found[1])))

    def sync(self, key: Key) -> None:
        one = self._context.cache.get(STATEFUL_SETS, key)
        if one is None:
            return
        failure: ApiError | None = None
        if not is_deleting(one):
            try:
                self._manage(one)
            except ApiError as error:
                failure = error
        self._write_status(key)
        if failure is not None:
            raise failure

    def _pods(self, one: JsonObject) -> dict[int, JsonObject]:
        dependents = self._context.cache.dependents(uid_of(one), PODS)
        own = (pod for pod in dependents if controller_uid(pod) == uid_of(one))
        return {stateful.ordinal(key_of(pod)[1]): pod for pod in own}

    def _manage(self, one: JsonObject) -> None:
        pods, spec = self._pods(one), spec_of(one)
        parallel = spec.get("podManagementPolicy") == stateful.PARALLEL
        ended = [pod for pod in pods.values() if pod_is_terminal(pod) and not is_deleting(pod)]
        for pod in ended:
            self._delete(one, pod)
        wanted, now = _wanted(one), self._context.clock()
        least = int(spec.get("minReadySeconds") or 0)
        there = {n: not is_deleting(pod) and pod_is_available(pod, least, now) for n, pod in pods.items()}
        for number in stateful.to_make(wanted, there, parallel=parallel):
            self._create(one, number)
        for number in stateful.to_delete(wanted, there, parallel=parallel):
            if not is_deleting(pods[number]):
                self._delete(one, pods[number])
        if not ended and all(there.get(number, False) for number in wanted) and set(there) == set(wanted):
            self._update(one, pods)
        waiting = [pod for n, pod in pods.items() if least and not there[n] and not is_deleting(pod) and _ready(pod)]
        if waiting:
            self._context.queue.add_at((self.name, key_of(one)), now + least)

    def _update(self, one: JsonObject, pods: Pods) -> None:
        """Delete the last pod that is of an older template, so that it is recreated."""
        strategy = spec_of(one).get("updateStrategy") or {}
        if strategy.get("type") == "OnDelete":
            return
        least = int((strategy.get("rollingUpdate") or {}).get("partition") or 0)
        revision = _revision(one)
        for number in sorted(pods, reverse=True):
            if number >= least and labels_of(pods[number]).get(REVISION_HASH) != revision:
                self._delete(one, pods[number])
                return

    def _create(self, one: JsonObject, number: int) -> None:
        (namespace, name), spec = key_of(one), spec_of(one)
        pod = stateful.pod_name(name, number)
        claims = {
            claim["metadata"]["name"]: stateful.claim_name(claim["metadata"]["name"], pod)
            for claim in spec.get("volumeClaimTemplates") or ()
        }
        template = deepcopy(spec.get("template") or {})
        metadata, inner = template.get("metadata") or {}, template.get("spec") or {}
        if claims:
            inner["volumes"] = stateful.volumes(claims, inner.get("volumes") or ())
        inner["hostname"] = pod
        if spec.get("serviceName"):
            inner["subdomain"] = spec["serviceName"]
        own = {**(metadata.get("labels") or {}), **stateful.labels(name, number), REVISION_HASH: _revision(one)}
        body: JsonObject = {
            "apiVersion": PODS.api_version,
            "kind": PODS.kind,
            "metadata": {
                "name": pod,
                "namespace": namespace,
                "labels": own,
                "ownerReferences": [controller_reference(STATEFUL_SETS, one)],
                **({"annotations": metadata["annotations"]} if metadata.get("annotations") else {}),
            },
            "spec": inner,
        }
        try:
            for claim in spec.get("volumeClaimTemplates") or ():
                self._claim(one, claim, claims[claim["metadata"]["name"]], pod)
            self._context.writer.create(PODS, body)
        except ApiError as error:
            if error.reason == "AlreadyExists" and self._is_own(one, (namespace, pod)):
                return
            self._say(one, "FailedCreate", f"create Pod {pod} in StatefulSet {name} failed error: {error.message}")
            raise
        self._say(one, "SuccessfulCreate", f"create Pod {pod} in StatefulSet {name} successful")

    def _claim(self, one: JsonObject, template: JsonObject, claim: str, pod: str) -> None:
        """Make the claim, unless it is there."""
        (namespace, name), wanted = key_of(one), spec_of(one).get("selector") or {}
        if self._context.writer.read(VOLUME_CLAIMS, (namespace, claim)) is not None:
            return
        metadata = template.get("metadata") or {}
        kept = {part: metadata[part] for part in ("annotations",) if metadata.get(part)}
        labels = {**(metadata.get("labels") or {}), **(wanted.get("matchLabels") or {})}
        body: JsonObject = {
            "apiVersion": VOLUME_CLAIMS.api_version,
            "kind": VOLUME_CLAIMS.kind,
            "metadata": {"name": claim, "namespace": namespace, "labels": labels, **kept},
            "spec": deepcopy(template.get("spec") or {}),
        }
        self._context.writer.create(VOLUME_CLAIMS, body)
        self._say(one, "SuccessfulCreate", f"create Claim {claim} Pod {pod} in StatefulSet {name} success")

    def _delete(self, one: JsonObject, pod: JsonObject) -> None:
        name = key_of(pod)[1]
        self._context.writer.delete(PODS, pod)
        self._say(one, "SuccessfulDelete", f"delete Pod {name} in StatefulSet {key_of(one)[1]} successful")

    def _is_own(self, one: JsonObject, key: Key) -> bool:
        found = self._context.writer.read(PODS, key)
        return found is not None and controller_uid(found) == uid_of(one)

    def _say(self, one: JsonObject, reason: str, message: str) -> None:
        kind = "Warning" if reason.startswith("Failed") else "Normal"
        self._context.recorder.event(self.name, STATEFUL_SETS, one, reason, message, kind)

    def _write_status(self, key: Key) -> None:
        one = self._context.cache.get(STATEFUL_SETS, key)
        if one is None:
            return
        pods = [pod for pod in self._pods(one).values() if not pod_is_terminal(pod)]
        standing = [pod for pod in pods if not is_deleting(pod)]
        revision, least = _revision(one), int(spec_of(one).get("minReadySeconds") or 0)
        updated = sum(labels_of(pod).get(REVISION_HASH) == revision for pod in standing)
        old = status_of(one)
        done = updated == len(standing) and len(standing) >= len(_wanted(one))
        current = revision if done or not old.get("currentRevision") else old["currentRevision"]
        status: dict[str, Any] = {
            "replicas": len(pods),
            "availableReplicas": sum(pod_is_available(pod, least, self._context.clock()) for pod in standing),
            "currentRevision": current,
            "updateRevision": revision,
            "collisionCount": 0,
            "observedGeneration": generation_of(one),
        }
        counts = {
            "readyReplicas": sum(map(_ready, standing)),
            "currentReplicas": sum(labels_of(pod).get(REVISION_HASH) == current for pod in standing),
            "updatedReplicas": updated,
        }
        status |= {name: count for name, count in counts.items() if count}
        if status != {name: old[name] for name in old if name != "conditions"}:
            self._context.writer.put_status(STATEFUL_SETS, one, status)


def _wanted(one: JsonObject) -> range:
    spec = spec_of(one)
    start = int((spec.get("ordinals") or {}).get("start") or 0)
    return range(start, start + int(spec.get("replicas", 1)))


def _ready(pod: JsonObject) -> bool:
    condition = condition_of(status_of(pod), "Ready")
    return condition is not None and condition.get("status") == "True"


def _revision(one: JsonObject) -> str:
    """The name of the template as it is now."""
    text = json.dumps(spec_of(one).get("template") or {}, sort_keys=True)
    return f"{key_of(one)[1]}-{crc32(text.encode()):08x}"
