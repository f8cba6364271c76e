"""MPS control daemons on simulated cards: they listen, and remember what they were told."""

from __future__ import annotations

import socket
from collections.abc import Mapping, Sequence
from pathlib import Path

from tonnage.errors import InputError
from tonnage.node.mps_daemon import CONTROL


class SimulatedMps:
    """A :data:`tonnage.node.mps_daemon.Run`. ``told``: what each folder's daemon was told; ``modes``: the compute mode
    of cards by UUID; ``broken``: why none starts; ``deaf``: why none takes limits."""

    def __init__(self) -> None:
        self.told: dict[str, list[str]] = {}
        self.modes: dict[str, str] = {}
        self.broken = self.deaf = ""
        self._listening: dict[str, socket.socket] = {}

    def __call__(self, words: Sequence[str], environment: Mapping[str, str], text: str) -> None:
        if words[0] == "nvidia-smi":
            self.modes[words[2]] = words[4]
            return
        if self.broken:
            raise InputError.at(self.broken)
        folder = environment["CUDA_MPS_PIPE_DIRECTORY"]
        if list(words) == [CONTROL, "-d"]:
            one = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            one.bind(str(Path(folder) / "control"))
            one.listen()
            self._listening[folder], self.told[folder] = one, []
        elif text == "quit\n":
            self.end(folder)
        elif self.deaf:
            raise InputError.at(self.deaf)
        else:
            self.told[folder].append(text.strip())

    def end(self, folder: str) -> None:
        """The daemon of a folder ends; what it leaves there stays."""
        self._listening.pop(folder).close()
