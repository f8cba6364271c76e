"""A node's labels on a real cluster, and the devices that its containers hold: what an agent on it goes by.

The node is watched: an agent on each of a thousand nodes that asked once a second would be a thousand requests.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Collection, Mapping

from tonnage.kube.informer import Informers
from tonnage.kube.resources import NODES
from tonnage.kube.transport import ClientError, Unreachable
from tonnage.kube.verbs import Client
from tonnage.objects import core

FIRST_S = 10.0
"""For how long the first list is waited for, once."""


class NodeLabels:
    """The node called ``node``. ``devices``: UUIDs of the devices that its containers were given. For one thread.

    Methods raise ClientError where the API has not answered yet, or has no such node."""

    def __init__(self, client: Client, node: str, devices: Callable[[], Collection[str]] = tuple) -> None:
        self._client, self._node, self._devices = client, node, devices
        self._informers = Informers(client, time.time, random.Random(node))
        self._seen = self._informers.add(NODES, core.Node, field_selector=f"metadata.name={node}")
        self._written: tuple[int, Mapping[str, str]] = (0, {})  # its version: the watch may be behind it
        self._waited = False

    def labels(self) -> Mapping[str, str]:
        """As they were heard of last, one's own writes included."""
        if self._waited:
            self._informers.pump(0)
        else:
            self._waited = True
            self._informers.wait_synced(FIRST_S)
        if not self._seen.synced:
            why = next(iter(self._informers.problems().values()), "no answer")
            raise Unreachable(f"node {self._node}: {why}")
        found = self._seen.get("", self._node)
        if found is None:
            raise ClientError(f"there is no node {self._node}")
        version, written = self._written
        return written if version > self._seen.resource_version else found.metadata.labels

    def set_labels(self, changes: Mapping[str, str]) -> None:
        """All in one patch, so that nobody sees half of it."""
        now = self._client.patch(NODES, self._node, {"metadata": {"labels": dict(changes)}})["metadata"]
        labels = {str(key): str(value) for key, value in (now.get("labels") or {}).items()}
        self._written = int(now["resourceVersion"]), labels

    def held(self) -> Collection[str]:
        return self._devices()

    def close(self) -> None:
        """End the watch; the client is left open."""
        self._informers.stop()
