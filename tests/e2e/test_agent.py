"""The agent on a real kubelet: simulated cards that are registered, handed out, partitioned, broken and well again."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import sampling
from e2e_builders import await_running, deployment, pod_spec, pods_of

from e2e import prerequisites
from e2e.processes import Program, until
from e2e.real_nodes import GPU, RealNodes
from tonnage.node.simulated import SimulatedMachine

NODE = "real-0"
CARDS = "p5.48xlarge"
SLICE = "nvidia.com/mig-3g.40gb"
CONFIG = """version: v1
flags:
  migStrategy: mixed
  plugin:
    deviceListStrategy: cdi-cri
"""


class Agent:
    """The agent beside a real node, as a program of its own."""

    def __init__(self, nodes: RealNodes) -> None:
        self.nodes, self.api = nodes, nodes.plane.api()
        folder = nodes.folder(NODE)
        self.config, self.log = folder / "plugin.yaml", folder / "agent.log"
        self.cards = ["--simulated", CARDS, "--state", str(folder / "cards.json")]
        self.config.write_text(CONFIG)
        words = self.command("device-plugin", *self.cards, "--node", NODE, "--config", str(self.config))
        words += ["--kubelet-folder", str(nodes.plugins(NODE)), "--cdi-folder", str(nodes.cdi(NODE)), "--settle", "2"]
        self.program = Program("agent", words, self.log)

    def command(self, *words: str) -> list[str]:
        return [sys.executable, "-m", "tonnage", "agent", *words]

    def inject(self, *words: str) -> None:
        done = subprocess.run(self.command("inject", *self.cards, *words), capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr

    def amounts(self, resource: str) -> tuple[int, int]:
        """(capacity, allocatable) of the node."""
        status = self.api.get(f"/api/v1/nodes/{NODE}")["status"]
        return int(status["capacity"].get(resource, 0)), int(status["allocatable"].get(resource, 0))

    def await_amounts(self, resource: str, capacity: int, allocatable: int, limit_s: float) -> float:
        """Seconds until the node says so."""
        begun = time.monotonic()
        what = f"{resource}: {capacity}, {allocatable} allocatable; see {self.log}"
        until(what, lambda: self.amounts(resource) == (capacity, allocatable), limit_s, 0.1)
        return time.monotonic() - begun

    def handed_out(self, resource: str) -> list[str]:
        """The devices that the kubelet gave to containers."""
        text = (self.nodes.plugins(NODE) / "kubelet_internal_checkpoint").read_text()
        entries = json.loads(text)["Data"]["PodDeviceEntries"] or []
        mine = [entry for entry in entries if entry["ResourceName"] == resource]
        return [one for entry in mine for ids in entry["DeviceIDs"].values() for one in ids]

    def statuses(self, app: str) -> dict[str, str]:
        """Health of each device in ``allocatedResourcesStatus`` of an app's pods."""
        containers = [one for pod in pods_of(self.api, app) for one in pod["status"].get("containerStatuses", ())]
        listed = [status for one in containers for status in one.get("allocatedResourcesStatus", ())]
        return {each["resourceID"]: each["health"] for status in listed for each in status.get("resources", ())}

    def lines(self) -> list[str]:
        return self.log.read_text().splitlines()

    def sockets(self) -> Path:
        """The kubelet's socket that lists what pods have."""
        return self.nodes.folder(NODE) / "kubelet" / "pod-resources" / "kubelet.sock"


@pytest.fixture(scope="module")
def agent(start_plane: Any) -> Iterator[Agent]:
    if why := prerequisites.for_real_nodes():
        pytest.skip(why)
    plane = start_plane(nodes=[NODE])
    with RealNodes(plane, [NODE]) as nodes:
        made = Agent(nodes)
        until("the kubelet's socket", (nodes.plugins(NODE) / "kubelet.sock").exists)
        made.program.start()
        nodes.programs.append(made.program)
        yield made


def devices_of(pod: Any) -> list[str]:
    """/dev of a pod's container, as it sees it."""
    with urllib.request.urlopen(f"http://{pod['status']['podIP']}:8080/devices", timeout=5) as answer:
        return [Path(line).name for line in answer.read().decode().split()]


def environment_of(pod: Any) -> dict[str, str]:
    with urllib.request.urlopen(f"http://{pod['status']['podIP']}:8080/env", timeout=5) as answer:
        return dict(line.split("=", 1) for line in answer.read().decode().splitlines() if "=" in line)


def held(what: Callable[[], object], seconds: float) -> None:
    """It stays true for as long."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        assert what()
        time.sleep(0.25)


def test_it_registers_and_pods_get_their_devices(agent: Agent) -> None:
    agent.await_amounts(GPU, 8, 8, 20)
    agent.api.create("/apis/apps/v1/namespaces/default/deployments", deployment("whole", 2, pod_spec(gpus=2)))
    seen: list[str] = []
    for pod in await_running(agent.api, "whole", 2):
        nodes = [name for name in devices_of(pod) if name.removeprefix("nvidia").isdigit()]
        assert len(nodes) == 2
        assert "nvidiactl" in devices_of(pod)
        assert environment_of(pod)["NVIDIA_VISIBLE_DEVICES"] == "void"  # the nodes are CDI's
        seen += nodes
    assert len(set(seen)) == 4
    assert len(agent.handed_out(GPU)) == 4


def test_capacity_follows_a_mig_change_and_pods_get_their_slices(agent: Agent) -> None:
    agent.inject("--card", "7", "--mig", "3g.40gb@0,3g.40gb@4")
    agent.await_amounts(SLICE, 2, 2, 15)
    agent.await_amounts(GPU, 7, 7, 15)
    spec = pod_spec()
    spec["containers"][0]["resources"] = {"limits": {SLICE: "1"}}
    agent.api.create("/apis/apps/v1/namespaces/default/deployments", deployment("slices", 2, spec))
    for pod in await_running(agent.api, "slices", 2):
        assert {"nvidia7", "nvidia-caps"} <= set(devices_of(pod))
    uuids = agent.handed_out(SLICE)
    assert len(uuids) == len(set(uuids)) == 2
    assert all(uuid.startswith("MIG-") for uuid in uuids)
    agent.api.delete("/apis/apps/v1/namespaces/default/deployments/slices")
    until("the pods of the slices are gone", lambda: not pods_of(agent.api, "slices"), 30)
    agent.inject("--card", "7", "--mig", "off")
    agent.await_amounts(GPU, 8, 8, 15)
    agent.await_amounts(SLICE, 0, 0, 15)


def test_a_fault_lowers_what_can_be_allocated_and_evidence_brings_it_back(agent: Agent) -> None:
    agent.await_amounts(GPU, 8, 8, 20)
    await_running(agent.api, "whole", 2)
    broken = agent.handed_out(GPU)[0]
    card = next(str(one.index) for one in SimulatedMachine(CARDS, node=NODE).cards() if one.uuid == broken)
    begun = time.monotonic()
    agent.inject("--card", card, "--xid", "95", "--recovery", "gpu-reset")
    agent.await_amounts(GPU, 8, 7, 10)
    lowered_s = time.monotonic() - begun
    until("the pod's status has it", lambda: agent.statuses("whole").get(broken) == "Unhealthy", 10, 0.1)
    print(f"fault to allocatable lowered: {lowered_s:.1f} s, to the pod's status: {time.monotonic() - begun:.1f} s")
    assert sorted(agent.statuses("whole").values()) == ["Healthy"] * 3 + ["Unhealthy"]
    agent.inject("--card", card, "--reset")
    agent.await_amounts(GPU, 8, 8, 25)
    until("the pod's status has it", lambda: agent.statuses("whole").get(broken) == "Healthy", 10, 0.1)


def test_a_kubelet_that_is_killed_finds_it_registered_within_5_s_and_pods_keep_their_devices(agent: Agent) -> None:
    agent.await_amounts(GPU, 8, 8, 20)
    before = {pod["metadata"]["uid"]: pod["status"]["podIP"] for pod in await_running(agent.api, "whole", 2)}
    mark = len(agent.lines())
    old = (agent.nodes.plugins(NODE) / "kubelet.sock").stat().st_ctime_ns  # a number of an inode may come again
    agent.nodes.restart(NODE, "kubelet")

    def again() -> bool:
        socket = agent.nodes.plugins(NODE) / "kubelet.sock"
        return socket.exists() and socket.stat().st_ctime_ns != old

    until("the kubelet serves again", again, 30)
    begun = time.monotonic()
    until("registered again", lambda: f"{GPU}: registered" in agent.lines()[mark:], 5, 0.05)
    print(f"kubelet's socket to registered: {time.monotonic() - begun:.1f} s")
    agent.await_amounts(GPU, 8, 8, 20)
    held(lambda: agent.amounts(GPU) == (8, 8), 5)
    after = {pod["metadata"]["uid"]: pod["status"]["podIP"] for pod in await_running(agent.api, "whole", 2)}
    assert after == before
    assert not [line for line in agent.lines()[mark:] if "unhealthy" in line]


def test_a_containerd_that_is_killed_changes_nothing(agent: Agent) -> None:
    agent.await_amounts(GPU, 8, 8, 20)
    mark = len(agent.lines())
    agent.nodes.restart(NODE, "containerd")
    held(lambda: agent.amounts(GPU) == (8, 8), 8)
    assert [line for line in agent.lines()[mark:] if "healthy" in line or "devices" in line] == []


def test_the_exporter_names_the_container_that_has_each_gpu(agent: Agent) -> None:
    agent.await_amounts(GPU, 8, 8, 20)
    pods = {pod["metadata"]["name"] for pod in await_running(agent.api, "whole", 2)}
    held_ids = set(agent.handed_out(GPU))
    words = agent.command("metrics", *agent.cards, "--node", NODE, "--pod-resources", str(agent.sockets()), "--print")
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    lines = [line for line in done.stdout.splitlines() if line.startswith("DCGM_FI_DEV_GPU_TEMP{")]
    assert len(lines) == 8
    owners = {}
    for line in lines:
        labels = dict(re.findall(r'(\w+)="([^"]*)"', line))
        if "pod" in labels:
            owners[labels["UUID"]] = (labels["namespace"], labels["pod"], labels["container"])
    assert set(owners) == held_ids
    assert set(owners.values()) == {("default", pod, "main") for pod in pods}


def test_a_faulted_card_drains_only_its_own_pods(agent: Agent) -> None:
    agent.await_amounts(GPU, 8, 8, 20)
    before = {pod["metadata"]["uid"]: pod["metadata"]["name"] for pod in await_running(agent.api, "whole", 2)}
    words = agent.command("health", *agent.cards, "--node", NODE, "--apply", "--settle", "2")
    words += ["--pod-resources", str(agent.sockets()), "--kubeconfig", str(agent.nodes.plane.kubeconfig())]
    health = Program("health", words, agent.nodes.folder(NODE) / "health.log")
    health.start()
    agent.nodes.programs.append(health)
    broken = agent.handed_out(GPU)[0]
    card = next(str(one.index) for one in SimulatedMachine(CARDS, node=NODE).cards() if one.uuid == broken)

    def there() -> set[str]:
        return {pod["metadata"]["uid"] for pod in pods_of(agent.api, "whole") if pod["status"]["phase"] == "Running"}

    begun = time.monotonic()
    agent.inject("--card", card, "--xid", "95", "--recovery", "gpu-reset")
    until(f"a pod has gone; see {health.log}", lambda: len(there() & set(before)) == 1, 40, 0.2)
    print(f"fault to the pod's end: {time.monotonic() - begun:.1f} s")
    until("another one runs", lambda: len(there()) == 2, 60, 0.2)
    stayed = there() & set(before)
    held(lambda: stayed <= there(), 5)
    assert broken not in agent.statuses("whole")
    agent.inject("--card", card, "--reset")
    agent.await_amounts(GPU, 8, 8, 30)
    health.stop()


def test_lives_of_pods_change_no_capacity_and_no_label(agent: Agent) -> None:
    """What is said of the node is the same at every look, while pods come and go."""
    agent.await_amounts(GPU, 8, 8, 20)
    features = agent.nodes.folder(NODE) / "features" / "tonnage"
    features.parent.mkdir(exist_ok=True)
    words = agent.command("labels", *agent.cards, "--node", NODE, "--no-timestamp", "--every", "1")
    labels = Program("labels", [*words, "--features-file", str(features)], agent.nodes.folder(NODE) / "labels.log")
    labels.start()
    agent.nodes.programs.append(labels)
    until("the labels are written", features.exists, 30)
    said: set[tuple[tuple[int, int], str]] = set()
    mark, lives, stop = len(agent.lines()), sampling.often("lives of pods with a GPU", 200, 12), threading.Event()

    def watch() -> None:
        while not stop.wait(0.1):
            said.add((agent.amounts(GPU), features.read_text()))

    watching = threading.Thread(target=watch)
    watching.start()
    try:
        for first in range(0, lives, 4):
            names = [f"life-{number}" for number in range(first, min(lives, first + 4))]
            for name in names:
                meta = {"name": name, "labels": {"app": "life"}}
                body = {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": pod_spec(gpus=1)}
                agent.api.create("/api/v1/namespaces/default/pods", body)
            await_running(agent.api, "life", len(names))
            for name in names:
                agent.api.delete(f"/api/v1/namespaces/default/pods/{name}")
            until("they are gone", lambda: not pods_of(agent.api, "life"), 60, 0.1)
    finally:
        stop.set()
        watching.join()
    assert len(said) == 1
    assert [
        line for line in agent.lines()[mark:] if "healthy" in line or "devices" in line or "registered" in line
    ] == []


def test_a_wrong_configuration_is_reported_and_a_right_one_is_taken_up(agent: Agent) -> None:
    agent.await_amounts(GPU, 8, 8, 20)
    agent.config.write_text(CONFIG.replace("mixed", "several"))
    until("it says what is wrong", lambda: any("plugin.yaml:3:flags.migStrategy" in one for one in agent.lines()), 10)
    held(lambda: agent.amounts(GPU) == (8, 8), 2)
    shared = "sharing:\n  timeSlicing:\n    resources:\n      - name: gpu\n        replicas: 2\n"
    agent.config.write_text(CONFIG + shared)
    agent.await_amounts(GPU, 16, 16, 15)
    agent.config.write_text(CONFIG)
    agent.await_amounts(GPU, 8, 8, 15)


def test_a_label_of_the_node_becomes_a_layout_and_what_a_pod_holds_stays(agent: Agent) -> None:
    """The MIG manager beside the device plugin: on the API server's label, with what the kubelet lists of pods."""
    agent.await_amounts(GPU, 8, 8, 20)
    folder = agent.nodes.folder(NODE)
    words = agent.command("mig", *agent.cards, "--node", NODE, "--folder", str(folder / "mig"))
    words += ["--pod-resources", str(agent.sockets())]
    words += ["--kubeconfig", str(agent.nodes.plane.kubeconfig())]
    manager = Program("mig-manager", words, folder / "mig.log")
    manager.start()
    agent.nodes.programs.append(manager)
    path = f"/api/v1/nodes/{NODE}"

    def state() -> str:
        return str(agent.api.get(path)["metadata"]["labels"].get("nvidia.com/mig.config.state", ""))

    # The pods of `whole` hold four cards, whose mode cannot change under them.
    agent.api.patch(path, {"metadata": {"labels": {"nvidia.com/mig.config": "all-3g.40gb"}}})
    until(f"it waits for what is in use; see {manager.log}", lambda: state() == "pending", 15, 0.2)
    held(lambda: agent.amounts(GPU) == (8, 8), 2)
    agent.api.delete("/apis/apps/v1/namespaces/default/deployments/whole")
    until(f"all cards have the layout; see {manager.log}", lambda: state() == "success", 40, 0.2)
    agent.await_amounts(SLICE, 16, 16, 20)
    agent.await_amounts(GPU, 0, 0, 20)
    agent.api.patch(path, {"metadata": {"labels": {"nvidia.com/mig.config": "all-disabled"}}})
    agent.await_amounts(GPU, 8, 8, 30)
    assert "Traceback" not in manager.log.read_text()
