"""A node's GPUs watched: what their driver reports and says becomes observations of their health.

What is known survives a restart of the agent, in a file; a reboot is a reset of every GPU."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from tonnage.errors import InputError
from tonnage.facts import xids
from tonnage.node.device_health import (
    DeviceHealth,
    FaultCause,
    HealthChange,
    HealthReading,
    Observation,
    ResetSeen,
    XidSeen,
)
from tonnage.node.devices import DeviceEvent, Devices
from tonnage.node.whole_files import write_whole
from tonnage.units import NS_PER_S

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
"""Another one after each boot of the machine."""
READ_S = 2
"""How often every card is read."""


class SavedHealth(msgspec.Struct):
    """The file: causes by GPU, and the boot in which they were seen."""

    boot: str
    causes: dict[str, list[FaultCause]]


class HealthWatch:
    """``file``: where causes are kept; None: nowhere. ``boot``: the id of this boot.

    A file that holds something else is put aside under ``.broken``, and :attr:`problem` says so: the agent starts all
    the same, as a card's faults are seen again by what the driver says."""

    def __init__(self, devices: Devices, health: DeviceHealth, *, file: Path | None = None, boot: str = "") -> None:
        self._devices, self.health, self._file, self._boot = devices, health, file, boot
        self.problem = ""
        self._read_ns: int | None = None
        self._written = b""

    def start(self, now_ns: int) -> None:
        """Take up what was known before the agent was started. Raises InputError for what is not a file to be read."""
        if self._file is None or not self._file.exists():
            return
        try:
            saved = _decoded(self._file.read_bytes())
        except OSError as error:
            raise _unusable(self._file, error) from error
        except msgspec.DecodeError as error:
            aside = self._file.with_suffix(".broken")
            try:
                self._file.replace(aside)
            except OSError as failed:
                raise _unusable(self._file, failed) from failed
            self.problem = f"{self._file}: {error}; put aside as {aside.name}"
            return
        for gpu, causes in sorted(saved.causes.items()):
            self.health.restore(gpu, causes)
            if saved.boot != self._boot:
                self.health.observe(ResetSeen(now_ns, gpu))

    def take(self, events: Sequence[DeviceEvent], now_ns: int) -> list[HealthChange]:
        """Take in what was reported, read the cards that it is about, and every card once in :data:`READ_S` seconds;
        say which became healthy or unhealthy. ``now_ns``: the time, always of the same clock.

        Raises InputError where the file cannot be written."""
        due = self._read_ns is None or now_ns - self._read_ns >= READ_S * NS_PER_S
        if due:
            self._read_ns = now_ns
        cards = {card.index: card.uuid for card in self._devices.cards()}
        changes = self.health.observe_all(self._observations(cards, events, now_ns, due=due))
        self._save()
        return changes

    def _observations(
        self, cards: Mapping[int, str], events: Sequence[DeviceEvent], now_ns: int, *, due: bool
    ) -> Iterator[Observation]:
        for event in events:
            gpu = cards.get(event.card) if event.card is not None else None
            if gpu is not None and event.kind == "xid":
                yield XidSeen(now_ns, gpu, event.value, event.gpu_instance)
            elif gpu is not None and event.kind == "recovery" and event.value == 0:
                yield ResetSeen(now_ns, gpu)
        told = {event.card for event in events}
        for index, gpu in cards.items():
            if due or index in told or None in told:
                yield self._reading(index, gpu, now_ns)

    def _reading(self, card: int, gpu: str, now_ns: int) -> HealthReading:
        try:
            said = self._devices.condition(card)
        except InputError:
            return HealthReading(now_ns, gpu, answers=False)
        rows = said.rows
        return HealthReading(
            now_ns,
            gpu,
            answers=not said.lost,
            lost=said.lost,
            recovery=None if said.recovery is None else int(said.recovery),
            remap_pending=None if rows is None else rows.pending,
            remap_failed=None if rows is None else rows.failed,
        )

    def _save(self) -> None:
        if self._file is None:
            return
        gpus = (card.uuid for card in self._devices.cards())
        causes = {gpu: list(found) for gpu in gpus if (found := self.health.causes(gpu))}
        content = msgspec.json.encode(SavedHealth(self._boot, causes))
        if content == self._written:
            return
        try:
            write_whole(self._file, content)
        except OSError as error:
            raise _unusable(self._file, error) from error
        self._written = content


def _decoded(content: bytes) -> SavedHealth:
    """What was saved. Raises msgspec.DecodeError for anything else."""
    saved = msgspec.json.decode(content, type=SavedHealth)
    for cause in (one for causes in saved.causes.values() for one in causes):
        if cause.action not in xids.actions():
            raise msgspec.ValidationError(f"unknown action {cause.action!r} of cause {cause.name!r}")
    return saved


def _unusable(file: Path, error: OSError) -> InputError:
    hint = "name a file, new or of an earlier run, in a folder that can be written"
    return InputError.at(f"faults cannot be kept in it: {error.strerror}", file=str(file), hint=hint)


def boot_id(path: Path = BOOT_ID) -> str:
    """The id of this boot; empty where the machine does not say it."""
    try:
        return path.read_text().strip()
    except OSError:
        return ""
