"""`tonnage agent`: what the GPU Operator's operands do on a GPU node, on its cards or on simulated ones."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click
import msgspec

from tonnage.cli import terminal
from tonnage.cli.agent_health import health
from tonnage.cli.agent_machine import machine, machine_options, simulated_machine
from tonnage.cli.agent_metrics import metrics
from tonnage.cli.options import at_option
from tonnage.errors import InputError

if TYPE_CHECKING:
    from tonnage.node.devices import Devices
    from tonnage.node.driver_files import DriverFiles
    from tonnage.node.simulated import SimulatedMachine
    from tonnage.partitioning.device_plugin import Config
    from tonnage.partitioning.labels import Node as NodeLabels

F = TypeVar("F", bound=Callable[..., Any])
_PATH = click.Path(path_type=Path)
_DMI = Path("sys/class/dmi/id/product_name")


@click.group()
def agent() -> None:
    """The agent of a GPU node: labels, CDI, the device plugin.

    Each part runs on the cards of this machine, through NVML, or with --simulated on those of a machine that is not
    there: an EC2 instance type, or cards like 2xh100,l4.
    """


def plugin_config(path: Path | None) -> Config:
    """The device plugin's configuration in a file; the default one without. Raises InputError with file and line."""
    from tonnage.cli import files
    from tonnage.partitioning import device_plugin, documents

    if path is None:
        return device_plugin.Config()
    text = files.text(path, "a configuration of the device plugin")
    found = documents.read(text, str(path))
    if len(found) > 1:
        hint = "one file, one configuration; a ConfigMap's are chosen by the label nvidia.com/device-plugin.config"
        raise InputError.at(f"{len(found)} configurations in it", file=str(path), hint=hint)
    return device_plugin.parse(found[0])


@agent.command()
@machine_options
@click.option("--config", type=_PATH, metavar="FILE", help="The device plugin's configuration (version v1).")
@click.option("--mig-strategy", default="", metavar="NAME", help="none, single or mixed; the configuration's without.")
@click.option("--print", "shown", is_flag=True, help="Print them; nothing is written.")
@click.option("--features-file", type=_PATH, metavar="FILE", help="Write them for Node Feature Discovery (features.d).")
@click.option("--every", type=click.FloatRange(1), metavar="SECONDS", help="Write the file again, until interrupted.")
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
    """
    from tonnage.cli import files
    from tonnage.node import features
    from tonnage.partitioning import device_plugin

    chosen = plugin_config(config)
    given = {"mig-strategy": mig_strategy} if mig_strategy else {}
    strategy = device_plugin.settle(chosen, arguments=given)["migStrategy"].value
    name = simulated if simulated else _product_name(Path("/"))
    if every is not None and features_file is None:
        raise InputError.at("printed labels are printed once", field="--every", hint="give --features-file FILE too")
    with machine(simulated, state, node) as devices:

        def read() -> NodeLabels:
            now = 0 if no_timestamp else int(time.time())
            return features.node_labels(devices, strategy, chosen.sharing, machine=name, timestamp_s=now)

        found = read()
        while every is not None and features_file is not None:
            files.write(features_file, features.as_features(found.labels))
            time.sleep(every)
            found = read()
    for problem in found.problems:
        terminal.echo(f"warning: {problem}", err=True)
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


def _product_name(root: Path) -> str:
    """The machine's name in DMI; empty where it has none."""
    try:
        return (root / _DMI).read_text().strip()
    except OSError:
        return ""


@agent.command()
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
@click.option("--folder", type=_PATH, metavar="DIR", help="Write it there, as containerd's /var/run/cdi; else printed.")
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
    """The CDI specification of this machine's cards and MIG devices, in the lowest version that holds it."""
    from tonnage.node import cdi as specs

    with machine(simulated, state, node) as devices:
        files = driver_files(devices, bool(simulated))
        names = specs.Names(namings, not no_all_device)
        spec = specs.management(files) if for_management else specs.spec_of(devices, files, kind, names)
    if folder is None:
        terminal.echo(msgspec.json.format(msgspec.json.encode(spec), indent=2))
    else:
        specs.write(spec, specs.path_of(spec["kind"], folder))


@agent.command(name="device-plugin")
@machine_options
@click.option("--config", type=_PATH, metavar="FILE", help="The device plugin's configuration (version v1); watched.")
@click.option("--kubelet-folder", type=_PATH, metavar="DIR", help="The kubelet's folder of device plugins.")
@click.option("--cdi-folder", type=_PATH, metavar="DIR", help="Where CDI specifications go.  [default: /var/run/cdi]")
@click.option("--settle", default=30.0, type=click.FloatRange(0), show_default=True, metavar="SECONDS",
              help="How long a card has to be well before it counts as healthy again.")  # fmt: skip
def device_plugin_(
    simulated: str,
    state: Path | None,
    node: str,
    config: Path | None,
    kubelet_folder: Path | None,
    cdi_folder: Path | None,
    settle: float,
) -> None:
    """Serve this node's GPUs and MIG devices to the kubelet, until interrupted.

    What is offered follows MIG changes and the health of the cards; a kubelet that starts again finds everything
    registered. A configuration that is changed into a wrong one is reported, and the last good one stays.
    """
    from tonnage.node import cdi as specs
    from tonnage.node.device_health import DeviceHealth, HealthRules
    from tonnage.node.kubelet_api import FOLDER
    from tonnage.node.plugin import DevicePlugin, Places

    def say(line: str) -> None:
        terminal.echo(line, err=True)

    chosen, seen = plugin_config(config), _stamp(config)
    places = Places(kubelet_folder or Path(FOLDER), cdi_folder or specs.FOLDER)
    with machine(simulated, state, node) as devices:
        health = DeviceHealth(HealthRules(settle_s=settle))
        plugin = DevicePlugin(devices, driver_files(devices, bool(simulated)), places, chosen, health, say)
        try:
            while True:
                plugin.look(time.monotonic_ns(), _LOOK_S)
                now = _stamp(config)
                if now == seen:
                    continue
                seen = now
                try:
                    plugin.configure(plugin_config(config))
                except InputError as error:
                    say(f"{error}; the last good configuration stays")
                else:
                    say(f"{config}: read again")
        finally:
            plugin.close()


_LOOK_S = 0.25


def _stamp(path: Path | None) -> tuple[int, int] | None:
    """What tells one content of a file from another; a ConfigMap's files are links that are swapped."""
    try:
        found = None if path is None else path.stat()
    except OSError:
        return None
    return None if found is None else (found.st_ino, found.st_mtime_ns)


def driver_files(devices: Devices, simulated: bool) -> DriverFiles:
    """What lies on the machine of its driver."""
    from tonnage.node.driver_files import RealFiles, SimulatedFiles

    return SimulatedFiles() if simulated else RealFiles(devices.driver().version)


@agent.command()
@click.option("--simulated", required=True, metavar="TYPE", help="The simulated cards: p5.48xlarge, or 2xh100,l4.")
@click.option("--state", type=_PATH, required=True, metavar="FILE", help="Where they keep their state.")
@click.option("--card", type=click.IntRange(min=0), required=True, metavar="N", help="The card's index.")
@click.option("--xid", type=click.IntRange(1, 999), metavar="N", help="The driver reports this Xid.")
@click.option("--gpu-instance", type=click.IntRange(min=0), metavar="N", help="Of this GPU instance alone.")
@click.option("--recovery", default="", metavar="ACTION", help="What the driver wants done: gpu-reset, node-reboot, …")
@click.option("--lost", is_flag=True, help="It falls off the bus.")
@click.option("--reset", is_flag=True, help="No fault: the card is reset.")
@click.option(
    "--mig", default="", metavar="LAYOUT", help="No fault: MIG on, with 3g.40gb@4,1g.10gb@0; off switches it off."
)
def inject(
    simulated: str,
    state: Path,
    card: int,
    xid: int | None,
    gpu_instance: int | None,
    recovery: str,
    lost: bool,
    reset: bool,
    mig: str,
) -> None:
    """Let something happen to a simulated card: a fault, a reset, another MIG layout.

    Other parts of the agent that run on the same --state see it, as they would on real cards.
    """
    from tonnage.facts import names
    from tonnage.node.devices import RecoveryAction

    cards = simulated_machine(simulated, state, "")
    if card >= len(cards.cards()):
        raise InputError.at(f"{simulated} has {len(cards.cards())} cards", field="--card", hint="the first is 0")
    known = {one.name.lower().replace("_", "-"): one for one in RecoveryAction}
    if recovery and recovery not in known:
        from tonnage.errors import Where

        raise names.unknown("recovery action", recovery, known, where=Where(field="--recovery"))
    if mig:
        with at_option("--mig"):
            _partition(cards, card, mig)
    if reset:
        cards.reset(card)
    if xid is not None or lost or recovery:
        action = known.get(recovery)
        cards.fault(card, xid=xid, gpu_instance=gpu_instance, recovery=action, lost=lost)


def _partition(cards: SimulatedMachine, card: int, layout: str) -> None:
    """Bring a card straight to a layout."""
    from tonnage.partitioning import notation

    wanted = None if layout == "off" else notation.layout(layout, cards.cards()[card].gpu, "--mig").layout
    there = cards.mig(card)
    for one in there.instances if there is not None else ():
        if wanted is None or (one.start, one.profile) not in wanted:
            cards.destroy(card, one.id)
    if there is None or there.enabled != (wanted is not None):
        cards.set_mode(card, wanted is not None)
        if cards.needs_reset(card):
            cards.reset(card)
    left = cards.mig(card)
    kept = {(one.start, one.profile) for one in left.instances} if left is not None else set()
    for placed in wanted or ():
        if tuple(placed) not in kept:
            cards.create(card, placed.profile, placed.start)


agent.add_command(metrics)
agent.add_command(health)
