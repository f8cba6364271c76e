"""What the kubelet lists of devices, over its socket: device plugins and claims."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tonnage.errors import InputError
from tonnage.node import wire
from tonnage.node.attribution import ClaimDevice, ContainerDevices, PluginDevices
from tonnage.node.pod_resources import (
    LIST,
    ListedCdi,
    ListedClaim,
    ListedClaimResource,
    ListedContainer,
    ListedDevices,
    ListedPod,
    PodList,
    containers,
    listed,
)

CLAIM = ListedClaimResource([ListedCdi("k8s.gpu.nvidia.com/claim=x-gpu-0")], "gpu.nvidia.com", "n", "gpu-0")
ANSWER = PodList(
    [
        ListedPod("idle", "team", [ListedContainer("main")]),
        ListedPod(
            "train",
            "team",
            [
                ListedContainer("main", [ListedDevices("nvidia.com/gpu", ["GPU-a", "GPU-b"])]),
                ListedContainer("side", claims=[ListedClaim("c", "team", [CLAIM])]),
            ],
        ),
    ]
)
WANTED = [
    ContainerDevices("team", "train", "main", (PluginDevices("nvidia.com/gpu", ("GPU-a", "GPU-b")),)),
    ContainerDevices(
        "team",
        "train",
        "side",
        claims=(ClaimDevice("team/c", "gpu.nvidia.com", "n", "gpu-0", ("k8s.gpu.nvidia.com/claim=x-gpu-0",)),),
    ),
]


def test_containers_without_devices_are_left_out() -> None:
    assert containers(wire.encode(ANSWER)) == WANTED


def test_bytes_of_the_protocol_are_read_by_field_number() -> None:
    """By hand: pods(1) { name(1) p, namespace(2) n, containers(3) { name(1) c, devices(2) { name(1) r, ids(2) i } } }."""
    devices = b"\x0a\x01r\x12\x01i"
    container = b"\x0a\x01c\x12" + bytes([len(devices)]) + devices
    pod = b"\x0a\x01p\x12\x01n\x1a" + bytes([len(container)]) + container
    found = containers(b"\x0a" + bytes([len(pod)]) + pod)
    assert found == [ContainerDevices("n", "p", "c", (PluginDevices("r", ("i",)),))]


def test_a_kubelet_is_asked_over_its_socket(tmp_path: Path) -> None:
    grpc = pytest.importorskip("grpc")
    server = grpc.server(ThreadPoolExecutor(1))
    handler = grpc.unary_unary_rpc_method_handler(lambda request, context: wire.encode(ANSWER))
    service, _, method = LIST.lstrip("/").partition("/")
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, {method: handler}),))
    server.add_insecure_port(f"unix:{tmp_path / 'kubelet.sock'}")
    server.start()
    assert listed(tmp_path / "kubelet.sock") == WANTED
    server.stop(None)


def test_a_socket_that_nobody_serves_is_said_with_what_to_mount(tmp_path: Path) -> None:
    pytest.importorskip("grpc")
    with pytest.raises(InputError, match="does not list pods") as caught:
        listed(tmp_path / "kubelet.sock", timeout_s=0.5)
    assert "mount the folder" in caught.value.problems[0].hint
