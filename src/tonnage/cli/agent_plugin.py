"""`tonnage agent device-plugin`: the cards of a node, served to the kubelet."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tonnage.cli import terminal
from tonnage.cli.agent_machine import LOOK_S, PATH, driver_files, machine, machine_options, served_options
from tonnage.cli.cluster import live
from tonnage.errors import InputError

if TYPE_CHECKING:
    from tonnage.cli.agent_config import PluginConfig
    from tonnage.partitioning.device_plugin import Config


@click.command(name="device-plugin")
@machine_options
@click.option(
    "--config",
    type=PATH,
    metavar="FILE|DIR",
    help="The device plugin's configuration (version v1), or the folder of a ConfigMap of which the node's label "
    "chooses one; watched.",
)
@click.option("--default-config", default="", metavar="KEY", help="Of a folder, where the node has no label.")
@click.option("--kubelet-folder", type=PATH, metavar="DIR", help="The kubelet's folder of device plugins.")
@click.option(
    "--mps-root",
    type=PATH,
    metavar="DIR",
    help="Where MPS control daemons have their folders, where replicas share GPUs by MPS.  [default: /run/nvidia/mps]",
)
@served_options
@live
def device_plugin_(
    simulated: str,
    state: Path | None,
    node: str,
    config: Path | None,
    default_config: str,
    kubelet_folder: Path | None,
    mps_root: Path | None,
    cdi_folder: Path | None,
    health_file: Path | None,
    settle: float,
    context: str,
    kubeconfig: str,
) -> None:
    """Serve this node's GPUs and MIG devices to the kubelet, until interrupted.

    What is offered follows MIG changes and the health of the cards; a kubelet that starts again finds everything
    registered. An invalid configuration is reported, and the last valid one stays in use.

    Where the configuration shares GPUs by MPS, a control daemon is started for each resource, unless one answers there
    already; replicas are healthy while it does.

    With a folder as --config the node's label nvidia.com/device-plugin.config names the file in it, then
    --default-config, then the file called default, then the only one, else the default configuration counts.

    \b
    tonnage agent device-plugin --config /config/plugin.yaml
    tonnage agent device-plugin --simulated h100 --kubelet-folder /tmp/kubelet
    """
    from tonnage.node import cdi as specs
    from tonnage.node import mps_daemon
    from tonnage.node.device_health import DeviceHealth, HealthRules
    from tonnage.node.health_watch import HealthWatch, boot_id
    from tonnage.node.kubelet_api import FOLDER
    from tonnage.node.plugin import DevicePlugin, Places
    from tonnage.node.simulated_mps import SimulatedMps

    def say(line: str) -> None:
        terminal.echo(line, err=True)

    kubelet = kubelet_folder or Path(FOLDER)
    shared = mps_root or (kubelet / "mps" if simulated else mps_daemon.ROOT)
    places = Places(kubelet, cdi_folder or specs.FOLDER, shared)
    run = SimulatedMps() if simulated else mps_daemon.run_program
    with machine(simulated, state, node) as devices, _config(config, default_config, node, context, kubeconfig) as of:
        chosen = _first(of, say)
        health = DeviceHealth(HealthRules(settle_s=settle))
        watch = HealthWatch(devices, health, file=health_file, boot=boot_id())
        plugin = DevicePlugin(devices, driver_files(devices, bool(simulated)), places, chosen, watch, say, run)
        watch.start(time.time_ns())
        if watch.problem:
            say(watch.problem)
        try:
            while True:
                plugin.look(time.time_ns(), LOOK_S)
                if not of.changed():
                    continue
                try:
                    plugin.configure(of.read())
                except InputError as error:
                    say(f"{error}; the last good configuration stays")
                else:
                    say(f"{of.name or 'the default configuration'}: read again")
        finally:
            plugin.close()


def _first(of: PluginConfig, say: Callable[[str], None]) -> Config:
    """The configuration to begin with; nothing is offered by a wrong one while the node's label is not known."""
    said = ""
    while True:
        found = of.read()
        if not of.problem:
            return found
        if of.problem != said:
            say(f"{of.problem}; waiting for the label that chooses the configuration")
            said = of.problem
        time.sleep(LOOK_S)


@contextmanager
def _config(path: Path | None, default: str, node: str, context: str, kubeconfig: str) -> Iterator[PluginConfig]:
    from tonnage.cli.agent_config import PluginConfig

    if path is None or not path.is_dir():
        if default:
            raise InputError.at("is for a folder of configurations", field="--default-config", hint="give --config DIR")
        yield PluginConfig(path)
        return
    from tonnage.kube.http import open_cluster
    from tonnage.live.node_labels import NodeLabels

    client = open_cluster(kubeconfig, context)
    labels = NodeLabels(client, node)
    try:
        yield PluginConfig(path, labels.labels, default)
    finally:
        labels.close()
        client.transport.close()
