"""A simulated machine's cards behave as hardware does: places of MIG instances, resets, reboots, what is reported."""

from __future__ import annotations

from pathlib import Path

import pytest

from tonnage.errors import InputError
from tonnage.facts import mig
from tonnage.node.devices import Ancestor, Devices, GpuProcess, RecoveryAction
from tonnage.node.simulated import SimulatedMachine, cap_minors


def test_an_instance_type_has_the_cards_and_links_of_the_facts() -> None:
    machine = SimulatedMachine("p4d.24xlarge")
    cards = machine.cards()
    assert [one.index for one in cards] == list(range(8))
    assert len({one.uuid for one in cards}) == 8
    assert {one.gpu for one in cards} == {"a100-40"}
    assert [one.numa for one in cards] == [0] * 4 + [1] * 4
    links = {(one.a, one.b): one for one in machine.links()}
    assert len(links) == 28
    assert (links[0, 1].ancestor, links[0, 2].ancestor, links[0, 4].ancestor) == (
        Ancestor.SINGLE,
        Ancestor.NODE,
        Ancestor.SYSTEM,
    )
    assert all(one.switched for one in links.values())
    mesh = {(one.a, one.b): one.nvlinks for one in SimulatedMachine("p3dn.24xlarge").links()}
    assert (mesh[0, 3], mesh[0, 1], mesh[0, 5]) == (2, 1, 0)


def test_cards_can_be_named_one_by_one_and_nonsense_is_refused() -> None:
    assert [one.gpu for one in SimulatedMachine("2xh100,l4").cards()] == ["h100", "h100", "l4"]
    assert SimulatedMachine("l4").mig(0) is None
    for text, why in (("p99.large", "neither"), ("g6f.large", "no GPUs of a known model"), ("m5.large", "no GPUs")):
        with pytest.raises(InputError, match=why):
            SimulatedMachine(text)


@pytest.mark.parametrize("gpu", ["a30", "a100-40", "h100", "h200", "b200"])
def test_every_profile_can_be_made_at_each_of_its_places_and_nowhere_else(gpu: str) -> None:
    machine = SimulatedMachine(gpu)
    machine.set_mode(0, True)
    if machine.needs_reset(0):
        machine.reset(0)
    for profile in mig.profiles(gpu):
        for start in range(8):
            if start in profile.starts:
                made = machine.create(0, profile.name, start)
                assert (made.start, made.size, made.profile) == (start, profile.memory_slices, profile.name)
                machine.destroy(0, made.id)
            else:
                with pytest.raises(InputError, match="insufficient resources"):
                    machine.create(0, profile.name, start)


def test_instances_do_not_overlap_and_media_engines_are_given_once() -> None:
    machine = SimulatedMachine("h100")
    machine.set_mode(0, True)
    machine.create(0, "1g.10gb+me", 0)
    for profile, start in (("3g.40gb", 0), ("1g.10gb+me", 1)):
        with pytest.raises(InputError, match="insufficient resources"):
            machine.create(0, profile, start)
    machine.create(0, "3g.40gb", 4)
    state = machine.mig(0)
    assert state is not None
    assert [(one.profile, one.start) for one in state.instances] == [("1g.10gb+me", 0), ("3g.40gb", 4)]
    uuids = {part.uuid for one in state.instances for part in one.compute}
    assert len(uuids) == 2
    assert all(uuid.startswith("MIG-") for uuid in uuids)


def test_mode_waits_for_a_reset_on_ampere_and_not_on_hopper() -> None:
    ampere, hopper = SimulatedMachine("a100-40"), SimulatedMachine("h100")
    for machine in (ampere, hopper):
        machine.set_mode(0, True)
    assert (ampere.mig(0), hopper.mig(0)) != (None, None)
    pending = ampere.mig(0)
    assert pending is not None and (pending.enabled, pending.pending) == (False, True)
    on = hopper.mig(0)
    assert on is not None and on.enabled
    ampere.disturb(0, resets=False)
    assert not ampere.can_reset(0)
    with pytest.raises(InputError, match="not supported on this machine"):
        ampere.reset(0)
    ampere.disturb(0)
    ampere.reset(0)
    after = ampere.mig(0)
    assert after is not None and after.enabled


def test_what_is_in_use_is_not_reset_or_removed() -> None:
    machine = SimulatedMachine("h100")
    machine.set_mode(0, True)
    made = machine.create(0, "3g.40gb", 0)
    machine.occupy(0, [GpuProcess(17, "compute", 1000, made.id, 0)], load=0.5)
    for refused in (lambda: machine.destroy(0, made.id), lambda: machine.reset(0), lambda: machine.set_mode(0, False)):
        with pytest.raises(InputError, match="in use by another client"):
            refused()
    inside = machine.measure(0, made.id)
    assert (inside.framebuffer_used_mib, inside.graphics_active, inside.gpu_utilization) == (1000, 0.5, None)
    assert "gpu_utilization" in inside.absent


def test_a_fault_is_reported_once_and_a_reset_or_a_reboot_clears_what_it_clears() -> None:
    machine = SimulatedMachine("2xh100")
    assert machine.events(0) == ()
    machine.fault(1, xid=95, recovery=RecoveryAction.DRAIN_AND_RESET, rows_pending=True)
    assert [(one.card, one.kind, one.value) for one in machine.events(0)] == [(1, "recovery", 4), (1, "xid", 95)]
    assert machine.events(0) == ()
    assert machine.condition(0).recovery == RecoveryAction.NONE
    machine.reset(1)
    rows = machine.condition(1).rows
    assert machine.condition(1).recovery == RecoveryAction.NONE
    assert rows is not None and (rows.pending, rows.uncorrectable) == (False, 1)
    machine.fault(1, xid=79, lost=True, recovery=RecoveryAction.NODE_REBOOT)
    assert machine.condition(1).lost
    with pytest.raises(InputError, match="the GPU is lost"):
        machine.reset(1)
    machine.reboot()
    assert not machine.condition(1).lost


def test_a_reboot_keeps_mig_mode_on_ampere_alone_and_instances_nowhere() -> None:
    for gpu, kept in (("a100-80", True), ("h100", False)):
        machine = SimulatedMachine(gpu)
        machine.set_mode(0, True)
        machine.reset(0)
        machine.create(0, mig.profiles(gpu)[0].name, 0)
        machine.reboot()
        state = machine.mig(0)
        assert state is not None
        assert (state.enabled, state.instances) == (kept, ())


def test_processes_share_a_machine_through_a_file(tmp_path: Path) -> None:
    path = tmp_path / "machine" / "state.json"
    one, other = SimulatedMachine("2xh100", state=path), SimulatedMachine("2xh100", state=path)
    one.set_mode(1, True)
    one.create(1, "7g.80gb", 0)
    seen = other.mig(1)
    assert seen is not None and [each.profile for each in seen.instances] == ["7g.80gb"]
    assert {event.kind for event in other.events(1)} == {"mig"}
    assert SimulatedMachine("2xh100", state=path).events(0) == ()
    with pytest.raises(InputError, match="cards in it are 2xh100, expected 8xh100"):
        SimulatedMachine("p5.48xlarge", state=path)
    path.write_text("{}")
    with pytest.raises(InputError, match=r"state\.json"):
        one.cards() and one.condition(0)


def test_capability_files_are_numbered_as_the_driver_does() -> None:
    assert dict(cap_minors(0, 0))[None] == 3
    assert dict(cap_minors(0, 7))[None] == 66
    assert dict(cap_minors(1, 0))[None] == 138


def test_it_is_the_port() -> None:
    machine: Devices = SimulatedMachine("p5.48xlarge")
    assert machine.driver().cuda == (13, 0)
    assert machine.measure(0).power_w == pytest.approx(77)
