"""`tonnage trace`: request logs and the traffic profiles fitted to them."""

from __future__ import annotations

from pathlib import Path

import click

from tonnage.cli import lines
from tonnage.cli.trace_fit import fit
from tonnage.cli.trace_hash import hash_

_PATH = click.Path(path_type=Path)


@click.group()
def trace() -> None:
    """Look at a trace (Azure or Mooncake format, plain or .gz), fit a traffic profile to it, or make one of a log of
    prompts."""


trace.add_command(fit)
trace.add_command(hash_)


@trace.command()
@click.argument("file", type=_PATH)
def show(file: Path) -> None:
    """What is in FILE: requests, span, rates, lengths."""
    from tonnage.traffic.traces import describe, load_trace

    rows = describe(load_trace(file))
    width = max(len(name) for name, _ in rows) + 2
    for name, value in rows:
        lines.say(value, " " * width, f"{name:<{width}}")
