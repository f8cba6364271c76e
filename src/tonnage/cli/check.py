"""`tonnage check`: what a set of manifests does and never does, without running anything."""

from __future__ import annotations

from pathlib import Path

import click

from tonnage.cli import answers, terminal
from tonnage.cli.cluster import given, read_live
from tonnage.cli.options import output_option
from tonnage.cli.piped import FILE
from tonnage.decisions import Finding, Ref
from tonnage.errors import InputError


@click.command()
@click.argument("paths", metavar="FILES...", nargs=-1, type=FILE)
@read_live()
@output_option("form")
def check(paths: tuple[Path, ...], context: str, kubeconfig: str, namespace: str, form: str) -> None:
    """Read FILES (files and folders) together, and say what will not run or has no effect, and what helps. A scenario
    (its file, or a folder with a scenario.yaml) stands for its manifests on its fleet, under each of its policies. `-`
    is standard input; --context or --kubeconfig reads a cluster as it is now.

    Exit code 1 when a finding is an error, 2 when the input cannot be read.

    \b
    tonnage check manifests/
    tonnage check --context prod -n inference -o yaml
    helm template chart/ | tonnage check -
    """
    from tonnage.cli import output

    try:
        objects, findings = _look_at(given(paths, context, kubeconfig, namespace))
    except InputError as error:
        if form != "table":
            from tonnage.simulation.configure import doubt

            refused = [
                Finding("input-refused", "error", Ref("File", p.where.file), p.where, p.message, help=p.hint)
                for p in error.problems
            ]
            answers.show(output.check_json([*refused, *map(doubt, error.beside)]), form)
        raise
    if form != "table":
        answers.show(output.check_json(findings), form)
    elif findings:
        output.print_findings(findings, output.console(), limit=len(findings))
    else:
        terminal.echo(f"No findings in {objects} objects")
    if any(finding.severity == "error" for finding in findings):
        raise click.exceptions.Exit(1)


def _look_at(paths: list[Path]) -> tuple[int, tuple[Finding, ...]]:
    """How many objects there are, and what is found about them."""
    from tonnage.simulation import run, scenario
    from tonnage.simulation.configure import sorted_findings

    loaded = scenario.load(paths[0]) if scenario.is_scenario(paths) else scenario.of_files(paths)
    made = [run.set_up(loaded, name).configuration for name in loaded.spec.policies]
    unique = {(f.rule, str(f.object), str(f.where)): f for one in made for f in one.findings}
    pods = {ref: n for one in made for ref, n in one.pods.items()}
    return sum(len(one.manifest.objects) for one in made), sorted_findings(unique.values(), pods)
