"""A cluster where files are read: `tonnage dump`, --context, --kubeconfig and --namespace."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click

from tonnage.cli import files, terminal
from tonnage.cli.piped import kept
from tonnage.errors import InputError

_CONTEXT = click.option(
    "--context", metavar="NAME", default="", help="Read the cluster of this context of the kubeconfig."
)
_KUBECONFIG = click.option(
    "--kubeconfig", metavar="FILE", default="", help="Read the cluster of this kubeconfig. [default: as kubectl]"
)


def live(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options that name a cluster, for a command that acts on one."""
    return _CONTEXT(_KUBECONFIG(command))


def read_live(
    namespace: str = "Of a cluster's objects. [default: all]", context: str = "--context"
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """The options that name a cluster and a namespace, for a command that reads files. ``namespace``: what is said of
    it; ``context``: the option's name where --context is something else."""
    of_namespace = click.option("-n", "--namespace", default="", metavar="NAME", help=namespace)
    named = click.option(
        context, metavar="NAME", default="", help="Read the cluster of this context of the kubeconfig."
    )
    return lambda command: named(_KUBECONFIG(of_namespace(command)))


def given(
    paths: Sequence[Path], context: str = "", kubeconfig: str = "", namespace: str = "", *, none: bool = False
) -> list[Path]:
    """The files to read: bundled examples by their names, and the objects of the cluster where one is named. ``none``:
    nothing at all will do.

    Raises InputError where the cluster cannot be read; click's UsageError without anything to read."""
    found = [files.existing(path) for path in paths]
    if context or kubeconfig:
        found.append(Path(f"/dev/fd/{kept(read_cluster(kubeconfig, context, namespace))}"))
    if not found and not none:
        raise click.UsageError(
            "Missing argument 'FILES...': name files, - for standard input, or a cluster with --context."
        )
    return found


def read_cluster(kubeconfig: str, context: str, namespace: str) -> bytes:
    """The objects of the kinds that are read from files, and events. What may not be read is said on standard error."""
    from tonnage.kube.http import open_cluster
    from tonnage.kube.reading import exists, read
    from tonnage.kube.transport import ClientError
    from tonnage.objects.load import KINDS

    client = open_cluster(kubeconfig, context)
    try:
        if namespace and not exists(client, namespace):
            raise InputError.at(
                f'there is no namespace "{namespace}"', field="--namespace", hint="kubectl get namespaces"
            )
        found = read(client, [*KINDS, ("v1", "Event")], namespace)
    except ClientError as error:
        raise InputError.at(f"the cluster cannot be read: {error}", field="--context") from error
    finally:
        client.transport.close()
    for one in found.left:
        terminal.echo(f"note: not read: {one}", err=True)
    return found.as_list()


@click.command(short_help="A cluster's objects, as FILES of other commands.")
@read_live("Of objects that have one. [default: all]")
@click.option(
    "-o", "--output", type=click.Choice(["json", "yaml"]), default="json", show_default=True, help="What to print."
)
def dump(context: str, kubeconfig: str, namespace: str, output: str) -> None:
    """Print the objects of a cluster that other commands read, and its events; nothing is written to it.

    Kinds whose CRDs are missing are passed over, and those that the credentials may not list are named on standard
    error. There are no Secrets among them; ConfigMaps and environments of pods are.

    \b
    tonnage dump --context prod > cluster.json
    tonnage why train-7 cluster.json
    tonnage dump | tonnage check -
    """
    data = read_cluster(kubeconfig, context, namespace)
    if output == "json":
        terminal.echo(data)
        return
    import msgspec

    from tonnage.objects.dump import written

    terminal.echo(written([msgspec.json.decode(data)]), nl=False)
