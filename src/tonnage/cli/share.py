"""`tonnage share`: for workloads that do not fill a GPU, every way to share one, side by side."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from tonnage.cli import answers, messages, terminal
from tonnage.cli.cluster import given as input_files
from tonnage.cli.cluster import read_live
from tonnage.cli.options import OUTPUT, at_option, said_as
from tonnage.cli.piped import FILE
from tonnage.errors import InputError
from tonnage.facts.labels import GPU

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tonnage.partitioning.device_plugin import Sharing
    from tonnage.partitioning.share import Question, Way

_SCHEMA = "tonnage.dev/share/v1"
_NAMED = "NAME=WAY:REPLICAS"
_NAMED_HINT = "write a name and time-slicing:4, mps:8 or none, as in chat=time-slicing:4"


class _WithRender(click.Command):
    """`tonnage share render` is a command of its own; everything else is the comparison."""

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        if args and args[0] == "render":
            return render.make_context(f"{info_name} render", args[1:], parent, **extra)
        return super().make_context(info_name, args, parent, **extra)

    def invoke(self, ctx: click.Context) -> Any:
        return ctx.command.invoke(ctx) if ctx.command is not self else super().invoke(ctx)


@click.command(cls=_WithRender)
@click.argument("paths", metavar="[FILES...]", nargs=-1, type=FILE)
@read_live()
@click.option(
    "--workload", "workloads", multiple=True, metavar="NAME:KEY=VALUE,...", help="A workload, as above; repeatable."
)
@click.option("--gpu", required=True, metavar="NAME", help="The GPU they are on: a100-80, or h100:3g.40gb.")
@click.option("--used", default="", metavar="KEY=VALUE,...", help="What a pod of FILES really uses of its GPU.")
@click.option("--way", "only", multiple=True, metavar="WAY", help="Only this way; repeatable.")
@click.option("--keep", default="90%", show_default=True, metavar="PART", help="Throughput that must be kept.")
@click.option("--isolated", is_flag=True, help="No workload can take another's memory, or crash it.")
@click.option("--whole-instances", is_flag=True, help="Pay for whole instances, their other GPUs included.")
@click.option("--prices", type=FILE, metavar="FILE", help="Prices of your own (CSV or YAML).")
@OUTPUT
def share(
    paths: tuple[Path, ...],
    context: str,
    kubeconfig: str,
    namespace: str,
    workloads: tuple[str, ...],
    gpu: str,
    used: str,
    only: tuple[str, ...],
    keep: str,
    isolated: bool,
    whole_instances: bool,
    prices: Path | None,
    output: str,
) -> None:
    """MIG, time-slicing, leases, MPS or a smaller GPU for workloads that do not fill one: what each costs and isolates.

    A workload is written like chat:memory=10GiB,util=25%,count=8. Keys: memory; util (part of the time that the GPU is
    busy) or every (time between steps); step (GPU time of one, 10ms); latency (the longest it may take); count; sms
    (part of the GPU's SMs that it fills, 100%); bound (compute or memory). Pods of FILES ask for what their resources
    and annotations say, or with --used for what they really use.

    Exit code 1 when no option meets the requirements. `tonnage share render` writes a way's configuration.

    \b
    tonnage share --gpu h100 --workload chat:memory=10GiB,util=25%,count=8
    tonnage share --gpu a100-80 --context prod -n notebooks
    """
    from tonnage.cli import share_input
    from tonnage.facts import mig
    from tonnage.facts import prices as price_lists
    from tonnage.partitioning import share as sharing
    from tonnage.partitioning.share_ways import WAYS

    with at_option("--gpu"):
        card, _ = mig.resolve(gpu)
    given = share_input.read(input_files(paths, context, kubeconfig, namespace, none=True), workloads, card, used)
    messages.warnings(given.problems)
    names = _ways(only, WAYS, gpu)
    asked = sharing.question(
        given.workloads,
        gpu,
        price_lists.load(prices),
        keep=share_input.part(keep, "--keep"),
        isolated=isolated,
        whole_instances=whole_instances,
        places=given.places,
    )
    found = [WAYS[name](asked) for name in names]
    best = sharing.recommended(asked, found)
    if output != "table":
        answers.show(msgspec.json.encode(_answer(asked, found, best)), output)
    else:
        from tonnage.cli import share_tables

        share_tables.show(asked, found, best)
    if best is None:
        raise click.exceptions.Exit(1)


def _ways(only: Sequence[str], known: Any, gpu: str) -> list[str]:
    """The ways asked for, in their order. Raises InputError for an unknown one, and for MPS on a MIG instance."""
    from tonnage.errors import Where
    from tonnage.facts import names
    from tonnage.partitioning import mps

    for name in only:
        if name not in known:
            raise names.unknown("way", name, known, where=Where(field="--way"), hint=f"ways are {', '.join(known)}")
    if "mps" in only:
        mps.refuse_mig(gpu, Where(field="--way"))
    return [name for name in known if not only or name in only]


def _answer(asked: Question, found: Sequence[Way], best: Way | None) -> dict[str, Any]:
    from tonnage.partitioning.share import reasons

    return {
        "schema": _SCHEMA,
        "gpu": asked.gpu.name,
        "load": asked.load,
        "workloads": msgspec.to_builtins(asked.workloads),
        "ways": [{**msgspec.to_builtins(way), "works": not way.why} for way in found],
        "recommended": None if best is None else best.name,
        "reasons": [] if best is None else reasons(asked, found, best),
    }


@click.command()
@click.argument("named", metavar="NAME=WAY:REPLICAS...", nargs=-1, required=True)
@click.option("--resource", default=GPU, show_default=True, metavar="NAME", help="The resource that is shared.")
@click.option("--rename", is_flag=True, help="Offer shared resources as NAME.shared.")
@click.option("--one-each", is_flag=True, help="Refuse a container that asks for more than one replica.")
@click.option("--config-map", default="device-plugin-config", show_default=True, metavar="NAME", help="Its name.")
@click.option("--namespace", default="", metavar="NAME", help="The ConfigMap's namespace.")
def render(
    named: tuple[str, ...], resource: str, rename: bool, one_each: bool, config_map: str, namespace: str
) -> None:
    """The device plugin's ConfigMap with configurations by name: chat=time-slicing:4 batch=mps:8 whole=none.

    A node gets the one that its label nvidia.com/device-plugin.config names.

    \b
    tonnage share render chat=time-slicing:4 whole=none > plugin.yaml
    """
    from tonnage.partitioning import device_plugin, documents

    data: dict[str, str] = {}
    for text in named:
        name, sharing = _configuration(text, resource, rename, one_each)
        if name in data:
            raise InputError.at(f"{name!r} appears twice", field=_NAMED, hint="give each configuration its own name")
        written = device_plugin.render(device_plugin.Config(sharing=sharing))
        with at_option(_NAMED):
            device_plugin.parse(documents.read(written, name)[0])
        data[name] = written
    with said_as({"metadata.name": "--config-map", "metadata.namespace": "--namespace"}):
        terminal.echo(documents.config_map(config_map, data, namespace), nl=False)


def _configuration(text: str, resource: str, rename: bool, one_each: bool) -> tuple[str, Sharing]:
    """(name, sharing) of ``chat=time-slicing:4``. Raises InputError for what is none."""
    from tonnage.partitioning.device_plugin import Replicas, Replicated, Sharing

    name, equals, way = text.partition("=")
    kind, _, count = way.partition(":")
    if not name or not equals or kind not in ("time-slicing", "mps", "none") or (kind == "none") != (not count):
        raise InputError.at(f"{text!r} is not a configuration", field=_NAMED, hint=_NAMED_HINT)
    if kind == "none":
        return name, Sharing()
    if not (count.isascii() and count.isdigit() and len(count) < 7):
        raise InputError.at(f"{text!r}: {count!r} is not a number of replicas", field=_NAMED, hint=_NAMED_HINT)
    made = Replicas([Replicated(resource, int(count))], rename, True if one_each else None)
    return name, Sharing(mps=made) if kind == "mps" else Sharing(time_slicing=made)
