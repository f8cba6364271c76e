"""The verbs of the Kubernetes API over a transport: typed where it matters, written once for every world."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import msgspec

from tonnage.kube.resources import PODS, Resource
from tonnage.kube.transport import (
    JSON,
    JSON_PATCH,
    MERGE_PATCH,
    Again,
    ApiError,
    ClientError,
    LostReply,
    Overlapping,
    Reply,
    Transport,
)
from tonnage.objects.api import protobuf

JsonObject: TypeAlias = dict[str, Any]
Ended: TypeAlias = Callable[[ClientError | None], None]
"""Told that a request has ended: None when it has worked, else why it has not."""
_encode = msgspec.json.Encoder().encode
_PROTOBUF_FIRST = f"{protobuf.CONTENT_TYPE}, {JSON}"


class ListMeta(msgspec.Struct, frozen=True, rename="camel"):
    """metadata of a list."""

    resource_version: str = ""
    continue_: str = msgspec.field(default="", name="continue")
    remaining_item_count: int | None = None


class Page(msgspec.Struct, frozen=True):
    """One page of a list; items are left undecoded."""

    metadata: ListMeta = ListMeta()
    items: list[msgspec.Raw] | None = None


class Client:
    """The verbs. Every method raises ApiError when the server says no, Unreachable or LostReply when it is silent."""

    def __init__(self, transport: Transport, field_manager: str = "tonnage") -> None:
        self.transport = transport
        self._overlapping = transport if isinstance(transport, Overlapping) else None
        self.field_manager = field_manager
        self._reads_protobuf = True  # until the server says otherwise

    def call(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        query: Mapping[str, str] | None = None,
        content_type: str = JSON,
        timeout_s: float = 30.0,
    ) -> Reply:
        """One request; raises ApiError for a status of 400 or more. ``body`` is encoded unless it is bytes."""
        data = body if isinstance(body, bytes) else b"" if body is None else _encode(body)
        reply = self.transport.request(
            method, path, query=query, body=data, content_type=content_type, timeout_s=timeout_s
        )
        if reply.status >= 400:
            raise ApiError.of(reply)
        return reply

    def get(self, resource: Resource, name: str, namespace: str = "") -> JsonObject:
        """One object."""
        return _object(self.call("GET", resource.path(namespace, name)))

    def page(
        self,
        resource: Resource,
        namespace: str = "",
        *,
        limit: int = 0,
        continue_: str = "",
        label_selector: str = "",
        field_selector: str = "",
        resource_version: str = "",
    ) -> Page:
        """One page of a list (the whole list without a limit), its items undecoded."""
        query = {
            "limit": str(limit) if limit else "",
            "continue": continue_,
            "labelSelector": label_selector,
            "fieldSelector": field_selector,
            "resourceVersion": resource_version,
        }
        reply = self.call("GET", resource.path(namespace), query={k: v for k, v in query.items() if v}, timeout_s=60)
        return msgspec.json.decode(reply.body, type=Page)

    def list(self, resource: Resource, namespace: str = "", **selectors: str) -> list[JsonObject]:
        """All objects, as dicts with apiVersion and kind, which servers leave out of lists; by pages of 500."""
        found: list[JsonObject] = []
        named = {"apiVersion": resource.api_version, "kind": resource.kind}
        after = ""
        while True:
            page = self.page(resource, namespace, limit=500, continue_=after, **selectors)
            found += [named | msgspec.json.decode(item) for item in page.items or ()]
            after = page.metadata.continue_
            if not after:
                return found

    def create(self, resource: Resource, body: JsonObject, namespace: str = "") -> JsonObject:
        """Make an object."""
        query = {"fieldManager": self.field_manager}
        return _object(self.call("POST", resource.path(namespace), body, query=query))

    def replace(self, resource: Resource, body: JsonObject, namespace: str = "", subresource: str = "") -> JsonObject:
        """Replace an object; guarded when ``body`` carries uid and resourceVersion."""
        name = body["metadata"]["name"]
        query = {"fieldManager": self.field_manager}
        return _object(self.call("PUT", resource.path(namespace, name, subresource), body, query=query))

    def patch(
        self,
        resource: Resource,
        name: str,
        patch: Any,
        namespace: str = "",
        *,
        subresource: str = "",
        content_type: str = MERGE_PATCH,
    ) -> JsonObject:
        """Patch an object; a merge patch guards itself with metadata.uid and metadata.resourceVersion inside."""
        path = resource.path(namespace, name, subresource)
        query = {"fieldManager": self.field_manager}
        return _object(self.call("PATCH", path, patch, query=query, content_type=content_type))

    def test_and_set(
        self,
        resource: Resource,
        name: str,
        namespace: str = "",
        *,
        expect: Mapping[str, Any],
        assign: Mapping[str, Any],
        subresource: str = "",
    ) -> JsonObject:
        """JSON patch: set JSON pointers to values if others have the values expected, in one request.

        A failed expectation is an ApiError 422 (Invalid)."""
        operations = [{"op": "test", "path": p, "value": v} for p, v in expect.items()]
        operations += [{"op": "add", "path": p, "value": v} for p, v in assign.items()]
        return self.patch(resource, name, operations, namespace, subresource=subresource, content_type=JSON_PATCH)

    def get_scale(self, resource: Resource, name: str, namespace: str = "") -> JsonObject:
        """The scale subresource (autoscaling/v1 Scale); ``spec.replicas`` is left out when it is 0."""
        return _object(self.call("GET", resource.path(namespace, name, "scale")))

    def delete(
        self,
        resource: Resource,
        name: str,
        namespace: str = "",
        *,
        uid: str = "",
        resource_version: str = "",
        grace_s: int | None = None,
        propagation: str = "",
    ) -> None:
        """Delete an object, if it is still the one meant (409 otherwise)."""
        preconditions = {k: v for k, v in (("uid", uid), ("resourceVersion", resource_version)) if v}
        options: JsonObject = {"apiVersion": "v1", "kind": "DeleteOptions"}
        if preconditions:
            options["preconditions"] = preconditions
        if grace_s is not None:
            options["gracePeriodSeconds"] = grace_s
        if propagation:
            options["propagationPolicy"] = propagation
        self.call("DELETE", resource.path(namespace, name), options)

    def bind(self, name: str, namespace: str, uid: str, node: str) -> None:
        """Bind a pod to a node through its binding subresource; 409 when it is bound or another pod of that name."""
        body = _binding(name, namespace, uid, node)
        self.call("POST", PODS.path(namespace, name, "binding"), body, query={"fieldManager": self.field_manager})

    def submit_bind(
        self, name: str, namespace: str, uid: str, node: str, done: Ended, may: Callable[[], bool] = lambda: True
    ) -> bool:
        """As :meth:`bind`, for whoever does not wait: see :meth:`tonnage.kube.transport.Overlapping.submit`."""
        path = PODS.path(namespace, name, "binding")
        return self._submit(path, _binding(name, namespace, uid, node), done, "bindings", may)

    def submit_create(self, resource: Resource, body: JsonObject, namespace: str, done: Ended) -> bool:
        """As :meth:`create`, for whoever does not wait: see :meth:`tonnage.kube.transport.Overlapping.submit`."""
        return self._submit(resource.path(namespace), body, done, resource.plural)

    def _submit(
        self, path: str, body: JsonObject, done: Ended, lane: str, may: Callable[[], bool] = lambda: True
    ) -> bool:
        """POST it in this lane, in protobuf: an API server reads and answers that with less work. One that answers
        415 is asked again, and from then on, in JSON."""
        if self._overlapping is None:
            return False
        as_protobuf = self._reads_protobuf

        def end(found: Reply | ClientError) -> None:
            if type(found) is Reply and found.status < 400:
                return done(None)
            if type(found) is Reply and found.status == 415 and as_protobuf:
                self._reads_protobuf = False
                return done(Again("the server does not read protobuf"))
            error = found if isinstance(found, ClientError) else ApiError.of(found) if found.status >= 400 else None
            return done(error)

        return self._overlapping.submit(
            "POST",
            path,
            end,
            lane=lane,
            may=may,
            query={"fieldManager": self.field_manager},
            body=protobuf.encode(body) if as_protobuf else _encode(body),
            content_type=protobuf.CONTENT_TYPE if as_protobuf else JSON,
            accept=_PROTOBUF_FIRST if as_protobuf else JSON,
        )

    def evict(self, name: str, namespace: str, uid: str = "") -> None:
        """Evict a pod through the Eviction API; 429 when a PodDisruptionBudget forbids it now."""
        body: JsonObject = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": name, "namespace": namespace},
        }
        if uid:
            body["deleteOptions"] = {"preconditions": {"uid": uid}}
        self.call("POST", PODS.path(namespace, name, "eviction"), body)


def _binding(name: str, namespace: str, uid: str, node: str) -> JsonObject:
    return {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": name, "namespace": namespace, "uid": uid},
        "target": {"apiVersion": "v1", "kind": "Node", "name": node},
    }


def _object(reply: Reply) -> JsonObject:
    """The object of an answer. Raises LostReply for what is none, a proxy's page say: nobody knows what was done."""
    try:
        return msgspec.json.decode(reply.body, type=JsonObject)
    except msgspec.DecodeError as error:
        raise LostReply(f"the answer is not an object: {error}") from error
