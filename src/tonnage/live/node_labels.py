"""A node's labels on a real cluster, and the devices that its containers hold: what its MIG manager needs of them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from tonnage.kube.resources import NODES
from tonnage.kube.verbs import Client


class NodeLabels:
    """The node called ``node``. ``devices``: UUIDs of the devices that its containers were given. Methods raise
    ClientError where the API does not answer."""

    def __init__(self, client: Client, node: str, devices: Callable[[], Collection[str]]) -> None:
        self._client, self._node, self._devices = client, node, devices

    def labels(self) -> Mapping[str, str]:
        """As they are now."""
        found = self._client.get(NODES, self._node)["metadata"].get("labels") or {}
        return {str(key): str(value) for key, value in found.items()}

    def set_labels(self, changes: Mapping[str, str]) -> None:
        """All in one patch, so that nobody sees half of it."""
        self._client.patch(NODES, self._node, {"metadata": {"labels": dict(changes)}})

    def held(self) -> Collection[str]:
        return self._devices()
