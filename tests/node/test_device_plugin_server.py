"""The device plugin beside a kubelet's side of the API: registration, lists that follow the cards, allocation."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tonnage.node import cdi
from tonnage.node.device_health import DeviceHealth, HealthRules
from tonnage.node.devices import RecoveryAction
from tonnage.node.driver_files import SimulatedFiles
from tonnage.node.health_watch import HealthWatch
from tonnage.node.kubelet_api import (
    KUBELET_SOCKET,
    PLUGIN,
    REGISTRATION,
    AllocateRequest,
    AllocateResponse,
    ContainerAllocateRequest,
    ContainerPreferredRequest,
    Empty,
    ListAndWatchResponse,
    PreferredRequest,
    PreferredResponse,
    RegisterRequest,
)
from tonnage.node.plugin import DevicePlugin, Places
from tonnage.node.simulated import SimulatedMachine
from tonnage.node.simulated_mps import SimulatedMps
from tonnage.node.wire import decode, encode
from tonnage.partitioning.device_plugin import Config, Replicas, Replicated, Sharing
from tonnage.units import NS_PER_S

grpc = pytest.importorskip("grpc", reason="the extra node is not installed")


class Kubelet:
    """The kubelet's side: it takes registrations, watches what is registered, and asks for devices."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.registered: list[str] = []
        self.lists: dict[str, list[ListAndWatchResponse]] = {}
        self._news = threading.Condition()
        self._channels: list[Any] = []
        self._server: Any = None

    def start(self) -> None:
        for one in self.folder.iterdir():  # as the kubelet does
            if one.suffix == ".sock":
                one.unlink()
        self._server = grpc.server(ThreadPoolExecutor(2))
        method = grpc.unary_unary_rpc_method_handler(
            self._register,
            request_deserializer=lambda content: decode(RegisterRequest, content),
            response_serializer=encode,
        )
        handler = grpc.method_handlers_generic_handler(REGISTRATION, {"Register": method})
        self._server.add_generic_rpc_handlers((handler,))
        self._server.add_insecure_port(f"unix:{self.folder / KUBELET_SOCKET}")
        self._server.start()

    def stop(self) -> None:
        for channel in self._channels:
            channel.close()
        self._channels.clear()
        self._server.stop(None).wait()
        (self.folder / KUBELET_SOCKET).unlink(missing_ok=True)

    def _register(self, request: RegisterRequest, _: Any) -> Empty:
        assert request.version == "v1beta1"
        channel = self.channel(request.endpoint)
        self._channels.append(channel)
        call = channel.unary_stream(
            f"/{PLUGIN}/ListAndWatch",
            request_serializer=encode,
            response_deserializer=lambda content: decode(ListAndWatchResponse, content),
        )
        answers = call(Empty())
        threading.Thread(target=self._follow, args=(request.resource_name, answers), daemon=True).start()
        with self._news:
            self.registered.append(request.resource_name)
            self._news.notify_all()
        return Empty()

    def _follow(self, resource: str, answers: Any) -> None:
        try:
            for one in answers:
                with self._news:
                    self.lists.setdefault(resource, []).append(one)
                    self._news.notify_all()
        except grpc.RpcError:
            return  # the stream has ended

    def channel(self, endpoint: str) -> Any:
        return grpc.insecure_channel(f"unix:{self.folder / endpoint}")

    def wait(self, holds: Callable[[], bool]) -> None:
        with self._news:
            assert self._news.wait_for(holds, 5)

    def health(self, resource: str) -> dict[str, str]:
        """By device, as the kubelet has it now."""
        lists = self.lists.get(resource, [])
        return {one.id: one.health for one in lists[-1].devices} if lists else {}

    def healthy(self, resource: str) -> int:
        return sum(health == "Healthy" for health in self.health(resource).values())

    def ask(self, resource: str, method: str, request: Any, answer: type[Any]) -> Any:
        with self.channel(f"tonnage-{resource.partition('/')[2]}.sock") as channel:
            call = channel.unary_unary(
                f"/{PLUGIN}/{method}", request_serializer=encode, response_deserializer=lambda c: decode(answer, c)
            )
            return call(request, timeout=5)

    def allocate(self, resource: str, *ids: str) -> Any:
        request = AllocateRequest([ContainerAllocateRequest(list(ids))])
        return self.ask(resource, "Allocate", request, AllocateResponse).containers[0]


@pytest.fixture
def kubelet(tmp_path: Path) -> Iterator[Kubelet]:
    folder = tmp_path / "k"
    folder.mkdir()
    made = Kubelet(folder)
    made.start()
    yield made
    made.stop()


class Node:
    """A plugin over simulated cards; time moves by :meth:`look`."""

    def __init__(self, kubelet: Kubelet, cards: str, config: Config | None = None) -> None:
        self.machine = SimulatedMachine(cards)
        self.said: list[str] = []
        self.specs = kubelet.folder.parent / "cdi"
        self.mps = SimulatedMps()
        places = Places(kubelet.folder, self.specs, kubelet.folder.parent / "m")
        watch = HealthWatch(self.machine, DeviceHealth(HealthRules(settle_s=10)))
        self.plugin = DevicePlugin(
            self.machine, SimulatedFiles(), places, config or Config(), watch, self.said.append, self.mps
        )
        self.now_s = 0.0

    def look(self, after_s: float = 1) -> None:
        self.now_s += after_s
        self.plugin.look(round(self.now_s * NS_PER_S))


def qualified(spec: dict[str, Any]) -> set[str]:
    """The names of its devices as containers ask for them."""
    return {f"{spec['kind']}={one['name']}" for one in spec["devices"]}


def config(strategy: str = "none", sharing: Sharing | None = None, **flags: Any) -> Config:
    return Config({"migStrategy": strategy, **flags}, sharing=sharing or Sharing())


GPU = "nvidia.com/gpu"
CDI = {"plugin.deviceListStrategy": ["cdi-cri", "envvar"]}


def test_devices_are_registered_listed_with_their_numa_nodes_and_handed_out(kubelet: Kubelet) -> None:
    node = Node(kubelet, "p4d.24xlarge", config(**CDI))
    node.look()
    kubelet.wait(lambda: len(kubelet.health(GPU)) == 8)
    listed = kubelet.lists[GPU][-1].devices
    assert [one.topology.nodes[0].id for one in listed if one.topology] == [0] * 4 + [1] * 4
    uuids = [one.id for one in listed]
    given = kubelet.allocate(GPU, uuids[1], uuids[3])
    assert given.envs == {"NVIDIA_VISIBLE_DEVICES": f"{uuids[1]},{uuids[3]}"}
    spec = cdi.read(cdi.path_of(cdi.PLUGIN_KIND, node.specs))
    assert spec is not None
    assert [one.name for one in given.cdi] == [f"{cdi.PLUGIN_KIND}={uuids[1]}", f"{cdi.PLUGIN_KIND}={uuids[3]}"]
    assert {one.name for one in given.cdi} <= qualified(spec)
    asked = PreferredRequest([ContainerPreferredRequest(uuids[1:], [uuids[5]], 2)])
    answer = kubelet.ask(GPU, "GetPreferredAllocation", asked, PreferredResponse)
    assert answer.containers[0].ids == [uuids[5], uuids[4]]
    with pytest.raises(grpc.RpcError, match="no device GPU-x here"):
        kubelet.allocate(GPU, "GPU-x")
    node.plugin.close()


def test_a_kubelet_that_starts_again_finds_everything_registered_and_nothing_else_is_announced(
    kubelet: Kubelet,
) -> None:
    node = Node(kubelet, "2xh100")
    for _ in range(20):
        node.look()
    kubelet.wait(lambda: kubelet.healthy(GPU) == 2)
    assert (kubelet.registered, len(kubelet.lists[GPU])) == ([GPU], 1)
    kubelet.stop()
    node.look()
    kubelet.start()
    kubelet.lists.clear()
    node.look()
    kubelet.wait(lambda: kubelet.healthy(GPU) == 2)
    assert (kubelet.registered, len(kubelet.lists[GPU])) == ([GPU, GPU], 1)
    node.plugin.close()


def test_what_is_offered_follows_mig_changes_and_so_does_the_cdi_specification(kubelet: Kubelet) -> None:
    node = Node(kubelet, "2xh100", config("mixed", **CDI))
    node.look()
    kubelet.wait(lambda: kubelet.healthy(GPU) == 2)
    node.machine.set_mode(1, True)
    made = [node.machine.create(1, "3g.40gb", 4), node.machine.create(1, "3g.40gb", 0)]
    node.look()
    slices = "nvidia.com/mig-3g.40gb"
    kubelet.wait(lambda: kubelet.healthy(GPU) == 1 and kubelet.healthy(slices) == 2)
    uuid = made[0].compute[0].uuid
    given = kubelet.allocate(slices, uuid)
    spec = cdi.read(cdi.path_of(cdi.PLUGIN_KIND, node.specs))
    assert spec is not None
    assert {one.name for one in given.cdi} <= qualified(spec)
    node.machine.destroy(1, made[0].id)
    node.look()
    kubelet.wait(lambda: kubelet.healthy(slices) == 1)
    with pytest.raises(grpc.RpcError, match="no device MIG-"):
        kubelet.allocate(slices, uuid)
    node.plugin.close()


def test_a_fault_makes_everything_on_its_card_unhealthy_until_there_is_evidence(kubelet: Kubelet) -> None:
    node = Node(kubelet, "2xh100", config("mixed"))
    node.machine.set_mode(0, True)
    for start in range(7):
        node.machine.create(0, "1g.10gb", start)
    slices = "nvidia.com/mig-1g.10gb"
    node.look()
    kubelet.wait(lambda: kubelet.healthy(slices) == 7)
    node.machine.fault(0, xid=95, recovery=RecoveryAction.GPU_RESET)
    node.look(0.1)
    kubelet.wait(lambda: kubelet.healthy(slices) == 0)
    assert (kubelet.healthy(GPU), len(kubelet.health(slices))) == (1, 7)
    for _ in range(5):
        node.look(30)
    assert kubelet.healthy(slices) == 0
    node.machine.reset(0)
    for _ in range(4):
        node.look(6)
    assert node.plugin.health.healthy(node.machine.cards()[0].uuid)
    node.plugin.close()


def test_an_application_error_takes_no_device_away(kubelet: Kubelet) -> None:
    node = Node(kubelet, "2xh100")
    node.look()
    kubelet.wait(lambda: kubelet.healthy(GPU) == 2)
    for xid in (13, 31, 43, 45):
        node.machine.fault(1, xid=xid)
        node.look()
    assert len(kubelet.lists[GPU]) == 1
    node.plugin.close()


def test_shared_devices_are_replicas_spread_over_cards_and_more_than_one_can_be_refused(kubelet: Kubelet) -> None:
    shared = Replicas([Replicated("gpu", 3)], rename_by_default=True, fail_requests_greater_than_one=True)
    node = Node(kubelet, "2xl4", config(sharing=Sharing(time_slicing=shared)))
    node.look()
    name = f"{GPU}.shared"
    kubelet.wait(lambda: kubelet.healthy(name) == 6)
    ids = list(kubelet.health(name))
    assert ids[0].endswith("::0")
    asked = PreferredRequest([ContainerPreferredRequest(ids[1:], [], 2)])
    answer = kubelet.ask(name, "GetPreferredAllocation", asked, PreferredResponse).containers[0].ids
    assert len({one.partition("::")[0] for one in answer}) == 2
    with pytest.raises(grpc.RpcError, match="at most 1 replica"):
        kubelet.allocate(name, ids[0], ids[1])
    assert kubelet.allocate(name, ids[0]).envs["NVIDIA_VISIBLE_DEVICES"] == ids[0].partition("::")[0]
    node.plugin.close()


def test_replicas_by_mps_are_healthy_while_their_daemon_answers_and_containers_find_it(kubelet: Kubelet) -> None:
    node = Node(kubelet, "2xl4", config(sharing=Sharing(mps=Replicas([Replicated("gpu", 4)]))))
    node.look()
    kubelet.wait(lambda: kubelet.healthy(GPU) == 8)
    (folder,) = node.mps.told
    assert node.mps.told[folder] == [
        "set_default_device_pinned_mem_limit 0 5722M",
        "set_default_device_pinned_mem_limit 1 5722M",
        "set_default_active_thread_percentage 25",
    ]
    one = next(iter(kubelet.health(GPU)))
    given = kubelet.allocate(GPU, one)
    assert given.envs["CUDA_MPS_PIPE_DIRECTORY"] == "/mps/nvidia.com/gpu/pipe"
    assert folder in [mount.host_path for mount in given.mounts]
    node.mps.end(folder)
    with pytest.raises(grpc.RpcError, match="its MPS control daemon does not answer"):
        kubelet.allocate(GPU, one)
    node.mps.broken = "the driver is not loaded"
    node.look(40)
    kubelet.wait(lambda: kubelet.healthy(GPU) == 0)
    assert "the driver is not loaded" in node.said[-2]
    node.mps.broken = ""
    node.look(40)
    kubelet.wait(lambda: kubelet.healthy(GPU) == 8)
    node.plugin.configure(config())
    node.look()
    kubelet.wait(lambda: kubelet.healthy(GPU) == 2)
    with pytest.raises(KeyError):
        node.mps.end(folder)
    node.plugin.close()


def test_another_configuration_changes_what_is_offered_without_a_restart(kubelet: Kubelet) -> None:
    node = Node(kubelet, "l4")
    node.look()
    kubelet.wait(lambda: kubelet.healthy(GPU) == 1)
    node.plugin.configure(config(sharing=Sharing(time_slicing=Replicas([Replicated("gpu", 4)]))))
    node.look()
    kubelet.wait(lambda: kubelet.healthy(GPU) == 4)
    node.plugin.close()


def test_a_specification_that_somebody_removed_is_written_before_a_device_is_handed_out(kubelet: Kubelet) -> None:
    node = Node(kubelet, "l4", config(**CDI))
    node.look()
    kubelet.wait(lambda: kubelet.healthy(GPU) == 1)
    path = cdi.path_of(cdi.PLUGIN_KIND, node.specs)
    path.unlink()
    given = kubelet.allocate(GPU, *kubelet.health(GPU))
    assert path.exists()
    assert len(given.cdi) == 1
    node.plugin.close()


def test_a_folder_without_a_kubelet_is_said_once_and_the_kubelet_is_found_when_it_comes(tmp_path: Path) -> None:
    folder = tmp_path / "k"
    folder.mkdir()
    kubelet = Kubelet(folder)
    node = Node(kubelet, "l4")
    for _ in range(3):
        node.look()
    said = f"no kubelet.sock in {folder} (No such file or directory): nothing is registered yet"
    assert node.said.count(said) == 1
    kubelet.start()
    node.look()
    kubelet.wait(lambda: kubelet.healthy(GPU) == 1)
    assert node.said[-1] == f"{GPU}: registered"
    node.plugin.close()
    kubelet.stop()


def test_looking_costs_little(kubelet: Kubelet) -> None:
    node = Node(kubelet, "p5.48xlarge")
    node.look()
    before = time.thread_time()
    for _ in range(40):
        node.look(0.25)
    assert (time.thread_time() - before) / 10 < 0.1  # of a core, at four looks a second
    node.plugin.close()
