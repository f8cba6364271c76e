"""Runs of like lines: the same code but for the names in it."""

from __future__ import annotations

import ast
import io
import keyword
import tokenize
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

RUN = 10
"""Lines. Imports, docstrings, comments, fields without more than a plain default, and lines of nothing but signs
do not count."""
_SILENT = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}
_WORDS = {tokenize.NAME, tokenize.NUMBER, tokenize.STRING}


@dataclass(frozen=True)
class Line:
    """``tokens``: (kind, text) of its words and signs; ``number``: in its file, from 1."""

    number: int
    tokens: tuple[tuple[int, str], ...]


@dataclass(frozen=True, order=True)
class Place:
    """The first and last line of a run in a file."""

    file: str
    first: int
    last: int

    def __str__(self) -> str:
        return f"{self.file}:{self.first}-{self.last}"


def lines(text: str) -> list[Line]:
    """The lines of a module that count."""
    skipped = set[int]()
    for node in ast.walk(ast.parse(text)):
        says_nothing = isinstance(node, ast.Expr | ast.AnnAssign) and isinstance(node.value, ast.Constant | None)
        if says_nothing or isinstance(node, ast.Import | ast.ImportFrom):
            skipped.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    found: dict[int, list[tuple[int, str]]] = defaultdict(list)
    for one in tokenize.generate_tokens(io.StringIO(text).readline):
        if one.type not in _SILENT and one.start[0] not in skipped:
            found[one.start[0]].append((one.type, one.string))
    return [
        Line(number, tuple(tokens))
        for number, tokens in sorted(found.items())
        if any(kind in _WORDS for kind, _ in tokens)
    ]


def alike(run: Iterable[Line]) -> tuple[object, ...]:
    """What is the same of two runs that differ in names alone: a name stands for when it first came. Texts, numbers,
    keywords and what is asked of a thing (``.name``) stay."""
    names: dict[str, int] = {}
    said: list[object] = []
    for line in run:
        before = ""
        for kind, text in line.tokens:
            is_name = kind == tokenize.NAME and not keyword.iskeyword(text)
            if is_name and before != ".":
                said.append(names.setdefault(text, len(names)))
            else:
                said.append(text)
            before = text
        said.append("\n")
    return tuple(said)


def between_rooms(files: dict[str, str], run: int = RUN) -> list[tuple[Place, Place]]:
    """The longest runs of this many like lines or more in files of different rooms, once for each pair of places.
    ``files``: text by path below the package, which begins with the room."""
    read = {file: lines(text) for file, text in sorted(files.items())}
    form: dict[tuple[object, ...], int] = {}
    rough: dict[tuple[int, ...], list[tuple[str, int]]] = defaultdict(list)
    for file, there in read.items():
        forms = [form.setdefault(alike([line]), len(form)) for line in there]
        for at in range(len(there) - run + 1):
            rough[tuple(forms[at : at + run])].append((file, at))
    starts: dict[tuple[str, str], set[tuple[int, int]]] = defaultdict(set)
    for places in rough.values():
        if len({room(file) for file, _ in places}) < 2:
            continue
        exact: dict[tuple[object, ...], list[tuple[str, int]]] = defaultdict(list)
        for file, at in places:
            exact[alike(read[file][at : at + run])].append((file, at))
        for same in exact.values():
            for number, (file, at) in enumerate(same):
                for other, where in same[number + 1 :]:
                    if room(file) != room(other):
                        starts[file, other].add((at, where))
    return sorted(_longest(read, starts, run))


def _longest(
    read: dict[str, list[Line]], starts: dict[tuple[str, str], set[tuple[int, int]]], run: int
) -> Iterator[tuple[Place, Place]]:
    for (file, other), found in starts.items():
        for at, where in sorted(found):
            if (at - 1, where - 1) in found:
                continue
            more = 0
            while (at + more + 1, where + more + 1) in found:
                more += 1
            yield (
                Place(file, read[file][at].number, read[file][at + more + run - 1].number),
                Place(other, read[other][where].number, read[other][where + more + run - 1].number),
            )


def room(file: str) -> str:
    """The package, or the module, right below the root."""
    return file.partition("/")[0]


def sources(root: Path) -> dict[str, str]:
    """The text of each module, by its path below the root."""
    return {str(path.relative_to(root)): path.read_text(encoding="utf-8") for path in sorted(root.rglob("*.py"))}
