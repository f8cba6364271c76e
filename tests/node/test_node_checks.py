"""`tonnage agent doctor`: each step finds its fault, and what is slow is found by what it looks like."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tonnage.cli import main
from tonnage.node import cdi, node_checks, slow_checks
from tonnage.node.devices import GpuProcess, Measured, RecoveryAction
from tonnage.node.driver_files import SimulatedFiles
from tonnage.node.node_checks import FAILED, PASSED, UNKNOWN, WARNING, NodeCheck
from tonnage.node.offers import offer
from tonnage.node.simulated import SimulatedMachine
from tonnage.partitioning.device_plugin import Sharing

GPU = "nvidia.com/gpu"


def checkpoint(folder: Path, registered: dict[str, list[str]], held: Sequence[dict[str, Any]] = ()) -> None:
    data = {"Data": {"PodDeviceEntries": list(held), "RegisteredDevices": registered}, "Checksum": 0}
    (folder / node_checks.CHECKPOINT).write_text(json.dumps(data))


def verdicts(machine: SimulatedMachine, folder: Path, dev: Path | None = None) -> list[NodeCheck]:
    return node_checks.steps(machine, offer(machine, "mixed", Sharing()), folder, folder / "cdi", dev)


def test_a_node_on_which_all_is_well_passes_every_step(tmp_path: Path) -> None:
    machine = SimulatedMachine("2xh100")
    uuids = [one.uuid for one in machine.cards()]
    entry = {"PodUID": "p", "ContainerName": "main", "ResourceName": GPU, "DeviceIDs": {"-1": uuids[:1]}}
    checkpoint(tmp_path, {GPU: uuids}, [entry])
    for name in ("kubelet.sock", "tonnage-gpu.sock", "dev/nvidia0", "dev/nvidia1"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("")
    cdi.write(cdi.spec_of(machine, SimulatedFiles()), cdi.path_of(cdi.KIND, tmp_path / "cdi"))
    found = verdicts(machine, tmp_path, tmp_path / "dev")
    assert [one.verdict for one in found] == [PASSED] * 7
    assert [one.name[0] for one in found] == list("1234567")
    assert found[3].evidence == (f"{GPU}: 1 by main of pod p",)


def test_each_step_finds_its_fault(tmp_path: Path) -> None:
    machine = SimulatedMachine("2xh100")
    machine.fault(0, xid=79, lost=True)
    machine.fault(1, recovery=RecoveryAction.NODE_REBOOT)
    (tmp_path / "kubelet.sock").write_text("")
    checkpoint(tmp_path, {GPU: ["a"]})
    found = verdicts(machine, tmp_path, tmp_path / "dev")
    assert [one.verdict for one in found] == [FAILED, FAILED, FAILED, UNKNOWN, FAILED, PASSED, PASSED]
    assert "GPU 0 00000000:10:00.0 does not answer" in found[0].evidence
    assert "the driver asks for: node reboot" in found[0].evidence[2]
    assert found[2].evidence == (f"{GPU}: 1 healthy of 2",)
    assert "/dev/nvidia0 is not there" in found[4].evidence
    assert all(one.help for one in found if one.verdict in (FAILED, WARNING, UNKNOWN))


def test_a_specification_of_before_a_mig_change_is_stale(tmp_path: Path) -> None:
    machine = SimulatedMachine("h100")
    cdi.write(cdi.spec_of(machine, SimulatedFiles()), cdi.path_of(cdi.KIND, tmp_path / "cdi"))
    assert verdicts(machine, tmp_path)[4].verdict == PASSED
    machine.set_mode(0, True)
    machine.create(0, "7g.80gb", 0)
    stale = verdicts(machine, tmp_path)[4]
    assert stale.verdict == WARNING
    assert "without MIG-" in stale.evidence[0]


def test_memory_that_nobody_owns_is_seen() -> None:
    machine = SimulatedMachine("l4")
    machine.occupy(0, [GpuProcess(1, "compute", 22_000)])
    assert node_checks.memory(machine).verdict == WARNING
    machine.occupy(0, [])
    assert node_checks.memory(machine).verdict == PASSED


def taken(*utilizations: int, watts: float = 100) -> list[list[Measured]]:
    return [[Measured(gpu_utilization=value, power_w=watts)] for value in utilizations]


@pytest.mark.parametrize(
    ("samples", "disk", "slow"),
    [
        (taken(90, 95, watts=120), None, {"power against utilisation"}),
        (taken(90, 95, watts=600), None, set()),
        (taken(0, 80, 0, watts=300), None, {"sampling window"}),
        (taken(0, 0), 120.0, {"storage"}),
        (taken(0, 0), 1900.0, set()),
        (taken(90, 90, watts=600), 125.0, set()),
    ],
)
def test_what_is_slow_is_found_by_what_it_looks_like(
    samples: list[list[Measured]], disk: float | None, slow: set[str]
) -> None:
    found = slow_checks.slow(SimulatedMachine("h100"), samples, disk)
    assert {one.name for one in found if one.verdict == WARNING} == slow


def test_clocks_that_are_held_down_and_narrow_links_are_told() -> None:
    machine = SimulatedMachine("2xh100")
    machine.disturb(1, throttle=["hw_thermal_slowdown", "gpu_idle"], nvlinks_down=[3, 4], pcie_width=8)
    found = {one.name: one for one in slow_checks.slow(machine, [[Measured(), Measured()]], None)}
    assert found["clocks"].evidence == ("GPU 1: hw_thermal_slowdown",)
    assert found["PCIe and NVLink"].evidence == ("GPU 1: PCIe x8 of x16", "GPU 1: NVLink 3, 4 down")


def test_the_command_exits_with_1_where_a_step_failed(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    state = tmp_path / "state.json"
    for lost, code in ((False, 0), (True, 1)):
        if lost:
            SimulatedMachine("l4", state=state).fault(0, xid=79, lost=True)
        with pytest.raises(SystemExit) as ended:
            main(["agent", "doctor", "--simulated", "l4", "--state", str(state), "--window", "0", "-o", "json"])
        assert ended.value.code == code
        answer = json.loads(capfd.readouterr().out)
        assert answer["schema"] == "tonnage.dev/agent-doctor/v1"
        assert len(answer["steps"]) == 7


@pytest.mark.parametrize(
    "data",
    [
        {"RegisteredDevices": {GPU: 3}},
        {"RegisteredDevices": [1]},
        {"PodDeviceEntries": [{}]},
        {"PodDeviceEntries": [{"PodUID": "p", "ContainerName": "c", "ResourceName": GPU, "DeviceIDs": ["a"]}]},
        [],
        None,
    ],
)
def test_a_checkpoint_that_holds_something_else_is_not_read(data: object, tmp_path: Path) -> None:
    (tmp_path / node_checks.CHECKPOINT).write_text(json.dumps({"Data": data}))
    found = verdicts(SimulatedMachine("l4"), tmp_path)
    assert [one.verdict for one in found[2:4]] == [UNKNOWN, UNKNOWN]


_YAML = "cdiVersion: 0.5.0\nkind: nvidia.com/gpu\ndevices:\n" + "".join(
    f"- name: {name}\n  containerEdits: {{}}\n" for name in ('"0"', '"1"', "all")
)


@pytest.mark.parametrize(
    ("name", "text", "verdict", "evidence"),
    [
        ("nvidia.yaml", _YAML, PASSED, "nvidia.yaml: 3 devices"),
        ("nvidia.yaml", _YAML.replace('"1"', "gone"), WARNING, "nvidia.yaml: 3 devices, without 1"),
        ("nvidia.yaml", "a: [", FAILED, "nvidia.yaml is no CDI specification"),
        ("a.json", "{", FAILED, "a.json is no CDI specification"),
        ("a.json", '{"kind": 5, "devices": []}', FAILED, "a.json is no CDI specification"),
        ("a.json", '{"kind": "nvidia.com/gpu", "devices": [{}]}', FAILED, "a.json is no CDI specification"),
        ("a.json", '{"kind": "management.nvidia.com/gpu", "devices": [{"name": "all"}]}', UNKNOWN, "no CDI spec"),
        ("a.yml", _YAML, UNKNOWN, "no CDI specification of GPUs"),
    ],
)
def test_specifications_of_others_are_read_as_the_runtime_reads_them(
    name: str, text: str, verdict: str, evidence: str, tmp_path: Path
) -> None:
    (tmp_path / "cdi").mkdir()
    (tmp_path / "cdi" / name).write_text(text)
    found = verdicts(SimulatedMachine("2xh100"), tmp_path)[4]
    assert (found.verdict, found.evidence[0].startswith(evidence)) == (verdict, True), found


def test_a_model_finds_the_memory_of_a_mig_instance_and_not_of_its_card(tmp_path: Path) -> None:
    machine = SimulatedMachine("3xh100")
    machine.set_mode(0, True)
    machine.create(0, "3g.40gb", 4)
    machine.create(0, "1g.10gb", 0)
    machine.occupy(0, [GpuProcess(1, "compute", 984, gpu_instance=2)])
    found = verdicts(machine, tmp_path)[6]
    assert found.verdict == PASSED
    assert found.evidence == (
        "GPU 0 instance 2 (1g.10gb): 9000 of 9984 MiB free",
        "GPU 0 instance 1 (3g.40gb): 40448 of 40448 MiB free",
        "GPU 1: 81559 of 81559 MiB free",
        "GPU 2: 81559 of 81559 MiB free",
    )
    machine.set_mode(1, True)
    found = verdicts(machine, tmp_path)[6]
    assert (found.verdict, found.evidence[2]) == (WARNING, "GPU 1: MIG is on and no instance is there")
