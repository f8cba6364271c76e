"""What the kubelet lists of devices, over its socket: device plugins and claims."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

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


@contextmanager
def kubelet(folder: Path, answer: Callable[[Any], bytes]) -> Iterator[Path]:
    """The socket of a kubelet that answers so; ``answer`` is handed the call."""
    grpc = pytest.importorskip("grpc")
    server = grpc.server(ThreadPoolExecutor(1))
    handler = grpc.unary_unary_rpc_method_handler(lambda request, context: answer(context))
    service, _, method = LIST.lstrip("/").partition("/")
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, {method: handler}),))
    server.add_insecure_port(f"unix:{folder / 'kubelet.sock'}")
    server.start()
    yield folder / "kubelet.sock"
    server.stop(None)


def test_a_kubelet_is_asked_over_its_socket(tmp_path: Path) -> None:
    with kubelet(tmp_path, lambda _: wire.encode(ANSWER)) as socket:
        assert listed(socket) == WANTED


@pytest.mark.parametrize("refusals", [1, 2])
def test_a_kubelet_that_is_asked_too_often_is_asked_again(tmp_path: Path, refusals: int) -> None:
    grpc = pytest.importorskip("grpc")
    asked = []

    def answer(call: Any) -> bytes:
        asked.append(call)
        if len(asked) <= refusals:
            call.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "rejected by rate limit")
        return wire.encode(ANSWER)

    with kubelet(tmp_path, answer) as socket:
        assert listed(socket) == WANTED
    assert len(asked) == refusals + 1


@pytest.mark.parametrize(("code", "times"), [("RESOURCE_EXHAUSTED", 2), ("PERMISSION_DENIED", 1)])
def test_it_is_not_asked_for_ever_nor_again_where_that_helps_nothing(tmp_path: Path, code: str, times: int) -> None:
    grpc = pytest.importorskip("grpc")
    asked = []

    def answer(call: Any) -> bytes:
        asked.append(call)
        call.abort(getattr(grpc.StatusCode, code), "no")
        raise AssertionError("abort raises")

    with kubelet(tmp_path, answer) as socket, pytest.raises(InputError, match=code):
        listed(socket, timeout_s=0.1)
    assert len(asked) == times


def test_a_socket_that_nobody_serves_is_said_with_what_to_mount(tmp_path: Path) -> None:
    pytest.importorskip("grpc")
    with pytest.raises(InputError, match="does not list pods") as caught:
        listed(tmp_path / "kubelet.sock", timeout_s=0.5)
    assert "mount the folder" in caught.value.problems[0].hint
