"""Options of `tonnage agent` that say which cards, and what is read for all its parts."""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click
from click.core import ParameterSource

from tonnage.cli.options import Finite
from tonnage.errors import InputError

if TYPE_CHECKING:
    from tonnage.node.devices import Devices, MigControl
    from tonnage.node.driver_files import DriverFiles
    from tonnage.node.simulated import SimulatedMachine
    from tonnage.partitioning.device_plugin import Config

F = TypeVar("F", bound=Callable[..., Any])
PATH = click.Path(path_type=Path)
LOOK_S = 0.25
"""How long a part of the agent waits for news of the cards before it looks at what else it serves."""


def _named(ctx: click.Context, param: click.Parameter, value: str) -> str:
    """The cards that are named: an empty name is a variable that was not set, and never this machine's own cards."""
    if not value and ctx.get_parameter_source(param.name or "") == ParameterSource.COMMANDLINE:
        raise click.BadParameter("the name is empty; expected one like 2xh100", ctx, param)
    return value


def machine_options(command: F) -> F:
    """Which cards: this machine's, or simulated ones."""
    for option in (
        click.option("--node", default=platform.node, metavar="NAME", help="The node's name; the host's by default."),
        click.option(
            "--state", type=PATH, metavar="FILE", help="Where simulated cards keep their state, for several processes."
        ),
        click.option(
            "--simulated",
            default="",
            metavar="TYPE",
            callback=_named,
            help="Simulated cards: p5.48xlarge, or 2xh100,l4.",
        ),
    ):
        command = option(command)
    return command


def served_options(command: F) -> F:
    """What every part that serves devices to the kubelet writes, and when it takes a card for healthy again."""
    for option in (
        click.option(
            "--settle",
            default=30.0,
            type=Finite(0),
            show_default=True,
            metavar="SECONDS",
            help="How long a card has to be without fault before it counts as healthy again.",
        ),
        click.option(
            "--health-file", type=PATH, metavar="FILE", help="Where faults are kept over restarts of the agent."
        ),
        click.option(
            "--cdi-folder", type=PATH, metavar="DIR", help="Where CDI specifications go.  [default: /var/run/cdi]"
        ),
    ):
        command = option(command)
    return command


@contextmanager
def machine(simulated: str, state: Path | None, node: str) -> Iterator[Devices]:
    """The cards, for the length of a ``with`` block. Raises InputError where there are none to be read."""
    if simulated:
        yield simulated_machine(simulated, state, node)
        return
    if state is not None:
        raise InputError.at(
            "only simulated cards have a state in a file", field="--state", hint="give --simulated TYPE"
        )
    from tonnage.node.nvml import Library
    from tonnage.node.nvml_devices import NvmlDevices

    with Library() as library:
        devices = NvmlDevices(library)
        try:
            yield devices
        finally:
            devices.close()


def simulated_machine(simulated: str, state: Path | None, node: str) -> SimulatedMachine:
    """The simulated cards of a node."""
    from tonnage.node.simulated import SimulatedMachine

    return SimulatedMachine(simulated, node=node, state=state)


def control_of(devices: Devices) -> MigControl | None:
    """By what cards can be changed; None: they are read only, as real ones are."""
    from tonnage.node.simulated import SimulatedMachine

    return devices if isinstance(devices, SimulatedMachine) else None


def check_name(name: str, option: str) -> None:
    """Raises InputError for what the API server takes for no node's and no namespace's name."""
    from tonnage.objects.api.errors import subdomain_faults

    faults = subdomain_faults(name)
    if faults:
        raise InputError.at(f"{name!r}: {faults[0]}", field=option, hint="kubectl get nodes,namespaces says the names")


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


def driver_files(devices: Devices, simulated: bool) -> DriverFiles:
    """What lies on the machine of its driver."""
    from tonnage.node.driver_files import RealFiles, SimulatedFiles

    return SimulatedFiles() if simulated else RealFiles(devices.driver().version)
