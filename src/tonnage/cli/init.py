"""`tonnage init`: the scenario that manifests, or a cluster, lack."""

from __future__ import annotations

import os
import shlex
from pathlib import Path

import click

from tonnage.cli import files, lines, messages, terminal
from tonnage.cli.cluster import read_cluster, read_live
from tonnage.cli.piped import STDIN, stdin
from tonnage.errors import InputError

SCENARIO, MANIFESTS = "scenario.yaml", "manifests"
_MADE = ("Event", "NodeClaim")
"""Kinds that others make, or that only tell."""


@click.command(short_help="Write the scenario for a folder of manifests, or for a cluster.")
@click.argument("paths", metavar="[MANIFESTS]", nargs=-1, type=click.Path(path_type=Path))
@read_live()
@click.option(
    "--to", "folder", type=click.Path(path_type=Path), metavar="DIR", required=True, help="Where the scenario goes."
)
@click.option("--region", default="us-east-1", show_default=True, metavar="NAME", help="Region of prices and types.")
def init(paths: tuple[Path, ...], context: str, kubeconfig: str, namespace: str, folder: Path, region: str) -> None:
    """Write DIR/scenario.yaml, ready for `tonnage simulate DIR`: the Services of MANIFESTS (file, folder or `-`) whose
    pods are engines with traffic of a published profile, its Jobs and gangs with some work; guesses are marked.

    With --context or --kubeconfig a cluster is read, and its objects without an owner go to DIR/manifests: what
    controllers create of these, such as the pods of a Deployment, is created in the simulation.

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
    piped = paths == (STDIN,)
    text = ""
    if piped:
        text = stdin().decode("utf-8-sig", "replace")
    elif not paths:
        text = _by_hand(read_cluster(kubeconfig, context, namespace))
    profile = _profile()
    making = _Making()
    try:
        making.folder(folder / PROFILE)
        if paths and not piped:
            manifests = _manifests(files.existing(paths[0]), folder)
            relative = Path(os.path.relpath(manifests, folder))
            written = min(relative, manifests.absolute(), key=lambda one: len(one.parts))
        else:
            manifests, written = folder / MANIFESTS, Path(MANIFESTS)
            making.file(manifests / ("manifests.yaml" if piped else "cluster.json"), text)
        if not (folder / PROFILE).exists() or (folder / PROFILE).read_text(encoding="utf-8") != profile:
            making.file(folder / PROFILE, profile)
        found = draft(file, manifests, written, region)
        making.file(file, found.text)
    except BaseException:
        making.take_back()
        raise
    messages.warnings(found.warnings)
    lines.say(
        f"{file}: {_count(found.services, 'Service')} with traffic, {_count(found.training, 'workload')} with work"
    )
    for key, why in found.left:
        lines.say(f"left out: {key}: {why}", "    ", "  ")
    terminal.echo(f"next: tonnage simulate {shlex.quote(str(folder))}")


class _Making:
    """The files and folders that this call makes, so that it can take back those and no others."""

    def __init__(self) -> None:
        self._made: list[Path] = []

    def folder(self, of: Path) -> None:
        """The folders in which a file is to be."""
        for one in (*reversed(of.parent.parents), of.parent):
            if one.exists() and not one.is_dir():
                raise InputError.at("is a file", file=str(one), field="--to", hint="name a folder")
            if not one.exists():
                one.mkdir()
                self._made.append(one)

    def file(self, path: Path, text: str) -> None:
        """A new file. Raises InputError where there is one."""
        if path.exists():
            raise InputError.at("is there already", file=str(path), field="--to", hint="name another folder")
        self.folder(path)
        files.write(path, text)
        self._made.append(path)

    def take_back(self) -> None:
        for one in reversed(self._made):
            if one.is_file():
                one.unlink()
            elif one.is_dir() and not any(one.iterdir()):
                one.rmdir()


def _manifests(given: Path, folder: Path) -> Path:
    """The file or folder of manifests. Raises InputError for a scenario, and where the scenario would be among them."""
    if (given / SCENARIO).exists():
        raise InputError.at(
            "is a scenario already", file=str(given), hint=f"tonnage simulate {shlex.quote(str(given))}"
        )
    if given.is_dir() and folder.resolve().is_relative_to(given.resolve()):
        raise InputError.at(
            "is among the manifests: what is written there would be read as one of them",
            file=str(folder),
            field="--to",
            hint="name a folder beside them",
        )
    return given


def _count(some: tuple[str, ...], what: str) -> str:
    return f"{len(some)} {what}{'' if len(some) == 1 else 's'}"


def _by_hand(dumped: bytes) -> str:
    """The objects of a dump that nobody owns, without what the API server and controllers have written to them."""
    import msgspec

    from tonnage.objects.api.defaults import without_generated_selector

    kept = []
    for one in msgspec.json.decode(dumped)["items"]:
        metadata = one["metadata"]
        if metadata.get("ownerReferences") or one["kind"] in _MADE:
            continue
        if one["kind"] != "Node":
            one.pop("status", None)
        for field in ("uid", "resourceVersion", "generation", "creationTimestamp", "selfLink"):
            metadata.pop(field, None)
        if one["kind"] == "Job" and one["apiVersion"] == "batch/v1":
            without_generated_selector(one["spec"])
        kept.append(one)
    made = msgspec.json.encode({"apiVersion": "v1", "kind": "List", "items": kept})
    return msgspec.json.format(made, indent=1).decode() + "\n"


def _profile() -> str:
    folder = files.bundled_examples()
    if folder is None:
        raise InputError.at("the bundled examples are not installed", hint="install tonnage again")
    return files.text(folder / "traffic-surge" / "traffic" / "azure-2023-conv.yaml", "a traffic profile")
