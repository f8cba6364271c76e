"""Creating, changing and deleting objects: the one way into the store.

Every method works under the store's lock from reading the stored version to writing the next: nothing comes between.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any, TypeAlias

import msgspec

from tonnage.apiserver import admission, admitting_pods, apply, defaults, definitions, lifecycle, ownership, schema
from tonnage.apiserver.kinds import Kinds
from tonnage.apiserver.lifecycle import DeleteOptions
from tonnage.apiserver.ownership import Owner
from tonnage.apiserver.request import WriteOptions
from tonnage.apiserver.status import (
    StatusError,
    already_exists,
    bad_request,
    conflict,
    invalid,
    modified,
    not_found,
    precondition_failed,
    qualified,
)
from tonnage.apiserver.store import Store, Stored, key_of
from tonnage.kube.resources import CRDS, EVENTS, LEASES, NAMESPACES, NODES, PDBS, PODS, VOLUME_CLAIMS, Resource
from tonnage.objects.api import errors
from tonnage.objects.api.canonical import canonical

JsonObject: TypeAlias = dict[str, Any]

EVENT_LIFE_S = 3600.0
"""How long Events are kept, as kube-apiserver's --event-ttl has it."""
_VERSION_REQUIRED = (LEASES, PDBS)  # and all custom resources: no update without a resourceVersion
_MADE_BY_UPDATE = (LEASES, EVENTS)
_WHOLE = ("", "scale")  # what may change more than a status
_ADMITTED = ("overhead", "preemptionPolicy", "priority", "serviceAccount", "serviceAccountName", "tolerations")
_encode = msgspec.json.Encoder().encode


class Writes:
    """``clock``: seconds since the epoch. ``random`` gives uids and generated names."""

    def __init__(self, store: Store, clock: Callable[[], float], random: Random) -> None:
        self.store, self.clock, self.random = store, clock, random
        self.kinds = Kinds()
        self._classes = admission.priority_classes(store)
        self._events: dict[str, tuple[float, str, str]] = {}

    # ---- create ----

    def create(self, resource: Resource, namespace: str, obj: JsonObject, options: WriteOptions) -> Stored:
        """Make an object (the caller gives it away). Raises Refusal (400, 403, 404, 409, 422)."""
        identify(resource, namespace, obj)
        if obj["metadata"].get("resourceVersion"):
            raise StatusError(500, "", "resourceVersion should not be set on objects to be created")
        self._check_fields(resource, obj, options)
        if resource.custom:
            lifecycle.without_nulls(obj)
        return self._make(resource, namespace, obj, options, ownership.UPDATE)

    def _make(
        self, resource: Resource, namespace: str, obj: JsonObject, options: WriteOptions, operation: str
    ) -> Stored:
        with self.store.lock:
            meta = obj["metadata"]
            if resource.namespaced:
                admission.namespace_open(self.store, resource, namespace, meta.get("name") or "")
            of, given = schema.root(resource.struct), frozenset(obj.get("spec") or ())
            owned = ownership.fields(of, ownership.owned_part(obj))
            lifecycle.born(resource, obj, self.clock(), self.random)
            lifecycle.name_given(resource, obj)
            admitting_pods.prepare(self.store, resource, namespace, obj)
            defaults.apply_defaults(resource, obj, priority_classes=self._classes)
            if resource is VOLUME_CLAIMS:
                admission.set_storage_class(self.store, obj)
            if resource is CRDS:
                definitions.complete(obj, self._now())
            if operation == ownership.UPDATE:
                owned = ownership.fields(of, _made_part(resource, obj, given))
            entry = Owner(options.manager, operation, resource.api_version).entry(owned, self._now())
            causes = defaults.invalid(resource, obj, None)
            if causes:
                raise invalid(resource, meta["name"], causes)
            options.warnings += defaults.warnings(resource, obj)
            admitting_pods.admit(self.store, resource, namespace, obj)
            if self.store.get(resource, namespace, meta["name"]) is not None:
                raise already_exists(resource, meta["name"])
            meta["managedFields"] = [entry]
            return self._put(resource, obj, options)

    # ---- update ----

    def update(
        self,
        resource: Resource,
        namespace: str,
        name: str,
        change: Callable[[JsonObject], JsonObject],
        options: WriteOptions,
        subresource: str = "",
    ) -> Stored:
        """Store what ``change`` makes of a copy of the object. Raises Refusal (400, 404, 409, 422)."""
        with self.store.lock:
            old = self.read(resource, namespace, name)
            new = change(old.fresh())
            if subresource == "status":
                new = {key: new[key] for key in ("apiVersion", "kind", "metadata", "status") if key in new}
            identify(resource, namespace, new)
            if new["metadata"].get("name", name) != name:
                given = new["metadata"]["name"]
                raise bad_request(f"the name of the object ({given}) does not match the name on the URL ({name})")
            self._check_fields(resource, new, options)
            if resource.custom:
                lifecycle.without_nulls(new)
            self._check_versions(resource, old.object, new, name)
            uid, known = new["metadata"].get("uid"), old.object["metadata"]["uid"]
            if uid not in (None, "", known):
                raise invalid(resource, name, [errors.invalid_value("metadata.uid", uid, "field is immutable")])
            return self._replace(resource, old, new, options, subresource)

    def replace(
        self,
        resource: Resource,
        namespace: str,
        name: str,
        obj: JsonObject,
        options: WriteOptions,
        subresource: str = "",
    ) -> Stored:
        """PUT: :meth:`update` to this object; some kinds are made when they are not there."""
        with self.store.lock:
            if (
                resource in _MADE_BY_UPDATE
                and self.store.get(resource, namespace, name) is None
                and not obj.get("metadata", {}).get("resourceVersion")
            ):
                return self.create(resource, namespace, obj, options)

            def put(old: JsonObject) -> JsonObject:
                if not isinstance(obj.get("metadata"), dict) or not obj["metadata"].get("name"):
                    why = f"the name of the object ({name} based on URL) was undeterminable: name must be provided"
                    raise bad_request(why)
                given, known = obj["metadata"].get("uid"), old["metadata"]["uid"]
                if given not in (None, "", known):
                    raise precondition_failed(resource, name, "UID", given, known)
                if (resource.custom or resource in _VERSION_REQUIRED) and not obj["metadata"].get("resourceVersion"):
                    cause = errors.invalid_value("metadata.resourceVersion", 0, "must be specified for an update")
                    raise invalid(resource, name, [cause], kind=qualified(resource))
                return obj

            return self.update(resource, namespace, name, put, options, subresource)

    def server_managed(
        self, resource: Resource, old: Stored, new: JsonObject, options: WriteOptions, *, owned: bool = False
    ) -> Stored:
        """Store a version that the server itself made of ``old``, changing none of its parts: not checked again."""
        return self._finish(resource, old, new, options, "", owned)

    def _replace(
        self,
        resource: Resource,
        old: Stored,
        new: JsonObject,
        options: WriteOptions,
        subresource: str,
        entries: list[JsonObject] | None = None,
    ) -> Stored:
        new = lifecycle.carried_over(resource, old.fresh(), new, subresource)
        spec_finalizers = (new.get("spec") or {}).get("finalizers")
        if entries is not None:
            new["metadata"]["managedFields"] = entries
        if subresource == "status" and resource is not NODES and not resource.custom:
            part = {"status": new.get("status") or {}}
            canonical(part, resource.kind)
            new["status"] = part.get("status", {})
        else:
            defaults.apply_defaults(resource, new)
        if resource is CRDS:
            definitions.complete(new, self._now())
        if resource is NAMESPACES:  # once taken out, its finalizers do not come back
            new["spec"] = {"finalizers": spec_finalizers} if spec_finalizers else {}
        causes = lifecycle.finalizers_not_added(resource, old.object, new)
        if subresource in _WHOLE:
            causes += defaults.invalid(resource, new, old.object)
        if causes:
            raise invalid(resource, new["metadata"]["name"], causes)
        if subresource in _WHOLE:
            options.warnings += defaults.warnings(resource, new)
            lifecycle.changed_generation(resource, old.object, new)
        return self._finish(resource, old, new, options, subresource, entries is None)

    def _finish(
        self, resource: Resource, old: Stored, new: JsonObject, options: WriteOptions, subresource: str, owned: bool
    ) -> Stored:
        """Note the owners, unless that was done; store the version, or remove the object when nothing keeps it."""
        meta = new["metadata"]
        meta["resourceVersion"] = old.object["metadata"]["resourceVersion"]
        if owned:
            owner = Owner(options.manager, ownership.UPDATE, resource.api_version, subresource)
            self._set_owners(
                new,
                ownership.updated(
                    schema.root(resource.struct),
                    _entries(meta, old.object["metadata"]),
                    ownership.owned_part(old.object),
                    ownership.owned_part(new),
                    owner,
                    self._now(),
                ),
            )
        if new == old.object:
            return old
        if lifecycle.is_done(resource, new):
            if options.dry_run:
                return _unstored(resource, new)
            return self.store.remove(resource, meta.get("namespace", ""), meta["name"], new)
        return self._put(resource, new, options)

    # ---- server-side apply ----

    def apply(
        self,
        resource: Resource,
        namespace: str,
        name: str,
        config: JsonObject,
        options: WriteOptions,
        subresource: str = "",
    ) -> tuple[Stored, bool]:
        """(the version stored, whether it is new): create or update by server-side apply. Raises Refusal."""
        given_namespace = "namespace" in (config.get("metadata") or {})
        identify(resource, namespace, config)
        meta = config["metadata"]
        if meta.setdefault("name", name) != name:
            raise bad_request(f"the name of the object ({meta['name']}) does not match the name on the URL ({name})")
        if meta.get("managedFields"):
            raise bad_request("metadata.managedFields must be nil")
        unknown = [] if options.validation == "Strict" else defaults.unknown_fields(resource, config)
        of = schema.root(resource.struct)
        twice = list(ownership.duplicates(of, config))
        wrong = "\n  ".join(("errors:", *twice)) if len(twice) > 1 else "".join(twice)
        if unknown and not resource.custom:
            wrong = "." + unknown[0].partition('"')[2].rstrip('"') + ": field not declared in schema"
        if wrong:
            where = meta["namespace"] if given_namespace else ""
            about = f"({where}/{name}; {resource.group}/{resource.version}, Kind={resource.kind})"
            raise StatusError(500, "", f"failed to create typed patch object {about}: {wrong}")
        self._check_fields(resource, config, options)
        lifecycle.without_nulls(config)
        owner = Owner(options.manager, ownership.APPLY, resource.api_version, subresource)
        with self.store.lock:
            old = self.store.get(resource, namespace, name)
            if old is None:
                if subresource:
                    raise not_found(resource, name)
                if meta.get("uid"):
                    why = f"uid mismatch: the provided object specified uid {meta['uid']}, and no existing object "
                    why += "was found"
                    raise conflict(resource, name, why)
                config.pop("status", None)
                return self._make(resource, namespace, config, options, ownership.APPLY), True
            self._check_versions(resource, old.object, config, name)
            part = ownership.owned_part(config)
            part = {key: value for key, value in part.items() if (key == "status") == (subresource == "status")}
            live = ownership.owned_part(old.fresh())
            entries = old.fresh()["metadata"].get("managedFields") or []
            merged, entries = apply.apply(of, live, entries, part, owner, self._now(), options.force)
            metadata = {**_identity(old.object["metadata"]), **merged.pop("metadata", {})}
            new = {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": metadata, **merged}
            return self._replace(resource, old, new, options, subresource, entries), False

    # ---- delete ----

    def delete(self, resource: Resource, namespace: str, name: str, options: DeleteOptions) -> tuple[Stored, bool]:
        """(the object as it is now, or was last; whether it is gone). Raises Refusal (403, 404, 409)."""
        admission.may_be_deleted(resource, name)
        with self.store.lock:
            old = self.read(resource, namespace, name)
            lifecycle.check_preconditions(resource, old.object, options)
            new = old.fresh()
            gone = lifecycle.deletion_asked(resource, old.object, new, options, self.clock())
            if options.dry_run:
                return _unstored(resource, new), gone
            if gone:
                self._events.pop(old.key, None)
                if resource is CRDS:
                    self.kinds.withdraw(old.object, self.store)
                return self.store.remove(resource, namespace, name, new), True
            if new == old.object:
                return old, False
            return self.store.put(resource, new), False

    # ---- common ----

    def read(self, resource: Resource, namespace: str, name: str) -> Stored:
        """The stored version of an object. Raises Refusal (404)."""
        found = self.store.get(resource, namespace, name)
        if found is None:
            raise not_found(resource, name)
        return found

    def _now(self) -> str:
        return lifecycle.stamp(self.clock())

    def _put(self, resource: Resource, obj: JsonObject, options: WriteOptions) -> Stored:
        if options.dry_run:
            return _unstored(resource, obj)
        stored = self.store.put(resource, obj)
        if resource is EVENTS:
            self._expire_events(stored)
        elif resource is CRDS:
            self.kinds.define(stored.object, self.store)
        return stored

    def _expire_events(self, stored: Stored) -> None:
        now, meta = self.clock(), stored.object["metadata"]
        self._events.pop(stored.key, None)
        self._events[stored.key] = now + EVENT_LIFE_S, meta["namespace"], meta["name"]
        for key, (due, namespace, name) in list(self._events.items()):
            if due > now:
                break
            del self._events[key]
            if self.store.get(EVENTS, namespace, name) is not None:
                self.store.remove(EVENTS, namespace, name)

    def _check_fields(self, resource: Resource, obj: JsonObject, options: WriteOptions) -> None:
        """Drop or refuse fields that the kind does not have, and refuse values of the wrong type."""
        cannot = f'{resource.kind} in version "{resource.version}" cannot be handled as a {resource.kind}: '
        unknown = defaults.unknown_fields(resource, obj) if options.validation == "Strict" else []
        wrong = defaults.wrong_type(resource, obj)
        if wrong:
            raise bad_request(cannot + wrong)
        if unknown:
            raise bad_request(f"{cannot}strict decoding error: {', '.join(unknown)}")
        dropped = defaults.prune(resource, obj)
        if options.validation == "Warn":
            options.warnings += dropped

    def _check_versions(self, resource: Resource, old: JsonObject, new: JsonObject, name: str) -> None:
        if new["metadata"].get("resourceVersion") not in (None, "", old["metadata"]["resourceVersion"]):
            raise modified(resource, name)

    def _set_owners(self, obj: JsonObject, entries: list[JsonObject]) -> None:
        if entries:
            obj["metadata"]["managedFields"] = entries
        else:
            obj["metadata"].pop("managedFields", None)


def identify(resource: Resource, namespace: str, obj: JsonObject) -> None:
    """Complete apiVersion, kind and namespace of what a client sent. Raises Refusal (400) when it is something else."""
    version, kind = obj.setdefault("apiVersion", resource.api_version), obj.setdefault("kind", resource.kind)
    if version != resource.api_version or kind != resource.kind:
        raise bad_request(
            f"the API version in the data ({version}) does not match the expected API version ({resource.api_version})"
            if version != resource.api_version
            else f"the kind in the data ({kind}) does not match the expected kind ({resource.kind})"
        )
    meta = obj.setdefault("metadata", {})
    if not isinstance(meta, dict):
        raise bad_request("metadata must be an object")
    if not resource.namespaced:
        meta.pop("namespace", None)
    elif meta.setdefault("namespace", namespace) != namespace:
        raise bad_request("the namespace of the provided object does not match the namespace sent on the request")


def _made_part(resource: Resource, obj: JsonObject, given: frozenset[str]) -> JsonObject:
    """What of a new object its maker owns: all but the status and what admission added. ``given``: the spec's keys."""
    part = ownership.owned_part(obj)
    part.pop("status", None)
    if resource is PODS:
        part["spec"] = {key: one for key, one in part["spec"].items() if key in given or key not in _ADMITTED}
    return part


def _identity(meta: JsonObject) -> JsonObject:
    kept = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp", "generation")
    return {key: meta[key] for key in kept if key in meta}


def _entries(given: JsonObject, before: JsonObject) -> list[JsonObject]:
    """The managedFields to go on from: those sent (a client may take entries out), else those stored."""
    if "managedFields" not in given:
        return list(before.get("managedFields") or ())
    return [entry for entry in given["managedFields"] or () if entry.get("fieldsV1")]


def _unstored(resource: Resource, obj: JsonObject) -> Stored:
    """A version as it would be stored: the answer of a dry run."""
    meta = obj["metadata"]
    return Stored(key_of(resource, meta.get("namespace", ""), meta["name"]), 0, _encode(obj), obj)
