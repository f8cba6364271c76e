"""A node's labels as an agent on it hears of them."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from tonnage.apiserver.api import Api
from tonnage.apiserver.inprocess import InProcess
from tonnage.kube.resources import NODES
from tonnage.kube.transport import ClientError
from tonnage.kube.verbs import Client
from tonnage.live.node_labels import NodeLabels

HERE = "nvidia.com/mig.config"


@pytest.fixture
def client() -> Client:
    client = Client(InProcess(Api()))
    for name in ("here", "there"):
        client.create(NODES, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": {HERE: name}}})
    return client


@pytest.fixture
def node(client: Client) -> Iterator[NodeLabels]:
    node = NodeLabels(client, "here", lambda: {"GPU-1"})
    yield node
    node.close()


def test_one_hears_of_ones_own_node_and_reads_ones_own_writes(client: Client, node: NodeLabels) -> None:
    assert node.labels()[HERE] == "here"
    for number in range(20):
        node.set_labels({"state": str(number)})
        assert node.labels() == {HERE: "here", "state": str(number)} | _given(node)
    assert node.held() == {"GPU-1"}
    client.patch(NODES, "here", {"metadata": {"labels": {HERE: "another"}}})
    client.patch(NODES, "there", {"metadata": {"labels": {HERE: "not-ours"}}})
    until = time.monotonic() + 5
    while node.labels()[HERE] != "another" and time.monotonic() < until:
        time.sleep(0.01)
    assert node.labels()[HERE] == "another"
    assert node.labels()["state"] == "19"


def _given(node: NodeLabels) -> dict[str, str]:
    """What the API server adds."""
    return {key: value for key, value in node.labels().items() if key not in (HERE, "state")}


def test_a_node_that_is_not_there_is_said() -> None:
    node = NodeLabels(Client(InProcess(Api())), "here")
    with pytest.raises(ClientError, match="there is no node here"):
        node.labels()
    node.close()
