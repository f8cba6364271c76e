"""Writes of the controllers: guarded by uid and resourceVersion, counted, and known to the cache at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tonnage.apiserver.controllers.meta import Key, key_of, uid_of
from tonnage.kube.resources import Resource
from tonnage.kube.transport import ApiError, LostReply
from tonnage.kube.verbs import Client, JsonObject

_MOVED_ON = (404, 409, 410)


class StaleObject(Exception):
    """The object changed or went meanwhile. The cache has been brought up to date: decide again."""


class Writer:
    """Every method raises Stale when its object moved on, and ClientError when the API says no or is silent."""

    def __init__(
        self,
        client: Client,
        learn: Callable[[Resource, JsonObject], None],
        forget: Callable[[Resource, Key, str], None],
        asked: Callable[[Resource, JsonObject], None],
    ) -> None:
        self.count = 0
        self._client = client
        self._learn, self._forget, self._asked = learn, forget, asked
        self._unsure: dict[tuple[str, Key], Resource] = {}

    def create(self, resource: Resource, body: JsonObject) -> JsonObject:
        """Make an object. ApiError AlreadyExists is the caller's to judge: :meth:`read` the one that stands there."""
        key = key_of(body)
        try:
            made = self._client.create(resource, body, key[0])
        except LostReply:
            self._unsure[resource.kind, key] = resource
            raise
        self.count += 1
        self._learn(resource, made)
        return made

    def put(self, resource: Resource, obj: JsonObject, subresource: str = "") -> JsonObject:
        """Replace an object (or its status) that carries the uid and resourceVersion that were read."""
        return self._change(
            resource, obj, lambda: self._client.replace(resource, obj, key_of(obj)[0], subresource=subresource)
        )

    def put_status(self, resource: Resource, obj: JsonObject, status: dict[str, Any]) -> JsonObject:
        """Replace the status of an object."""
        return self.put(resource, {**obj, "status": status}, "status")

    def patch(self, resource: Resource, obj: JsonObject, patch: JsonObject, subresource: str = "") -> JsonObject:
        """Merge a patch into this version of an object."""
        namespace, name = key_of(obj)
        guard = {"uid": uid_of(obj), "resourceVersion": obj["metadata"]["resourceVersion"]}
        guarded = {**patch, "metadata": {**patch.get("metadata", {}), **guard}}
        return self._change(
            resource,
            obj,
            lambda: self._client.patch(resource, name, guarded, namespace, subresource=subresource),
        )

    def delete(
        self,
        resource: Resource,
        obj: JsonObject,
        *,
        propagation: str = "",
        grace_s: int | None = None,
        same_version: bool = False,
    ) -> None:
        """Delete this object (with ``same_version`` only as it was read). Gone already is fine."""
        key, uid = key_of(obj), uid_of(obj)
        version = obj["metadata"]["resourceVersion"] if same_version else ""
        try:
            self._client.delete(
                resource, key[1], key[0], uid=uid, resource_version=version, grace_s=grace_s, propagation=propagation
            )
        except LostReply:
            self._unsure[resource.kind, key] = resource
            raise
        except ApiError as error:
            if error.code == 404:
                self._forget(resource, key, uid)
                return
            self._reread_if_stale(resource, key, error)
            raise
        self.count += 1
        self._asked(resource, obj)

    def delete_all(self, resource: Resource, namespace: str) -> None:
        """Delete all objects of a kind that the cache does not keep (events)."""
        for obj in self._client.list(resource, namespace):
            try:
                self._client.delete(resource, key_of(obj)[1], namespace, uid=uid_of(obj))
                self.count += 1
            except ApiError as error:
                if error.code not in _MOVED_ON:
                    raise

    def read(self, resource: Resource, key: Key) -> JsonObject | None:
        """The object as it is now, from the API; None when there is none."""
        try:
            found = self._client.get(resource, key[1], key[0])
        except ApiError as error:
            if error.code != 404:
                raise
            self._forget(resource, key, "")
            return None
        self._learn(resource, found)
        return found

    def settle(self) -> None:
        """Find out what became of writes whose answer was lost; nothing else may be decided before."""
        for (kind, key), resource in list(self._unsure.items()):
            self.read(resource, key)
            del self._unsure[kind, key]

    def _change(self, resource: Resource, obj: JsonObject, call: Callable[[], JsonObject]) -> JsonObject:
        key = key_of(obj)
        try:
            changed = call()
        except LostReply:
            self._unsure[resource.kind, key] = resource
            raise
        except ApiError as error:
            self._reread_if_stale(resource, key, error)
            raise
        self.count += 1
        self._learn(resource, changed)
        return changed

    def _reread_if_stale(self, resource: Resource, key: Key, error: ApiError) -> None:
        if error.code in _MOVED_ON:
            self.read(resource, key)
            raise StaleObject(str(error)) from error
