"""One look at a Deployment: its ReplicaSets are scaled as far as they may be now, and its status is written.

Source of behaviour: kubernetes/kubernetes v1.36 pkg/controller/deployment (rolling.go, recreate.go, sync.go).
"""

from __future__ import annotations

from tonnage.apiserver.controllers import deployment_status as ds
from tonnage.apiserver.controllers.arithmetic import Size, new_replicas, old_sizes, proportional_sizes
from tonnage.apiserver.controllers.context import Context
from tonnage.apiserver.controllers.meta import (
    annotations_of,
    generation_of,
    is_deleting,
    key_of,
    spec_of,
    status_of,
    uid_of,
)
from tonnage.apiserver.controllers.revisions import DESIRED, MOST, number_in, revision_of, size_annotations
from tonnage.kube.resources import DEPLOYMENTS, REPLICA_SETS
from tonnage.kube.verbs import JsonObject


class Rollout:
    """A Deployment, the ReplicaSet of its newest template (None before it is made) and the others, oldest first."""

    def __init__(
        self, context: Context, component: str, deployment: JsonObject, new: JsonObject | None, olds: list[JsonObject]
    ) -> None:
        self.deployment, self.new, self.olds = deployment, new, olds
        self._context, self._component = context, component

    @property
    def sets(self) -> list[JsonObject]:
        """All ReplicaSets."""
        return [*self.olds, *([self.new] if self.new else [])]

    def roll(self) -> None:
        """A step of a rolling update: grow the new one, or else shrink the others, or else tidy up."""
        if self.new is None:
            return
        wanted, limits = ds.desired(self.deployment), ds.bounds_of(self.deployment)
        size = _asked(self.new)
        if size != wanted:
            size = wanted if size > wanted else new_replicas(wanted, limits.surge, ds.asked(self.sets), size)
        if not self._resize(self.new, size) and not self._shrink_old(wanted, limits.unavailable):
            self._clean_up_if_complete()
        self.write_progress()

    def stop_old(self) -> bool:
        """Recreate: scale the old ones to nothing; whether any was still scaled up."""
        resized = [self._resize(one, 0) for one in list(self.olds)]
        return any(resized)

    def finish_recreate(self) -> None:
        """Recreate: scale the new one up, with all old pods gone."""
        if self.new is not None:
            self._resize(self.new, ds.desired(self.deployment))
        self._clean_up_if_complete()
        self.write_progress()

    def scale(self) -> None:
        """Follow a new size: alone, the ReplicaSet in use takes all; in a rollout, each its share."""
        wanted = ds.desired(self.deployment)
        active = [one for one in self.sets if _asked(one) > 0]
        if len(active) <= 1:
            latest = active[0] if active else self.new or (self.olds[-1] if self.olds else None)
            if latest is not None:
                self._resize(latest, wanted)
            return
        if self._is_saturated(wanted):
            self.stop_old()
            return
        if not ds.is_rolling(self.deployment):
            return
        surge = ds.bounds_of(self.deployment).surge
        running = int(status_of(self.deployment).get("replicas") or 0)
        sizes = proportional_sizes(wanted, surge, running, map(_size, active))
        by_name = {key_of(one)[1]: one for one in active}
        for name, size in sizes.items():
            self._resize(by_name[name], size, note_size=True)

    def clean_up(self) -> None:
        """Delete the oldest ReplicaSets beyond the revision history limit."""
        limit = ds.history_limit_of(self.deployment)
        if limit is None:
            return
        alive = [one for one in self.olds if not is_deleting(one)]
        by_revision = sorted(
            alive, key=lambda one: (revision_of(one), one["metadata"].get("creationTimestamp", ""), key_of(one)[1])
        )
        for one in by_revision[: max(0, len(alive) - limit)]:
            status = status_of(one)
            observed = int(status.get("observedGeneration") or 0) >= generation_of(one)
            if not status.get("replicas") and _asked(one) == 0 and observed:
                self._context.writer.delete(REPLICA_SETS, one)

    def write_counts(self) -> None:
        """Write the status outside a rollout."""
        self._write(ds.counted(self.deployment, self.sets, self.new, self._context.clock()))

    def write_progress(self) -> None:
        """Write the status of a rollout, and come back when its deadline has passed."""
        now = self._context.clock()
        status = ds.rolled(self.deployment, self.sets, self.new, now)
        self._write(status)
        due = ds.recheck_at(self.deployment, status)
        if due is not None:
            self._context.queue.add_at((self._component, key_of(self.deployment)), max(due, now + 1))

    def _write(self, status: ds.Status) -> None:
        if not status["conditions"]:
            del status["conditions"]
        old = {field: value for field, value in status_of(self.deployment).items() if value or field in status}
        if old != status:
            self.deployment = self._context.writer.put_status(DEPLOYMENTS, self.deployment, status)

    def _shrink_old(self, wanted: int, unavailable: int) -> bool:
        if self.new is None:
            return False
        sizes = old_sizes(wanted, unavailable, _size(self.new), map(_size, self.olds))
        shrinking = [one for one in self.olds if key_of(one)[1] in sizes]
        resized = [self._resize(one, sizes[key_of(one)[1]]) for one in shrinking]
        return any(resized)

    def _clean_up_if_complete(self) -> None:
        if ds.is_complete(self.deployment, status_of(self.deployment)):
            self.clean_up()

    def _is_saturated(self, wanted: int) -> bool:
        """Whether the new ReplicaSet was made for this size, has it, and all its pods are available."""
        if self.new is None or number_in(self.new, DESIRED) != wanted:
            return False
        return _asked(self.new) == wanted == int(status_of(self.new).get("availableReplicas") or 0)

    def _resize(self, one: JsonObject, size: int, *, note_size: bool = False) -> bool:
        """Scale a ReplicaSet, with its event; whether its size changed. ``note_size``: also if only notes differ."""
        before = _asked(one)
        notes = size_annotations(ds.desired(self.deployment), ds.bounds_of(self.deployment).surge)
        noted = all(annotations_of(one).get(key) == value for key, value in notes.items())
        if size == before and (noted or not note_size):
            return False
        patch: JsonObject = {"metadata": {"annotations": notes}}
        if size != before:
            patch["spec"] = {"replicas": size}
        self._replace(self._context.writer.patch(REPLICA_SETS, one, patch))
        if size == before:
            return False
        direction = "up" if size > before else "down"
        message = f"Scaled {direction} replica set {key_of(one)[1]} from {before} to {size}"
        self._context.recorder.event(self._component, DEPLOYMENTS, self.deployment, "ScalingReplicaSet", message)
        return True

    def _replace(self, changed: JsonObject) -> None:
        if self.new is not None and uid_of(self.new) == uid_of(changed):
            self.new = changed
        self.olds = [changed if uid_of(one) == uid_of(changed) else one for one in self.olds]


def _asked(replica_set: JsonObject) -> int:
    return int(spec_of(replica_set).get("replicas", 1))


def _size(replica_set: JsonObject) -> Size:
    return Size(
        key_of(replica_set)[1],
        _asked(replica_set),
        int(status_of(replica_set).get("availableReplicas") or 0),
        replica_set["metadata"].get("creationTimestamp", ""),
        number_in(replica_set, MOST),
    )
