"""`tonnage trace`: request logs and the traffic profiles fitted to them."""

from __future__ import annotations

from pathlib import Path

import click

from tonnage.cli import answers, lines
from tonnage.cli.options import OUTPUT
from tonnage.cli.piped import FILE
from tonnage.cli.trace_fit import fit
from tonnage.cli.trace_hash import hash_

_SCHEMA = "tonnage.dev/trace-show/v1"


@click.group()
def trace() -> None:
    """Look at a trace (Azure or Mooncake format, plain or .gz), fit a traffic profile to it, or make one of a log of
    prompts."""


trace.add_command(fit)
trace.add_command(hash_)


@trace.command()
@click.argument("file", type=FILE)
@OUTPUT
def show(file: Path, output: str) -> None:
    """What is in FILE: requests, span, rates, lengths.

    \b
    tonnage trace show requests.csv
    zcat requests.jsonl.gz | tonnage trace show - -o json
    """
    from tonnage.traffic.trace_summary import describe
    from tonnage.traffic.traces import load_trace

    found = describe(load_trace(file))
    if output != "table":
        import msgspec

        answers.show(msgspec.json.encode({"schema": _SCHEMA, **msgspec.to_builtins(found)}), output)
        return
    rows = found.rows()
    width = max(len(name) for name, _ in rows) + 2
    for name, value in rows:
        lines.say(value, " " * width, f"{name:<{width}}")
