"""Output of commands as it stands in the documentation.

A block of output is preceded by a comment that says where it comes from::

    <!-- output: tonnage check manifests/; lines 1-5 -->

``python tests/docs_outputs.py`` runs the commands and writes their output into the pages. Where a command names
``--prometheus http://localhost:9090``, a Prometheus is there that has scraped the traffic surge, under `corrected` and with
another seed than commands take.
"""

from __future__ import annotations

import contextlib
import io
import re
import shlex
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

import shared_runs
from hollow.prometheus import read_api
from tonnage.cli import main
from tonnage.metrics.store import SeriesStore
from tonnage.simulation import run, scenario

PROMETHEUS = "http://localhost:9090"
"""Where pages have a Prometheus."""
MEASURED = ("traffic-surge", "corrected", 1)
"""What it has scraped: an example's run under a policy, with a seed."""
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
    """What ``tonnage`` prints in the root of the repository, on a pipe of 80 columns; what reads a Prometheus in a folder
    of its own, into which it may write. A finding is not a failure."""
    printed, said = io.StringIO(), io.StringIO()
    words = shlex.split(command)
    with contextlib.ExitStack() as around:
        place = REPOSITORY
        if PROMETHEUS in words:
            place = Path(around.enter_context(tempfile.TemporaryDirectory()))
            words[words.index(PROMETHEUS)] = around.enter_context(_measured())
        for context in (
            contextlib.chdir(place),
            contextlib.redirect_stdout(printed),
            contextlib.redirect_stderr(said),
            shared_runs.on_the_command_line(),
        ):
            around.enter_context(context)
        patch = around.enter_context(pytest.MonkeyPatch.context())
        patch.setenv("COLUMNS", WIDTH)
        patch.setenv("NO_COLOR", "1")
        try:
            main(words)
        except SystemExit as ended:
            if ended.code not in (0, 1):
                raise RuntimeError(f"tonnage {command}: {said.getvalue()}") from ended
    return printed.getvalue()


@contextlib.contextmanager
def _measured() -> Iterator[str]:
    """The address of a server that answers as the Prometheus of pages does."""
    end_ns = max(series.last_ns for series in _scraped())
    with read_api.serving(store=_scraped(), epoch_ns=run.EPOCH_NS, now_ns=lambda: end_ns) as url:
        yield url


@cache
def _scraped() -> SeriesStore:
    example, policy, seed = MEASURED
    made = run.set_up(scenario.load(REPOSITORY / "examples" / example), policy, run.RunOptions(seed=seed))
    run.play(made, engines=True)
    return made.cluster.records.store


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
