"""Pages, commands, messages and docstrings use the words that Kubernetes, Karpenter, KEDA, vLLM and NVIDIA use.

``data/words.csv`` has a row for each phrase that is not used: a regular expression, what is written in its place, and
whose word that is. ``data/words_allowed.csv`` has the places where such a phrase is right, each with the reason.
Searched are all texts that users read: pages, examples, the chart, tables of facts, the report, and of the code
strings, docstrings and comments.
Names in code, and what stands between backticks, are left alone.
"""

from __future__ import annotations

import ast
import csv
import io
import re
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[1]
DATA = Path(__file__).parent / "data"
PROSE = (
    *("*.md", "docs/**/*.md", "examples/**/*.md", "examples/**/*.yaml", "charts/**/*.md", "charts/**/*.yaml"),
    *("src/**/data/*.csv", "src/**/assets/*.js"),
)
CODE = ("src/**/*.py",)
LEFT_OUT = ("CHANGELOG.md",)  # what was written then
_CODE = re.compile(
    r"```(?!text)\w*\n.*?```|(?<!`)``(?!`)[^`]+``(?!`)|(?<!`)`[^`\n]+`(?!`)|\]\([^)\s]+\)|<!--.*?-->|:\w+:`[^`]+`",
    re.DOTALL,
)


@dataclass(frozen=True)
class Word:
    """A phrase that is not used (``pattern``), what to write, and whose word that is."""

    pattern: re.Pattern[str]
    write: str
    source: str


@dataclass(frozen=True)
class Found:
    """A phrase of the table in a file, at the line where its text begins."""

    file: str
    line: int
    phrase: str
    write: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.phrase!r} (write: {self.write})"


def _rows(name: str) -> list[dict[str, str]]:
    with (DATA / name).open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


@cache
def words() -> tuple[Word, ...]:
    return tuple(Word(re.compile(row["not"]), row["write"], row["source"]) for row in _rows("words.csv"))


def prose(text: str) -> Iterator[tuple[int, str]]:
    """The paragraphs of a page with the lines where they begin. Code and targets of links are blanked, output is not."""
    plain = _CODE.sub(lambda match: re.sub(r"[^\n]", "\x00", match[0]), text)
    line = 1
    for part in re.split(r"(\n\s*\n)", plain):
        yield line, part
        line += part.count("\n")


def texts(source: str) -> Iterator[tuple[int, str]]:
    """The strings (those that are joined without an operator as one), docstrings and comments of a module."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.JoinedStr):
            yield node.lineno, "".join(str(v.value) if isinstance(v, ast.Constant) else "\x00" for v in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.lineno, _CODE.sub("\x00", node.value)
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], _CODE.sub("\x00", token.string)


def search(file: str, parts: Iterator[tuple[int, str]]) -> Iterator[Found]:
    """What of the table is in these texts; an end of a line is a space."""
    for line, part in parts:
        flat = re.sub(r"\s+", " ", part)
        for word in words():
            for match in word.pattern.finditer(flat):
                yield Found(file, line, match[0], word.write)


@cache
def found() -> tuple[Found, ...]:
    """All of the table that is in the repository, each once for a place."""
    everything = dict[Found, None]()
    for patterns, parts in ((PROSE, prose), (CODE, texts)):
        for path in sorted({path for pattern in patterns for path in REPOSITORY.glob(pattern)}):
            name = str(path.relative_to(REPOSITORY))
            if name not in LEFT_OUT:
                everything |= dict.fromkeys(search(name, parts(path.read_text(encoding="utf-8"))))
    return tuple(everything)


def _allows(row: dict[str, str], one: Found) -> bool:
    return Path(one.file).match(row["file"]) and one.phrase == row["phrase"]


@pytest.mark.fuzz
def test_no_phrase_of_the_table_is_used() -> None:
    allowed = _rows("words_allowed.csv")
    assert [str(one) for one in found() if not any(_allows(row, one) for row in allowed)] == []


@pytest.mark.fuzz
def test_every_exception_is_needed_and_has_a_reason() -> None:
    rows = _rows("words_allowed.csv")
    assert [row for row in rows if not any(_allows(row, one) for one in found())] == []
    assert [row for row in rows if len(row["reason"]) < 10] == []


def test_every_row_says_what_to_write_and_whose_word_it_is() -> None:
    assert len(words()) > 30
    assert [word.pattern.pattern for word in words() if not word.write or not word.source] == []
    assert [word.write for word in words() if word.pattern.search(word.write)] == [], "would be found itself"


@pytest.mark.parametrize(
    "source",
    [
        '"""GPUs that are cut\n    otherwise."""\n',
        'raise ValueError("the GPU is cut " f"otherwise: {1}")\n',
        "x = 1  # the GPU is cut otherwise\n",
    ],
    ids=["over the end of a line", "in a string of two parts", "in a comment"],
)
def test_a_phrase_is_found_in_code(source: str) -> None:
    assert "cut otherwise" in [one.phrase for one in search("x.py", texts(source))]


def test_a_phrase_is_found_in_a_page_and_not_between_backticks() -> None:
    page = "Ties are drawn by\nlot.\n\nThe field `by lot` stays, and so does [this](by-lot.md).\n\nBy chance, by lot.\n"
    assert [(one.line, one.phrase) for one in search("x.md", prose(page))] == [(1, "by lot"), (6, "by lot")]


def test_names_in_code_are_left_alone() -> None:
    assert list(search("x.py", texts("doubts = {}\nclass Wish: ...\ndef give_back_nodes(company): ...\n"))) == []
