"""`tonnage init`: the scenario that manifests, or a cluster, lack."""

from __future__ import annotations

import os
from pathlib import Path

import click

from tonnage.cli import files, terminal
from tonnage.cli.cluster import live, read_cluster
from tonnage.errors import InputError

SCENARIO, MANIFESTS = "scenario.yaml", "manifests"
_MADE = ("Event", "NodeClaim")
"""Kinds that others make, or that only tell."""


@click.command(short_help="Write the scenario for a folder of manifests, or for a cluster.")
@click.argument("paths", metavar="[MANIFESTS]", nargs=-1, type=click.Path(path_type=Path))
@live
@click.option("-n", "--namespace", default="", metavar="NAME", help="Of a cluster's objects. [default: all]")
@click.option(
    "--to", "folder", type=click.Path(path_type=Path), metavar="DIR", required=True, help="Where the scenario goes."
)
@click.option("--region", default="us-east-1", show_default=True, metavar="NAME", help="Whose prices and types hold.")
def init(paths: tuple[Path, ...], context: str, kubeconfig: str, namespace: str, folder: Path, region: str) -> None:
    """Write DIR/scenario.yaml, ready for `tonnage simulate DIR`: the Services of MANIFESTS (a file or folder) whose
    pods are engines with traffic of a published profile, its Jobs and gangs with some work, what is a guess marked.

    With --context or --kubeconfig a cluster is read, and what was made by hand in it goes to DIR/manifests: what
    controllers have made of that, such as the pods of a Deployment, is made again in the simulation.

    \b
    tonnage init k8s --to chat
    tonnage init --context prod -n inference --to prod-in-a-box
    """
    from tonnage.simulation.drafting import PROFILE, draft

    if len(paths) != (0 if context or kubeconfig else 1):
        raise click.UsageError("name one file or folder with manifests, or a cluster with --context")
    file = folder / SCENARIO
    if file.exists():
        raise InputError.at("is there already", file=str(file), field="--to", hint="name another folder")
    made = [one for one in (folder, folder / "traffic", folder / MANIFESTS) if not one.exists()]
    wrote: list[Path] = []
    try:
        (folder / "traffic").mkdir(parents=True, exist_ok=True)
        if paths:
            manifests = paths[0]
            written = min(
                Path(os.path.relpath(manifests, folder)), manifests.absolute(), key=lambda one: len(one.parts)
            )
        else:
            manifests, written = folder / MANIFESTS, Path(MANIFESTS)
            manifests.mkdir(exist_ok=True)
            wrote.append(manifests / "cluster.json")
            files.write(wrote[-1], _by_hand(read_cluster(kubeconfig, context, namespace)))
        wrote.append(folder / PROFILE)
        files.write(wrote[-1], _profile())
        found = draft(file, manifests, written, region)
        files.write(file, found.text)
    except BaseException:
        for one in wrote:
            one.unlink(missing_ok=True)
        for one in reversed(made):
            if one.exists() and not any(one.iterdir()):
                one.rmdir()
        raise
    terminal.echo(
        f"{file}: {_count(found.services, 'Service')} with traffic, {_count(found.training, 'workload')} with work"
    )
    for key, why in found.left:
        terminal.echo(f"  left out: {key}: {why}")
    terminal.echo(f"next: tonnage simulate {folder}")


def _count(some: tuple[str, ...], what: str) -> str:
    return f"{len(some)} {what}{'' if len(some) == 1 else 's'}"


def _by_hand(dumped: bytes) -> str:
    """The objects of a dump that nobody owns, without what the API server and controllers have written to them."""
    import msgspec

    kept = []
    for one in msgspec.json.decode(dumped)["items"]:
        metadata = one["metadata"]
        if metadata.get("ownerReferences") or one["kind"] in _MADE:
            continue
        if one["kind"] != "Node":
            one.pop("status", None)
        for field in ("uid", "resourceVersion", "generation", "creationTimestamp", "selfLink"):
            metadata.pop(field, None)
        kept.append(one)
    made = msgspec.json.encode({"apiVersion": "v1", "kind": "List", "items": kept})
    return msgspec.json.format(made, indent=1).decode() + "\n"


def _profile() -> str:
    folder = files.bundled_examples()
    if folder is None:
        raise InputError.at("the bundled examples are not installed", hint="install tonnage again")
    return files.text(folder / "traffic-surge" / "traffic" / "azure-2023-conv.yaml", "a traffic profile")
