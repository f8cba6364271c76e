"""The DRA driver's sockets beside a kubelet's side of the API: registration, claims, health."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from dra_worlds import NODE, Node

from tonnage.errors import InputError
from tonnage.node.dra_api import (
    HEALTH,
    PLUGIN,
    REGISTRATION,
    ClaimName,
    ClaimsRequest,
    DevicesHealth,
    InfoRequest,
    PluginInfo,
    PrepareAnswers,
    RegistrationAnswer,
    RegistrationStatus,
    UnprepareAnswers,
    WatchRequest,
)
from tonnage.node.dra_server import DraServer
from tonnage.node.wire import decode, encode

grpc = pytest.importorskip("grpc", reason="the extra node is not installed")


class Served:
    """A driver with its sockets; ``node``: what is behind it."""

    def __init__(self, node: Node, folder: Path) -> None:
        self.node = node
        self.said: list[str] = []
        self.server = DraServer(
            "gpu.nvidia.com", folder, node.driver, lambda: node.running.health(NODE), self.said.append
        )
        self.server.ensure()

    def ask(self, socket: Path, service: str, method: str, request: Any, answer: type[Any]) -> Any:
        with grpc.insecure_channel(f"unix:{socket}") as channel:
            call = channel.unary_unary(
                f"/{service}/{method}", request_serializer=encode, response_deserializer=lambda c: decode(answer, c)
            )
            return call(request, timeout=5, wait_for_ready=True)

    def claims(self, method: str, *names: ClaimName) -> Any:
        answer = PrepareAnswers if method == "NodePrepareResources" else UnprepareAnswers
        return self.ask(self.server.socket, PLUGIN, method, ClaimsRequest(list(names)), answer).claims

    def watch(self, channel: Any) -> Iterator[DevicesHealth]:
        call = channel.unary_stream(
            f"/{HEALTH}/NodeWatchResources",
            request_serializer=encode,
            response_deserializer=lambda content: decode(DevicesHealth, content),
        )
        found: Iterator[DevicesHealth] = call(WatchRequest(), timeout=10, wait_for_ready=True)
        return found


@pytest.fixture
def served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Served]:
    with TemporaryDirectory(prefix="dra") as folder:  # a socket's path has at most 107 bytes
        made = Served(Node(tmp_path, monkeypatch, "h100"), Path(folder))
        yield made
        made.server.stop()


def test_the_kubelet_finds_the_driver_and_says_whether_it_takes_it(served: Served) -> None:
    info = served.ask(served.server.registry, REGISTRATION, "GetInfo", InfoRequest(), PluginInfo)
    assert (info.type, info.name, info.endpoint) == ("DRAPlugin", "gpu.nvidia.com", str(served.server.socket))
    assert info.supported == ["v1.DRAPlugin", "v1alpha1.DRAResourceHealth"]
    assert not served.server.registered
    for status in (RegistrationStatus(True), RegistrationStatus(False, "another version")):
        served.ask(served.server.registry, REGISTRATION, "NotifyRegistrationStatus", status, RegistrationAnswer)
        assert served.server.registered == status.registered
    assert served.said == ["registered", "the kubelet does not register it: another version"]


def test_every_claim_that_is_asked_for_has_an_answer_of_its_own(served: Served) -> None:
    claim = served.node.profile("1g.10gb")
    assert claim is not None
    names = ClaimName("team", claim.metadata.uid, claim.name), ClaimName("team", "uid-9", "claim-9")
    good, bad = served.claims("NodePrepareResources", *names)
    assert (good.uid, good.answer.error) == (claim.metadata.uid, "")
    assert good.answer.devices[0].device == "gpu-0-mig-1g10gb-19-6"
    assert (bad.uid, bad.answer.error) == ("uid-9", "there is no claim team/claim-9")
    assert [one.answer.error for one in served.claims("NodeUnprepareResources", *names)] == ["", ""]
    assert served.node.instances() == []


def test_the_health_of_all_devices_is_sent_again_as_soon_as_it_is_another(served: Served) -> None:
    with grpc.insecure_channel(f"unix:{served.server.socket}") as channel:
        answers = served.watch(channel)
        assert {one.health for one in next(answers).devices} == {1}
        served.node.machine.fault(0, lost=True)
        before = served.node.driver.offer
        served.node.look()
        served.node.running.serve(served.server, before)
        found = next(answers).devices
    assert len(found) == 26
    assert {(one.health, one.message, one.timeout_s) for one in found} == {(2, "the GPU is lost", 30)}


def test_sockets_that_somebody_removes_are_made_again(served: Served) -> None:
    served.server.registry.unlink()
    served.server.ensure()
    assert served.ask(served.server.registry, REGISTRATION, "GetInfo", InfoRequest(), PluginInfo).name
    assert served.claims("NodeUnprepareResources", ClaimName("team", "u", "n"))[0].answer.error == ""
    served.server.stop()
    assert not served.server.registry.exists()


def test_a_path_that_no_socket_can_have_is_refused(tmp_path: Path, served: Served) -> None:
    with pytest.raises(InputError, match="a socket's path has at most 107 bytes"):
        DraServer("gpu.nvidia.com", tmp_path / ("x" * 100), served.node.driver, list, print)
