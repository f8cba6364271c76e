"""Output of commands as it stands in the documentation.

A block of output is preceded by a comment that says where it comes from::

    <!-- output: tonnage check manifests/; lines 1-5 -->

``python tests/docs_outputs.py`` runs the commands and writes their output into the pages.
"""

from __future__ import annotations

import contextlib
import io
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

import shared_runs
from tonnage.cli import main

REPOSITORY = Path(__file__).resolve().parents[1]
WIDTH = "80"

_BLOCK = re.compile(
    r"<!-- output: tonnage (?P<command>[^;>]+?)(?:; lines (?P<first>\d+)-(?P<last>\d+))? -->\n"
    r"```text\n(?P<text>.*?)```\n",
    re.DOTALL,
)


@dataclass(frozen=True)
class Block:
    """One block of output: the command without ``tonnage``, the lines of its output (from 1), what is on the page."""

    page: Path
    command: str
    lines: slice
    text: str

    def __str__(self) -> str:
        return f"{self.page.relative_to(REPOSITORY)}: tonnage {self.command}"

    def wanted(self) -> str:
        """What the command prints now."""
        return "".join(f"{line.rstrip()}\n" for line in output(self.command).splitlines()[self.lines])


def pages() -> list[Path]:
    """Every page of the documentation."""
    return [*sorted(REPOSITORY.glob("*.md")), *sorted((REPOSITORY / "docs").rglob("*.md"))]


def blocks(page: Path) -> Iterator[Block]:
    """The blocks of one page."""
    for match in _BLOCK.finditer(page.read_text(encoding="utf-8")):
        yield _block(page, match)


@cache
def output(command: str) -> str:
    """What ``tonnage`` prints in the root of the repository, on a pipe of 80 columns. A finding is not a failure."""
    printed, said = io.StringIO(), io.StringIO()
    with contextlib.ExitStack() as around:
        for context in (
            contextlib.chdir(REPOSITORY),
            contextlib.redirect_stdout(printed),
            contextlib.redirect_stderr(said),
            shared_runs.on_the_command_line(),
        ):
            around.enter_context(context)
        patch = around.enter_context(pytest.MonkeyPatch.context())
        patch.setenv("COLUMNS", WIDTH)
        patch.setenv("NO_COLOR", "1")
        try:
            main(shlex.split(command))
        except SystemExit as ended:
            if ended.code not in (0, 1):
                raise RuntimeError(f"tonnage {command}: {said.getvalue()}") from ended
    return printed.getvalue()


def refresh(page: Path) -> bool:
    """Write what the commands print now into the page. Whether that changed it."""
    before = page.read_text(encoding="utf-8")
    after = _BLOCK.sub(lambda match: _rewritten(page, match), before)
    if after != before:
        page.write_text(after, encoding="utf-8")
    return after != before


def _block(page: Path, match: re.Match[str]) -> Block:
    first = int(match["first"]) - 1 if match["first"] else None
    last = int(match["last"]) if match["last"] else None
    return Block(page, match["command"], slice(first, last), match["text"])


def _rewritten(page: Path, match: re.Match[str]) -> str:
    whole, start = match[0], match.start()
    before, after = match.start("text") - start, match.end("text") - start
    return whole[:before] + _block(page, match).wanted() + whole[after:]


if __name__ == "__main__":
    for one in pages():
        if refresh(one):
            print(one.relative_to(REPOSITORY))
