"""Lines for people, on standard error, so that standard output holds the answer alone."""

from __future__ import annotations

from collections.abc import Iterable

from tonnage.cli import terminal
from tonnage.errors import Problem


def error(text: str) -> None:
    """Something went wrong."""
    terminal.echo(f"error: {text}", err=True)


def warnings(problems: Iterable[Problem]) -> None:
    """Suspicious places of an input."""
    for problem in problems:
        terminal.echo(f"warning: {problem}", err=True)


def note(text: str, quiet: bool) -> None:
    """Good to know, unless the person asked for quiet."""
    if not quiet:
        terminal.echo(text, err=True)
