"""A simulated machine's GPUs: what the facts say of its instance type, with faults and MIG changes that obey the card.

MIG instances stand where real ones can (:mod:`tonnage.partitioning.layouts`), a change of mode waits for a reset on
Ampere, a reset needs an idle card, and what a reset or a reboot clears is what it clears on hardware. Measurements
follow the ``load`` that a card is given.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Sequence
from itertools import combinations
from pathlib import Path

from msgspec.structs import replace

from tonnage.errors import InputError
from tonnage.facts import cuda, gpus, instances, interconnects, mig, mig_devices
from tonnage.facts.gpus import Gpu
from tonnage.facts.interconnects import GpuTopology
from tonnage.facts.mig import MigProfile
from tonnage.node.devices import (
    Ancestor,
    CardCondition,
    ComputeInstance,
    DeviceEvent,
    Driver,
    EccCounts,
    Fabric,
    GpuInstance,
    GpuProcess,
    Identity,
    Link,
    Measured,
    MigState,
    Pcie,
    RecoveryAction,
    RemappedRows,
)
from tonnage.node.simulated_readings import whole_card
from tonnage.node.simulated_state import CardState, MachineState, MigInstanceState, StateStore
from tonnage.partitioning.layouts import Placement, card, mask_of

DRIVER = "580.159.04"
"""Of a simulated machine, unless another is given."""

_AMPERE = 8
_COUNTED = re.compile(r"(\d{1,3})x(.+)")


def kinds_of(text: str) -> tuple[list[str], str]:
    """(GPU of each card, instance type) of ``p5.48xlarge`` or of ``2xh100,l4``; the type is empty for the latter.

    Raises InputError for what is neither, for no card, and for instance types without a whole GPU."""
    if instances.known(text):
        found = instances.get(text)
        if not found.gpu_count or not found.gpu:
            hint = "give a type with whole GPUs like p5.48xlarge, or cards like 2xh100,l4"
            raise InputError.at(f"{text} has no GPUs of a known model", field="--simulated", hint=hint)
        return [found.gpu] * found.gpu_count, text
    names = []
    for part in text.split(","):
        match = _COUNTED.fullmatch(part.strip())
        count, name = (int(match[1]), match[2]) if match else (1, part.strip())
        if not count:
            raise InputError.at(f"{part.strip()!r} is no card", field="--simulated", hint="give 1 to 999 of a kind")
        try:
            names += [gpus.get(name).name] * count
        except InputError as error:
            hint = f"{error.problems[0].hint}; or give an instance type like p5.48xlarge"
            raise InputError.at(f"{part.strip()!r} is neither", field="--simulated", hint=hint) from error
    return names, ""


class SimulatedMachine:
    """The GPUs of a machine called ``node``: an instance type, or cards as :func:`kinds_of` reads them.

    ``state``: a file in which their state is kept and through which other processes change it; None: in memory."""

    def __init__(self, text: str, *, node: str = "node", driver: str = DRIVER, state: Path | None = None) -> None:
        names, self._type = kinds_of(text)
        self._driver, self._node = driver, node
        self._gpus: list[Gpu] = [gpus.get(name) for name in names]
        self._topology: GpuTopology | None = interconnects.gpu_topology(self._type)
        self._store = StateStore(state, MachineState(cards=[CardState() for _ in names], gpus=names))
        self._seen = self._store.read().reported
        self._cards = tuple(self._identity(index, gpu) for index, gpu in enumerate(self._gpus))

    def driver(self) -> Driver:
        found = cuda.driver_cuda(cuda.parse_version(self._driver))
        return Driver(self._driver, None if found is None else (found[0], found[1]))

    def cards(self) -> Sequence[Identity]:
        return self._cards

    def mig(self, card: int) -> MigState | None:
        if not self.profiles(card):
            return None
        state = self._store.read().cards[card]
        made = tuple(self._instance(card, one) for one in sorted(state.instances, key=lambda one: one.start))
        return MigState(state.mig, state.mig_pending, made)

    def profiles(self, card: int) -> Sequence[MigProfile]:
        return mig.profiles(self._gpus[card].name, plain=False)

    def links(self) -> Sequence[Link]:
        return tuple(self._link(a, b) for a, b in combinations(range(len(self._gpus)), 2))

    def fabric(self, card: int) -> Fabric | None:
        return None

    def pcie(self, card: int) -> Pcie:
        width = self._store.read().cards[card].pcie_width
        return Pcie(None, 16 if width is None else width, None, 16)

    def condition(self, card: int) -> CardCondition:
        state = self._store.read().cards[card]
        if state.lost:
            return CardCondition(lost=True, recovery=state.recovery)
        return CardCondition(
            recovery=state.recovery,
            rows=state.rows,
            ecc=True,
            errors=EccCounts(0, state.uncorrected, 0, state.uncorrected),
            throttle=tuple(state.throttle) or (() if state.load else ("gpu_idle",)),
            nvlinks_down=tuple(state.nvlinks_down),
            persistence=True,
            compute_mode="default",
            power_limit_w=self._gpus[card].power_w,
        )

    def measure(self, card: int, gpu_instance: int | None = None) -> Measured:
        state, gpu = self._store.read().cards[card], self._gpus[card]
        if state.lost:
            return Measured()
        used = sum(one.used_mib or 0 for one in state.processes if gpu_instance in (None, one.gpu_instance))
        if gpu_instance is not None:
            profile = mig.get(gpu.name, self._made(card, state, gpu_instance).profile)
            total = profile.usable_mib(gpu)
            absent = dict.fromkeys(("gpu_utilization", "memory_utilization"), "not supported on MIG instances")
            return Measured(
                framebuffer_used_mib=used,
                framebuffer_free_mib=total - used,
                graphics_active=state.load,
                sm_active=state.load,
                dram_active=state.load,
                absent=absent,
            )
        found = whole_card(gpu, state.load, used, self._cards[card].memory_mib)
        if state.mig:
            absent = {"gpu_utilization": "not supported with MIG"}
            found = replace(found, gpu_utilization=None, memory_utilization=None, absent=absent)
        return replace(found, energy_mj=state.energy_mj)

    def processes(self, card: int) -> Sequence[GpuProcess]:
        return tuple(self._store.read().cards[card].processes)

    def events(self, timeout_s: float) -> Sequence[DeviceEvent]:
        state = self._store.wait_reported(self._seen, timeout_s)
        new = min(state.reported - self._seen, len(state.events))
        self._seen = state.reported
        return tuple(state.events[-new:]) if new > 0 else ()

    def can_reset(self, card: int) -> bool:
        return self._store.read().resets

    def needs_reset(self, card: int) -> bool:
        return cuda.gpu(self._gpus[card].name).arch[0] <= _AMPERE

    def set_mode(self, card: int, on: bool) -> None:
        if not self.profiles(card):
            raise self._refused(card, "the card has no MIG")
        with self._store.change() as state:
            one = self._answering(state, card)
            if one.processes or (one.instances and not on):
                raise self._refused(card, "in use by another client")
            one.mig_pending = on
            if not self.needs_reset(card):
                one.mig = on
            state.report(DeviceEvent(card, "mig"))

    def create(self, card: int, profile: str, start: int) -> GpuInstance:
        with self._store.change() as state:
            one = self._answering(state, card)
            if not one.mig:
                raise self._refused(card, "MIG is off")
            name = mig.get(self._gpus[card].name, profile).name
            self._check_room(card, one, Placement(start, name))
            free = next(number for number in range(1, 16) if number not in {each.id for each in one.instances})
            made = MigInstanceState(free, name, start)
            one.instances.append(made)
            state.report(DeviceEvent(card, "mig"))
        return self._instance(card, made)

    def destroy(self, card: int, gpu_instance: int) -> None:
        with self._store.change() as state:
            one = self._answering(state, card)
            made = self._made(card, one, gpu_instance)
            if any(process.gpu_instance == gpu_instance for process in one.processes):
                raise self._refused(card, f"instance {gpu_instance} is in use by another client")
            one.instances.remove(made)
            state.report(DeviceEvent(card, "mig"))

    def reset(self, card: int) -> None:
        """As ``nvidia-smi --gpu-reset``: refused while a process is on the card, and for a card that is off the bus."""
        with self._store.change() as state:
            one = self._answering(state, card)
            if not state.resets:
                raise self._refused(card, "a reset is not supported on this machine")
            if one.processes:
                raise self._refused(card, "in use by another client")
            one.instances.clear()
            one.mig = one.mig_pending
            _cleared(one)
            state.report(DeviceEvent(card, "recovery", int(one.recovery)))

    def set_timeslice(self, card: int, interval: str) -> None:
        with self._store.change() as state:
            self._answering(state, card).timeslice = interval

    def timeslice(self, card: int) -> str:
        """The interval that was set last."""
        return self._store.read().cards[card].timeslice

    def reboot(self) -> None:
        """Everything that a reboot clears; MIG mode survives it on Ampere alone, instances nowhere."""
        with self._store.change() as state:
            for card, one in enumerate(state.cards):
                one.lost = False
                one.processes.clear()
                one.instances.clear()
                one.recovery = RecoveryAction.NONE
                one.mig_pending = one.mig = one.mig_pending and self.needs_reset(card)
                _cleared(one)
                state.report(DeviceEvent(card, "recovery", 0))

    def fault(
        self,
        card: int,
        *,
        xid: int | None = None,
        gpu_instance: int | None = None,
        recovery: RecoveryAction | None = None,
        lost: bool = False,
        rows_pending: bool = False,
        rows_failed: bool = False,
        uncorrected: int = 0,
    ) -> None:
        """Let something go wrong with a card, and let the driver report it as it does."""
        with self._store.change() as state:
            one = state.cards[card]
            one.lost = one.lost or lost
            one.uncorrected += uncorrected
            rows = one.rows
            one.rows = RemappedRows(
                rows.correctable, rows.uncorrectable, rows.pending or rows_pending, rows.failed or rows_failed
            )
            if recovery is not None:
                one.recovery = recovery
                state.report(DeviceEvent(card, "recovery", int(recovery)))
            if xid is not None:
                instance = 0 if gpu_instance is not None else None
                state.report(DeviceEvent(card, "xid", xid, gpu_instance, instance))
            if lost:
                state.report(DeviceEvent(card, "unavailable"))

    def occupy(self, card: int, processes: Sequence[GpuProcess], load: float = 0.0) -> None:
        """These processes are on the card, and it does so much work (0 to 1)."""
        with self._store.change() as state:
            state.cards[card].processes = list(processes)
            state.cards[card].load = load

    def disturb(
        self,
        card: int,
        *,
        throttle: Sequence[str] = (),
        nvlinks_down: Sequence[int] = (),
        pcie_width: int | None = None,
        resets: bool = True,
    ) -> None:
        """What slows a card without being a fault: clocks held down, links lost, a narrower PCIe link. ``resets``:
        whether this machine allows resets."""
        with self._store.change() as state:
            one = state.cards[card]
            one.throttle, one.nvlinks_down, one.pcie_width = list(throttle), list(nvlinks_down), pcie_width
            state.resets = resets

    def _identity(self, index: int, gpu: Gpu) -> Identity:
        boards = [one for one in mig_devices.of(gpu.name) if one.own]
        arch = cuda.gpu(gpu.name).arch
        device = boards[0].device if boards else 0
        groups = self._topology.numa if self._topology is not None else ()
        numa = next((node for node, group in enumerate(groups) if index in group), None)
        return Identity(
            index=index,
            minor=index,
            uuid=f"GPU-{_uuid(self._node, index)}",
            product=gpu.product.replace("-", " "),
            gpu=gpu.name,
            pci=f"00000000:{0x10 + index:02X}:00.0",
            device_id=device << 16 | mig_devices.VENDOR,
            memory_mib=mig_devices.label_memory().get(gpu.name, gpu.memory_mib),
            compute=(arch[0], arch[1]),
            numa=numa,
            brand="nvidia",
            serial=f"{index:013d}",
            pci_class=0x0302,
        )

    def _link(self, a: int, b: int) -> Link:
        known = self._topology
        both = (self._gpus[a].nvlink_bytes_per_s, self._gpus[b].nvlink_bytes_per_s)
        switched = all(both) and not (known is not None and known.nvlinks)
        links = known.nvlinks.get((a, b), 0) if known is not None else 0
        return Link(a, b, self._ancestor(a, b), links, switched)

    def _ancestor(self, a: int, b: int) -> Ancestor | None:
        known = self._topology
        if known is None:
            return None
        if any(a in group and b in group for group in known.switches):
            return Ancestor.SINGLE
        if any(a in group and b in group for group in known.numa):
            return Ancestor.NODE
        return Ancestor.SYSTEM if known.numa else None

    def _instance(self, card: int, made: MigInstanceState) -> GpuInstance:
        profile = mig.get(self._gpus[card].name, made.profile)
        uuid = f"MIG-{_uuid(self._cards[card].uuid, made.id, made.profile, made.start)}"
        minors = dict(cap_minors(card, made.id))
        gi_id = -1 if profile.gi_id is None else profile.gi_id
        whole = ComputeInstance(0, uuid, profile.compute_slices)
        return GpuInstance(made.id, made.profile, gi_id, made.start, profile.memory_slices, (whole,), minors)

    def _check_room(self, index: int, one: CardState, wanted: Placement) -> None:
        on = card(self._gpus[index].name)
        there = sorted(Placement(each.start, each.profile) for each in one.instances)
        try:
            mask_of(on, sorted([*there, wanted]))
        except InputError as error:
            raise self._refused(index, f"insufficient resources: {error.problems[0].message}") from error

    def _made(self, index: int, one: CardState, gpu_instance: int) -> MigInstanceState:
        found = next((each for each in one.instances if each.id == gpu_instance), None)
        if found is None:
            raise self._refused(index, f"no GPU instance {gpu_instance}")
        return found

    def _answering(self, state: MachineState, index: int) -> CardState:
        if state.cards[index].lost:
            raise self._refused(index, "the GPU is lost")
        return state.cards[index]

    def _refused(self, index: int, why: str) -> InputError:
        whose = f"GPU {index} of {self._node}" if self._node else f"GPU {index}"
        return InputError.at(f"{whose}: {why}", hint="tonnage agent doctor says how the card is")


def cap_minors(gpu: int, gpu_instance: int) -> Iterator[tuple[int | None, int]]:
    """Minor numbers of the capability files of a GPU instance (None) and of its compute instances, as the driver
    numbers them in /proc/driver/nvidia-caps/mig-minors: from 3 on, nine for each of fifteen GPU instances of a card."""
    first = 3 + gpu * 15 * 9 + gpu_instance * 9
    yield None, first
    yield from ((compute, first + 1 + compute) for compute in range(8))


def _cleared(one: CardState) -> None:
    """What a reset clears: the action that asked for it, and pending rows, which are replaced then."""
    rows = one.rows
    if rows.pending:
        one.rows = RemappedRows(rows.correctable, rows.uncorrectable + 1, False, rows.failed)
    one.uncorrected = 0
    if one.recovery in (RecoveryAction.GPU_RESET, RecoveryAction.DRAIN_AND_RESET):
        one.recovery = RecoveryAction.NONE


def _uuid(*parts: object) -> str:
    text = hashlib.sha256("/".join(map(str, parts)).encode()).hexdigest()
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:32]}"
