"""A node's GPUs watched: what their driver reports and says becomes observations of their health.

What is known survives a restart of the agent, in a file; a reboot is a reset of every GPU."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import msgspec

from tonnage.errors import InputError
from tonnage.node.device_health import (
    DeviceHealth,
    FaultCause,
    HealthChange,
    Observation,
    Reading,
    ResetSeen,
    XidSeen,
)
from tonnage.node.devices import Devices

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
"""Another one after each boot of the machine."""


class SavedHealth(msgspec.Struct):
    """The file: causes by GPU, and the boot in which they were seen."""

    boot: str
    causes: dict[str, list[FaultCause]]


class HealthWatch:
    """``file``: where causes are kept; None: nowhere. ``boot``: the id of this boot.

    A file that cannot be read is put aside under ``.broken``, and :attr:`problem` says so: the agent starts all the
    same, as a card's faults are seen again by what the driver says."""

    def __init__(self, devices: Devices, health: DeviceHealth, *, file: Path | None = None, boot: str = "") -> None:
        self._devices, self.health, self._file, self._boot = devices, health, file, boot
        self.problem = ""
        self._written = b""

    def start(self, now_ns: int) -> None:
        """Take up what was known before the agent was started."""
        if self._file is None or not self._file.exists():
            return
        try:
            saved = msgspec.json.decode(self._file.read_bytes(), type=SavedHealth)
        except (OSError, msgspec.DecodeError) as error:
            aside = self._file.with_suffix(".broken")
            self._file.replace(aside)
            self.problem = f"{self._file}: {error}; put aside as {aside.name}"
            return
        for gpu, causes in sorted(saved.causes.items()):
            self.health.restore(gpu, causes)
            if saved.boot != self._boot:
                self.health.observe(ResetSeen(now_ns, gpu))

    def step(self, now_ns: int, timeout_s: float = 0) -> list[HealthChange]:
        """Wait up to ``timeout_s`` for something to be reported, read every card, and say which became healthy or
        unhealthy. ``now_ns``: the time, since 1970."""
        changes = self.health.observe_all(self._observations(now_ns, timeout_s))
        self._save()
        return changes

    def _observations(self, now_ns: int, timeout_s: float) -> Iterator[Observation]:
        cards = {card.index: card.uuid for card in self._devices.cards()}
        for event in self._devices.events(timeout_s):
            if event.kind == "xid" and event.card in cards:
                yield XidSeen(now_ns, cards[event.card], event.value, event.gpu_instance)
        for index, gpu in cards.items():
            try:
                said = self._devices.condition(index)
            except InputError:
                yield Reading(now_ns, gpu, answers=False)
                continue
            rows = said.rows
            yield Reading(
                now_ns,
                gpu,
                not said.lost,
                said.lost,
                None if said.recovery is None else int(said.recovery),
                None if rows is None else rows.pending,
                None if rows is None else rows.failed,
            )

    def _save(self) -> None:
        if self._file is None:
            return
        gpus = (card.uuid for card in self._devices.cards())
        causes = {gpu: list(found) for gpu in gpus if (found := self.health.causes(gpu))}
        content = msgspec.json.encode(SavedHealth(self._boot, causes))
        if content == self._written:
            return
        self._file.parent.mkdir(parents=True, exist_ok=True)
        new = self._file.with_suffix(".new")
        with new.open("wb") as out:
            out.write(content)
            out.flush()
            os.fsync(out.fileno())
        new.replace(self._file)
        self._written = content
