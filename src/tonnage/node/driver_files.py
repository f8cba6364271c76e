"""What of a driver lies on a machine, as containers need it: device nodes, libraries, programs, sockets, firmware."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

_CONTROL = ("/dev/nvidia-modeset", "/dev/nvidia-uvm-tools", "/dev/nvidia-uvm", "/dev/nvidiactl")
_LIBRARIES = ("usr/lib/x86_64-linux-gnu", "usr/lib/aarch64-linux-gnu", "usr/lib64", "usr/lib", "usr/local/nvidia/lib64")
_PROGRAMS = (
    *("nvidia-smi", "nvidia-debugdump", "nvidia-persistenced", "nvidia-cuda-mps-control", "nvidia-cuda-mps-server"),
    *("nvidia-imex", "nvidia-imex-ctl"),
)
_SOCKETS = ("run/nvidia-persistenced/socket", "run/nvidia-fabricmanager/socket", "tmp/nvidia-mps")
_OPTIONS = ("ro", "nosuid", "nodev", "rbind", "rprivate")
_SOCKET_OPTIONS = ("nosuid", "nodev", "rbind", "rprivate", "noexec")
_HOOK = "nvidia-cdi-hook"
_NODES = re.compile(r"nvidia\d+|nvidia-(?!caps)[\w-]+|nvidiactl")


class DriverFiles(Protocol):
    """What a specification says beside the cards' own nodes."""

    def node(self, path: str) -> dict[str, Any]:
        """A device node as a specification has it."""
        ...

    def every_node(self) -> Sequence[str]:
        """All device nodes of the driver."""
        ...

    def common(self, *, visible: bool = True) -> dict[str, Any]:
        """What every container with a card gets. ``visible``: tell NVIDIA's own runtime to add nothing."""
        ...


@dataclass(frozen=True, slots=True)
class RealFiles:
    """Those of this machine. ``root``: where its file system is; ``version``: of the driver. ``hook``: the program
    that nvidia-container-toolkit installs; without it no hooks are written."""

    version: str
    root: Path = Path("/")
    hook: str = "/usr/bin/nvidia-cdi-hook"

    def node(self, path: str) -> dict[str, Any]:
        """By its path alone: the runtime looks up type and numbers."""
        return {"path": path}

    def every_node(self) -> Sequence[str]:
        folder = self.root / "dev"
        plain = [f"/dev/{one.name}" for one in folder.glob("nvidia*") if _NODES.fullmatch(one.name)]
        return sorted([*plain, *(f"/dev/nvidia-caps/{one.name}" for one in folder.glob("nvidia-caps/nvidia-cap*"))])

    def common(self, *, visible: bool = True) -> dict[str, Any]:
        edits: dict[str, Any] = {"env": ["NVIDIA_VISIBLE_DEVICES=void"]} if visible else {}
        edits["deviceNodes"] = [self.node(path) for path in _CONTROL if self._there(path)]
        libraries = sorted(self._libraries())
        edits["hooks"] = list(self._hooks(libraries)) if self._there(self.hook) else []
        edits["mounts"] = [_mount(path) for path in (*libraries, *self._others())]
        edits["mounts"] += [_mount(f"/{path}", _SOCKET_OPTIONS) for path in _SOCKETS if self._there(path)]
        return {key: value for key, value in edits.items() if value}

    def _there(self, path: str) -> bool:
        return (self.root / path.lstrip("/")).exists()

    def _libraries(self) -> Iterator[str]:
        seen = set()
        for folder in _LIBRARIES:
            for one in (self.root / folder).glob(f"*.so.{self.version}"):
                if one.name not in seen:
                    seen.add(one.name)
                    yield f"/{one.relative_to(self.root)}"

    def _others(self) -> Iterator[str]:
        for name in _PROGRAMS:
            found = (f"{folder}/{name}" for folder in ("usr/bin", "usr/local/nvidia/bin"))
            yield from (f"/{path}" for path in found if self._there(path))
        firmware = self.root / "lib/firmware/nvidia" / self.version
        yield from sorted(f"/{one.relative_to(self.root)}" for one in firmware.glob("gsp*.bin"))

    def _hooks(self, libraries: Sequence[str]) -> Iterator[dict[str, Any]]:
        cuda = next((path for path in libraries if Path(path).name.startswith("libcuda.so.")), None)
        if cuda is not None:
            yield self._call("create-symlinks", "--link", f"libcuda.so.1::{Path(cuda).parent}/libcuda.so")
        yield self._call("enable-cuda-compat", f"--host-driver-version={self.version}")
        folders = sorted({str(Path(path).parent) for path in libraries})
        yield self._call("update-ldcache", *(part for folder in folders for part in ("--folder", folder)))
        yield self._call("disable-device-node-modification")

    def _call(self, *arguments: str) -> dict[str, Any]:
        hook = {"hookName": "createContainer", "path": self.hook, "args": [_HOOK, *arguments]}
        return {**hook, "env": ["NVIDIA_CTK_DEBUG=false"]}


@dataclass(frozen=True, slots=True)
class SimulatedFiles:
    """Those of a machine that is not there: a container gets nodes of the right names that take and give nothing."""

    def node(self, path: str) -> dict[str, Any]:
        """/dev/null under the name of the device."""
        return {"path": path, "hostPath": "/dev/null"}

    def every_node(self) -> Sequence[str]:
        return _CONTROL

    def common(self, *, visible: bool = True) -> dict[str, Any]:
        env = {"env": ["NVIDIA_VISIBLE_DEVICES=void"]} if visible else {}
        return {**env, "deviceNodes": [self.node(path) for path in _CONTROL]}


def _mount(path: str, options: Sequence[str] = _OPTIONS) -> dict[str, Any]:
    return {"hostPath": path, "containerPath": path, "options": list(options)}
