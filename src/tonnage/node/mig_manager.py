"""The MIG manager of a node: a label names a configuration, and the node's cards become it with the fewest changes.

What is meant is written down before anything is done, with every place in it; what is so is looked at. So a manager
that is killed at any point goes on where it was, and labels that it has changed are put back whatever happens. The
rules of the steps are :mod:`tonnage.partitioning.relayout` and :mod:`tonnage.partitioning.steps`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import NamedTuple, Protocol

import msgspec
from msgspec import Struct

from tonnage.errors import InputError
from tonnage.facts.labels import MIG_CONFIG
from tonnage.node.devices import GpuMachine, Identity
from tonnage.node.whole_files import owning, write_whole
from tonnage.partitioning.layouts import Layout, Placement, card
from tonnage.partitioning.node_cuts import MIG_STATE, Configurations, known_names, unknown_name, wanted_layouts
from tonnage.partitioning.node_layouts import FAILED, PENDING, SUCCESS
from tonnage.partitioning.relayout import Step, Stuck, relayout
from tonnage.partitioning.steps import Journal, TurnBack, Waiting, next_step

OPERATOR = "nvidia.com/gpu.deploy."
PAUSED = "paused-for-mig-change"
CLIENTS = tuple(
    OPERATOR + name
    for name in ("device-plugin", "gpu-feature-discovery", "dcgm-exporter", "dcgm", "nvsm", "dra-driver")
)
"""Labels of the GPU operator's operands that hold cards open: NVIDIA's MIG manager pauses the same."""
OTHER_MANAGER = OPERATOR + "mig-manager"


class NodeHost(Protocol):
    """What the manager needs of the node besides its cards."""

    def labels(self) -> Mapping[str, str]: ...

    def set_labels(self, changes: Mapping[str, str]) -> None:
        """These labels have these values, at once."""
        ...

    def held(self) -> Collection[str]:
        """UUIDs of cards and MIG devices that containers have been given."""
        ...


class CardSteps(Struct, frozen=True):
    """One card: whether MIG is on after it, and the steps' journal; None: only the mode changes, or nothing."""

    card: int
    gpu: str
    on: bool
    journal: Journal | None = None


class MigPlan(Struct, frozen=True):
    """The file: the configuration that was named, what becomes of each card, labels to put back. ``failure``: why it
    ends in the state ``failed``; then only labels are put back."""

    config: str
    cards: tuple[CardSteps, ...]
    paused: dict[str, str] = {}
    failure: str = ""


class MigProgress(NamedTuple):
    """``state``: pending, success or failed, as the label says it; empty: nothing is wanted. ``why``: of a failure, or
    what is waited for."""

    state: str
    why: str = ""


class MigManager:
    """``folder``: where the journal and the lock are kept, over restarts."""

    def __init__(self, machine: GpuMachine, host: NodeHost, folder: Path, configurations: Configurations) -> None:
        self._machine, self._host, self._folder = machine, host, folder
        self.configurations = configurations

    def owning(self) -> AbstractContextManager[None]:
        """Be the only manager of this node for the length of a ``with`` block. Raises InputError where another is,
        and where the folder cannot be written."""
        hint = "two managers would undo each other's work: end one of them"
        return owning(self._folder / "mig.lock", "MIG manager", hint)

    def advance(self) -> MigProgress:
        """Go as far as can be gone now: on with what was begun, else to what the label names. Raises InputError where
        the driver fails; asked again, it goes on."""
        plan = self._read()
        if plan is None:
            labels = self._host.labels()
            named = labels.get(MIG_CONFIG, "")
            if not named:
                return MigProgress("")
            if labels.get(OTHER_MANAGER) == "true":
                why = f"NVIDIA's MIG manager owns this node: label it {OTHER_MANAGER}=false"
                return MigProgress(labels.get(MIG_STATE, ""), why)
            begun = self._begin(named, labels)
            if isinstance(begun, MigProgress):
                return begun
            plan = begun
        return self._carry_out(plan)

    def _begin(self, named: str, labels: Mapping[str, str]) -> MigPlan | MigProgress:
        """Work out the change, and write it down; or say that there is none, or why it cannot be."""
        try:
            cards = self._cards(named)
        except InputError as error:
            return self._ended(FAILED, error.problems[0].message, labels)
        if isinstance(cards, MigProgress):
            state = cards.state
            return self._ended(state, cards.why, labels)
        if not cards:
            return self._ended(SUCCESS, "", labels)
        paused = {label: labels[label] for label in CLIENTS if labels.get(label) == "true"}
        plan = MigPlan(named, cards, paused)
        self._write(plan)
        return plan

    def _cards(self, named: str) -> tuple[CardSteps, ...] | MigProgress:
        """The cards that change. Raises InputError for a configuration that is not there or cannot be."""
        if named not in known_names(self.configurations, MIG_CONFIG):
            raise InputError(unknown_name(self.configurations, MIG_CONFIG, named))
        found = []
        for one in self._machine.cards():
            state = self._machine.mig(one.index)
            if state is None:
                continue
            wanted = wanted_layouts(self.configurations, named, one.gpu, one.index + 1)[one.index]
            on, there = card(one.gpu), self._there(one.index)
            busy = self._busy(one.index)
            changes_mode = state.enabled != (wanted is not None) or state.pending != (wanted is not None)
            if changes_mode:
                refused = self._refusal(one, bool(busy))
                if refused is not None:
                    return refused
            change = relayout(on, there, [each.profile for each in wanted or ()], busy)
            if isinstance(change, Stuck):
                return MigProgress(PENDING if change.busy else FAILED, f"GPU {one.index}: {change.why}")
            journal = Journal(one.uuid, change.before, change.after) if change.steps else None
            if journal is not None or changes_mode:
                found.append(CardSteps(one.index, one.gpu, wanted is not None, journal))
        return tuple(found)

    def _refusal(self, one: Identity, busy: bool) -> MigProgress | None:
        """Why the mode of a card cannot change now; None: it can. A mode that waits for a reset which never comes would
        take the card away, so that is looked at before anything is done."""
        if self._machine.needs_reset(one.index) and not self._machine.can_reset(one.index):
            why = "a change of MIG mode needs a reset, which this machine refuses"
            return MigProgress(FAILED, f"GPU {one.index}: {why}")
        if busy or one.uuid in self._host.held() or self._machine.processes(one.index):
            return MigProgress(PENDING, f"GPU {one.index} is in use, and its MIG mode is to change")
        return None

    def _carry_out(self, plan: MigPlan) -> MigProgress:
        """All that is left of a plan, however far it had come."""
        self._host.set_labels({**dict.fromkeys(plan.paused, PAUSED), MIG_STATE: PENDING})
        failure = plan.failure
        for one in () if failure else plan.cards:
            done = self._card(plan, one)
            if done is None:
                continue
            if done.state == PENDING:
                return done
            failure = done.why
            plan = msgspec.structs.replace(plan, failure=failure)
            self._write(plan)
            break
        self._host.set_labels({**plan.paused, MIG_STATE: FAILED if failure else SUCCESS})
        self._file.unlink(missing_ok=True)
        return MigProgress(FAILED if failure else SUCCESS, failure)

    def _card(self, plan: MigPlan, one: CardSteps) -> MigProgress | None:
        """Bring one card to its layout; None: it has it. The mode first where it goes on, last where it goes off."""
        try:
            if one.on:
                self._mode(one.card, on=True)
            if one.journal is not None:
                stopped = self._steps(plan, one, one.journal)
                if stopped is not None:
                    return stopped
            if not one.on:
                self._mode(one.card, on=False)
        except InputError as error:
            return MigProgress(FAILED, error.problems[0].message)
        return None

    def _steps(self, plan: MigPlan, one: CardSteps, journal: Journal) -> MigProgress | None:
        on = card(one.gpu)
        while True:
            match next_step(on, journal, self._there(one.card), self._busy(one.card)):
                case None:
                    if journal.back:
                        return MigProgress(FAILED, f"GPU {one.card}: an instance that is to go came into use")
                    return None
                case Step(action="destroy", placement=placement):
                    self._machine.destroy(one.card, self._id_of(one.card, placement))
                case Step(placement=placement):
                    self._machine.create(one.card, placement.profile, placement.start)
                case Waiting(instances=instances, why=why):
                    where = ", ".join(f"{each.profile} at memory slice {each.start}" for each in instances)
                    state = PENDING if why == "in use" else FAILED
                    return MigProgress(state, f"GPU {one.card}: {where} is {why}")
                case TurnBack():
                    journal = journal.turned()
                    self._write(_with(plan, one, journal))

    def _mode(self, index: int, *, on: bool) -> None:
        """MIG is on, or off, and that has taken effect."""
        state = self._machine.mig(index)
        assert state is not None  # only cards with MIG are in a plan
        if state.pending != on:
            self._machine.set_mode(index, on)
        now = self._machine.mig(index)
        if now is not None and now.enabled != on:
            self._machine.reset(index)

    def _there(self, index: int) -> Layout:
        state = self._machine.mig(index)
        instances = state.instances if state is not None else ()
        return tuple(sorted(Placement(each.start, each.profile) for each in instances))

    def _busy(self, index: int) -> list[Placement]:
        """Instances that processes use, or that containers were given."""
        state, held = self._machine.mig(index), self._host.held()
        used = {one.gpu_instance for one in self._machine.processes(index)}
        return [
            Placement(each.start, each.profile)
            for each in (state.instances if state is not None else ())
            if each.id in used or any(part.uuid in held for part in each.compute)
        ]

    def _id_of(self, index: int, placement: Placement) -> int:
        state = self._machine.mig(index)
        instances = state.instances if state is not None else ()
        return next(each.id for each in instances if (each.start, each.profile) == placement)

    def _ended(self, state: str, why: str, labels: Mapping[str, str]) -> MigProgress:
        """Say the state where it is another."""
        if labels.get(MIG_STATE) != state:
            self._host.set_labels({MIG_STATE: state})
        return MigProgress(state, why)

    @property
    def _file(self) -> Path:
        return self._folder / "mig-change.json"

    def _read(self) -> MigPlan | None:
        """What was begun and not ended. Raises InputError for a file that is not ours."""
        hint = "look at the node's cards and labels, then remove the file"
        try:
            plan = msgspec.json.decode(self._file.read_bytes(), type=MigPlan)
        except FileNotFoundError:
            return None
        except (OSError, msgspec.DecodeError) as error:
            why = error.strerror if isinstance(error, OSError) else error
            raise InputError.at(f"not the journal of a MIG change: {why}", file=str(self._file), hint=hint) from error
        there = {one.index: one.gpu for one in self._machine.cards()}
        for one in plan.cards:
            if there.get(one.card) != one.gpu:
                message = f"the journal of another machine: it has no GPU {one.card} of model {one.gpu}"
                raise InputError.at(message, file=str(self._file), hint=hint)
        return plan

    def _write(self, plan: MigPlan) -> None:
        write_whole(self._file, msgspec.json.encode(plan))


def _with(plan: MigPlan, one: CardSteps, journal: Journal) -> MigPlan:
    changed = msgspec.structs.replace(one, journal=journal)
    return msgspec.structs.replace(plan, cards=tuple(_replaced(plan.cards, one.card, changed)))


def _replaced(cards: Iterable[CardSteps], card_: int, changed: CardSteps) -> Sequence[CardSteps]:
    return [changed if each.card == card_ else each for each in cards]
