"""MPS control daemons of a node: one for each resource whose replicas share GPUs by MPS, where NVIDIA's device plugin
has its own.

A daemon that somebody else has started in the same folder is used as it is. Replicas are healthy while theirs answers,
and no container is handed one whose daemon does not: it would run without limits, or hang.

Source of folders, limits and the compute mode: NVIDIA/k8s-device-plugin cmd/mps-control-daemon/mps,
internal/plugin/server.go; NVIDIA, Multi-Process Service (nvidia-cuda-mps-control).
"""

from __future__ import annotations

import errno
import os
import socket
import stat
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, TypeAlias

from tonnage.errors import InputError
from tonnage.node.kubelet_api import Mount
from tonnage.units import NS_PER_S

ROOT = Path("/run/nvidia/mps")
IN_CONTAINERS = "/mps"
"""Where a container finds the folder of its daemon, below the resource's name."""
CONTROL = "nvidia-cuda-mps-control"
_PIPES, _LOGS = "CUDA_MPS_PIPE_DIRECTORY", "CUDA_MPS_LOG_DIRECTORY"
_TRY_AGAIN_NS = 30 * NS_PER_S
_PATIENCE_S = 20.0

Run: TypeAlias = Callable[[Sequence[str], Mapping[str, str], str], None]
"""Runs a program with more environment and an input. Raises InputError where it fails."""


class MpsCard(NamedTuple):
    """``device``: its index. ``memory_mib``: what each client may have of it; None: not known."""

    uuid: str
    device: int
    memory_mib: int | None


def run_program(words: Sequence[str], environment: Mapping[str, str], text: str) -> None:
    """For real. Raises InputError where the program is not there, fails or hangs."""
    try:
        env = {**os.environ, **environment}
        done = subprocess.run(
            words, check=False, env=env, input=text, capture_output=True, text=True, timeout=_PATIENCE_S
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        hint = "it comes with the driver: is the driver's root mounted?"
        raise InputError.at(f"{words[0]} cannot be run: {error}", hint=hint) from error
    if done.returncode:
        raise InputError.at(f"{' '.join(words)}: {(done.stderr or done.stdout).strip() or f'exit {done.returncode}'}")


def handed_out(resource: str, root: Path) -> tuple[dict[str, str], list[Mount]]:
    """Environment and mounts of a container with a replica of this resource."""
    inside = f"{IN_CONTAINERS}/{resource}/pipe"
    mounts = [
        Mount(inside, str(pipe_folder(resource, root)), read_only=False),
        Mount("/dev/shm", str(root / "shm"), read_only=False),
    ]
    return {_PIPES: inside}, mounts


def pipe_folder(resource: str, root: Path) -> Path:
    """Where the daemon of a resource listens."""
    return root / resource / "pipe"


def answers(folder: Path) -> bool:
    """Whether a control daemon listens in this folder: on a socket, or a named pipe in older drivers. What is left of
    one that has ended does not count."""
    control = folder / "control"
    try:
        kind = control.stat().st_mode
        if stat.S_ISFIFO(kind):
            os.close(os.open(control, os.O_WRONLY | os.O_NONBLOCK))
            return True
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as one:
            one.connect(str(control))
    except OSError as error:
        return error.errno == errno.EPROTOTYPE  # somebody listens, on a socket of another type
    return True


class MpsDaemon:
    """The daemon of ``resource`` on these ``cards``, for so many ``replicas`` of each."""

    def __init__(self, resource: str, root: Path, cards: Sequence[MpsCard], replicas: int, run: Run) -> None:
        self.resource = resource
        self.made_of = tuple(cards), replicas
        self._folder, self._logs, self._shm = pipe_folder(resource, root), root / resource / "log", root / "shm"
        self._cards, self._percent, self._run = cards, 100 // replicas, run
        self._tried_ns: int | None = None
        self._own = False
        self._limited = False
        self.problem = ""
        """Why no container may have a replica; empty: it answers, and has its limits."""

    def look(self, now_ns: int) -> bool:
        """Whether it answers and, where it was started here, has its limits; one that does not is started, and told
        its limits, every half minute."""
        up = answers(self._folder)
        if up and (self._limited or not self._own):
            self.problem = ""
            return True
        if self._tried_ns is not None and now_ns - self._tried_ns < _TRY_AGAIN_NS:
            return False
        self._tried_ns = now_ns
        try:
            if not up:
                self._start()
            self._limit()
        except InputError as error:
            what = "the MPS control daemon has no limits" if self._own else "no MPS control daemon"
            self.problem = f"{self.resource}: {what}: {error.problems[0].message}"
            return False
        up = answers(self._folder)
        self.problem = "" if up else f"{self.resource}: the MPS control daemon does not answer; see {self._logs}"
        return up

    def stop(self) -> None:
        """End it where it was started here."""
        if self._own and answers(self._folder):
            try:
                self._run([CONTROL], self._environment, "quit\n")
            except InputError as error:
                self.problem = str(error)
        self._own = False

    def _start(self) -> None:
        self._own = self._limited = False
        try:
            for folder in (self._folder, self._logs, self._shm):
                folder.mkdir(parents=True, exist_ok=True)
            (self._folder / "control").unlink(missing_ok=True)
        except OSError as error:
            raise InputError.at(f"its folder cannot be made: {error}", hint="give another --mps-root") from error
        for card in self._cards:
            self._run(["nvidia-smi", "-i", card.uuid, "-c", "EXCLUSIVE_PROCESS"], {}, "")
        self._run([CONTROL, "-d"], self._environment, "")
        self._own = True

    def _limit(self) -> None:
        for card in self._cards:
            if card.memory_mib is not None:
                said = f"set_default_device_pinned_mem_limit {card.device} {card.memory_mib}M\n"
                self._run([CONTROL], self._environment, said)
        self._run([CONTROL], self._environment, f"set_default_active_thread_percentage {self._percent}\n")
        self._limited = True

    @property
    def _environment(self) -> dict[str, str]:
        order = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}  # as nvidia-smi and NVML count
        return {_PIPES: str(self._folder), _LOGS: str(self._logs), **order}
