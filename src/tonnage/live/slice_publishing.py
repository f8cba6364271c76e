"""A node's ResourceSlices on a cluster, kept as its driver wants them; and the claims that the driver is asked for."""

from __future__ import annotations

import random
import time
from collections.abc import Sequence

import msgspec

from tonnage.dra.nvidia import DRIVER, PublishedCard
from tonnage.dra.publishing import CreateSlice, DeleteSlice, UpdateSlice, changes
from tonnage.kube.informer import Informers
from tonnage.kube.resources import NODES, RESOURCE_CLAIMS, RESOURCE_SLICES
from tonnage.kube.transport import ApiError, ClientError
from tonnage.kube.verbs import Client, JsonObject
from tonnage.node.dra_driver import ClaimsUnknown
from tonnage.objects.base import OwnerReference
from tonnage.objects.dra import V1, ResourceClaim, ResourceSlice, ResourceSliceSpec

_SEEN_S = 2.0
"""For how long one's own write is waited for."""


class SlicePublisher:
    """Publishes for the node called ``node``. For one thread."""

    def __init__(self, client: Client, node: str, driver: str = DRIVER) -> None:
        self._client, self._node, self._driver = client, node, driver
        self._informers = Informers(client, time.time, random.Random(node))
        selector = f"spec.nodeName={node},spec.driver={driver}"
        self._seen = self._informers.add(RESOURCE_SLICES, ResourceSlice, field_selector=selector)
        self._owner: OwnerReference | None = None

    def publish(self, cards: Sequence[PublishedCard]) -> list[str]:
        """Make what stands in the API be this. Returns what was done, in a line; nothing: it stood there, or is not
        known yet. Who removes or changes a slice finds it put right at the next call. Raises ClientError where the API
        fails."""
        self._informers.pump(0)
        if not self._seen.synced:
            return []
        wanted = changes(cards, self._node, list(self._seen.items()), self._driver)
        if not wanted:
            return []
        owner = self._owner or self._find_owner()
        for one in wanted:
            match one:
                case CreateSlice(spec=spec):
                    done = self._client.create(RESOURCE_SLICES, self._body(spec, owner))
                    self._await(done)
                case UpdateSlice(there=there, spec=spec):
                    body = {**_builtin(there), "spec": _builtin(spec)}
                    self._await(self._client.replace(RESOURCE_SLICES, body))
                case DeleteSlice(there=there):
                    self._remove(there)
        generations = {one.spec.pool.generation for one in wanted if not isinstance(one, DeleteSlice)}
        count = sum(len(card.devices) for card in cards)
        which = f"generation {max(generations)}" if generations else "what remained is removed"
        return [f"{count} devices published: {which}, {len(wanted)} slices written"]

    def _body(self, spec: ResourceSliceSpec, owner: OwnerReference) -> JsonObject:
        metadata = {"generateName": f"{self._node}-{self._driver}-", "ownerReferences": [_builtin(owner)]}
        return {"apiVersion": V1, "kind": "ResourceSlice", "metadata": metadata, "spec": _builtin(spec)}

    def _find_owner(self) -> OwnerReference:
        """The node: its slices go with it."""
        node = self._client.get(NODES, self._node)
        uid = str(node["metadata"]["uid"])
        self._owner = OwnerReference(api_version="v1", kind="Node", name=self._node, uid=uid, controller=True)
        return self._owner

    def _await(self, written: JsonObject) -> None:
        version = written["metadata"]["resourceVersion"]
        self._informers.wait_for(RESOURCE_SLICES, version, _SEEN_S)

    def _remove(self, there: ResourceSlice) -> None:
        try:
            self._client.delete(RESOURCE_SLICES, there.name)
        except ApiError as error:
            if error.code != 404:
                raise
        until = time.monotonic() + _SEEN_S
        while self._seen.get("", there.name) is not None and time.monotonic() < until:
            self._informers.pump(0.05)

    def close(self) -> None:
        """End the watch; the slices stay, as what is prepared does."""
        self._informers.stop()


def _builtin(value: object) -> JsonObject:
    found: JsonObject = msgspec.to_builtins(value)
    return found


class NodeClaims:
    """Claims as the API has them now."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def claim(self, namespace: str, name: str) -> ResourceClaim | None:
        """None: there is none. Raises ClaimsUnknown where the API does not answer."""
        try:
            found = self._client.get(RESOURCE_CLAIMS, name, namespace)
        except ApiError as error:
            if error.code == 404:
                return None
            raise ClaimsUnknown(str(error)) from error
        except ClientError as error:
            raise ClaimsUnknown(str(error)) from error
        return msgspec.convert(found, ResourceClaim)
