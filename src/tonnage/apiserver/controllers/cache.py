"""What the controllers know of the API's objects, with the indexes they ask for.

One thread owns it. Objects are never changed in place: a new version replaces the old one.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from typing import TypeVar

from tonnage.apiserver.controllers.meta import (
    Key,
    controller_uid,
    is_deleting,
    key_of,
    labels_of,
    owners_of,
    spec_of,
    uid_of,
    version_of,
)
from tonnage.kube.resources import PODS, Resource
from tonnage.kube.verbs import JsonObject

_GONE_KEPT = 100_000
_K = TypeVar("_K")


class ObjectCache:
    """Objects by kind and key, by uid, by owner, by node, by namespace; each update costs a constant."""

    def __init__(self) -> None:
        self._objects: dict[tuple[str, str], dict[Key, JsonObject]] = {}
        self._where: dict[str, tuple[Resource, Key]] = {}
        self._dependents: dict[str, dict[str, None]] = {}
        self._orphans: dict[tuple[str, str], dict[str, None]] = {}
        self._on_node: dict[str, dict[str, None]] = {}
        self._in_namespace: dict[str, dict[str, None]] = {}
        self._asked: dict[str, str] = {}
        self._gone: OrderedDict[str, None] = OrderedDict()

    def put(self, resource: Resource, obj: JsonObject) -> tuple[JsonObject | None, JsonObject] | None:
        """Take in a version of an object: (before, now), or None when it is no news.

        A replacement under the same name (another uid) shows as (before, now) too; callers see two uids.
        """
        uid = uid_of(obj)
        if uid in self._gone:
            return None
        obj = self._with_asked(uid, obj)
        kind = self._objects.setdefault(_kind(resource), {})
        key = key_of(obj)
        old = kind.get(key)
        if old is not None and uid_of(old) == uid and version_of(old) >= version_of(obj):
            if version_of(old) == version_of(obj) and is_deleting(old) == is_deleting(obj):
                kind[key] = obj  # the same version: share the sender's memory
            return None
        if old is not None:
            self._unindex(resource, old)
            if uid_of(old) != uid:
                self._note_gone(uid_of(old))
        kind[key] = obj
        self._index(resource, key, obj)
        return old, obj

    def remove(self, resource: Resource, key: Key, uid: str) -> JsonObject | None:
        """Forget an object; the last version known, or None when it was not known."""
        if uid:
            self._note_gone(uid)
        old = self._objects.get(_kind(resource), {}).get(key)
        if old is None or (uid and uid_of(old) != uid):
            return None
        self._note_gone(uid_of(old))
        del self._objects[_kind(resource)][key]
        self._unindex(resource, old)
        return old

    def ask(self, resource: Resource, obj: JsonObject, when: str) -> tuple[JsonObject, JsonObject] | None:
        """Note that the API agreed to delete an object: it counts as being deleted, whatever older news still come.

        (before, now), or None when it is gone or known to be deleting already.
        """
        kind, key, uid = self._objects.get(_kind(resource), {}), key_of(obj), uid_of(obj)
        old = kind.get(key)
        if old is None or uid_of(old) != uid or is_deleting(old):
            return None
        self._asked[uid] = when
        kind[key] = self._with_asked(uid, old)
        return old, kind[key]

    def get(self, resource: Resource, key: Key) -> JsonObject | None:
        """The object of this namespace and name."""
        return self._objects.get(_kind(resource), {}).get(key)

    def find(self, uid: str) -> tuple[Resource, JsonObject] | None:
        """The object of this uid, with its resource."""
        found = self._where.get(uid)
        if found is None:
            return None
        resource, key = found
        return resource, self._objects[_kind(resource)][key]

    def all(self, resource: Resource) -> list[JsonObject]:
        """All objects of a kind, in the order in which they became known."""
        return list(self._objects.get(_kind(resource), {}).values())

    def everything(self) -> list[tuple[Resource, JsonObject]]:
        """All objects, each with its resource."""
        return [(resource, self._objects[_kind(resource)][key]) for resource, key in self._where.values()]

    def is_gone(self, uid: str) -> bool:
        """Whether an object of this uid was seen to go."""
        return uid in self._gone

    def dependents(self, owner_uid: str, resource: Resource | None = None) -> list[JsonObject]:
        """The objects that name this owner, of one kind or of all."""
        return [obj for found, obj in self.dependents_with_kind(owner_uid) if resource is None or found is resource]

    def dependents_with_kind(self, owner_uid: str) -> Iterator[tuple[Resource, JsonObject]]:
        """The objects that name this owner, each with its resource."""
        for uid in list(self._dependents.get(owner_uid, ())):
            found = self.find(uid)
            if found is not None:
                yield found

    def has_dependents(self, owner_uid: str) -> bool:
        """Whether any object names this owner."""
        return bool(self._dependents.get(owner_uid))

    def orphans(self, resource: Resource, namespace: str) -> list[JsonObject]:
        """The objects of a kind in a namespace that nobody controls."""
        found = (self.find(uid) for uid in list(self._orphans.get((resource.kind, namespace), ())))
        return [entry[1] for entry in found if entry is not None]

    def pods_on(self, node: str) -> list[JsonObject]:
        """The pods bound to a node."""
        found = (self.find(uid) for uid in list(self._on_node.get(node, ())))
        return [entry[1] for entry in found if entry is not None]

    def in_namespace(self, namespace: str) -> list[tuple[Resource, JsonObject]]:
        """Everything in a namespace, each with its resource."""
        found = (self.find(uid) for uid in list(self._in_namespace.get(namespace, ())))
        return [entry for entry in found if entry is not None]

    def in_namespace_of(self, resource: Resource, namespace: str) -> list[JsonObject]:
        """The objects of one kind in a namespace."""
        return [obj for key, obj in self._objects.get(_kind(resource), {}).items() if key[0] == namespace]

    def _with_asked(self, uid: str, obj: JsonObject) -> JsonObject:
        if uid not in self._asked:
            return obj
        if is_deleting(obj):
            del self._asked[uid]
            return obj
        return {**obj, "metadata": {**obj["metadata"], "deletionTimestamp": self._asked[uid]}}

    def _note_gone(self, uid: str) -> None:
        self._asked.pop(uid, None)
        self._gone[uid] = None
        if len(self._gone) > _GONE_KEPT:
            self._gone.popitem(last=False)

    def _index(self, resource: Resource, key: Key, obj: JsonObject) -> None:
        uid = uid_of(obj)
        self._where[uid] = resource, key
        for owner in owners_of(obj):
            self._dependents.setdefault(owner["uid"], {})[uid] = None
        if key[0]:
            self._in_namespace.setdefault(key[0], {})[uid] = None
            if labels_of(obj) and not controller_uid(obj):
                self._orphans.setdefault((resource.kind, key[0]), {})[uid] = None
        if resource is PODS and (node := spec_of(obj).get("nodeName")):
            self._on_node.setdefault(node, {})[uid] = None

    def _unindex(self, resource: Resource, obj: JsonObject) -> None:
        uid, namespace = uid_of(obj), key_of(obj)[0]
        self._where.pop(uid, None)
        for owner in owners_of(obj):
            _drop(self._dependents, owner["uid"], uid)
        if namespace:
            _drop(self._in_namespace, namespace, uid)
            _drop(self._orphans, (resource.kind, namespace), uid)
        if resource is PODS and (node := spec_of(obj).get("nodeName")):
            _drop(self._on_node, node, uid)


def _kind(resource: Resource) -> tuple[str, str]:
    """A CRD may define a kind whose name another group has too."""
    return resource.group, resource.kind


def _drop(index: dict[_K, dict[str, None]], key: _K, uid: str) -> None:
    entries = index.get(key)
    if entries is None:
        return
    entries.pop(uid, None)
    if not entries:
        del index[key]
