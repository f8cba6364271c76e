"""Lines for people, no wider than the terminal: prose wrapped between words, columns under each other.

No word is broken: a path or a name that is longer than a line stands on one of its own. Where nothing is said of the
width (a pipe without ``COLUMNS``) a line has 80 columns, and nowhere more.
"""

from __future__ import annotations

import shutil
import textwrap
from collections.abc import Collection, Sequence

from tonnage.cli import terminal

WIDEST, NARROWEST = 80, 40
_GAP = "  "


def width() -> int:
    """Columns of a line: those of the terminal, or ``COLUMNS``; 80 at most, 40 at least."""
    return max(NARROWEST, min(WIDEST, shutil.get_terminal_size((WIDEST, 24)).columns))


def wrapped(text: str, further: str = "", first: str = "", columns: int = 0) -> list[str]:
    """The text in lines of so many ``columns`` (:func:`width`), the first begun with ``first``, others ``further``."""
    return textwrap.wrap(
        text,
        columns or width(),
        initial_indent=first,
        subsequent_indent=further,
        break_long_words=False,
        break_on_hyphens=False,
    )


def say(text: str, further: str = "", first: str = "") -> None:
    """Print :func:`wrapped`."""
    for line in wrapped(text, further, first):
        terminal.echo(line)


def say_indented(text: str) -> None:
    """Print a text that may begin with blanks: what follows its first line stands two columns further in."""
    indent = " " * (len(text) - len(text.lstrip(" ")))
    say(text.lstrip(" "), f"{indent}  ", indent)


def table(rows: Sequence[Sequence[str]], left: Collection[int] = (0,)) -> list[str]:
    """Rows of cells, a head among them, as lines: columns are flush right but for those of ``left``.

    Where they do not fit beside each other, gaps are made smaller, and then they fold into blocks below each other,
    each with the first column. Where not even two fit, each row is a sentence."""
    if not rows:
        return []
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    gap = _GAP if sum(widths) + len(_GAP) * (len(widths) - 1) <= width() else " "
    if len(widths) > 1 and widths[0] + len(gap) + max(widths[1:]) > width():
        return [line for row in rows[1:] for line in wrapped(_sentence(rows[0], row), "  ")]
    found: list[str] = []
    for block in blocks(widths, width(), len(gap)):
        found += [""] if found else []
        for row in rows:
            cells = [row[at].ljust(widths[at]) if at in left else row[at].rjust(widths[at]) for at in block]
            found.append(gap.join(cells).rstrip())
    return found


def _sentence(head: Sequence[str], row: Sequence[str]) -> str:
    told = ", ".join(f"{name} {cell}".strip() for name, cell in zip(head[1:], row[1:], strict=True) if cell)
    return f"{row[0].strip()}: {told}"


def blocks(widths: Sequence[int], columns: int, gap: int) -> list[list[int]]:
    """Which columns of a table stand beside each other, block by block: the first in each, with as many others as fit
    into so many ``columns``, one at least."""
    found: list[list[int]] = []
    room = 0
    for at, width_ in enumerate(widths[1:], 1):
        if not found or room < gap + width_:
            found.append([0])
            room = columns - widths[0]
        found[-1].append(at)
        room -= gap + width_
    return found or [[0]]


def show_table(rows: Sequence[Sequence[str]], left: Collection[int] = (0,)) -> None:
    """Print :func:`table`."""
    for line in table(rows, left):
        terminal.echo(line)
