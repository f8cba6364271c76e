"""Files that a command reads, with ``-`` for standard input."""

from __future__ import annotations

import atexit
import os
import shutil
import sys
import tempfile
from pathlib import Path

import click

from tonnage.errors import InputError
from tonnage.facts.tables import PIPED, is_csv

STDIN = Path("-")
_READ = "tonnage.stdin"
"""Under which the context notes that standard input has been read."""


class FileToRead(click.Path):
    """The path of a file that is read; of ``-`` one that has what was piped, as often as it is opened."""

    def __init__(self) -> None:
        super().__init__(path_type=Path)

    def convert(self, value: str | os.PathLike[str], param: click.Parameter | None, ctx: click.Context | None) -> Path:
        """The path. Raises InputError where standard input is meant and closed."""
        if ctx is not None and not ctx.resilient_parsing and Path(value) == STDIN:
            return self.piped(ctx)
        return Path(os.fspath(super().convert(value, param, ctx)))  # type: ignore[arg-type]

    def piped(self, ctx: click.Context) -> Path:
        """Where standard input can be read."""
        meta = ctx.find_root().meta
        if _READ not in meta:
            kept(stdin(), 0)
            meta[_READ] = PIPED
        return PIPED


class ScenarioToRead(FileToRead):
    """The path of a scenario, or of manifests that run without one: those of standard input in a folder of their own.
    A scenario itself is not read there, for its paths start at its folder. ``csv``: CSV will do, too."""

    def __init__(self, *, csv: bool = False) -> None:
        super().__init__()
        self._csv = csv

    def piped(self, ctx: click.Context) -> Path:
        """The folder, or CSV as it is. Raises InputError for a scenario."""
        text = super().piped(ctx).read_text(encoding="utf-8-sig", errors="replace")
        if self._csv and is_csv(PIPED, text):
            return PIPED
        if any(line.split("#")[0].split() == ["kind:", "Scenario"] for line in text.splitlines()):
            hint = "its paths start at its folder: name the file or the folder; manifests can be piped"
            raise InputError.at("a scenario is not read from standard input", field="-", hint=hint)
        above = Path(tempfile.mkdtemp(prefix="tonnage-"))
        atexit.register(shutil.rmtree, above, ignore_errors=True)
        folder = above / "stdin"
        folder.mkdir()
        name = "manifests.json" if text.lstrip().startswith("{") else "manifests.yaml"
        (folder / name).write_text(text, encoding="utf-8")
        return folder


FILE, SCENARIO = FileToRead(), ScenarioToRead()


def stdin() -> bytes:
    """All of standard input. Raises InputError where it is closed."""
    if sys.stdin is None:
        raise InputError.at("standard input is closed", field="-", hint="pipe something into it, or name files")
    return sys.stdin.buffer.read()


def kept(data: bytes, as_: int | None = None) -> int:
    """A descriptor from which the data can be read as often as it is opened by its path; this one where it is given."""
    made = os.memfd_create("tonnage")
    with open(made, "wb", closefd=False) as file:
        file.write(data)
    if as_ is None:
        return made
    os.dup2(made, as_)
    os.close(made)
    return as_
