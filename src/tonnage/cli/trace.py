"""`tonnage trace`: request logs and the traffic profiles fitted to them."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

import click

from tonnage.cli import files, terminal
from tonnage.cli.trace_hash import hash_

_PATH = click.Path(path_type=Path)


@click.group()
def trace() -> None:
    """Look at a trace (Azure or Mooncake format, plain or .gz), fit a traffic profile to it, or make one of a log of
    prompts."""


trace.add_command(hash_)


@trace.command()
@click.argument("file", type=_PATH)
def show(file: Path) -> None:
    """What is in FILE: requests, span, rates, lengths."""
    from tonnage.traffic.traces import describe, load_trace

    rows = describe(load_trace(file))
    width = max(len(name) for name, _ in rows)
    for name, value in rows:
        terminal.echo(f"{name:<{width}}  {value}")


@trace.command(short_help="Fit a traffic profile to FILE.")
@click.argument("file", type=_PATH)
@click.option(
    "-o", "--output", "out", type=_PATH, metavar="OUT.yaml", required=True, help="Where to write the profile."
)
@click.option("--name", required=True, help="What the trace is called, for results and reports.")
@click.option("--url", default="", help="Where the trace is published.")
@click.option("--licence", default="", help="Under which licence.")
@click.option("--citation", default="", help="How to cite it.")
@click.option("--fitted", type=click.DateTime(["%Y-%m-%d"]), metavar="YYYY-MM-DD", help="The day of the fit.")
@click.option(
    "--interval",
    type=click.IntRange(1, 3600),
    metavar="SECONDS",
    default=10,
    show_default=True,
    help="Interval over which arrivals are counted.",
)
def fit(
    file: Path, out: Path, name: str, url: str, licence: str, citation: str, fitted: datetime | None, interval: int
) -> None:
    """Fit a traffic profile to FILE: arrivals over time, and the joint lengths of prompts and outputs."""
    from tonnage.traffic import profile, profile_file
    from tonnage.traffic.traces import load_trace

    files.check_writable(out)
    source = profile.ProfileSource(
        name=name, url=url, licence=licence, citation=citation, fitted=fitted.date() if fitted else None
    )
    made = profile.fit(load_trace(file), source, interval)
    files.write(out, profile_file.to_yaml(made))
    terminal.echo(f"{out}: {made.requests:,} requests, {made.mean_rate:.2f} a second over {made.span_ns // 10**9:,} s")
