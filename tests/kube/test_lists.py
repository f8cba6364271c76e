"""What a client makes of lists."""

from __future__ import annotations

from typing import Any

from tonnage.kube.resources import CLUSTER_POLICIES, NODES
from tonnage.kube.transport import Reply, Transport
from tonnage.kube.verbs import Client


class _Server:
    """Implements of Transport what a list takes: items as API servers send them."""

    def request(self, method: str, path: str, **rest: Any) -> Reply:
        return Reply(200, b'{"metadata":{"resourceVersion":"7"},"items":[{"metadata":{"name":"a"}}]}')


def test_objects_of_a_list_say_what_they_are_though_servers_leave_that_out() -> None:
    server: Transport = _Server()  # type: ignore[assignment]
    (node,) = Client(server).list(NODES)
    assert (node["apiVersion"], node["kind"], node["metadata"]["name"]) == ("v1", "Node", "a")
    (policy,) = Client(server).list(CLUSTER_POLICIES)
    assert (policy["apiVersion"], policy["kind"]) == ("nvidia.com/v1", "ClusterPolicy")
