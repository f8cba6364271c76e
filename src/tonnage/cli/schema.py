"""`tonnage schema`: the documented JSON, for programs that read it."""

from __future__ import annotations

import click


@click.command()
@click.argument("what", metavar="WHAT", type=click.Choice(["result", "check"]))
def schema(what: str) -> None:
    """Print the JSON schema of WHAT.

    `result` is what `tonnage simulate -o json` prints; `tonnage compare -o json` prints an array of it. `check` is what
    `tonnage check -o json` prints.
    """
    from tonnage.cli import output
    from tonnage.simulation.result import Result

    click.echo(output.json_schema(Result if what == "result" else output.CheckReport), nl=False)
