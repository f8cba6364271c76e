"""The embedded Kubernetes API: a request in, an answer or a watch out. It knows neither sockets nor threads.

It serves the resources of :mod:`tonnage.kube.resources` with the verbs of a Kubernetes API server. What it does not
do it refuses by name.
"""

from __future__ import annotations

import base64
import time
from collections.abc import Callable
from random import Random
from typing import Any, TypeAlias

import msgspec

from tonnage.apiserver import (
    beside,
    discovery,
    eviction,
    patches,
    render,
    schema,
    selectors,
    status,
    strategic,
    subresources,
)
from tonnage.apiserver.lifecycle import DeleteOptions
from tonnage.apiserver.request import ApiRequest, Form, Route, WriteOptions, decode, form, route
from tonnage.apiserver.status import StatusError, bad_request, expired
from tonnage.apiserver.store import HISTORY, Store, Stored
from tonnage.apiserver.watch import BOOKMARK_S, TIMEOUT_S, Watch, WatchOptions
from tonnage.apiserver.writes import Writes
from tonnage.kube.resources import NAMESPACES, PRIORITY_CLASSES, SERVICES, Resource
from tonnage.kube.transport import APPLY_PATCH, JSON_PATCH, MERGE_PATCH, STRATEGIC_PATCH, Reply
from tonnage.objects.api import errors

JsonObject: TypeAlias = dict[str, Any]

_PATCHES = (JSON_PATCH, MERGE_PATCH, APPLY_PATCH, STRATEGIC_PATCH)
_FIRST_NAMESPACES = ("default", "kube-node-lease", "kube-public", "kube-system")
_FIRST_CLASSES = {
    "system-cluster-critical": (2_000_000_000, "Used for system critical pods that must run in the cluster."),
    "system-node-critical": (
        2_000_001_000,
        "Used for system critical pods that must not be moved from their current node.",
    ),
}
_DEFAULT_ADDRESS = "10.0.0.1"
_TOO_OLD_TOKEN = (
    "The provided continue parameter is too old to display a consistent list result. "
    "You must start a new list without the continue parameter."
)


class Api:
    """Thread-safe.

    ``clock``: seconds since the epoch, for every time that is written. ``random``: uids and generated names.
    ``history``: how many changes a watch may lie back. ``bookmark_s``: seconds of real time between bookmarks.
    """

    def __init__(
        self,
        *,
        clock: Callable[[], float] = time.time,
        random: Random | None = None,
        history: int = HISTORY,
        bookmark_s: float = BOOKMARK_S,
    ) -> None:
        self.clock = clock
        self.store = Store(history=history)
        self.writes = Writes(self.store, clock, random or Random())
        self._bookmark_s = bookmark_s
        self._bootstrap()

    def _bootstrap(self) -> None:
        """What a kube-apiserver makes when it starts."""
        options = WriteOptions(manager="kube-apiserver")
        for name in _FIRST_NAMESPACES:
            self.writes.create(NAMESPACES, "", {"metadata": {"name": name}}, options)
        for name, (value, description) in _FIRST_CLASSES.items():
            self.writes.create(
                PRIORITY_CLASSES, "", {"metadata": {"name": name}, "value": value, "description": description}, options
            )
        labels = {"component": "apiserver", "provider": "kubernetes"}
        spec = {
            "clusterIP": _DEFAULT_ADDRESS,
            "clusterIPs": [_DEFAULT_ADDRESS],
            "type": "ClusterIP",
            "ports": [{"name": "https", "port": 443, "protocol": "TCP", "targetPort": 6443}],
        }
        service = {"metadata": {"name": "kubernetes", "namespace": "default", "labels": labels}, "spec": spec}
        self.writes.create(SERVICES, "default", service, options)

    def handle(self, request: ApiRequest) -> Reply | Watch:
        """Answer a request; never raises for what a client can do wrong. A watch is the caller's to close."""
        try:
            kinds = self.writes.kinds
            found = discovery.answer(request, kinds) or beside.answer(request, self.store, kinds)
            return found if found is not None else self._resource(request, route(request.path, kinds))
        except StatusError as refusal:
            return refusal.reply(request.warnings)
        except RecursionError:
            return bad_request("the request's body is nested too deeply").reply()

    def compact(self) -> None:
        """Forget all earlier versions, as etcd's compaction does: watches and pages from before are 410."""
        self.store.compact()

    def close(self) -> None:
        """End all watches."""
        self.store.close()

    # ---- verbs ----

    def _resource(self, request: ApiRequest, to: Route) -> Reply | Watch:
        if to.subresource:
            return self._subresource(request, to)
        method = request.method
        if method in ("GET", "HEAD"):
            if not to.name and request.is_set("watch"):
                return self._watch(request, to)
            return self._get(request, to) if to.name else self._list(request, to)
        if method == "POST" and not to.name and (to.namespace or not to.resource.namespaced):
            options = WriteOptions.of(request)
            made = self.writes.create(to.resource, to.namespace, request.decoded(), options)
            return self._one(201, to.resource, made, request, options)
        if method == "PUT" and to.name:
            options = WriteOptions.of(request)
            known = self.store.get(to.resource, to.namespace, to.name) is not None
            put = self.writes.replace(to.resource, to.namespace, to.name, request.decoded(), options)
            return self._one(200 if known else 201, to.resource, put, request, options)
        if method == "PATCH" and to.name:
            return self._patch(request, to)
        if method == "DELETE" and to.name:
            return self._delete(request, to)
        if method == "DELETE" and (to.namespace or not to.resource.namespaced):
            return self._delete_many(request, to)
        raise status.wrong_method()

    def _one(
        self, code: int, resource: Resource, stored: Stored, request: ApiRequest, options: WriteOptions | None = None
    ) -> Reply:
        body = render.one(resource, stored, form(request), self.clock())
        return render.reply(code, body, options.warnings if options else ())

    def _get(self, request: ApiRequest, to: Route) -> Reply:
        wanted = _version(request.query.get("resourceVersion", ""))
        if wanted:
            self._reached(wanted)
        return self._one(200, to.resource, self.writes.read(to.resource, to.namespace, to.name), request)

    # ---- lists ----

    def _list(self, request: ApiRequest, to: Route) -> Reply:
        shape, query = form(request), request.query
        selector = self._selector(request, to)
        limit, after, at = request.number("limit"), "", self._list_version(request)
        if query.get("continue"):
            at, after = _opened(query["continue"])
        try:
            found, version = self._found(to, selector, at)
        except StatusError as refusal:
            if query.get("continue") and refusal.code == 410:
                raise expired(_TOO_OLD_TOKEN) from refusal
            raise
        if after:
            found = [stored for stored in found if stored.key > after]
        more: JsonObject = {}
        if limit and len(found) > limit:
            more["continue"] = _token(version, found[limit - 1].key)
            if not selector:
                more["remainingItemCount"] = len(found) - limit
            found = found[:limit]
        body = render.many(to.resource, found, version, shape, self.clock(), more)
        return render.reply(200, body)

    def _found(self, to: Route, selector: selectors.ObjectSelector, at: int | None) -> tuple[list[Stored], int]:
        name = selector.name()
        if name and at is None and (to.namespace or not to.resource.namespaced):
            with self.store.lock:
                one, version = self.store.get(to.resource, to.namespace, name), self.store.version
            found = [one] if one is not None else []
        else:
            found, version = self.store.items(to.resource, to.namespace, at)
        if selector:
            found = [stored for stored in found if selector.matches(stored.object)]
        return found, version

    def _selector(self, request: ApiRequest, to: Route) -> selectors.ObjectSelector:
        query = request.query
        labels, fields = query.get("labelSelector", ""), query.get("fieldSelector", "")
        return selectors.parse(to.resource, labels, fields, to.namespace)

    def _list_version(self, request: ApiRequest) -> int | None:
        """The version at which a list is asked for; None for the newest. Raises Refusal (400, 410, 504)."""
        text, match = request.query.get("resourceVersion", ""), request.query.get("resourceVersionMatch", "")
        if match not in ("", "Exact", "NotOlderThan"):
            known = ["Exact", "NotOlderThan", ""]
            raise status.bad_options("ListOptions", errors.unsupported("resourceVersionMatch", match, known))
        if match and not text:
            why = "resourceVersionMatch is forbidden unless resourceVersion is provided"
            raise status.bad_options("ListOptions", errors.forbidden("resourceVersionMatch", why))
        version = _version(text)
        if not version:
            return None
        self._reached(version)
        exact = match == "Exact" or (not match and request.query.get("limit", "0") != "0")
        return version if exact else None

    def _reached(self, version: int) -> None:
        if version > self.store.version:
            message = f"Timeout: Too large resource version: {version}, current: {self.store.version}"
            cause = {"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}
            raise StatusError(504, "Timeout", message, {"causes": [cause], "retryAfterSeconds": 1})

    # ---- watch ----

    def _watch(self, request: ApiRequest, to: Route) -> Watch:
        query = request.query
        since: int | None = _version(query.get("resourceVersion", "")) or None
        initial = request.is_set("sendInitialEvents")
        if initial and query.get("resourceVersionMatch") != "NotOlderThan":
            why = "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"
            raise status.bad_options("ListOptions", errors.forbidden("resourceVersionMatch", why))
        if since and since > self.store.version:  # of an earlier life of this server
            raise expired(f"too large resource version: {since} ({self.store.version})")
        bookmarks = request.is_set("allowWatchBookmarks")
        options = WatchOptions(
            since=None if initial else since,
            bookmarks=bookmarks,
            initial_end=initial and bookmarks,
            timeout_s=float(request.number("timeoutSeconds") or TIMEOUT_S),
            bookmark_s=self._bookmark_s,
        )
        return Watch(self.store, to.resource, self._selector(request, to), form(request), options, self.clock)

    # ---- patch ----

    def _patch(self, request: ApiRequest, to: Route) -> Reply:
        options = WriteOptions.of(request)
        kind = request.content_type.partition(";")[0].strip()
        self._patch_accepted(kind, to.resource)
        if kind == APPLY_PATCH:
            if not request.query.get("fieldManager"):
                raise status.invalid(
                    to.resource,
                    "",
                    [errors.required("fieldManager", "is required for apply patch")],
                    kind="PatchOptions.meta.k8s.io",
                )
            config = decode(request.body, as_yaml=True)
            stored, made = self.writes.apply(to.resource, to.namespace, to.name, config, options, to.subresource)
            return self._one(201 if made else 200, to.resource, stored, request, options)
        change = _patched(kind, request.body, to.resource.kind)
        stored = self.writes.update(to.resource, to.namespace, to.name, change, options, to.subresource)
        return self._one(200, to.resource, stored, request, options)

    def _patch_accepted(self, kind: str, resource: Resource) -> None:
        accepted = [one for one in _PATCHES if not (resource.custom and one == STRATEGIC_PATCH)]
        if kind not in accepted:
            raise status.unsupported_media()

    # ---- delete ----

    def _delete(self, request: ApiRequest, to: Route) -> Reply:
        options = DeleteOptions.of(request.decoded() if request.body else {}, request.query)
        stored, gone = self.writes.delete(to.resource, to.namespace, to.name, options)
        if gone and to.resource.kind != "Pod":
            return render.reply(200, status.success(to.resource, to.name, stored.object["metadata"]["uid"]))
        return self._one(200, to.resource, stored, request)

    def _delete_many(self, request: ApiRequest, to: Route) -> Reply:
        options = DeleteOptions.of(request.decoded() if request.body else {}, request.query)
        found, version = self._found(to, self._selector(request, to), None)
        deleted = []
        for stored in found:
            meta = stored.object["metadata"]
            try:
                self.writes.delete(to.resource, meta.get("namespace", ""), meta["name"], options)
            except StatusError as refusal:
                if refusal.code != 404:
                    raise
            else:
                deleted.append(stored)
        return render.reply(200, render.many(to.resource, deleted, version, Form(), self.clock()))

    # ---- subresources ----

    def _subresource(self, request: ApiRequest, to: Route) -> Reply:
        method, options = request.method, WriteOptions.of(request)
        if to.subresource in ("binding", "eviction"):
            if method != "POST":
                raise status.wrong_method()
            act = subresources.bind if to.subresource == "binding" else eviction.evict
            act(self.writes, to.namespace, to.name, request.decoded(), options)
            return render.reply(201, status.created())
        if to.subresource == "scale":
            return self._scale(request, to, options)
        if method == "GET":
            return self._get(request, to)
        if method == "PUT":
            stored = self.writes.replace(to.resource, to.namespace, to.name, request.decoded(), options, to.subresource)
            return self._one(200, to.resource, stored, request, options)
        if method == "PATCH" and to.subresource == "status":
            return self._patch(request, to)
        raise status.wrong_method()

    def _scale(self, request: ApiRequest, to: Route, options: WriteOptions) -> Reply:
        if request.method == "GET":
            stored = self.writes.read(to.resource, to.namespace, to.name)
            return render.reply(200, subresources.stored_scale(to.resource, stored).raw)
        change: Callable[[JsonObject], JsonObject]
        if request.method == "PUT":
            body = request.decoded()

            def change(_: JsonObject) -> JsonObject:
                return body
        elif request.method == "PATCH":
            kind = request.content_type.partition(";")[0].strip()
            accepted = [one for one in _PATCHES if one != APPLY_PATCH]
            if kind not in accepted:
                raise status.unsupported_media()
            change = _patched(kind, request.body, "Scale")
        else:
            raise status.wrong_method()
        stored = subresources.update_scale(self.writes, to.resource, to.namespace, to.name, change, options)
        return render.reply(200, stored.raw, options.warnings)


def _patched(kind: str, body: bytes, of: str) -> Callable[[JsonObject], JsonObject]:
    """What makes the patched object of an object."""
    try:
        patch = msgspec.json.decode(body)
    except msgspec.DecodeError as error:
        raise bad_request(f"error decoding patch: {error}") from error
    if kind != JSON_PATCH and not isinstance(patch, dict):
        raise bad_request("error decoding patch: the patch must be a JSON object")

    def change(obj: JsonObject) -> JsonObject:
        try:
            if kind == JSON_PATCH:
                found: Any = patches.apply_json_patch(obj, patch)
            elif kind == MERGE_PATCH:
                found = patches.merge(obj, patch)
            else:
                found = strategic.merge(schema.root(of), obj, patch)
        except patches.PatchRefused as refused:
            text = "the server rejected our request due to an error in our request"
            raise StatusError(422, "Invalid", text, {}) from refused
        except patches.PatchError as error:
            raise StatusError(
                400 if kind == JSON_PATCH else 500, "BadRequest" if kind == JSON_PATCH else "", str(error)
            ) from error
        if not isinstance(found, dict):
            raise bad_request("the patch does not leave an object")
        return msgspec.json.decode(msgspec.json.encode(found))  # type: ignore[no-any-return]

    return change


def _version(text: str) -> int:
    """A resourceVersion of a query; 0 for none or any. Raises Refusal (400)."""
    if text and not text.isdigit():
        raise bad_request(f"resourceVersion: Invalid value: {text!r}: expected a whole number")
    return int(text or 0)


def _token(version: int, key: str) -> str:
    return base64.urlsafe_b64encode(msgspec.json.encode([version, key])).decode().rstrip("=")


def _opened(token: str) -> tuple[int, str]:
    """(version, last key) of a continue token. Raises Refusal (400)."""
    try:
        raw = base64.urlsafe_b64decode(token + "=" * (-len(token) % 4))
        return msgspec.json.decode(raw, type=tuple[int, str])
    except (ValueError, msgspec.DecodeError) as error:
        raise bad_request("continue key is not valid") from error
