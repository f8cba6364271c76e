"""Which cards the commands of `tonnage agent` are about: this machine's, or simulated ones."""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from tonnage.errors import InputError

if TYPE_CHECKING:
    from tonnage.node.devices import Devices
    from tonnage.node.simulated import SimulatedMachine

F = TypeVar("F", bound=Callable[..., Any])
_PATH = click.Path(path_type=Path)


def machine_options(command: F) -> F:
    """Which cards: this machine's, or simulated ones."""
    for option in (
        click.option("--node", default=platform.node, metavar="NAME", help="The node's name; the host's by default."),
        click.option(
            "--state", type=_PATH, metavar="FILE", help="Where simulated cards keep their state, for several processes."
        ),
        click.option("--simulated", default="", metavar="TYPE", help="Simulated cards: p5.48xlarge, or 2xh100,l4."),
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
