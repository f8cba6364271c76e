"""`tonnage schema`: the documented JSON, for programs that read it."""

from __future__ import annotations

import click

from tonnage.cli import terminal


@click.command()
@click.argument("what", metavar="WHAT", type=click.Choice(["result", "check", "why", "plan", "savings"]))
def schema(what: str) -> None:
    """Print the JSON schema of WHAT.

    `result` is what `tonnage simulate -o json` prints; `tonnage compare -o json` prints an array of it. `check` is what
    `tonnage check -o json` prints, `why` what `tonnage why -o json` prints, `plan` what `tonnage plan -o json` prints,
    `savings` what `tonnage savings -o json` prints.

    \b
    tonnage schema result
    """
    import msgspec

    from tonnage.cli import output, plan_report, savings_report, why_tables
    from tonnage.simulation.result import Result

    types: dict[str, type[msgspec.Struct]] = {
        "result": Result,
        "check": output.CheckReport,
        "why": why_tables.WhyReport,
        "plan": plan_report.PlanReport,
        "savings": savings_report.SavingsReport,
    }
    terminal.echo(output.json_schema(types[what]), nl=False)
