"""Deployments: ReplicaSets by revision, rolled over from the old template to the new.

Source of behaviour, names, reasons and messages: kubernetes/kubernetes v1.36 pkg/controller/deployment. Rolling back
through the API group extensions (spec.rollbackTo) is left out: kubectl rolls back by patching the template.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tonnage.apiserver.controllers import deployment_status as ds
from tonnage.apiserver.controllers.arithmetic import new_replicas
from tonnage.apiserver.controllers.context import Context
from tonnage.apiserver.controllers.meta import (
    Key,
    annotations_of,
    condition_of,
    controller_of,
    controller_reference,
    controller_uid,
    is_deleting,
    key_of,
    labels_of,
    owners_of,
    selector_of,
    spec_of,
    status_of,
    uid_of,
)
from tonnage.apiserver.controllers.revisions import (
    DESIRED,
    REVISION,
    highest_revision,
    new_set_annotations,
    number_in,
    size_annotations,
)
from tonnage.apiserver.controllers.rollout import Rollout
from tonnage.apiserver.controllers.templates import same_template, template_hash
from tonnage.facts.labels import POD_TEMPLATE_HASH
from tonnage.kube.resources import DEPLOYMENTS, PODS, REPLICA_SETS, Resource
from tonnage.kube.transport import ApiError
from tonnage.kube.verbs import JsonObject
from tonnage.objects.selectors import matches


class Deployments:
    """The Deployment controller. ``pods_alive`` says how many pods of a ReplicaSet have not ended."""

    name = "deployment-controller"

    def __init__(self, context: Context, pods_alive: Callable[[JsonObject], int]) -> None:
        self._context = context
        self._pods_alive = pods_alive

    def changed(self, resource: Resource, old: JsonObject | None, new: JsonObject | None) -> None:
        if resource is DEPLOYMENTS:
            if new is not None:
                self._context.queue.add((self.name, key_of(new)))
        elif resource is REPLICA_SETS:
            self._set_changed(old, new)
        elif resource is PODS and old is not None and new is None:
            found = self._context.cache.find(controller_uid(old))
            if found is not None and found[0] is REPLICA_SETS:
                self._enqueue_owner(found[1], only_recreate=True)

    def sync(self, key: Key) -> None:
        deployment = self._context.cache.get(DEPLOYMENTS, key)
        if deployment is None:
            return
        sets = self._claim(deployment)
        if is_deleting(deployment):
            self._newest(deployment, sets, create=False).write_counts()
            return
        deployment = self._note_pause(deployment)
        if spec_of(deployment).get("paused"):
            rollout = self._newest(deployment, sets, create=False)
            rollout.scale()
            rollout.clean_up()
            rollout.write_counts()
        elif self._is_scaled(deployment, sets):
            rollout = self._newest(deployment, sets, create=False)
            rollout.scale()
            rollout.write_counts()
        elif ds.is_rolling(deployment):
            self._newest(deployment, sets, create=True).roll()
        else:
            self._recreate(deployment, sets)

    def _set_changed(self, old: JsonObject | None, new: JsonObject | None) -> None:
        for obj in (old, new):
            if obj is not None:
                self._enqueue_owner(obj)
        if new is not None and not controller_uid(new) and (old is None or labels_of(old) != labels_of(new)):
            for deployment in self._context.cache.in_namespace_of(DEPLOYMENTS, key_of(new)[0]):
                if matches(selector_of(spec_of(deployment).get("selector")), labels_of(new)):
                    self._context.queue.add((self.name, key_of(deployment)))

    def _enqueue_owner(self, replica_set: JsonObject, *, only_recreate: bool = False) -> None:
        found = self._context.cache.find(controller_uid(replica_set))
        if found is None or found[0] is not DEPLOYMENTS:
            return
        if not only_recreate or not ds.is_rolling(found[1]):
            self._context.queue.add((self.name, key_of(found[1])))

    def _claim(self, deployment: JsonObject) -> list[JsonObject]:
        """The ReplicaSets of a Deployment, after letting go of some and adopting others; oldest first."""
        cache, writer, uid = self._context.cache, self._context.writer, uid_of(deployment)
        selector = selector_of(spec_of(deployment).get("selector"))
        sets = []
        for one in cache.dependents(uid, REPLICA_SETS):
            if controller_uid(one) != uid:
                continue
            if matches(selector, labels_of(one)):
                sets.append(one)
            elif not is_deleting(deployment):
                kept = [owner for owner in owners_of(one) if owner["uid"] != uid]
                writer.patch(REPLICA_SETS, one, {"metadata": {"ownerReferences": kept or None}})
        for one in cache.orphans(REPLICA_SETS, key_of(deployment)[0]):
            if is_deleting(deployment) or is_deleting(one) or controller_of(one):
                continue
            if not matches(selector, labels_of(one)):
                continue
            fresh = writer.read(DEPLOYMENTS, key_of(deployment))
            if fresh is None or uid_of(fresh) != uid or is_deleting(fresh):
                break
            owners = [*owners_of(one), controller_reference(DEPLOYMENTS, deployment)]
            sets.append(writer.patch(REPLICA_SETS, one, {"metadata": {"ownerReferences": owners}}))
        return sorted(sets, key=lambda one: (one["metadata"].get("creationTimestamp", ""), key_of(one)[1]))

    def _note_pause(self, deployment: JsonObject) -> JsonObject:
        """The condition Progressing says that the rollout is paused, or goes on again."""
        current = condition_of(status_of(deployment), "Progressing")
        reason = current.get("reason") if current else None
        paused = bool(spec_of(deployment).get("paused"))
        if ds.deadline_of(deployment) is None or reason == "ProgressDeadlineExceeded":
            return deployment
        if paused == (reason == "DeploymentPaused"):
            return deployment
        text = (
            ("DeploymentPaused", "Deployment is paused") if paused else ("DeploymentResumed", "Deployment is resumed")
        )
        fresh = ds.condition("Progressing", "Unknown", *text, self._context.clock())
        return self._context.writer.put_status(DEPLOYMENTS, deployment, ds.with_condition(status_of(deployment), fresh))

    def _is_scaled(self, deployment: JsonObject, sets: list[JsonObject]) -> bool:
        """Whether somebody changed the size since its ReplicaSets were scaled."""
        known = (number_in(one, DESIRED) for one in sets if int(spec_of(one).get("replicas", 1)) > 0)
        return any(number is not None and number != ds.desired(deployment) for number in known)

    def _recreate(self, deployment: JsonObject, sets: list[JsonObject]) -> None:
        rollout = self._newest(deployment, sets, create=False)
        if rollout.stop_old() or self._old_pods_run(rollout):
            rollout.write_progress()
            return
        if rollout.new is None:
            rollout = self._newest(rollout.deployment, rollout.sets, create=True)
        rollout.finish_recreate()

    def _old_pods_run(self, rollout: Rollout) -> bool:
        return ds.count(rollout.olds, "replicas") > 0 or any(self._pods_alive(one) > 0 for one in rollout.olds)

    def _newest(self, deployment: JsonObject, sets: list[JsonObject], *, create: bool) -> Rollout:
        """The rollout with the ReplicaSet of the newest template, made if need be, and the revisions in order."""
        template = spec_of(deployment).get("template") or {}
        new = next((one for one in sets if same_template(spec_of(one).get("template") or {}, template)), None)
        olds = [one for one in sets if one is not new]
        revision = highest_revision(olds) + 1
        if new is not None:
            new = self._annotate(deployment, new, revision)
            first = condition_of(status_of(deployment), "Progressing") is None
            reason = ("FoundNewReplicaSet", f'Found new replica set "{key_of(new)[1]}"') if first else None
            deployment = self._note(deployment, annotations_of(new).get(REVISION, ""), reason)
        elif create:
            new, made = self._create(deployment, olds, revision)
            reason = ("NewReplicaSetCreated", f'Created new replica set "{key_of(new)[1]}"') if made else None
            deployment = self._note(deployment, str(revision), reason)
        return Rollout(self._context, self.name, deployment, new, olds)

    def _annotate(self, deployment: JsonObject, new: JsonObject, revision: int) -> JsonObject:
        before = annotations_of(new)
        annotations = new_set_annotations(deployment, before, revision)
        min_ready = int(spec_of(deployment).get("minReadySeconds") or 0)
        if annotations == before and int(spec_of(new).get("minReadySeconds") or 0) == min_ready:
            return new
        patch: dict[str, Any] = {"metadata": {"annotations": annotations}}
        if int(spec_of(new).get("minReadySeconds") or 0) != min_ready:
            patch["spec"] = {"minReadySeconds": min_ready}
        return self._context.writer.patch(REPLICA_SETS, new, patch)

    def _note(
        self, deployment: JsonObject, revision: str, reason: tuple[str, str] | None, status: str = "True"
    ) -> JsonObject:
        """Write the revision, and why the rollout progresses (reason and message), in one go.

        A status update may change a Deployment's annotations without a new generation; where a server does not take
        them, they are patched.
        """
        noted = deployment
        if annotations_of(deployment).get(REVISION) != revision:
            annotations = {**annotations_of(deployment), REVISION: revision}
            noted = {**noted, "metadata": {**noted["metadata"], "annotations": annotations}}
        if reason is not None and ds.deadline_of(deployment) is not None:
            fresh = ds.condition("Progressing", status, *reason, self._context.clock())
            noted = {**noted, "status": ds.with_condition(status_of(deployment), fresh)}
        if noted is deployment:
            return deployment
        written = self._context.writer.put(DEPLOYMENTS, noted, "status")
        if annotations_of(written).get(REVISION) == revision:
            return written
        return self._context.writer.patch(DEPLOYMENTS, written, {"metadata": {"annotations": {REVISION: revision}}})

    def _create(self, deployment: JsonObject, olds: list[JsonObject], revision: int) -> tuple[JsonObject, bool]:
        """The ReplicaSet of the newest template, and whether it was made just now."""
        body = self._new_set(deployment, olds, revision)
        name, count = key_of(body)[1], body["spec"]["replicas"]
        try:
            made = self._context.writer.create(REPLICA_SETS, body)
        except ApiError as error:
            if error.reason == "AlreadyExists":
                return self._existing(deployment, key_of(body), error), False
            if "being terminated" not in error.message:
                message = f'Failed to create new replica set "{name}": {error.message}'
                self._context.recorder.event(
                    self.name, DEPLOYMENTS, deployment, "ReplicaSetCreateError", message, "Warning"
                )
                known = annotations_of(deployment).get(REVISION, "")
                self._note(deployment, known, ("ReplicaSetCreateError", message), status="False")
            raise
        if count > 0:
            message = f"Scaled up replica set {name} from 0 to {count}"
            self._context.recorder.event(self.name, DEPLOYMENTS, deployment, "ScalingReplicaSet", message)
        return made, True

    def _new_set(self, deployment: JsonObject, olds: list[JsonObject], revision: int) -> JsonObject:
        namespace, name = key_of(deployment)
        spec = spec_of(deployment)
        template = dict(spec.get("template") or {})
        value = template_hash(template, status_of(deployment).get("collisionCount"))
        metadata = dict(template.get("metadata") or {})
        labels = {**(metadata.get("labels") or {}), POD_TEMPLATE_HASH: value}
        template["metadata"] = {**metadata, "labels": labels}
        selector = dict(spec.get("selector") or {})
        selector["matchLabels"] = {**(selector.get("matchLabels") or {}), POD_TEMPLATE_HASH: value}
        wanted, surge = ds.desired(deployment), ds.bounds_of(deployment).surge
        count = new_replicas(wanted, surge, ds.asked(olds), 0) if ds.is_rolling(deployment) else wanted
        annotations = new_set_annotations(deployment, {}, revision)
        return {
            "apiVersion": REPLICA_SETS.api_version,
            "kind": REPLICA_SETS.kind,
            "metadata": {
                "name": f"{name[: 253 - 1 - len(value)]}-{value}",
                "namespace": namespace,
                "labels": labels,
                "annotations": {**annotations, **size_annotations(wanted, surge)},
                "ownerReferences": [controller_reference(DEPLOYMENTS, deployment)],
            },
            "spec": {
                "replicas": count,
                "minReadySeconds": int(spec.get("minReadySeconds") or 0),
                "selector": selector,
                "template": template,
            },
        }

    def _existing(self, deployment: JsonObject, key: Key, error: ApiError) -> JsonObject:
        """The ReplicaSet that has the name: ours after all, or one with the same hash by chance."""
        found = self._context.writer.read(REPLICA_SETS, key)
        if found is not None and controller_uid(found) == uid_of(deployment):
            template = spec_of(deployment).get("template") or {}
            if same_template(spec_of(found).get("template") or {}, template):
                return found
        collisions = int(status_of(deployment).get("collisionCount") or 0) + 1
        status = {**status_of(deployment), "collisionCount": collisions}
        self._context.writer.put_status(DEPLOYMENTS, deployment, status)
        raise error
