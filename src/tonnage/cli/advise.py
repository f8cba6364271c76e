"""`tonnage advise`: which of several ways serves what manifests ask for, and the manifests for it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from tonnage.cli import answers, files, terminal
from tonnage.cli.cluster import given, read_live
from tonnage.cli.options import OUTPUT
from tonnage.cli.piped import FILE
from tonnage.errors import InputError, Problem, Where

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tonnage.facts.claim_support import Release
    from tonnage.health.device_ways.advice import DeviceAdvice
    from tonnage.health.device_ways.convert import Converted
    from tonnage.health.device_ways.written import Written

_SCHEMA = "tonnage.dev/advise-devices/v1"
_STDOUT = Path("-")


@click.group()
def advise() -> None:
    """Which of several ways serves what manifests ask for."""


@advise.command()
@click.argument("paths", metavar="FILES...", nargs=-1, type=FILE)
@read_live()
@click.option("--kubernetes", "versions", multiple=True, metavar="VERSION", help="For this version alone; repeatable.")
@click.option(
    "--nodes",
    "scaled_by",
    multiple=True,
    type=click.Choice(["karpenter", "cluster-autoscaler", "auto-mode", "none"]),
    help="What launches the nodes; repeatable. [default: what FILES have]",
)
@click.option(
    "--write", type=click.Path(path_type=Path), metavar="FILE", help="Write FILES with claims here; - prints."
)
@OUTPUT
def devices(
    paths: tuple[Path, ...],
    context: str,
    kubeconfig: str,
    namespace: str,
    versions: tuple[str, ...],
    scaled_by: tuple[str, ...],
    write: Path | None,
    output: str,
) -> None:
    """Device plugin or ResourceClaims (DRA): for each workload of FILES and version of Kubernetes, and why.

    With --write everything of FILES is written again, with ResourceClaims in place of nvidia.com/gpu, nvidia.com/mig-…,
    fractions of GPUs, and of claims by APIs that are served no more. What cannot be said any more is named, and the
    exit code is 1.

    \b
    tonnage advise devices manifests/ --kubernetes 1.36 --nodes karpenter
    tonnage advise devices manifests/ --write claims.yaml
    """
    from tonnage.health.device_ways import advice
    from tonnage.health.device_ways.convert import convert

    if write == _STDOUT and output != "table":
        raise InputError.at(f"- and -o {output} both print", field="--write", hint="name a file to write")
    if "none" in scaled_by and len(scaled_by) > 1:
        raise InputError.at("none beside others", field="--nodes", hint="name what launches nodes, or none alone")
    asked = _versions(versions) or advice.releases()
    documents = _read(given(paths, context, kubeconfig, namespace))
    if write is not None and write != _STDOUT:
        files.check_writable(write)
    by = tuple(one for one in scaled_by if one != "none") if scaled_by else advice.autoscalers(documents)
    found = advice.advise(documents, asked, by)
    converted = convert(documents) if write is not None else None
    if output != "table":
        answers.show(_json(found, by, converted), output)
    elif write != _STDOUT:
        _show(found, by)
    if converted is not None and write is not None:
        _written(converted, write, told=output == "table")
        if converted.lost:
            raise click.exceptions.Exit(1)


def _versions(written: Sequence[str]) -> tuple[Release, ...]:
    from tonnage.facts import claim_support

    try:
        return tuple(claim_support.release(one) for one in written)
    except ValueError as error:
        raise InputError.at(str(error), field="--kubernetes", hint="write it like 1.36") from None


def _read(paths: Sequence[Path]) -> list[Written]:
    from tonnage.health.device_ways.written import Written
    from tonnage.objects import load

    found = []
    wrong: list[Problem] = []
    for tree in load.documents(paths):
        where = Where(tree.file, tree.line)
        if isinstance(tree.value, dict):
            wrong += load.misread(tree)
            found.append(Written(tree.value, where))
        else:
            wrong.append(Problem(where, "the document is not an object", "expected apiVersion and kind"))
    if wrong:
        raise InputError(*wrong)
    if not found:
        raise InputError.at("no documents found", field="FILES", hint="expected Kubernetes manifests")
    return found


def _show(found: Sequence[DeviceAdvice], by: Sequence[str]) -> None:
    from tonnage.cli.lines import say

    say(f"Nodes come from: {', '.join(by) if by else 'no autoscaler that is known here'}")
    if not found:
        say("No workload asks for GPUs")
    for one in found:
        terminal.echo()
        say(f"{one.workload} asks for {one.asks}", "  ")
        width = max(len(verdict.choice) for verdict in one.verdicts)
        releases = [f"{verdict.release[0]}.{verdict.release[1]}" for verdict in one.verdicts]
        longest = max(map(len, releases))
        for release, verdict in zip(releases, one.verdicts, strict=True):
            head = f"  {release:{longest}}  {verdict.choice:{width}}  "
            for number, reason in enumerate(verdict.reasons):
                say(reason, " " * len(head), " " * len(head) if number else head)


def _written(converted: Converted, path: Path, *, told: bool) -> None:
    from tonnage.cli.lines import say
    from tonnage.objects.dump import written

    text = written(converted.documents)
    if path == _STDOUT:
        terminal.echo(text, nl=False)
    else:
        files.write(path, text)
    if not told:
        return
    if path != _STDOUT:
        terminal.echo()
        say(f"{path}: {len(converted.documents)} objects")
    for note in converted.notes:
        place = f" ({note.where})" if str(note.where) else ""
        line = f"{'lost' if note.lost else 'done'}: {note.about}{place}: {note.text}"
        if path == _STDOUT:
            terminal.echo(line, err=True)
        else:
            say(line, "  ")


def _json(found: Sequence[DeviceAdvice], by: Sequence[str], converted: Converted | None) -> bytes:
    made: dict[str, Any] = {
        "schema": _SCHEMA,
        "nodes": list(by),
        "workloads": [
            {
                "workload": one.workload,
                "where": str(one.where),
                "asks": one.asks,
                "verdicts": [
                    {
                        "kubernetes": f"{verdict.release[0]}.{verdict.release[1]}",
                        "choice": str(verdict.choice),
                        "reasons": list(verdict.reasons),
                    }
                    for verdict in one.verdicts
                ],
            }
            for one in found
        ],
    }
    if converted is not None:
        made["converted"] = [
            {"about": one.about, "where": str(one.where), "text": one.text, "lost": one.lost} for one in converted.notes
        ]
    return msgspec.json.encode(made)
