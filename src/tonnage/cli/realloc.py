"""`tonnage realloc`: GPUs of one workload given to another, and back."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import click
import msgspec

from tonnage.cli import answers, files, terminal
from tonnage.cli.cluster import given, read_live
from tonnage.cli.options import OUTPUT
from tonnage.cli.piped import FILE
from tonnage.errors import InputError

if TYPE_CHECKING:
    from tonnage.scaling.reallocation import Assignment, Reallocation

    Steps: TypeAlias = tuple[Assignment, ...]

SCHEMA = "tonnage.dev/realloc/v1"


@click.command()
@click.argument("paths", metavar="[FILES]...", nargs=-1, type=FILE)
@read_live("Of both workloads. [default: any]")
@click.option(
    "--from", "source", metavar="NAME", help="The workload that gives up GPUs: NAME, NAMESPACE/NAME or KIND/NAME."
)
@click.option("--to", "target", metavar="NAME", help="The workload that gets them.")
@click.option("--gpus", type=click.IntRange(1), metavar="N", help="How many.")
@click.option("--dry-run", is_flag=True, help="Say what would be done, and do nothing; of FILES it is never more.")
@click.option("--record", type=click.Path(path_type=Path), metavar="FILE", help="Write down what is done, for --undo.")
@click.option("--undo", type=FILE, metavar="FILE", help="Undo what FILE has, from --record or -o json.")
@OUTPUT
def realloc(
    paths: tuple[Path, ...],
    context: str,
    kubeconfig: str,
    source: str | None,
    target: str | None,
    gpus: int | None,
    namespace: str,
    dry_run: bool,
    record: Path | None,
    undo: Path | None,
    output: str,
) -> None:
    """Move GPUs from one workload to another: scale in the donor, scale out the other.

    The donor gives up whole replicas and keeps the minimum of its HPA or ScaledObject. The bounds of autoscalers are
    adjusted, so that they do not undo it. A change is made only while the field has the value that was read; where one
    fails, those before it are undone. The kubectl commands that undo it are printed: they restore the bounds, and the
    replicas that no autoscaler sets.

    \b
    tonnage realloc --context prod --from model-b --to model-a --gpus 4 --dry-run
    tonnage realloc --context prod --from model-b --to model-a --gpus 4 --record moved.json
    tonnage realloc --context prod --undo moved.json
    """
    on_cluster = bool(context or kubeconfig)
    if record is not None and (dry_run or not on_cluster):
        raise click.UsageError("--record writes down what is done on a cluster: give --context, and no --dry-run.")
    if undo is not None:
        if source or target or gpus or paths:
            raise click.UsageError("--undo takes what is in its file, and no FILES, --from, --to or --gpus.")
        found, steps, back = None, *_recorded(undo)
    else:
        if not (source and target and gpus):
            raise click.UsageError("Give --from, --to and --gpus, or --undo.")
        found = _found(given(paths, context, kubeconfig, namespace), source, target, gpus, namespace)
        steps, back = found.steps, found.undo
    if record is not None:
        files.check_writable(record)
    if output != "table":
        answers.show(_json(found, steps, back), output)
    else:
        _print(found, steps, back)
    if dry_run or not on_cluster:
        return
    from tonnage.kube.http import open_cluster
    from tonnage.live.reassigning import carry_out

    client = open_cluster(kubeconfig, context)
    try:
        carry_out(client, steps)
    finally:
        client.transport.close()
    if record is not None:
        files.write(record, _json(found, steps, back).decode())
    if output == "table":
        terminal.echo("done")


def _found(paths: list[Path], source: str, target: str, gpus: int, namespace: str) -> Reallocation:
    from tonnage.control.holders import holder
    from tonnage.objects import load
    from tonnage.scaling.reallocation import CannotGive, reallocate

    objects = load.read(paths).objects
    donor = holder(objects, source, namespace, "--from")
    other = holder(objects, target, namespace, "--to")
    try:
        return reallocate(donor, other, gpus)
    except CannotGive as error:
        raise InputError.at(str(error), field="--gpus", hint=error.hint) from None


class _Record(msgspec.Struct):
    """What --record has written."""

    schema: str
    steps: tuple[Any, ...]
    undo: tuple[Any, ...]


def _recorded(path: Path) -> tuple[Steps, Steps]:
    """The reverse of what a file has, and what it has. Raises InputError for a file that cannot be read."""
    from tonnage.scaling.reallocation import Assignment

    hint = "give a file that `tonnage realloc --record` wrote"
    try:
        read = msgspec.json.decode(files.text(path, hint), type=_Record)
        if read.schema != SCHEMA:
            raise msgspec.ValidationError(f'schema "{read.schema}", expected "{SCHEMA}"')
        steps, undo = (tuple(msgspec.convert(one, Assignment) for one in part) for part in (read.steps, read.undo))
    except msgspec.DecodeError as error:
        raise InputError.at(f"not a record of a reallocation: {error}", file=str(path), hint=hint) from None
    return undo, steps


def _json(found: Reallocation | None, steps: Steps, back: Steps) -> bytes:
    made = {} if found is None else msgspec.to_builtins(found)
    made |= {"schema": SCHEMA, "steps": msgspec.to_builtins(steps), "undo": msgspec.to_builtins(back)}
    made["undo_commands"] = [_kubectl(one) for one in back]
    return msgspec.json.format(msgspec.json.encode(made, order="deterministic")) + b"\n"


def _kubectl(step: Assignment) -> str:
    """The step as a command."""
    from tonnage.live.reassigning import patch, resource_of

    body = msgspec.json.encode(patch(step)).decode()
    return shlex.join(
        [
            "kubectl",
            "patch",
            resource_of(step).plural,
            step.object.name,
            "-n",
            step.object.namespace,
            "--type=json",
            "-p",
            body,
        ]
    )


def _print(found: Reallocation | None, steps: Steps, back: Steps) -> None:
    from tonnage.cli.look import Console, Look

    console = Console()
    look = Look.of(console)
    if found is not None:
        console.print(f"{found.source} gives up {_replicas(found.given)}: {found.freed} GPUs are freed")
        left = f", {found.freed - found.used} stay free" if found.freed > found.used else ""
        console.print(f"{found.target} gets {_replicas(found.gained)}: {found.used} GPUs are used{left}")
        console.print()
    table = look.table()
    for name in ("object", "field", "from", "to"):
        table.add_column(name, overflow="fold")
    for step in steps:
        table.add_row(str(step.object), step.path[-1], _value(step.before), _value(step.after))
    console.print(table)
    console.print()
    console.print(look.text("to undo it:", "dim"))
    for step in back:
        console.print(_kubectl(step), soft_wrap=True)


def _replicas(count: int) -> str:
    return f"{count} replica" if count == 1 else f"{count} replicas"


def _value(value: object) -> str:
    return "not written" if value is None else str(value)
