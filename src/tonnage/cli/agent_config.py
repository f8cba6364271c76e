"""Which configuration the device plugin of a node goes by: a file, or what the node's label chooses of a ConfigMap."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from tonnage.cli.agent_machine import plugin_config
from tonnage.errors import InputError
from tonnage.kube.transport import ClientError
from tonnage.partitioning import device_plugin

if TYPE_CHECKING:
    from tonnage.partitioning.device_plugin import Config

Stamp = tuple[int, int] | None


class PluginConfig:
    """``path``: a file, None for the default configuration; with ``labels``, the folder into which a ConfigMap is
    mounted, of which the node's label nvidia.com/device-plugin.config chooses one (``default``: without the label)."""

    def __init__(
        self, path: Path | None, labels: Callable[[], Mapping[str, str]] | None = None, default: str = ""
    ) -> None:
        self._path, self._labels, self._default = path, labels, default
        self._label = ""
        self.problem = ""
        """Why the node's label is not known now: the last one that was known counts."""
        self._read: tuple[str, Stamp] | None = None

    def changed(self) -> bool:
        """Whether it is another one, or its content is, since it was read last; also where that failed."""
        return self._now() != self._read

    def read(self) -> Config:
        """The configuration as it is now. Raises InputError with file and line, or what the label asks for in vain."""
        try:
            path = self._chosen()
        except InputError as error:
            self._read = _refused(error)
            raise
        self._read = _state(path)
        return plugin_config(path)

    @property
    def name(self) -> str:
        """The file, or the empty text where there is none."""
        return self._read[0] if self._read is not None else ""

    def _now(self) -> tuple[str, Stamp]:
        try:
            return _state(self._chosen())
        except InputError as error:
            return _refused(error)

    def _chosen(self) -> Path | None:
        if self._labels is None or self._path is None:
            return self._path
        try:
            self._label = self._labels().get(device_plugin.CONFIG_LABEL, "")
            self.problem = ""
        except ClientError as error:
            self.problem = str(error)
        try:
            names = [one.name for one in self._path.iterdir() if not one.name.startswith(".") and one.is_file()]
        except OSError as error:
            hint = "name the folder into which the ConfigMap is mounted"
            raise InputError.at(f"cannot be read: {error.strerror}", file=str(self._path), hint=hint) from error
        key = device_plugin.choose(names, self._label, self._default)
        return self._path / key if key else None


def _state(path: Path | None) -> tuple[str, Stamp]:
    return ("" if path is None else str(path)), _stamp(path)


def _refused(error: InputError) -> tuple[str, Stamp]:
    return str(error), None


def _stamp(path: Path | None) -> Stamp:
    """What tells one content of a file from another; a ConfigMap's files are links that are swapped."""
    try:
        found = None if path is None else path.stat()
    except OSError:
        return None
    return None if found is None else (found.st_ino, found.st_mtime_ns)
