"""ReplicaSets: as many pods as asked for, adopted or made, and the status that says so.

Source of behaviour, messages and numbers: kubernetes/kubernetes v1.36 pkg/controller/replicaset (burst of 500 pods a
round) and pkg/controller/controller_utils.go.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from tonnage.apiserver.controllers import pods as pod_control
from tonnage.apiserver.controllers.context import Context
from tonnage.apiserver.controllers.meta import (
    Key,
    annotations_of,
    condition_of,
    controller_of,
    controller_reference,
    controller_uid,
    generation_of,
    is_deleting,
    key_of,
    labels_of,
    owners_of,
    pod_is_active,
    pod_ready_since,
    seconds_of,
    selector_of,
    spec_of,
    stamp,
    status_of,
    uid_of,
)
from tonnage.apiserver.controllers.tally import PodTally, Terms
from tonnage.kube.resources import PODS, REPLICA_SETS, Resource
from tonnage.kube.transport import ApiError
from tonnage.kube.verbs import JsonObject
from tonnage.objects.base import POD_DELETION_COST
from tonnage.objects.core import LabelSelector
from tonnage.objects.selectors import matches
from tonnage.scaling.removal import RemovalCandidate, removal_order

BURST = 500
"""Pods made or deleted for one ReplicaSet before others get their turn."""


class ReplicaSets:
    """The ReplicaSet controller."""

    name = "replicaset-controller"

    def __init__(self, context: Context) -> None:
        self._context = context
        self._tallies: dict[str, PodTally] = {}
        self._adoptable: dict[str, dict[str, None]] = {}

    def changed(self, resource: Resource, old: JsonObject | None, new: JsonObject | None) -> None:
        if resource is REPLICA_SETS:
            self._set_changed(old, new)
        elif resource is PODS:
            self._pod_changed(old, new)

    def pods_alive(self, replica_set: JsonObject) -> int:
        """Pods of a ReplicaSet that have not ended, those being deleted included."""
        return self._tally(replica_set).alive

    def sync(self, key: Key) -> None:
        replica_set = self._context.cache.get(REPLICA_SETS, key)
        if replica_set is None:
            return
        tally = self._tally(replica_set)
        self._claim(replica_set, tally)
        failure: ApiError | None = None
        if not is_deleting(replica_set):
            try:
                self._manage(replica_set, tally)
            except ApiError as error:
                failure = error
        now = self._context.clock()
        tally.advance(now)
        self._write_status(key, tally, failure)
        due = tally.next_due()
        if due is not None:
            self._context.queue.add_at((self.name, key), due)
        if failure is not None:
            raise failure

    def _set_changed(self, old: JsonObject | None, new: JsonObject | None) -> None:
        if old is not None and (new is None or uid_of(new) != uid_of(old)):
            self._tallies.pop(uid_of(old), None)
            self._adoptable.pop(uid_of(old), None)
        if new is None:
            return
        self._enqueue(new)
        if old is None or spec_of(old).get("selector") != spec_of(new).get("selector"):
            selector = selector_of(spec_of(new).get("selector"))
            for pod in self._context.cache.orphans(PODS, key_of(new)[0]):
                if matches(selector, labels_of(pod)):
                    self._adoptable.setdefault(uid_of(new), {})[uid_of(pod)] = None

    def _pod_changed(self, old: JsonObject | None, new: JsonObject | None) -> None:
        cache, now = self._context.cache, self._context.clock()
        before = controller_uid(old) if old is not None else ""
        after = controller_uid(new) if new is not None else ""
        if before and old is not None and (before != after or (new is not None and uid_of(new) != uid_of(old))):
            if before in self._tallies:
                self._tallies[before].drop(uid_of(old))
            self._enqueue_uid(before)
        if new is None:
            return
        if after:
            if after in self._tallies:
                self._tallies[after].put(new, now)
            self._enqueue_uid(after)
        elif labels_of(new) and (old is None or before or labels_of(old) != labels_of(new)):
            for replica_set in cache.in_namespace_of(REPLICA_SETS, key_of(new)[0]):
                if matches(selector_of(spec_of(replica_set).get("selector")), labels_of(new)):
                    self._adoptable.setdefault(uid_of(replica_set), {})[uid_of(new)] = None
                    self._enqueue(replica_set)

    def _enqueue(self, replica_set: JsonObject) -> None:
        self._context.queue.add((self.name, key_of(replica_set)))

    def _enqueue_uid(self, uid: str) -> None:
        found = self._context.cache.find(uid)
        if found is not None and found[0] is REPLICA_SETS:
            self._enqueue(found[1])

    def _tally(self, replica_set: JsonObject) -> PodTally:
        spec, uid = spec_of(replica_set), uid_of(replica_set)
        labels = ((spec.get("template") or {}).get("metadata") or {}).get("labels") or {}
        selector = selector_of(spec.get("selector")) or LabelSelector()
        terms = Terms(selector, tuple(sorted(labels.items())), int(spec.get("minReadySeconds") or 0))
        tally = self._tallies.get(uid)
        if tally is None or tally.terms != terms:
            pods = [pod for pod in self._context.cache.dependents(uid, PODS) if controller_uid(pod) == uid]
            tally = self._tallies[uid] = PodTally.of(terms, pods, self._context.clock())
        return tally

    def _claim(self, replica_set: JsonObject, tally: PodTally) -> None:
        """Let go of pods that are not selected any more; adopt those that are and belong to nobody."""
        cache, writer, uid = self._context.cache, self._context.writer, uid_of(replica_set)
        for pod_uid in list(tally.unclaimed):
            found = cache.find(pod_uid)
            if found is not None:
                kept = [owner for owner in owners_of(found[1]) if owner["uid"] != uid]
                writer.patch(PODS, found[1], {"metadata": {"ownerReferences": kept or None}})
        wanted = self._adoptable.pop(uid, {})
        if not wanted or is_deleting(replica_set):
            return
        fresh: JsonObject | None = None
        for pod_uid in wanted:
            found = cache.find(pod_uid)
            if found is None or controller_of(found[1]) or not pod_is_active(found[1]):
                continue
            if not matches(tally.terms.selector, labels_of(found[1])):
                continue
            fresh = fresh or self._context.writer.read(REPLICA_SETS, key_of(replica_set))
            if fresh is None or uid_of(fresh) != uid or is_deleting(fresh):
                return
            owners = [*owners_of(found[1]), controller_reference(REPLICA_SETS, replica_set)]
            writer.patch(PODS, found[1], {"metadata": {"ownerReferences": owners}})

    def _manage(self, replica_set: JsonObject, tally: PodTally) -> None:
        wanted = int(spec_of(replica_set).get("replicas", 1))
        missing = wanted - tally.active
        if abs(missing) > BURST:
            self._enqueue(replica_set)
        if missing > 0:
            template = spec_of(replica_set).get("template") or {}
            for _ in range(min(missing, BURST)):
                if not pod_control.create(self._context, self.name, REPLICA_SETS, replica_set, template):
                    return
        elif missing < 0:
            for pod in self._surplus(replica_set, min(-missing, BURST)):
                pod_control.delete(self._context, self.name, REPLICA_SETS, replica_set, pod)

    def _surplus(self, replica_set: JsonObject, count: int) -> list[JsonObject]:
        """The pods to delete, by Kubernetes' order."""
        cache = self._context.cache
        selector = selector_of(spec_of(replica_set).get("selector"))
        pods = {
            uid_of(pod): pod
            for pod in cache.dependents(uid_of(replica_set), PODS)
            if controller_uid(pod) == uid_of(replica_set) and pod_is_active(pod) and matches(selector, labels_of(pod))
        }
        if count >= len(pods):
            return list(pods.values())
        order = removal_order(map(standing, pods.values()), self._neighbours(replica_set), self._context.clock())
        return [pods[one.uid] for one in order[:count]]

    def _neighbours(self, replica_set: JsonObject) -> Counter[str]:
        """Active pods by node, of this ReplicaSet and of those with the same controller."""
        cache, owner = self._context.cache, controller_uid(replica_set)
        related = [replica_set]
        if owner:
            related = [one for one in cache.dependents(owner, REPLICA_SETS) if controller_uid(one) == owner]
        return Counter(
            spec_of(pod).get("nodeName", "")
            for one in related
            for pod in cache.dependents(uid_of(one), PODS)
            if pod_is_active(pod)
        )

    def _write_status(self, key: Key, tally: PodTally, failure: ApiError | None) -> None:
        replica_set = self._context.cache.get(REPLICA_SETS, key)
        if replica_set is None:
            return
        old = status_of(replica_set)
        status: dict[str, Any] = {"replicas": tally.active}
        for field, count in (
            ("fullyLabeledReplicas", tally.labeled),
            ("readyReplicas", tally.ready),
            ("availableReplicas", tally.available),
        ):
            if count:
                status[field] = count
        status["terminatingReplicas"] = tally.terminating
        conditions = self._conditions(replica_set, tally, failure)
        if conditions:
            status["conditions"] = conditions
        observed = {k: v for k, v in old.items() if k != "observedGeneration" and (v or k in status)}
        generation = generation_of(replica_set)
        if observed == status and old.get("observedGeneration", 0) == generation:
            return
        status["observedGeneration"] = generation
        self._context.writer.put_status(REPLICA_SETS, replica_set, status)

    def _conditions(self, replica_set: JsonObject, tally: PodTally, failure: ApiError | None) -> list[dict[str, Any]]:
        conditions: list[dict[str, Any]] = list(status_of(replica_set).get("conditions") or ())
        known = condition_of(status_of(replica_set), "ReplicaFailure")
        if failure is None:
            return [condition for condition in conditions if condition is not known]
        if known is not None:
            return conditions
        short = tally.active < int(spec_of(replica_set).get("replicas", 1))
        condition = {
            "type": "ReplicaFailure",
            "status": "True",
            "lastTransitionTime": stamp(self._context.clock()),
            "reason": "FailedCreate" if short else "FailedDelete",
            "message": failure.message,
        }
        return [*conditions, condition]


def standing(pod: JsonObject) -> RemovalCandidate:
    """What counts of a pod when one of several has to go."""
    status, spec = status_of(pod), spec_of(pod)
    sidecars = {c.get("name") for c in spec.get("initContainers") or () if c.get("restartPolicy") == "Always"}
    try:
        cost = int(annotations_of(pod).get(POD_DELETION_COST, "0"))
    except ValueError:
        cost = 0
    return RemovalCandidate(
        uid=uid_of(pod),
        node=spec.get("nodeName", ""),
        phase=status.get("phase", "Pending"),
        ready_since=pod_ready_since(pod),
        created=seconds_of(pod["metadata"].get("creationTimestamp")) or 0.0,
        deletion_cost=cost,
        restarts=max((c.get("restartCount", 0) for c in status.get("containerStatuses") or ()), default=0),
        sidecar_restarts=max(
            (c.get("restartCount", 0) for c in status.get("initContainerStatuses") or () if c.get("name") in sidecars),
            default=0,
        ),
    )
