"""Garbage collection: what is left of owners that are gone, and deletion in the foreground or with orphans.

Source of behaviour: kubernetes/kubernetes v1.36 pkg/controller/garbagecollector.
"""

from __future__ import annotations

from tonnage.apiserver.controllers.context import Context
from tonnage.apiserver.controllers.meta import (
    FOREGROUND,
    ORPHAN,
    Key,
    is_deleting,
    key_of,
    owners_of,
    uid_of,
)
from tonnage.kube import resources
from tonnage.kube.resources import NAMESPACES, Resource
from tonnage.kube.verbs import JsonObject


class Garbage:
    """The garbage collector. Its keys are (empty, uid)."""

    name = "garbage-collector-controller"

    def __init__(self, context: Context) -> None:
        self._context = context

    def changed(self, resource: Resource, old: JsonObject | None, new: JsonObject | None) -> None:
        if resource is NAMESPACES:
            return
        if old is not None and (new is None or uid_of(new) != uid_of(old)):
            self._gone(old)
        if new is None:
            return
        if is_deleting(new):
            if _finalizers(new) & {FOREGROUND, ORPHAN}:
                self._enqueue(uid_of(new))
            if old is None or not is_deleting(old):
                for owner in owners_of(new):
                    self._enqueue_waiting(owner["uid"])
        if owners_of(new) and (old is None or owners_of(old) != owners_of(new)):
            self._enqueue(uid_of(new))
            for owner in owners_of(old) if old is not None else ():
                self._enqueue_waiting(owner["uid"])

    def sync(self, key: Key) -> None:
        found = self._context.cache.find(key[1])
        if found is None:
            return
        resource, obj = found
        if is_deleting(obj):
            if FOREGROUND in _finalizers(obj):
                self._finish_foreground(resource, obj)
            elif ORPHAN in _finalizers(obj):
                self._orphan_dependents(resource, obj)
            return
        if owners_of(obj):
            self._judge(resource, obj)

    def _gone(self, owner: JsonObject) -> None:
        for dependent in self._context.cache.dependents(uid_of(owner)):
            self._enqueue(uid_of(dependent))
        for reference in owners_of(owner):
            self._enqueue_waiting(reference["uid"])

    def _enqueue(self, uid: str) -> None:
        self._context.queue.add((self.name, ("", uid)))

    def _enqueue_waiting(self, owner_uid: str) -> None:
        found = self._context.cache.find(owner_uid)
        if found is not None and is_deleting(found[1]) and FOREGROUND in _finalizers(found[1]):
            self._enqueue(owner_uid)

    def _judge(self, resource: Resource, obj: JsonObject) -> None:
        """Delete an object none of whose owners is left; drop references to owners that are gone or wait for it."""
        solid: list[str] = []
        waiting: list[str] = []
        for reference in owners_of(obj):
            owner = self._owner(obj, reference)
            if owner is None:
                continue
            waits = is_deleting(owner) and FOREGROUND in _finalizers(owner)
            (waiting if waits else solid).append(reference["uid"])
        if solid:
            kept = [reference for reference in owners_of(obj) if reference["uid"] in solid]
            if len(kept) < len(owners_of(obj)):
                self._context.writer.patch(resource, obj, {"metadata": {"ownerReferences": kept}})
            return
        if waiting and self._context.cache.has_dependents(uid_of(obj)):
            self._break_circle(resource, obj)
            propagation = "Foreground"
        else:
            finalizers = _finalizers(obj)
            propagation = (
                "Orphan" if ORPHAN in finalizers else "Foreground" if FOREGROUND in finalizers else "Background"
            )
        obj = self._context.cache.get(resource, key_of(obj)) or obj
        self._context.writer.delete(resource, obj, propagation=propagation, same_version=True)

    def _owner(self, obj: JsonObject, reference: dict[str, str]) -> JsonObject | None:
        """The owner; None when it is certainly gone. An owner of a kind that is not served counts as there."""
        found = self._context.cache.find(reference["uid"])
        if found is not None:
            return found[1]
        if self._context.cache.is_gone(reference["uid"]):
            return None
        resource = resources.by_kind(reference.get("apiVersion", ""), reference.get("kind", ""))
        if resource is None:
            return {"metadata": {"name": reference.get("name", "")}}
        namespace = key_of(obj)[0]
        if resource.namespaced and not namespace:
            return {"metadata": {"name": reference.get("name", "")}}  # not a valid owner: leave it to a person
        owner = self._context.writer.read(resource, (namespace if resource.namespaced else "", reference["name"]))
        return owner if owner is not None and uid_of(owner) == reference["uid"] else None

    def _break_circle(self, resource: Resource, obj: JsonObject) -> None:
        """Where a dependent waits in the foreground too, stop blocking the owners: they may wait for each other."""
        dependents = self._context.cache.dependents(uid_of(obj))
        if any(is_deleting(one) and FOREGROUND in _finalizers(one) for one in dependents):
            freed = [{**reference, "blockOwnerDeletion": False} for reference in owners_of(obj)]
            self._context.writer.patch(resource, obj, {"metadata": {"ownerReferences": freed}})

    def _finish_foreground(self, resource: Resource, owner: JsonObject) -> None:
        """Delete the dependents, then let go of the owner."""
        uid = uid_of(owner)
        blocking = []
        for dependent in self._context.cache.dependents(uid):
            if any(ref["uid"] == uid and ref.get("blockOwnerDeletion") for ref in owners_of(dependent)):
                blocking.append(dependent)
        if not blocking:
            self._remove_finalizer(resource, owner, FOREGROUND)
        for dependent in blocking:
            if not is_deleting(dependent):
                self._enqueue(uid_of(dependent))

    def _orphan_dependents(self, resource: Resource, owner: JsonObject) -> None:
        """Take the owner off its dependents, then let go of it."""
        uid = uid_of(owner)
        for kind, dependent in list(self._context.cache.dependents_with_kind(uid)):
            kept = [reference for reference in owners_of(dependent) if reference["uid"] != uid]
            self._context.writer.patch(kind, dependent, {"metadata": {"ownerReferences": kept or None}})
        self._remove_finalizer(resource, owner, ORPHAN)

    def _remove_finalizer(self, resource: Resource, obj: JsonObject, finalizer: str) -> None:
        kept = [one for one in obj["metadata"].get("finalizers") or () if one != finalizer]
        self._context.writer.patch(resource, obj, {"metadata": {"finalizers": kept or None}})


def _finalizers(obj: JsonObject) -> set[str]:
    return set(obj["metadata"].get("finalizers") or ())
