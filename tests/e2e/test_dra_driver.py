"""The DRA driver under a real kubelet and a real kube-scheduler: claims become MIG devices of simulated cards."""

from __future__ import annotations

import json
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest
import sampling
import yaml
from e2e_builders import pod_spec

from e2e import prerequisites
from e2e.api import Json
from e2e.processes import Program, until
from e2e.real_nodes import RealNodes
from tonnage.decisions import Applied, ClaimAllocation, Ref
from tonnage.dra.allocated import AllocatedState
from tonnage.dra.allocator import Feasibility, allocate
from tonnage.dra.pools import NodeView
from tonnage.facts.operands import parts
from tonnage.kube.http import open_cluster
from tonnage.live.reserving import reserve
from tonnage.node.agent_manifests import rules_of
from tonnage.node.attribution import DeviceNames, holders, names_of
from tonnage.node.pod_resources import listed
from tonnage.node.simulated import SimulatedMachine
from tonnage.objects.dra import DeviceClass, ResourceClaim, ResourceSlice
from tonnage.objects.dra_versions import from_dict

T = TypeVar("T")
NODE, CARDS, USER = "real-0", "2xh100", "dra-driver"
CLAIMS = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims"
TEMPLATES = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaimtemplates"
PODS = "/api/v1/namespaces/default/pods"
ORPHANED_S, REFUSED_S = 90, 150
"""Once a minute a kubelet gives back the claims of pods that went while it was away (pkg/kubelet/cm/dra/manager.go), and
as seldom it looks again at a pod whose driver was away."""
LIVES = sampling.often("pod lives with a claim", 200, 12)
RIGHTS = rules_of([parts()["dra"]])
"""What a driver that is rendered may do, and no more."""


class Driver:
    """The driver beside a real node, as a program of its own."""

    def __init__(self, nodes: RealNodes) -> None:
        self.nodes, self.api = nodes, nodes.plane.api()
        self.folder = nodes.folder(NODE)
        self.log = self.folder / "dra.log"
        self.cards = ["--simulated", CARDS, "--state", str(self.folder / "cards.json")]
        words = [*self.command("dra", *self.cards), "--node", NODE, "--kubelet-folder", str(self.folder / "kubelet")]
        words += ["--cdi-folder", str(nodes.cdi(NODE)), "--kubeconfig", str(nodes.plane.kubeconfig(USER))]
        self.program = Program("dra", [*words, "--settle", "2"], self.log)

    def command(self, *words: str) -> list[str]:
        return [sys.executable, "-m", "tonnage", "agent", *words]

    def machine(self) -> SimulatedMachine:
        return SimulatedMachine(CARDS, node=NODE, state=self.folder / "cards.json")

    def instances(self) -> list[tuple[int, str, int]]:
        machine = self.machine()
        states = [(card.index, machine.mig(card.index)) for card in machine.cards()]
        return [(card, one.profile, one.start) for card, state in states if state for one in state.instances]

    def inject(self, *words: str) -> None:
        done = subprocess.run(self.command("inject", *self.cards, *words), capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr

    def slices(self) -> list[Json]:
        return self.api.items("/apis/resource.k8s.io/v1/resourceslices", fieldSelector=f"spec.nodeName={NODE}")

    def devices(self) -> dict[str, Json]:
        return {one["name"]: one for each in self.slices() for one in each["spec"].get("devices", ())}

    def await_devices(self, count: int) -> None:
        until(f"{count} devices are published; see {self.log}", lambda: len(self.devices()) == count, 30, 0.2)

    def lines(self) -> list[str]:
        return self.log.read_text().splitlines()

    def specs(self) -> list[str]:
        return sorted(one.name for one in self.nodes.cdi(NODE).glob("*claim*"))

    def journal(self) -> list[Json]:
        path = self.folder / "kubelet/plugins/gpu.nvidia.com/claims.json"
        found: list[Json] = json.loads(path.read_text())["claims"] if path.exists() else []
        return found

    def pod(self, name: str, expression: str = "", device_class: str = "mig.nvidia.com", count: int = 1) -> None:
        """A pod with a claim of its own."""
        selectors = [{"cel": {"expression": expression}}] if expression else []
        exactly = {"deviceClassName": device_class, "selectors": selectors, "count": count}
        spec = {"devices": {"requests": [{"name": "gpu", "exactly": exactly}]}}
        template = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaimTemplate", "metadata": {"name": name}}
        self.api.create(TEMPLATES, {**template, "spec": {"spec": spec}})
        own = pod_spec()
        own["containers"][0]["resources"] = {"claims": [{"name": "gpu"}]}
        own["resourceClaims"] = [{"name": "gpu", "resourceClaimTemplateName": name}]
        self.api.create(PODS, {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": own})

    def profile(self, name: str, profile: str, count: int = 1) -> None:
        self.pod(name, f"device.attributes['gpu.nvidia.com'].profile == '{profile}'", count=count)

    def running(self, name: str) -> Json:
        def there() -> bool:
            return bool(self.api.get(f"{PODS}/{name}")["status"].get("phase") == "Running")

        until(f"{name} runs; see {self.log}", there, 60, 0.2)
        return self.api.get(f"{PODS}/{name}")

    def remove(self, name: str) -> None:
        self.api.delete(f"{PODS}/{name}")
        self.api.delete(f"{TEMPLATES}/{name}")

    def gone(self, *names: str) -> None:
        for name in names:
            until(f"{name} is gone", lambda name=name: self.api.raw("GET", f"{PODS}/{name}")[0] == 404, 60, 0.2)

    def given(self, name: str) -> list[str]:
        """Devices of the pod's claim, by the cluster."""
        status = self.api.get(f"{PODS}/{name}")["status"]
        claim = self.api.get(f"{CLAIMS}/{status['resourceClaimStatuses'][0]['resourceClaimName']}")
        return [one["device"] for one in claim["status"]["allocation"]["devices"]["results"]]


@pytest.fixture(scope="module")
def driver(start_plane: Any) -> Iterator[Driver]:
    if why := prerequisites.for_real_nodes():
        pytest.skip(why)
    plane = start_plane(nodes=[NODE], users={USER: ()})
    plane.grant(USER, RIGHTS)
    with RealNodes(plane, [NODE]) as nodes:
        made = Driver(nodes)
        words = [*made.command("dra", *made.cards), "--node", NODE, "--print"]
        printed = subprocess.run(words, capture_output=True, check=True).stdout
        for one in yaml.safe_load_all(printed):
            if one["kind"] == "DeviceClass":
                made.api.create("/apis/resource.k8s.io/v1/deviceclasses", one)
        made.program.start()
        nodes.programs.append(made.program)
        yield made


def devices_of(pod: Json) -> list[str]:
    with urllib.request.urlopen(f"http://{pod['status']['podIP']}:8080/devices", timeout=5) as answer:
        return [Path(line).name for line in answer.read().decode().split()]


def test_a_claim_for_a_mig_profile_becomes_an_instance_at_the_place_that_was_allocated(driver: Driver) -> None:
    driver.await_devices(52)
    assert len(driver.devices()) // 2 >= 20
    driver.profile("half", "3g.40gb")
    pod = driver.running("half")
    [name] = driver.given("half")
    card, start = int(name.split("-")[1]), int(name.rsplit("-", 1)[1])
    assert driver.instances() == [(card, "3g.40gb", start)]
    machine = driver.machine()
    state = machine.mig(card)
    assert state is not None
    minors = {f"nvidia-cap{minor}" for owner, minor in state.instances[0].minors.items() if owner in (None, 0)}
    seen = set(devices_of(pod))
    assert {f"nvidia{card}", "nvidiactl"} <= seen
    folder = driver.nodes.cdi(NODE)
    spec = json.loads(next(folder.glob("*claim*")).read_text())
    paths = {Path(one["path"]).name for one in spec["devices"][0]["containerEdits"]["deviceNodes"]}
    assert paths == {f"nvidia{card}", *minors}
    names: list[DeviceNames] = names_of(machine)
    found = holders(listed(driver.folder / "kubelet/pod-resources/kubelet.sock"), names)
    [uuid] = found
    assert uuid == state.instances[0].compute[0].uuid
    assert [(one.pod, one.container) for one in found[uuid]] == [("half", "main")]


def test_restarts_of_kubelet_driver_and_api_server_leave_what_is_prepared(driver: Driver) -> None:
    before = driver.running("half")
    there, published = driver.instances(), sorted(driver.devices())
    for again in ("driver", "kubelet", "API server"):
        mark = len(driver.lines())
        if again == "driver":
            driver.program.stop()
            driver.program.start()
        elif again == "kubelet":
            driver.nodes.restart(NODE, "kubelet")
        else:
            driver.nodes.plane.restart()
            break
        until("registered again", lambda mark=mark: "registered" in driver.lines()[mark:], 30, 0.2)
    driver.profile("small", "1g.10gb", 2)
    driver.running("small")
    assert len(driver.given("small")) == 2
    assert set(there) < set(driver.instances())
    assert driver.running("half")["metadata"]["uid"] == before["metadata"]["uid"]
    until("all is published", lambda: sorted(driver.devices()) == published, 60, 0.2)
    driver.remove("small")
    driver.gone("small")
    until("its instances are gone", lambda: driver.instances() == there, ORPHANED_S, 0.2)


def test_a_claim_that_was_allocated_here_takes_its_pod_to_its_node_and_is_prepared_as_allocated(driver: Driver) -> None:
    """kube-scheduler binds the pod of a claim that was allocated and reserved by ours; the kubelet has it prepared."""
    meta = {"name": "ours"}
    selectors = [{"cel": {"expression": "device.attributes['gpu.nvidia.com'].profile == '2g.20gb'"}}]
    asked = {"name": "gpu", "exactly": {"deviceClassName": "mig.nvidia.com", "selectors": selectors}}
    claim = driver.api.create(CLAIMS, {"metadata": meta, "spec": {"devices": {"requests": [asked]}}})
    own = pod_spec(schedulingGates=[{"name": "example.com/wait"}])
    own["containers"][0]["resources"] = {"claims": [{"name": "gpu"}]}
    own["resourceClaims"] = [{"name": "gpu", "resourceClaimName": "ours"}]
    pod = driver.api.create(PODS, {"metadata": meta, "spec": own})
    held = AllocatedState.of(_read(one, ResourceClaim) for one in driver.api.items(CLAIMS))
    classes = [_read(one, DeviceClass) for one in driver.api.items("/apis/resource.k8s.io/v1/deviceclasses")]
    slices = [_read(one, ResourceSlice) for one in driver.slices()]
    found = allocate([_read(claim, ResourceClaim)], NodeView(NODE, {}), slices=slices, classes=classes, state=held)
    assert found.feasibility is Feasibility.ALLOCATED
    given = found.results[0]
    [device] = [one.device for one in given.devices.results]
    places = [
        Ref(kind, "ours", "default", one["metadata"]["uid"]) for kind, one in (("Pod", pod), ("ResourceClaim", claim))
    ]
    client = open_cluster(str(driver.nodes.plane.kubeconfig()))
    outcome = reserve(client, *places, ClaimAllocation(places[1], given), time.time_ns())
    client.transport.close()
    assert isinstance(outcome, Applied), outcome
    driver.api.patch(f"{PODS}/ours", {"spec": {"schedulingGates": None}})
    assert driver.running("ours")["spec"]["nodeName"] == NODE
    status = driver.api.get(f"{CLAIMS}/ours")["status"]
    assert [one["device"] for one in status["allocation"]["devices"]["results"]] == [device]
    assert [one["uid"] for one in status["reservedFor"]] == [pod["metadata"]["uid"]]
    card, start = int(device.split("-")[1]), int(device.rsplit("-", 1)[1])
    assert (card, "2g.20gb", start) in driver.instances()
    assert sorted(one["device"] for each in driver.journal() for one in each["devices"]) == sorted(
        {device, *driver.given("half")}
    )
    driver.api.delete(f"{PODS}/ours")
    driver.gone("ours")
    driver.api.delete(f"{CLAIMS}/ours")
    until("its instance is gone", lambda: (card, "2g.20gb", start) not in driver.instances(), ORPHANED_S, 0.2)


def _read(body: Json, type_: type[T]) -> T:
    made = from_dict({"apiVersion": "resource.k8s.io/v1", "kind": type_.__name__, **body})
    assert isinstance(made, type_)
    return made


def test_a_fault_taints_the_devices_of_its_gpu_and_pods_say_so_until_it_is_over(driver: Driver) -> None:
    driver.running("half")
    card = driver.instances()[0][0]
    begun = time.monotonic()
    driver.inject("--card", str(card), "--xid", "95", "--recovery", "gpu-reset")

    def tainted() -> list[str]:
        return [name for name, one in driver.devices().items() if one.get("taints")]

    until("its devices are tainted", lambda: len(tainted()) == 26, 10, 0.1)
    tainted_s = time.monotonic() - begun
    assert all(name.startswith(f"gpu-{card}") for name in tainted())
    keys = {one["key"] for one in driver.devices()[f"gpu-{card}"]["taints"]}
    assert keys == {"tonnage.dev/xid-95", "tonnage.dev/recovery-action"}

    def health() -> list[str]:
        status = driver.api.get(f"{PODS}/half")["status"]
        each = [one for c in status.get("containerStatuses", ()) for one in c.get("allocatedResourcesStatus", ())]
        return [resource["health"] for one in each for resource in one.get("resources", ())]

    until("the pod's status has it", lambda: health() == ["Unhealthy"], 15, 0.1)
    print(f"fault to taints: {tainted_s:.1f} s, to the pod's status: {time.monotonic() - begun:.1f} s")
    generations = {one["spec"]["pool"]["generation"] for one in driver.slices()}
    assert len(generations) == 1
    driver.inject("--card", str(card), "--recovery", "none")
    until("no device is tainted", lambda: tainted() == [], 20, 0.1)
    until("the pod's status has it", lambda: health() == ["Healthy"], 15, 0.1)


def test_pods_that_come_and_go_leave_nothing_behind(driver: Driver) -> None:
    rng = sampling.draw("pods with claims")
    driver.remove("half")
    driver.gone("half")
    alive: list[str] = []
    for number in range(LIVES):
        name = f"life-{number}"
        if rng.random() < 0.15:
            driver.pod(name, device_class="gpu.nvidia.com")
        else:
            driver.profile(name, rng.choice(["1g.10gb", "2g.20gb", "3g.40gb"]), rng.choice([1, 1, 2]))
        alive.append(name)
        if rng.random() < 0.5:
            _settled(driver, name)
        if sampling.LONG and rng.random() < 0.05:
            driver.program.stop()
            driver.program.start()
        if sampling.LONG and rng.random() < 0.05:
            driver.nodes.restart(NODE, "kubelet")
        while len(alive) > rng.randint(1, 4):
            gone = alive.pop(rng.randrange(len(alive)))
            driver.remove(gone)
            if rng.random() < 0.5:
                driver.gone(gone)
        _once(driver)
    for name in alive:
        driver.remove(name)
    driver.gone(*[f"life-{number}" for number in range(LIVES)])
    until("no claim is prepared", lambda: driver.journal() == [], ORPHANED_S, 0.2)
    assert driver.instances() == []
    assert driver.specs() == []
    until("no claim is there", lambda: driver.api.items(CLAIMS) == [], 30, 0.2)
    assert "Traceback" not in driver.log.read_text()


def _settled(driver: Driver, name: str) -> None:
    """It runs, or waits as there is no device for it."""

    def so() -> bool:
        status = driver.api.get(f"{PODS}/{name}")["status"]
        reasons = [one.get("reason") for one in status.get("conditions", ())]
        return status.get("phase") == "Running" or "Unschedulable" in reasons

    until(f"{name} runs or waits; see {driver.log}", so, REFUSED_S if sampling.LONG else 60, 0.2)


def _once(driver: Driver) -> None:
    """No device is prepared for two claims."""
    names = [one["device"] for claim in driver.journal() for one in claim["devices"]]
    assert len(names) == len(set(names))
    placed = [(card, start) for card, _, start in driver.instances()]
    assert len(placed) == len(set(placed))
