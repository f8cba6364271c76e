"""A newcomer's hour, typed from README, tutorials and how-tos: on narrow and wide terminals, without the public traces."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

import newcomers
from deep_seeds import deep
from docs_outputs import PROMETHEUS
from live.prometheus import measured_runs, real_prometheus
from newcomers import NOT_HERE, OTHERS, WIDTHS, Answer, Typed
from tonnage.apiserver.http import Server

PAGES = newcomers.newcomers_pages()
DOCUMENTS = ("-o json", "-o yaml", "dump", "render", "--print")
"""What prints a document for programs, whose lines are as long as they are."""
KEPT_WHOLE = re.compile(
    r"""
    \ *\S+\.(yaml|json)(:\d+)?(\ \S+)?       # the place of a finding, to click and copy
    | kubectl\ patch\ .*                     # to copy
    | tonnage\ .*                            # to copy
    | request\ \d+\ to\ worker\ .*             # why a request went there: one line each
    | \d\d:\d\d:\d\d\ \ .*                    # a decision of a controller: one line each
    """,
    re.VERBOSE,
)
"""Lines that are not wrapped."""


def _name(page: Path) -> str:
    return page.stem


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a Prometheus that has scraped inference/model-a in the last minutes; empty where there is none."""
    if not real_prometheus.PROMETHEUS or not real_prometheus.PROMTOOL:
        yield ""
        return
    made = measured_runs.played(measured_runs.write(tmp_path_factory.mktemp("measured") / "run"))
    text = measured_runs.openmetrics(made.cluster.records.store, int(time.time()) - 700)
    for old, new in (('"serving', '"inference'), ('"chat', '"model-a'), ("serving/chat", "inference/model-a")):
        text = text.replace(old, new)
    with real_prometheus.holding(text, tmp_path_factory.mktemp("prometheus")) as url:
        yield url


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    path = tmp_path_factory.mktemp("kube") / "config"
    with Server(newcomers.make_cluster()) as server:
        newcomers.write_config(path, server.url)
        yield path


class Terminal:
    """Types lines as a newcomer does, at each of the widths in a folder of its own."""

    def __init__(self, folder: Path, prometheus: str, patch: pytest.MonkeyPatch, widths: Sequence[int]) -> None:
        self.prometheus, self.patch = prometheus, patch
        self.folders = {width: folder / str(width) for width in widths}
        for one in self.folders.values():
            one.mkdir()
            newcomers.lay_out(one)

    def type_in(self, lines: Sequence[Typed]) -> Iterator[tuple[Typed, dict[int, Answer]]]:
        """Each line with its answers by width. One width after the other: what a page does it takes back at its end."""
        answers: list[dict[int, Answer]] = [{} for _ in lines]
        for width, folder in self.folders.items():
            self.patch.setenv("COLUMNS", str(width))
            for line, by_width in zip(lines, answers, strict=True):
                by_width[width] = newcomers.type_in(line, folder, self.prometheus)
        return zip(lines, answers, strict=True)


@pytest.fixture
def widths() -> Sequence[int]:
    """The widths of a terminal."""
    return WIDTHS


@pytest.fixture
def terminal(
    tmp_path: Path, config: Path, prometheus: str, monkeypatch: pytest.MonkeyPatch, widths: Sequence[int]
) -> Terminal:
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("KUBECONFIG", str(config))
    return Terminal(tmp_path, prometheus, monkeypatch, widths)


def _faults(line: Typed, answers: dict[int, Answer]) -> Iterator[str]:
    """What is wrong with what a line printed: an error, a word that is broken, a line that is too long."""
    whole = _words(answers[max(answers)])
    for width, answer in answers.items():
        if answer.code not in (0, 1) or re.search("^(error|internal error): ", answer.err, re.MULTILINE):
            yield f"{line}: exit code {answer.code}, {answer.err.strip()}"
        if any(one in str(line) for one in DOCUMENTS):
            continue
        for broken in sorted(_words(answer) - whole):
            yield f"{line}: at {width} columns {broken!r} is no word"
        for text in answer.out.splitlines():
            answered = line.words[1] == "why" and re.match(
                r"\S+( \S+)? (waits|is|never runs)\b", text
            )  # however long, in a pipe
            if len(text) > width and " " in text.strip() and not answered and not KEPT_WHOLE.fullmatch(text):
                yield f"{line}: at {width} columns a line of {len(text)}: {text}"


def _words(answer: Answer) -> set[str]:
    """The words of an answer, but for times of day and uids, which are others at each width. A comma is none of a word:
    the cells of a row that has no room are told as a sentence."""
    text = re.sub(r"\d\d:\d\d:\d\d|\d{4}-\d\d-\d\dT\S*|\bkubectl patch .*", "", answer.out)
    return {word.rstrip(",:") for word in text.split()}


# What pages show is what is printed at 80 columns (`test_docs.py`): narrower and wider ones are of interest first.
@pytest.mark.parametrize("widths", [(60, 120), *deep([WIDTHS])], ids=str)
@pytest.mark.parametrize("page", PAGES, ids=_name)
def test_what_a_page_says_to_type_works_at_every_width(page: Path, terminal: Terminal) -> None:
    lines = [line for line in newcomers.typed(page) if not line.plays]
    if not terminal.prometheus:
        lines = [line for line in lines if PROMETHEUS not in line.words]
    assert [fault for typed in terminal.type_in(lines) for fault in _faults(*typed)] == []


@pytest.mark.parametrize(
    "line", deep(dict.fromkeys(line for page in PAGES for line in newcomers.typed(page) if line.plays)), ids=str
)
def test_what_plays_a_scenario_works_at_every_width(line: Typed, terminal: Terminal) -> None:
    [(line, answers)] = terminal.type_in([line])
    assert list(_faults(line, answers)) == []


def test_every_line_is_typed_or_somebody_elses() -> None:
    odd = [
        line
        for page in PAGES
        for line in newcomers.lines(page)
        if not OTHERS & set(re.split(r"[\s/=]+", line))
        and "tonnage " not in line
        and line.split()[0] not in ("cp", "mkdir")
    ]
    assert odd == []
    assert sum(1 for page in PAGES for _ in newcomers.typed(page)) > 80


def test_what_is_not_typed_stands_on_a_page() -> None:
    pages = "\n".join(line for page in newcomers.pages() for line in newcomers.lines(page))
    assert [one for one in NOT_HERE if f"tonnage {one.rstrip('…')}" not in pages] == []
