"""`tonnage agent device-plugin`: the cards of a node, served to the kubelet."""

from __future__ import annotations

import time
from pathlib import Path

import click

from tonnage.cli import terminal
from tonnage.cli.agent_machine import PATH, driver_files, machine, machine_options, plugin_config
from tonnage.cli.options import Finite
from tonnage.errors import InputError

_LOOK_S = 0.25


@click.command(name="device-plugin")
@machine_options
@click.option("--config", type=PATH, metavar="FILE", help="The device plugin's configuration (version v1); watched.")
@click.option("--kubelet-folder", type=PATH, metavar="DIR", help="The kubelet's folder of device plugins.")
@click.option("--cdi-folder", type=PATH, metavar="DIR", help="Where CDI specifications go.  [default: /var/run/cdi]")
@click.option("--health-file", type=PATH, metavar="FILE", help="Where faults are kept over restarts of the agent.")
@click.option("--settle", default=30.0, type=Finite(0), show_default=True, metavar="SECONDS",
              help="How long a card has to be without fault before it counts as healthy again.")  # fmt: skip
def device_plugin_(
    simulated: str,
    state: Path | None,
    node: str,
    config: Path | None,
    kubelet_folder: Path | None,
    cdi_folder: Path | None,
    health_file: Path | None,
    settle: float,
) -> None:
    """Serve this node's GPUs and MIG devices to the kubelet, until interrupted.

    What is offered follows MIG changes and the health of the cards; a kubelet that starts again finds everything
    registered. A configuration that is changed into a wrong one is reported, and the last good one stays.
    """
    from tonnage.node import cdi as specs
    from tonnage.node.device_health import DeviceHealth, HealthRules
    from tonnage.node.health_watch import HealthWatch, boot_id
    from tonnage.node.kubelet_api import FOLDER
    from tonnage.node.plugin import DevicePlugin, Places

    def say(line: str) -> None:
        terminal.echo(line, err=True)

    chosen, seen = plugin_config(config), _stamp(config)
    places = Places(kubelet_folder or Path(FOLDER), cdi_folder or specs.FOLDER)
    with machine(simulated, state, node) as devices:
        health = DeviceHealth(HealthRules(settle_s=settle))
        watch = HealthWatch(devices, health, file=health_file, boot=boot_id())
        plugin = DevicePlugin(devices, driver_files(devices, bool(simulated)), places, chosen, watch, say)
        watch.start(time.time_ns())
        if watch.problem:
            say(watch.problem)
        try:
            while True:
                plugin.look(time.time_ns(), _LOOK_S)
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


def _stamp(path: Path | None) -> tuple[int, int] | None:
    """What tells one content of a file from another; a ConfigMap's files are links that are swapped."""
    try:
        found = None if path is None else path.stat()
    except OSError:
        return None
    return None if found is None else (found.st_ino, found.st_mtime_ns)
