"""`tonnage mig check`, `render` and `node`: mig-parted and device-plugin files, and what they make of a node."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from tonnage.cli import answers, files, messages, terminal
from tonnage.cli.options import OUTPUT, at_option, said_as
from tonnage.cli.piped import FILE
from tonnage.errors import InputError, Problem

if TYPE_CHECKING:
    from tonnage.partitioning.documents import ConfigDocument
    from tonnage.partitioning.labels import NodeGpu
    from tonnage.partitioning.mig_cards import ConfigResult, EntryLayout

_NAMED = "NAME=GPU:LAYOUT"
_NAMED_HINT = "e.g. day=h100:7x1g.10gb"
_DEVICES_HINT = "indices behind # are like 0-3 or 0,2,5"
_MOST_GPUS = 1024


@click.command()
@click.argument("paths", metavar="FILES...", nargs=-1, required=True, type=FILE)
@click.option("--gpu", default="", metavar="NAME", help="Only what the configurations make on this GPU.")
@OUTPUT
def check(paths: tuple[Path, ...], gpu: str, output: str) -> None:
    """What each configuration in FILES makes on which card, or why it cannot.

    FILES are of mig-parted (configurations or hooks) or of the device plugin, plain or in a ConfigMap. Exit code 1 when
    a card cannot have what a configuration asks for.

    \b
    tonnage mig check mig.yaml --gpu h100
    """
    reports = _reports(_documents([files.existing(path) for path in paths]), gpu)
    if output != "table":
        answers.show(msgspec.json.encode({"schema": "tonnage.dev/mig-check/v1", "files": reports}), output)
    else:
        from tonnage.cli import mig_file_tables

        mig_file_tables.check(reports)
    if any(config["problems"] for report in reports for config in report.get("configs", [])):
        raise click.exceptions.Exit(1)


@click.command()
@click.argument("layouts", metavar="NAME=GPU:LAYOUT[#INDICES]...", nargs=-1)
@click.option("--defaults", is_flag=True, help="Also the named configurations that mig-parted comes with.")
@click.option("--config-map", "config_map", default="", metavar="NAME", help="Wrap it in a ConfigMap of this name.")
@click.option("--namespace", default="", metavar="NAME", help="The ConfigMap's namespace.")
def render(layouts: tuple[str, ...], defaults: bool, config_map: str, namespace: str) -> None:
    """A mig-parted file with layouts by name: day=h100:7x1g.10gb night=h100:off mixed=h100:3g.40gb,3g.40gb#0-3.

    A name that appears several times gets several entries, for other GPUs or other indices. off is MIG off, none is MIG
    without instances. mig-parted knows no places: those in a layout are left out.

    \b
    tonnage mig render day=h100:7x1g.10gb night=h100:off > mig.yaml
    """
    from tonnage.partitioning import documents, mig_cards, mig_parted

    if not layouts and not defaults:
        raise InputError.at("nothing to write", field=_NAMED, hint=f"{_NAMED_HINT}, or --defaults")
    if namespace and not config_map:
        raise InputError.at("no ConfigMap to put there", field="--namespace", hint="give --config-map NAME")
    named = [_named(text) for text in layouts]
    with at_option(_NAMED):
        spec = mig_cards.spec_of(named)
    messages.warnings(note for one in mig_cards.outcomes(spec) for note in one.notes)
    if defaults:
        known = mig_cards.known_configs().configs
        taken = [name for name in spec.configs if name in known]
        if taken:
            raise InputError.at(f"--defaults has {taken[0]} too", field="NAME", hint="choose another name")
        spec = mig_parted.Spec({**known, **spec.configs})
    text = mig_parted.render(spec)
    with said_as({"metadata.name": "--config-map", "metadata.namespace": "--namespace"}):
        whole = documents.config_map(config_map, {"config.yaml": text}, namespace) if config_map else text
    terminal.echo(whole, nl=False)


@click.command()
@click.option("--gpu", required=True, metavar="NAME", help="The GPU model.")
@click.option("--count", default=1, show_default=True, type=click.IntRange(1, _MOST_GPUS), help="How many.")
@click.option(
    "--layout", "layouts", multiple=True, metavar="LAYOUT[#INDICES]", help="MIG layout of all GPUs, or of some."
)
@click.option(
    "--strategy", type=click.Choice(["none", "single", "mixed"]), help="MIG strategy; else the file's, else none."
)
@click.option("--sharing", type=FILE, metavar="FILE", help="The device plugin's configuration, or its ConfigMap.")
@click.option("--config", default="", metavar="KEY", help="The node's label nvidia.com/device-plugin.config.")
@click.option("--driver", default="", metavar="VERSION", help="The driver, for the labels of versions.")
@OUTPUT
def node(
    gpu: str,
    count: int,
    layouts: tuple[str, ...],
    strategy: str | None,
    sharing: Path | None,
    config: str,
    driver: str,
    output: str,
) -> None:
    """Resources and labels of a node, as the device plugin and GPU feature discovery make them.

    Exit code 1 when the device plugin refuses the node's layouts.

    \b
    tonnage mig node --gpu h100 --count 8 --layout 7x1g.10gb#0-3 --strategy mixed
    """
    from tonnage.partitioning import device_plugin, labels
    from tonnage.partitioning.device_plugin import Config

    if config and sharing is None:
        raise InputError.at("no file that has it", field="--config", hint="give --sharing FILE")
    document = None if sharing is None else _chosen(sharing, config)
    chosen = Config() if document is None else device_plugin.parse(document)
    settled = device_plugin.settle(chosen, arguments={} if strategy is None else {"mig-strategy": strategy})
    used = str(settled["migStrategy"].value)
    cards = _cards(gpu, count, layouts)
    with _fields_of(document):
        made = labels.predict(cards, used, chosen.sharing, driver)
    notes = [*made.notes, *(f"{problem}" for problem in chosen.ignored)]
    answer = {
        "schema": "tonnage.dev/mig-node/v1",
        "strategy": used,
        "sharing": chosen.sharing.strategy,
        "resources": made.resources,
        "labels": made.labels,
        "unknown_labels": made.unknown,
        "problems": made.problems,
        "notes": notes,
    }
    if output != "table":
        answers.show(msgspec.json.encode(answer), output)
    else:
        from tonnage.cli import mig_file_tables

        mig_file_tables.node(answer)
    if made.problems:
        raise click.exceptions.Exit(1)


def _documents(paths: list[Path]) -> list[ConfigDocument]:
    """Every configuration in the files. Raises InputError with the problems of all files."""
    from tonnage.partitioning import documents

    found: list[ConfigDocument] = []
    problems: list[Problem] = []
    for path in paths:
        try:
            found += documents.read(files.text(path, "expected a YAML file"), str(path))
        except InputError as error:
            problems += error.problems
    if problems:
        raise InputError(*problems)
    return found


def _reports(found: list[ConfigDocument], gpu: str) -> list[dict[str, Any]]:
    """What each document says. Raises InputError with the problems of all."""
    reports: list[dict[str, Any]] = []
    problems: list[Problem] = []
    for document in found:
        try:
            reports.append(_report(document, gpu))
        except InputError as error:
            problems += error.problems
    if problems:
        raise InputError(*dict.fromkeys(problems))
    return reports


def _report(document: ConfigDocument, gpu: str) -> dict[str, Any]:
    from tonnage.partitioning import device_plugin, mig_cards, mig_hooks, mig_parted

    head = {"file": document.tree.file, "key": document.key}
    kind = _kind(document)
    if kind == "mig-parted":
        spec = mig_parted.parse(document)
        return {**head, "kind": kind, "configs": [_outcome(one) for one in mig_cards.outcomes(spec, gpu)]}
    if kind == "hooks":
        hooks = mig_hooks.parse(document).hooks
        return {**head, "kind": kind, "hooks": {name: [one.command for one in made] for name, made in hooks.items()}}
    config = device_plugin.parse(document)
    resources = [
        {
            "name": one.resource,
            "replicas": one.replicas,
            "advertised": config.sharing.advertised(one.resource),
        }
        for one in config.sharing.active.resources
    ]
    return {
        **head,
        "kind": kind,
        "flags": dict(config.flags),
        "sharing": config.sharing.strategy,
        "one_each": config.sharing.one_each,
        "resources": resources,
        "ignored": [_problem(one) for one in config.ignored],
    }


def _kind(document: ConfigDocument) -> str:
    """What a document is, by its fields. Raises InputError for one that is nothing known."""
    from tonnage.facts import names

    kinds = {"mig-configs": "mig-parted", "hooks": "hooks"}
    kinds |= dict.fromkeys(("flags", "resources", "sharing", "imex"), "device-plugin")
    keys = list(document.value) if isinstance(document.value, dict) else []
    for key, kind in kinds.items():
        if key in keys:
            return kind
    if document.key and isinstance(document.value, dict) and set(keys) <= {"version"}:
        return "device-plugin"  # which has a default for everything
    for key in keys:
        for near in names.near(key, kinds):
            raise InputError(document.problem(key, f"unknown field {key!r}", f"did you mean {near}?"))
    raise InputError(document.problem("", "no configuration that is known here", f"expected {', '.join(kinds)}"))


def _outcome(found: ConfigResult) -> dict[str, Any]:
    from tonnage.partitioning import notation
    from tonnage.partitioning.layouts import card, kind_of

    def profiles(one: EntryLayout) -> dict[str, int]:
        return dict(kind_of(card(one.gpu), (made.profile for made in one.layout))) if one.layout else {}

    return {
        "name": found.name,
        "makes": [
            {
                "entry": one.entry,
                "gpu": one.gpu,
                "cards": list(one.cards),
                "mig": one.layout is not None,
                "profiles": profiles(one),
                "layout": None if one.layout is None else notation.text(one.layout),
            }
            for one in found.made
        ],
        "refused": [
            {"entry": one.entry, "gpu": one.gpu, "why": one.why, "map": list(one.map)} for one in found.refused
        ],
        "problems": [_problem(one) for one in found.problems],
        "notes": [_problem(one) for one in found.notes],
    }


def _problem(problem: Problem) -> dict[str, str]:
    return {"where": str(problem.where), "message": problem.message, "hint": problem.hint}


def _named(text: str) -> tuple[str, str, tuple[str, ...] | None, str | list[int]]:
    """(configuration, GPU, profiles, devices) of ``day=h100:7x1g.10gb#0-3``."""
    name, equals, rest = text.partition("=")
    if not equals or not name:
        raise InputError.at(f"{text!r} names no configuration", field=_NAMED, hint=_NAMED_HINT)
    with at_option(_NAMED):
        layout, devices = _devices(rest)
    gpu, colon, body = layout.partition(":")
    if not colon:
        raise InputError.at(f"{text!r} names no GPU", field=_NAMED, hint=_NAMED_HINT)
    return name, gpu, _profiles(gpu, body, _NAMED), devices if devices else "all"


def _devices(text: str) -> tuple[str, list[int]]:
    """(layout, indices) of ``LAYOUT#0-3,7``; no indices are all."""
    layout, mark, written = text.partition("#")
    found: list[int] = []
    for part in written.split(",") if mark else []:
        first, dash, last = part.partition("-")
        ends = (first, last if dash else first)
        if not all(end.isascii() and end.isdigit() and len(end) < 5 for end in ends) or int(ends[0]) > int(ends[1]):
            raise InputError.at(f"{text!r}: {part!r} is not an index", hint=_DEVICES_HINT)
        found += range(int(ends[0]), int(ends[1]) + 1)
    if len(found) != len(set(found)):
        raise InputError.at(f"{text!r} has an index twice", hint=_DEVICES_HINT)
    return layout, found


def _profiles(gpu: str, body: str, field: str) -> tuple[str, ...] | None:
    """The profiles of a layout; None for MIG that is off."""
    from tonnage.partitioning import notation

    if body.strip() == "off":
        return None
    return notation.layout(f"{gpu}:{body}", field=field).names


def _cards(gpu: str, count: int, layouts: tuple[str, ...]) -> list[NodeGpu]:
    from tonnage.facts import gpus
    from tonnage.partitioning.labels import NodeGpu

    with at_option("--gpu"):
        model = gpus.get(gpu).name
    cut: list[tuple[str, ...] | None] = [None] * count
    given: set[int] = set()
    for text in layouts:
        with at_option("--layout"):
            layout, indices = _devices(text)
            body = layout.partition(":")[2] if ":" in layout else layout
            if ":" in layout and gpus.get(layout.partition(":")[0]).name != model:
                raise InputError.at(f"{layout!r} is not for {model}", hint="a node has one GPU model")
        profiles = _profiles(model, body, "--layout")
        for index in indices or range(count):
            if index >= count:
                hint = f"with --count {count} there are 0 to {count - 1}"
                raise InputError.at(f"there is no GPU {index}", field="--layout", hint=hint)
            if index in given:
                raise InputError.at(f"GPU {index} has two layouts", field="--layout", hint=_DEVICES_HINT)
            given.add(index)
            cut[index] = profiles
    return [NodeGpu(model, profiles) for profiles in cut]


def _chosen(path: Path, label: str) -> ConfigDocument | None:
    """The configuration of a node: the file's, or that of its ConfigMap which the node gets; None: the empty one."""
    from tonnage.partitioning import device_plugin

    found: dict[str, ConfigDocument] = {}
    for document in _documents([files.existing(path)]):
        if document.key in found:
            first = found[document.key].where()
            raise InputError(document.problem("", f"a second configuration beside line {first.line}", "keep one"))
        found[document.key] = document
    chosen = found.get("" if "" in found else device_plugin.choose(list(found), label))
    for field in ("mig-configs", "hooks"):
        if chosen is not None and isinstance(chosen.value, dict) and field in chosen.value:
            hint = "expected the device plugin's; tonnage mig check says what this one makes"
            raise InputError(chosen.problem(field, "this is a file of mig-parted", hint))
    return chosen


@contextmanager
def _fields_of(document: ConfigDocument | None) -> Iterator[None]:
    """Errors about fields of the document say where they stand."""
    try:
        yield
    except InputError as error:
        if document is None:
            raise
        problems = (
            replace(one, where=document.where(one.where.field)) if one.where.field in document.tree.lines else one
            for one in error.problems
        )
        raise InputError(*problems) from None
