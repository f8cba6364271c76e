"""Messages of the kubelet's APIs to the byte, as protobuf encodes them; what is not a message is refused."""

from __future__ import annotations

import pytest

from tonnage.node.kubelet_api import (
    AllocateRequest,
    AllocateResponse,
    CdiName,
    ContainerAllocateRequest,
    ContainerAllocateResponse,
    ContainerPreferredRequest,
    ListAndWatchResponse,
    Mount,
    NumaNode,
    PluginDevice,
    PluginOptions,
    RegisterRequest,
    TopologyInfo,
)
from tonnage.node.wire import WireError, decode, encode


def test_bytes_are_those_of_protobuf() -> None:
    options = PluginOptions(preferred_allocation=True)
    request = RegisterRequest(endpoint="a.sock", resource_name="nvidia.com/gpu", options=options)
    assert encode(request) == b"\x0a\x07v1beta1\x12\x06a.sock\x1a\x0envidia.com/gpu\x22\x02\x10\x01"
    at_zero = PluginDevice("GPU-1", "Healthy", TopologyInfo([NumaNode(0)]))
    assert encode(ListAndWatchResponse([at_zero])) == b"\x0a\x14\x0a\x05GPU-1\x12\x07Healthy\x1a\x02\x0a\x00"
    assert encode(ListAndWatchResponse()) == b""
    long = PluginDevice("x" * 200, "")
    assert encode(long) == b"\x0a\xc8\x01" + b"x" * 200


@pytest.mark.parametrize(
    "message",
    [
        RegisterRequest(endpoint="ä.sock", resource_name="nvidia.com/mig-1g.10gb.shared", options=PluginOptions()),
        ListAndWatchResponse([PluginDevice(f"GPU-{n}", topology=TopologyInfo([NumaNode(n)])) for n in range(3)]),
        AllocateRequest([ContainerAllocateRequest(["a::0", "b"]), ContainerAllocateRequest()]),
        ContainerPreferredRequest(["a", "b"], ["a"], -1),
        AllocateResponse(
            [
                ContainerAllocateResponse(
                    {"A": "1", "B": ""}, [Mount("/c", "/h", True)], [], {"cdi.k8s.io/x": "y"}, [CdiName("v/c=0")]
                )
            ]
        ),
    ],
)
def test_what_is_written_is_read_again(message: object) -> None:
    assert decode(type(message), encode(message)) == message


def test_what_is_not_known_is_skipped_and_what_is_no_message_is_refused() -> None:
    later = b"\x0a\x05GPU-1" + b"\x78\x01" + b"\x7a\x01z" + b"\x79" + bytes(8) + b"\x7d" + bytes(4)
    assert decode(PluginDevice, later) == PluginDevice("GPU-1")
    for broken in (b"\x0a\x05GPU", b"\x0a", b"\xff" * 11, b"\x0b\x00", b"\x08\x01", b"\x0a\x01\xff"):
        with pytest.raises(WireError):
            decode(PluginDevice, broken)
