"""Writes what the DRA driver of simulated nodes publishes: its classes, and the ResourceSlices of each node."""

from __future__ import annotations

import msgspec

from tonnage.kube.resources import DEVICE_CLASSES, RESOURCE_SLICES
from tonnage.kube.transport import ApiError
from tonnage.kube.verbs import Client, JsonObject
from tonnage.machines.cluster import SimulatedCluster
from tonnage.objects.dra import DeviceClass, ResourceSlice


def bodies(cluster: SimulatedCluster, node: str) -> list[JsonObject]:
    """The objects of the node's driver: its classes before its slices; none where it runs no driver."""
    claims = cluster.fleet.device_claims
    slices = [one for _, one in sorted(claims.slices.items()) if one.spec.node_name == node and not one.written]
    if not slices:
        return []
    classes = [one for _, one in sorted(claims.classes.items()) if not one.written]
    found: list[DeviceClass | ResourceSlice] = [*classes, *slices]
    return [msgspec.to_builtins(one) for one in found]


def put(client: Client, objects: list[JsonObject], owner: JsonObject) -> None:
    """Create those that are not there. Slices go with the Node, their ``owner``. Raises ClientError."""
    for body in objects:
        is_slice = body["kind"] == RESOURCE_SLICES.kind
        if is_slice:
            body = {**body, "metadata": {**body["metadata"], "ownerReferences": [owner]}}
        try:
            client.create(RESOURCE_SLICES if is_slice else DEVICE_CLASSES, body)
        except ApiError as error:
            if error.reason != "AlreadyExists":
                raise
