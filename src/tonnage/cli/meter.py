"""A bar for work of known length, on a terminal only."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import click


@contextmanager
def meter(length: int, label: str, *, quiet: bool) -> Iterator[Callable[[int], None]]:
    """A function that is told how much more is done. It draws on standard error, where that is a terminal."""
    if quiet or not sys.stderr.isatty():
        yield lambda done: None
        return
    with click.progressbar(length=length, label=label, file=sys.stderr, update_min_steps=max(1, length // 200)) as bar:
        yield bar.update
