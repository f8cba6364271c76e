"""Namespaces: a default service account in each, and what is in one goes with it.

Sources: kubernetes/kubernetes v1.36 pkg/controller/serviceaccount and pkg/controller/namespace. The ConfigMap with the
cluster's root certificate and token Secrets are left out: nothing here authenticates with them.
"""

from __future__ import annotations

from tonnage.apiserver.controllers.context import Context
from tonnage.apiserver.controllers.meta import Key, is_deleting, key_of, spec_of
from tonnage.kube.resources import EVENTS, NAMESPACES, SERVICE_ACCOUNTS, Resource
from tonnage.kube.transport import ApiError
from tonnage.kube.verbs import JsonObject
from tonnage.workloads.admission.chain import DEFAULT_ACCOUNT

_FINALIZER = "kubernetes"
_RECHECK_S = 5.0


class Namespaces:
    """The namespace controller: deletes the contents of a namespace that is being deleted, then lets go of it."""

    name = "namespace-controller"

    def __init__(self, context: Context) -> None:
        self._context = context

    def changed(self, resource: Resource, old: JsonObject | None, new: JsonObject | None) -> None:
        if resource is NAMESPACES:
            if new is not None and is_deleting(new):
                self._context.queue.add((self.name, key_of(new)))
            return
        changed = new or old
        namespace = self._context.cache.get(NAMESPACES, ("", key_of(changed)[0])) if changed is not None else None
        if namespace is not None and is_deleting(namespace) and (old is None or new is None):
            self._context.queue.add((self.name, key_of(namespace)))

    def sync(self, key: Key) -> None:
        namespace = self._context.cache.get(NAMESPACES, key)
        if namespace is None or not is_deleting(namespace):
            return
        if _FINALIZER not in (spec_of(namespace).get("finalizers") or ()):
            return
        for resource, obj in self._context.cache.in_namespace(key[1]):
            if not is_deleting(obj):
                self._context.writer.delete(resource, obj, propagation="Background")
        if self._context.cache.in_namespace(key[1]):
            self._context.queue.add_at((self.name, key), self._context.clock() + _RECHECK_S)
            return
        self._context.writer.delete_all(EVENTS, key[1])
        kept = [one for one in spec_of(namespace)["finalizers"] if one != _FINALIZER]
        latest = self._context.cache.get(NAMESPACES, key)
        if latest is not None:
            finalized = {**latest, "spec": {**spec_of(latest), "finalizers": kept}}
            self._context.writer.put(NAMESPACES, finalized, "finalize")


class ServiceAccounts:
    """Every namespace has a service account named default."""

    name = "serviceaccount-controller"

    def __init__(self, context: Context) -> None:
        self._context = context

    def changed(self, resource: Resource, old: JsonObject | None, new: JsonObject | None) -> None:
        if resource is NAMESPACES and new is not None:
            self._context.queue.add((self.name, key_of(new)))
        elif resource is SERVICE_ACCOUNTS and new is None and old is not None and key_of(old)[1] == DEFAULT_ACCOUNT:
            self._context.queue.add((self.name, ("", key_of(old)[0])))

    def sync(self, key: Key) -> None:
        namespace = self._context.cache.get(NAMESPACES, key)
        if namespace is None or is_deleting(namespace):
            return
        if self._context.cache.get(SERVICE_ACCOUNTS, (key[1], DEFAULT_ACCOUNT)) is not None:
            return
        body = {
            "apiVersion": SERVICE_ACCOUNTS.api_version,
            "kind": SERVICE_ACCOUNTS.kind,
            "metadata": {"name": DEFAULT_ACCOUNT, "namespace": key[1]},
        }
        try:
            self._context.writer.create(SERVICE_ACCOUNTS, body)
        except ApiError as error:
            if error.reason != "AlreadyExists":
                raise
            self._context.writer.read(SERVICE_ACCOUNTS, (key[1], DEFAULT_ACCOUNT))
