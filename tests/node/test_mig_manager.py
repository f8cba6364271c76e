"""The MIG manager: minimal changes at explicit places, resumed wherever it was killed, labels put back whatever happens."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

import pytest

from tonnage.errors import InputError
from tonnage.facts.labels import MIG_CONFIG
from tonnage.node.devices import GpuProcess, MigState
from tonnage.node.mig_manager import CLIENTS, OTHER_MANAGER, PAUSED, MigManager
from tonnage.node.simulated import SimulatedMachine
from tonnage.partitioning import documents, mig_parted
from tonnage.partitioning.node_cuts import MIG_STATE, Configurations

FILE = """version: v1
mig-configs:
  serving:
    - devices: [0]
      mig-enabled: true
      mig-devices: {3g.40gb: 1, 2g.20gb: 1, 1g.10gb: 2}
    - devices: [1]
      mig-enabled: true
      mig-devices: {1g.10gb: 7}
  halves:
    - devices: all
      mig-enabled: true
      mig-devices: {3g.40gb: 2}
  whole:
    - devices: all
      mig-enabled: false
"""
PLUGIN, EXPORTER = CLIENTS[0], CLIENTS[2]


def configurations() -> Configurations:
    (document,) = documents.read(FILE, "mig.yaml")
    spec = mig_parted.parse(document)
    return Configurations(dict.fromkeys(spec.configs, spec), {}, complete=True)


class Labels:
    """A node's labels, and what its containers hold."""

    def __init__(self, config: str, **more: str) -> None:
        self.now = {MIG_CONFIG: config, PLUGIN: "true", EXPORTER: "false", **more}
        self.uuids: set[str] = set()
        self.history: list[dict[str, str]] = []

    def labels(self) -> Mapping[str, str]:
        return dict(self.now)

    def set_labels(self, changes: Mapping[str, str]) -> None:
        self.now |= changes
        self.history.append(dict(self.now))

    def held(self) -> Collection[str]:
        return self.uuids


def layouts(machine: SimulatedMachine) -> list[list[tuple[int, str]] | None]:
    states: list[MigState | None] = [machine.mig(one.index) for one in machine.cards()]
    return [
        [(each.start, each.profile) for each in one.instances] if one is not None and one.enabled else None
        for one in states
    ]


SERVING = [
    {"3g.40gb": 1, "2g.20gb": 1, "1g.10gb": 2},
    {"1g.10gb": 7},
]


def counted(found: list[list[tuple[int, str]] | None]) -> list[dict[str, int] | None]:
    return [
        None if one is None else {name: sum(each == name for _, each in one) for name in {name for _, name in one}}
        for one in found
    ]


def test_a_label_becomes_a_layout_and_a_state_and_paused_operands_run_again(tmp_path: Path) -> None:
    machine, labels = SimulatedMachine("2xh100"), Labels("serving")
    manager = MigManager(machine, labels, tmp_path, configurations())
    assert manager.advance() == ("success", "")
    assert counted(layouts(machine)) == SERVING
    assert (labels.now[MIG_STATE], labels.now[PLUGIN], labels.now[EXPORTER]) == ("success", "true", "false")
    assert [one[MIG_STATE] for one in labels.history] == ["pending", "success"]
    assert labels.history[0][PLUGIN] == PAUSED
    before = len(labels.history)
    assert manager.advance() == ("success", "")
    assert len(labels.history) == before


def test_what_can_stay_stays_and_what_is_in_use_is_never_touched(tmp_path: Path) -> None:
    machine, labels = SimulatedMachine("2xh100"), Labels("halves")
    manager = MigManager(machine, labels, tmp_path, configurations())
    manager.advance()
    state = machine.mig(0)
    assert state is not None
    kept = next(one for one in state.instances if one.start == 4)
    labels.uuids = {kept.compute[0].uuid}
    machine.occupy(0, [GpuProcess(1, "compute", 100, kept.id, 0)])
    labels.now[MIG_CONFIG] = "serving"
    assert manager.advance().state == "success"
    after = machine.mig(0)
    assert after is not None
    assert next(one for one in after.instances if one.start == 4) == kept
    labels.now[MIG_CONFIG] = "whole"
    waits = manager.advance()
    assert waits.state == labels.now[MIG_STATE] == "pending"
    assert "in use" in waits.why
    labels.uuids.clear()
    machine.occupy(0, [])
    assert manager.advance().state == "success"
    assert layouts(machine) == [None, None]


class KilledError(Exception):
    """The manager's process ended here."""


def killed_at(machine: SimulatedMachine, labels: Labels, moment: int, *, after: bool) -> Callable[[], None]:
    """Every change of the node counts; the one with this number kills, before it is done or just after. Returns what
    takes the counting away again."""
    count = 0
    kept: list[tuple[Any, str, Any]] = []

    def watch(owner: Any, name: str) -> None:
        real = getattr(owner, name)

        def counting(*arguments: Any) -> Any:
            nonlocal count
            count += 1
            if count == moment and not after:
                raise KilledError
            made = real(*arguments)
            if count == moment:
                raise KilledError
            return made

        kept.append((owner, name, real))
        setattr(owner, name, counting)

    for name in ("set_mode", "create", "destroy", "reset"):
        watch(machine, name)
    watch(labels, "set_labels")
    return lambda: [setattr(owner, name, real) for owner, name, real in kept] and None


@pytest.mark.parametrize(
    ("cards", "start", "after"),
    [
        ("2xh100", "halves", False),
        *(
            pytest.param(cards, start, after, marks=pytest.mark.fuzz)
            for cards, start in (("2xh100", "halves"), ("2xh100", "whole"), ("2xa100-80", "whole"))
            for after in (False, True)
        ),
    ],
)
def test_a_manager_that_is_killed_at_any_step_goes_on_where_it_was(
    tmp_path: Path, cards: str, start: str, after: bool
) -> None:
    moment, killed = 0, True
    expected: list[list[tuple[int, str]] | None] | None = None
    while killed:
        moment += 1
        machine, labels = SimulatedMachine(cards), Labels(start)
        folder = tmp_path / str(moment)
        assert MigManager(machine, labels, folder, configurations()).advance().state == "success"
        labels.now[MIG_CONFIG] = "serving"
        release = killed_at(machine, labels, moment, after=after)
        try:
            MigManager(machine, labels, folder, configurations()).advance()
            killed = False
        except KilledError:
            release()
            assert MigManager(machine, labels, folder, configurations()).advance().state == "success"
        expected = expected or layouts(machine)
        assert layouts(machine) == expected
        assert counted(layouts(machine)) == SERVING
        assert (labels.now[PLUGIN], labels.now[EXPORTER], labels.now[MIG_STATE]) == ("true", "false", "success")
        assert not list(folder.glob("mig-change*"))
    assert moment > 8


def test_an_instance_that_comes_into_use_meanwhile_turns_the_change_back(tmp_path: Path) -> None:
    machine, labels = SimulatedMachine("h100"), Labels("halves")
    manager = MigManager(machine, labels, tmp_path, configurations())
    manager.advance()
    before = layouts(machine)
    labels.now[MIG_CONFIG] = "all-1g.10gb"
    real = machine.destroy

    def destroy(card: int, gpu_instance: int) -> None:
        real(card, gpu_instance)
        state = machine.mig(card)
        assert state is not None
        machine.occupy(card, [GpuProcess(1, "compute", 1, one.id, 0) for one in state.instances])

    machine.destroy = destroy  # type: ignore[method-assign]
    ended = manager.advance()
    assert ended.state == labels.now[MIG_STATE] == "failed"
    assert "came into use" in ended.why
    assert labels.now[PLUGIN] == "true"
    assert layouts(machine) == before


def test_a_reset_that_the_machine_refuses_is_found_before_anything_is_done(tmp_path: Path) -> None:
    machine, labels = SimulatedMachine("a100-80"), Labels("all-1g.10gb")
    machine.disturb(0, resets=False)
    ended = MigManager(machine, labels, tmp_path, configurations()).advance()
    assert ended.state == labels.now[MIG_STATE] == "failed"
    assert "needs a reset" in ended.why
    state = machine.mig(0)
    assert state is not None
    assert not state.pending


def test_what_somebody_makes_meanwhile_is_reported_and_not_removed(tmp_path: Path) -> None:
    machine, labels = SimulatedMachine("h100"), Labels("halves")
    real = machine.create

    def create(card: int, profile: str, start: int) -> Any:
        made = real(card, profile, start)
        if start == 0:
            real(card, "1g.10gb", 4)
        return made

    machine.create = create  # type: ignore[method-assign]
    ended = MigManager(machine, labels, tmp_path, configurations()).advance()
    assert ended == ("failed", "GPU 0: 1g.10gb at memory slice 4 is made by somebody else")
    assert (4, "1g.10gb") in (layouts(machine)[0] or [])
    assert labels.now[PLUGIN] == "true"


def test_unknown_and_impossible_configurations_fail_with_the_reason(tmp_path: Path) -> None:
    for cards, name, why in (("h100", "servin", "unknown MIG configuration 'servin'"), ("a30", "halves", "3g.40gb")):
        labels = Labels(name)
        ended = MigManager(SimulatedMachine(cards), labels, tmp_path, configurations()).advance()
        assert ended.state == labels.now[MIG_STATE] == "failed"
        assert why in ended.why


def test_a_node_has_one_manager(tmp_path: Path) -> None:
    machine, labels = SimulatedMachine("h100"), Labels("halves", **{OTHER_MANAGER: "true"})
    manager = MigManager(machine, labels, tmp_path, configurations())
    assert "NVIDIA's MIG manager owns this node" in manager.advance().why
    assert labels.history == []
    other = MigManager(machine, labels, tmp_path, configurations())
    with manager.owning(), pytest.raises(InputError, match="another MIG manager"), other.owning():
        pass
    with other.owning():
        assert layouts(machine) == [None]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("{}", "not the journal of a MIG change: Object missing required field `config`"),
        ('{"config": "x", "cards": [{"card": 7, "gpu": "h100", "on": true}]}', "it has no GPU 7 of model h100"),
        ('{"config": "x", "cards": [{"card": 0, "gpu": "a30", "on": true}]}', "it has no GPU 0 of model a30"),
        ("", "not the journal of a MIG change: Input data was truncated"),
    ],
)
def test_a_journal_of_something_else_is_left_and_nothing_is_changed(content: str, said: str, tmp_path: Path) -> None:
    machine = SimulatedMachine("h100")
    (tmp_path / "mig-change.json").write_text(content)
    manager = MigManager(machine, Labels("halves"), tmp_path, configurations())
    with pytest.raises(InputError, match=re.escape(f"{tmp_path}/mig-change.json: ") + ".*" + re.escape(said)):
        manager.advance()
    assert (tmp_path / "mig-change.json").read_text() == content
    state = machine.mig(0)
    assert state is not None
    assert not state.enabled
