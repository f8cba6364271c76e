"""How things look on a terminal, and as plain text where nobody looks."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import IO, Any

import rich.console
from rich import box
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from tonnage.cli.terminal import visible
from tonnage.errors import Where

INDENT = 8
"""Columns before a finding's text: the longest severity and a space."""


class Console(rich.console.Console):
    """A console on which text is text: no markup, no emoji codes, no control characters. ``file``: standard output
    unless given."""

    def __init__(self, file: IO[str] | None = None) -> None:
        super().__init__(file=file, highlight=False, markup=False, emoji=False)

    def render(self, renderable: Any, options: rich.console.ConsoleOptions | None = None) -> Iterable[Segment]:
        """As rich renders it, with what the text of each segment would do to a terminal taken away."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(visible(segment.text), segment.style)


@dataclass(frozen=True, slots=True)
class Look:
    """How to draw: ``plain`` is text only."""

    plain: bool

    @classmethod
    def of(cls, console: Console) -> Look:
        return cls(plain=console.no_color or not console.is_terminal)

    def style(self, name: str) -> str:
        return "" if self.plain else name

    def text(self, text: str, style: str = "") -> Text:
        return Text(text, self.style(style))

    def table(self) -> Table:
        if self.plain:
            return Table(box=None, padding=(0, 2, 0, 0), header_style="", pad_edge=False)
        return Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), header_style="dim", pad_edge=False, show_edge=False)


def hang(console: Console, first: Text, text: Text) -> None:
    """``text`` after ``first``, wrapped, its further lines indented like its first."""
    for number, line in enumerate(text.wrap(console, console.width - INDENT)):
        line.rstrip()
        console.print(Text.assemble(first if number == 0 else " " * INDENT, line), soft_wrap=True)


def place(where: Where) -> str:
    """file:line, then the field."""
    path = f"{where.file}:{where.line}" if where.line else where.file
    return f"{path} {where.field}".strip()
