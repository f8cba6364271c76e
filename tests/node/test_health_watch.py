"""From what a driver reports to healthy and unhealthy devices, over restarts of the agent and of the machine."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from tonnage.errors import InputError
from tonnage.node.attribution import names_of
from tonnage.node.device_health import DeviceHealth, HealthChange, HealthRules
from tonnage.node.devices import RecoveryAction
from tonnage.node.health_watch import HealthWatch
from tonnage.node.simulated import SimulatedMachine
from tonnage.units import NS_PER_S as S


def _watch(machine: SimulatedMachine, file: Path | None = None, boot: str = "one") -> HealthWatch:
    watch = HealthWatch(machine, DeviceHealth(HealthRules(settle_s=10)), file=file, boot=boot)
    watch.start(0)
    return watch


def _step(watch: HealthWatch, machine: SimulatedMachine, now_ns: int) -> list[HealthChange]:
    return watch.take(machine.events(0), now_ns)


def _unhealthy(watch: HealthWatch, machine: SimulatedMachine) -> list[int]:
    return [card.index for card in machine.cards() if not watch.health.healthy(card.uuid)]


def test_a_fault_is_noticed_in_the_next_step_and_ends_when_the_driver_says_so() -> None:
    machine = SimulatedMachine("p5.48xlarge")
    watch = _watch(machine)
    assert _step(watch, machine, 1 * S) == []
    machine.fault(3, xid=119, recovery=RecoveryAction.GPU_RESET)
    (change,) = _step(watch, machine, 2 * S)
    assert (change.gpu, change.healthy) == (machine.cards()[3].uuid, False)
    machine.reset(3)
    assert _step(watch, machine, 3 * S) == []
    assert _step(watch, machine, 12 * S) == []
    (back,) = _step(watch, machine, 14 * S)
    assert back.healthy
    assert _unhealthy(watch, machine) == []


def test_all_mig_devices_of_a_card_are_unhealthy_together() -> None:
    machine = SimulatedMachine("p5.48xlarge")
    machine.set_mode(0, True)
    for start in (0, 1, 2):
        machine.create(0, "1g.10gb", start)
    watch = _watch(machine)
    machine.fault(0, xid=95, gpu_instance=2)
    _step(watch, machine, 1 * S)
    parents = {one.uuid: one.gpu for one in names_of(machine)}
    health = watch.health.of_devices(parents)
    assert sorted(health.values()) == [False] * 4 + [True] * 7


def test_a_lost_card_is_unhealthy_at_once_and_the_others_are_not() -> None:
    machine = SimulatedMachine("p5.48xlarge")
    watch = _watch(machine)
    machine.fault(7, lost=True)
    _step(watch, machine, 1 * S)
    assert _unhealthy(watch, machine) == [7]


def test_a_restart_of_the_agent_forgets_no_cause_and_a_reboot_is_a_reset(tmp_path: Path) -> None:
    """A reset clears what the driver said; on drivers that say nothing the file is all that is known."""
    machine, file = SimulatedMachine("l4"), tmp_path / "state" / "health.json"
    watch = _watch(machine, file)
    machine.fault(0, xid=119, recovery=RecoveryAction.GPU_RESET)
    _step(watch, machine, 1 * S)
    again = _watch(machine, file)
    assert _unhealthy(again, machine) == [0], "before anything was read"
    assert {cause.name for cause in again.health.causes(machine.cards()[0].uuid)} == {"xid-119", "recovery-action"}
    machine.reboot()
    after = _watch(machine, file, boot="two")
    assert _unhealthy(after, machine) == [0]
    _step(after, machine, 100 * S)
    _step(after, machine, 110 * S)
    assert _unhealthy(after, machine) == []
    assert _unhealthy(_watch(machine, file, boot="two"), machine) == []


def test_a_file_that_cannot_be_read_is_put_aside(tmp_path: Path) -> None:
    file = tmp_path / "health.json"
    file.write_text('{"boot": 7')
    machine = SimulatedMachine("l4")
    watch = _watch(machine, file)
    assert "health.json" in watch.problem and "health.broken" in watch.problem
    assert (tmp_path / "health.broken").exists()
    _step(watch, machine, 1 * S)
    assert file.exists()


def test_a_file_of_something_else_is_put_aside_and_a_folder_is_left_alone(tmp_path: Path) -> None:
    machine = SimulatedMachine("l4")
    uuid = machine.cards()[0].uuid
    cause = {"name": "xid-79", "action": "NOPE", "message": "m", "first_ns": 1, "last_ns": 1}
    for content in (b"{", b"[]", msgspec.json.encode({"boot": "one", "causes": {uuid: [cause]}})):
        file = tmp_path / "faults.json"
        file.write_bytes(content)
        watch = _watch(machine, file)
        assert "put aside as faults.broken" in watch.problem
        assert (tmp_path / "faults.broken").read_bytes() == content
        assert _step(watch, machine, 1 * S) == []
        assert _unhealthy(watch, machine) == []
    folder = tmp_path / "kept"
    folder.mkdir()
    with pytest.raises(InputError, match=r"kept: faults cannot be kept in it: Is a directory"):
        _watch(machine, folder)
    assert folder.is_dir()
    with pytest.raises(InputError, match="faults cannot be kept in it"):
        _step(_watch(machine, tmp_path / "faults.broken" / "x"), machine, 1 * S)
