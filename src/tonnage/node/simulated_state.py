"""What a simulated machine's GPUs keep between calls: in memory, or in a file that several processes share.

The file is JSON, replaced whole under a lock, so a process that is killed at any point leaves a state that was true.
"""

from __future__ import annotations

import fcntl
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import groupby
from pathlib import Path

import msgspec
from msgspec import Struct, field

from tonnage.errors import InputError
from tonnage.node.devices import DeviceEvent, GpuProcess, RecoveryAction, RemappedRows

_POLL_S = 0.05
_MOST_EVENTS = 1000
"""Events that are kept for readers that come late."""


class MigInstanceState(Struct):
    """A GPU instance by its id, the name of its profile and its first memory slice."""

    id: int
    profile: str
    start: int


class CardState(Struct, kw_only=True):
    """One card. ``mig``, ``mig_pending``: MIG mode now and after a reset. ``load``: 0 to 1, the work that it does.
    ``lost``: it has fallen off the bus. ``timeslice``: how long a process has it before the next one."""

    mig: bool = False
    mig_pending: bool = False
    instances: list[MigInstanceState] = field(default_factory=list)
    load: float = 0.0
    lost: bool = False
    recovery: RecoveryAction = RecoveryAction.NONE
    rows: RemappedRows = RemappedRows(0, 0, False, False)
    uncorrected: int = 0
    throttle: list[str] = field(default_factory=list)
    nvlinks_down: list[int] = field(default_factory=list)
    pcie_width: int | None = None
    processes: list[GpuProcess] = field(default_factory=list)
    energy_mj: int = 0
    timeslice: str = "Default"


class MachineState(Struct, kw_only=True):
    """All cards, what they reported (the newest last, ``reported`` in all), whether the machine refuses resets, and
    the GPU of each card; without: whatever it is said to be."""

    cards: list[CardState]
    events: list[DeviceEvent] = field(default_factory=list)
    reported: int = 0
    resets: bool = True
    gpus: list[str] = field(default_factory=list)

    def report(self, event: DeviceEvent) -> None:
        """Note an event for all readers."""
        self.events.append(event)
        self.reported += 1
        del self.events[:-_MOST_EVENTS]


class StateStore:
    """Where the state is. ``path``: a file that is made where there is none; None: this process's memory."""

    def __init__(self, path: Path | None, start: MachineState) -> None:
        self._path = path
        self._state = start
        self._changed = threading.Condition()
        self._seen: tuple[int, int] = (0, 0)
        if path is not None:
            try:
                self._take_up(path, start)
            except OSError as error:
                hint = "name a file, new or of an earlier call, in a folder that can be written"
                message = f"the state cannot be kept in it: {error.strerror}"
                raise InputError.at(message, file=str(path), hint=hint) from error

    def _take_up(self, path: Path, start: MachineState) -> None:
        """The file is there, and of a machine with these cards. Raises InputError where it is of another."""
        path.parent.mkdir(parents=True, exist_ok=True)
        with self._locked():
            if not path.exists():
                self._write(start)
                return
            found = self.read()
            there, wanted = found.gpus or ["?"] * len(found.cards), start.gpus or ["?"] * len(start.cards)
            known = bool(found.gpus and start.gpus)
            if len(there) != len(wanted) or (known and there != wanted):
                hint = "give the --simulated TYPE that it was made with, or another file"
                message = f"{len(there)} cards in it, {len(wanted)} expected"
                if known:
                    message = f"the cards in it are {_counted(there)}, expected {_counted(wanted)}"
                raise InputError.at(message, file=str(path), hint=hint)

    def read(self) -> MachineState:
        """The state now; not to be changed. Raises InputError for a file that is not one of ours."""
        if self._path is None:
            return self._state
        try:
            found = self._path.stat()
            if (found.st_mtime_ns, found.st_ino) != self._seen:
                self._state = msgspec.json.decode(self._path.read_bytes(), type=MachineState)
                self._seen = (found.st_mtime_ns, found.st_ino)
        except OSError as error:
            hint = "another process has removed it: start again"
            raise InputError.at(f"cannot be read: {error.strerror}", file=str(self._path), hint=hint) from error
        except msgspec.DecodeError as error:
            hint = "it is not the state of a simulated machine: give another file"
            raise InputError.at(str(error), file=str(self._path), hint=hint) from error
        return self._state

    @contextmanager
    def change(self) -> Iterator[MachineState]:
        """The state, to be changed; kept when the block ends without an error."""
        with self._changed:
            if self._path is None:
                yield self._state
            else:
                with self._locked():
                    state = msgspec.json.decode(msgspec.json.encode(self.read()), type=MachineState)
                    yield state
                    self._write(state)
            self._changed.notify_all()

    def wait_reported(self, more_than: int, timeout_s: float) -> MachineState:
        """The state once more events than that were reported, or as it is after ``timeout_s``."""
        until = time.monotonic() + timeout_s
        while (state := self.read()).reported <= more_than and (left := until - time.monotonic()) > 0:
            with self._changed:
                self._changed.wait(left if self._path is None else min(left, _POLL_S))
        return state

    @contextmanager
    def _locked(self) -> Iterator[None]:
        assert self._path is not None
        with self._path.with_name(f"{self._path.name}.lock").open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def _write(self, state: MachineState) -> None:
        assert self._path is not None
        new = self._path.with_name(f".{self._path.name}.{os.getpid()}")
        new.write_bytes(msgspec.json.format(msgspec.json.encode(state)))
        new.replace(self._path)


def _counted(names: list[str]) -> str:
    """Cards as --simulated has them: 2xh100,l4."""
    runs = [(name, len(list(same))) for name, same in groupby(names)]
    return ",".join(f"{count}x{name}" if count > 1 else name for name, count in runs)
