"""`tonnage agent labels` and `cdi`: what a node says of its cards, and what containers are given of them."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from tonnage.cli import terminal
from tonnage.cli.agent_machine import PATH, check_name, driver_files, machine, machine_options, plugin_config
from tonnage.cli.options import Finite
from tonnage.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tonnage.partitioning.labels import LabelledNode

_DMI = Path("sys/class/dmi/id/product_name")


@click.command()
@machine_options
@click.option("--config", type=PATH, metavar="FILE", help="The device plugin's configuration (version v1).")
@click.option("--mig-strategy", default="", metavar="NAME", help="none, single or mixed; the configuration's without.")
@click.option("--print", "shown", is_flag=True, help="Print them; nothing is written.")
@click.option("--features-file", type=PATH, metavar="FILE", help="Write them for Node Feature Discovery (features.d).")
@click.option("--every", type=Finite(1), metavar="SECONDS", help="Write the file again, until interrupted.")
@click.option("--no-timestamp", is_flag=True, help="Leave out nvidia.com/gfd.timestamp.")
@click.option("--namespace", default="gpu-operator", show_default=True, metavar="NAME", help="Of a NodeFeature.")
@click.option(
    "-o",
    "--output",
    type=click.Choice(["features", "json", "nodefeature"]),
    default="features",
    show_default=True,
    help="As lines, with what is not known besides, or as the NodeFeature object.",
)
def labels(
    simulated: str,
    state: Path | None,
    node: str,
    config: Path | None,
    mig_strategy: str,
    shown: bool,
    features_file: Path | None,
    every: float | None,
    no_timestamp: bool,
    namespace: str,
    output: str,
) -> None:
    """The labels of this node: those of GPU feature discovery, and for each GPU model its own.

    With --features-file they are written for Node Feature Discovery, whole and at once; else they are printed.

    \b
    tonnage agent labels
    tonnage agent labels --simulated h100 -o json
    """
    from tonnage.cli import files
    from tonnage.node import features
    from tonnage.partitioning import device_plugin

    chosen = plugin_config(config)
    given = {"mig-strategy": mig_strategy} if mig_strategy else {}
    strategy = device_plugin.settle(chosen, arguments=given)["migStrategy"].value
    if output == "nodefeature":
        check_name(node, "--node")
        check_name(namespace, "--namespace")
    name = simulated if simulated else _product_name(Path("/"))
    if every is not None and features_file is None:
        raise InputError.at("printed labels are printed once", field="--every", hint="give --features-file FILE too")
    with machine(simulated, state, node) as devices:

        def read() -> LabelledNode:
            now = 0 if no_timestamp else int(time.time())
            return features.node_labels(devices, strategy, chosen.sharing, machine=name, timestamp_s=now)

        found = read()
        _warn(found.problems)
        while every is not None and features_file is not None:
            files.write(features_file, features.as_features(found.labels))
            time.sleep(every)
            said, found = found.problems, read()
            if found.problems != said:
                _warn(found.problems)
    if features_file is not None:
        files.write(features_file, features.as_features(found.labels))
        if not shown:
            return
    if output == "features":
        terminal.echo(features.as_features(found.labels), nl=False)
    elif output == "json":
        answer = {
            "schema": "tonnage.dev/agent-labels/v1",
            "labels": found.labels,
            "unknown": found.unknown,
            "resources": found.resources,
            "problems": found.problems,
            "notes": found.notes,
        }
        terminal.echo(msgspec.json.encode(answer))
    else:
        terminal.echo(msgspec.json.encode(features.as_node_feature(node, namespace, found.labels)))


def _warn(problems: Iterable[str]) -> None:
    for problem in problems:
        terminal.echo(f"warning: {problem}", err=True)


def _product_name(root: Path) -> str:
    """The machine's name in DMI; empty where it has none."""
    try:
        return (root / _DMI).read_text().strip()
    except OSError:
        return ""


@click.command()
@machine_options
@click.option("--kind", default="nvidia.com/gpu", show_default=True, metavar="VENDOR/CLASS", help="Of the devices.")
@click.option(
    "--name-strategy",
    "namings",
    type=click.Choice(["index", "uuid", "type-index"]),
    multiple=True,
    default=("index", "uuid"),
    show_default=True,
    help="How devices are called; repeatable.",
)
@click.option("--no-all-device", is_flag=True, help="Without the device all.")
@click.option("--management", "for_management", is_flag=True, help="One device with every node of the driver.")
@click.option("--folder", type=PATH, metavar="DIR", help="Write it there, as containerd's /var/run/cdi; else printed.")
def cdi(
    simulated: str,
    state: Path | None,
    node: str,
    kind: str,
    namings: tuple[str, ...],
    no_all_device: bool,
    for_management: bool,
    folder: Path | None,
) -> None:
    """The CDI specification of this machine's cards and MIG devices, in the lowest version that holds it.

    \b
    tonnage agent cdi --simulated h100
    """
    from tonnage.node import cdi as specs

    with machine(simulated, state, node) as devices:
        files = driver_files(devices, bool(simulated))
        names = specs.NameStrategies(namings, not no_all_device)
        spec = specs.management(files) if for_management else specs.spec_of(devices, files, kind, names)
    if folder is None:
        terminal.echo(msgspec.json.format(msgspec.json.encode(spec), indent=2))
    else:
        specs.write(spec, specs.path_of(spec["kind"], folder))
