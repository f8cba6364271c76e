"""`tonnage check`: what a set of manifests does and never does, without running anything."""

from __future__ import annotations

from pathlib import Path

import click

from tonnage.cli import files


@click.command()
@click.argument("paths", metavar="FILES...", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option(
    "-o",
    "--output",
    "form",
    type=click.Choice(["table", "json"]),
    default="table",
    show_default=True,
    help="What to print.",
)
def check(paths: tuple[Path, ...], form: str) -> None:
    """Read FILES (files and folders) together, and say what this configuration does and never does.

    Exit code 1 when a finding is an error, 2 when the input cannot be read.
    """
    from tonnage.cli import output
    from tonnage.objects import load
    from tonnage.provisioning.catalogue import Catalogue
    from tonnage.simulation.configure import configure

    manifest = load.read([files.existing(path) for path in paths])
    findings = configure(manifest, Catalogue.load()).findings
    if form == "json":
        click.echo(output.check_json(findings), nl=False)
    elif findings:
        output.print_findings(findings, output.console(), limit=len(findings))
    else:
        click.echo(f"No findings in {len(manifest.objects)} objects")
    if any(finding.severity == "error" for finding in findings):
        raise click.exceptions.Exit(1)
