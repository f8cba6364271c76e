"""A node's slices on the embedded API: published, kept, changed in place, and gone with the node."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from tonnage.apiserver.api import Api
from tonnage.apiserver.inprocess import InProcess
from tonnage.dra.nvidia import DraCard, PublishedCard, published, tainted
from tonnage.facts import mig
from tonnage.kube.resources import NODES, RESOURCE_CLAIMS, RESOURCE_SLICES
from tonnage.kube.transport import Unreachable
from tonnage.kube.verbs import Client, JsonObject
from tonnage.live.slice_publishing import NodeClaims, SlicePublisher
from tonnage.node.dra_driver import ClaimsUnknown
from tonnage.objects.dra import DeviceTaint


@pytest.fixture
def client() -> Client:
    client = Client(InProcess(Api()))
    for name in ("here", "there"):
        client.create(NODES, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}})
    return client


@pytest.fixture
def publisher(client: Client) -> Iterator[SlicePublisher]:
    made = SlicePublisher(client, "here")
    yield made
    made.close()


def cards(count: int = 4) -> list[PublishedCard]:
    profiles = mig.profiles("h100", plain=False)
    return [
        published(
            DraCard(minor=at, uuid=f"GPU-{at}", product="H100", gpu="h100", memory_mib=81559, partitions=profiles)
        )
        for at in range(count)
    ]


def settle(publisher: SlicePublisher, wanted: list[PublishedCard]) -> list[str]:
    """Publish until there is nothing to do."""
    said: list[str] = []
    until, quiet = time.monotonic() + 10, 0
    while quiet < 20 and time.monotonic() < until:
        lines = publisher.publish(wanted)
        said, quiet = [*said, *lines], 0 if lines else quiet + 1
        time.sleep(0.01)
    return said


def slices(client: Client, node: str = "here") -> list[JsonObject]:
    return client.list(RESOURCE_SLICES, field_selector=f"spec.nodeName={node}")


def test_slices_belong_to_the_node_and_stand_whole(client: Client, publisher: SlicePublisher) -> None:
    assert settle(publisher, cards()) == ["104 devices published: generation 1, 3 slices written"]
    found = slices(client)
    assert sorted(len(one["spec"].get("devices", [])) for one in found) == [0, 52, 52]
    owner = found[0]["metadata"]["ownerReferences"][0]
    assert (owner["kind"], owner["name"]) == ("Node", "here")
    assert slices(client, "there") == []


def test_who_removes_or_changes_a_slice_finds_it_put_right(client: Client, publisher: SlicePublisher) -> None:
    settle(publisher, cards())
    client.delete(RESOURCE_SLICES, slices(client)[0]["metadata"]["name"])
    settle(publisher, cards())
    assert sum(len(one["spec"].get("devices", [])) for one in slices(client)) == 104
    changed = next(one for one in slices(client) if one["spec"].get("devices"))
    del changed["spec"]["devices"][3:]
    client.replace(RESOURCE_SLICES, changed)
    settle(publisher, cards())
    assert sum(len(one["spec"].get("devices", [])) for one in slices(client)) == 104
    assert len({one["spec"]["pool"]["generation"] for one in slices(client)}) == 1


def test_a_taint_comes_and_goes_in_place(client: Client, publisher: SlicePublisher) -> None:
    settle(publisher, cards())
    bad = DeviceTaint(key="tonnage.dev/xid-79", value="RESTART_BM", effect="NoSchedule")
    faulty = [tainted(cards()[0], {"gpu-0": [bad]}), *cards()[1:]]
    assert settle(publisher, faulty) == ["104 devices published: generation 1, 1 slices written"]
    devices = [one for each in slices(client) for one in each["spec"].get("devices", [])]
    [taint] = [taint for one in devices for taint in one.get("taints", [])]
    assert (taint["key"], taint["effect"]) == ("tonnage.dev/xid-79", "NoSchedule")
    assert settle(publisher, cards()) == ["104 devices published: generation 1, 1 slices written"]


def test_a_claim_is_read_or_absent_or_not_known(client: Client) -> None:
    spec = {"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": "gpu.nvidia.com"}}]}}
    body = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"name": "c"}, "spec": spec}
    client.create(RESOURCE_CLAIMS, body, "default")
    source = NodeClaims(client)
    found = source.claim("default", "c")
    assert found is not None
    assert found.spec.devices.requests[0].name == "gpu"
    assert source.claim("default", "d") is None

    class Silent(Client):
        def get(self, *_: object, **__: object) -> JsonObject:
            raise Unreachable("no answer")

    with pytest.raises(ClaimsUnknown, match="no answer"):
        NodeClaims(Silent(client.transport)).claim("default", "c")
