"""How things look on a terminal, and as plain text where nobody looks."""

from __future__ import annotations

from collections.abc import Iterable
from copy import copy
from dataclasses import dataclass, replace
from typing import IO, Any

import rich.console
from rich import box
from rich.measure import Measurement
from rich.segment import Segment
from rich.table import Column, Table
from rich.text import Text

from tonnage.cli.lines import blocks
from tonnage.cli.terminal import visible
from tonnage.errors import Where

INDENT = 8
"""Columns before a finding's text: the longest severity and a space."""
_GAP = 2
"""Columns between those of a table."""


class Console(rich.console.Console):
    """A console on which text is text: no markup, no emoji codes, no control characters. ``file``: standard output
    unless given."""

    def __init__(self, file: IO[str] | None = None) -> None:
        super().__init__(file=file, highlight=False, markup=False, emoji=False)

    def render(self, renderable: Any, options: rich.console.ConsoleOptions | None = None) -> Iterable[Segment]:
        """As rich renders it, with what the text of each segment would do to a terminal taken away."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(visible(segment.text), segment.style)


class FoldedTable(Table):
    """A table that breaks no word: cells are wrapped between words, and where the columns do not fit beside each other
    they fold into blocks below each other, each with the first column."""

    def __rich_console__(
        self, console: rich.console.Console, options: rich.console.ConsoleOptions
    ) -> rich.console.RenderResult:
        """The blocks as rich draws tables."""
        if not self.columns:
            return
        ranges = [self._range(console, options, column) for column in self.columns]
        for number, block in enumerate(blocks([low for low, _ in ranges], options.max_width, _GAP)):
            if number:
                yield Text("")
            yield from self._block([self.columns[at] for at in block], [ranges[at] for at in block], console, options)

    @staticmethod
    def _range(console: rich.console.Console, options: rich.console.ConsoleOptions, column: Column) -> tuple[int, int]:
        """The columns that it takes: at least, for the longest word or for cells that are not wrapped; at most."""
        cells = [Measurement.get(console, options, cell) for cell in (column.header, *column.cells)]
        most = max(one.maximum for one in cells)
        return most if column.no_wrap else max(one.minimum for one in cells), most

    def _block(
        self,
        columns: list[Column],
        ranges: list[tuple[int, int]],
        console: rich.console.Console,
        options: rich.console.ConsoleOptions,
    ) -> rich.console.RenderResult:
        """Some columns as a table; the widest give way first, none below what it takes at least."""
        widths = [most for _, most in ranges]
        while sum(widths) + _GAP * (len(widths) - 1) > options.max_width:
            wide = [at for at, (low, _) in enumerate(ranges) if widths[at] > low]
            if not wide:
                break
            widths[max(wide, key=lambda at: (widths[at], -at))] -= 1
        part = copy(self)
        part.columns = [replace(column, _index=at, width=widths[at]) for at, column in enumerate(columns)]
        yield from Table.__rich_console__(part, console, options)


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
            return FoldedTable(box=None, padding=(0, 2, 0, 0), header_style="", pad_edge=False)
        return FoldedTable(
            box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), header_style="dim", pad_edge=False, show_edge=False
        )


def hang(console: Console, first: Text, text: Text) -> None:
    """``text`` after ``first``, wrapped, its further lines indented like its first."""
    for number, line in enumerate(text.wrap(console, console.width - INDENT)):
        line.rstrip()
        console.print(Text.assemble(first if number == 0 else " " * INDENT, line), soft_wrap=True)


def place(where: Where) -> str:
    """file:line, then the field."""
    path = f"{where.file}:{where.line}" if where.line else where.file
    return f"{path} {where.field}".strip()
