"""`tonnage agent doctor`: why a GPU workload does not run on this node, or is slow there."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from tonnage.cli import answers, lines, terminal
from tonnage.cli.agent_machine import PATH, machine, machine_options, plugin_config
from tonnage.cli.options import OUTPUT, Finite

if TYPE_CHECKING:
    from tonnage.node.node_checks import NodeCheck

_SECTOR = 512
_EVERY_S = 0.2


@click.command()
@machine_options
@click.option("--config", type=PATH, metavar="FILE", help="The device plugin's configuration (version v1).")
@click.option("--kubelet-folder", type=PATH, metavar="DIR", help="The kubelet's folder of device plugins.")
@click.option("--cdi-folder", type=PATH, metavar="DIR", help="Where CDI specifications are.  [default: /var/run/cdi]")
@click.option(
    "--window",
    default=2.0,
    show_default=True,
    type=Finite(0, 60),
    metavar="SECONDS",
    help="How long to measure.",
)
@OUTPUT
def doctor(
    simulated: str,
    state: Path | None,
    node: str,
    config: Path | None,
    kubelet_folder: Path | None,
    cdi_folder: Path | None,
    window: float,
    output: str,
) -> None:
    """Why a GPU workload does not run here, in seven steps from the driver to the model's memory, and why it may be
    slow.

    Nothing is changed. Exit code 1 where a step has failed.

    \b
    tonnage agent doctor
    tonnage agent doctor --simulated h100 -o yaml
    """
    from tonnage.node import cdi, kubelet_api, node_checks, slow_checks
    from tonnage.node.offers import offer
    from tonnage.partitioning import device_plugin

    chosen = plugin_config(config)
    strategy = str(device_plugin.settle(chosen)["migStrategy"].value)
    kubelet, specs = kubelet_folder or Path(kubelet_api.FOLDER), cdi_folder or cdi.FOLDER
    with machine(simulated, state, node) as devices:
        offered = offer(devices, strategy, chosen.sharing)
        steps = node_checks.steps(devices, offered, kubelet, specs, None if simulated else Path("/dev"))
        disks, begun = _sectors(), time.monotonic()
        cards = [one.index for one in devices.cards()]
        samples = [[devices.measure(card) for card in cards]]
        while time.monotonic() - begun < window:
            time.sleep(min(_EVERY_S, window))
            samples.append([devices.measure(card) for card in cards])
        took_s, after = time.monotonic() - begun, _sectors()
        read = None if disks is None or after is None else (after - disks) * _SECTOR / max(took_s, 1e-9) / (1 << 20)
        slow = slow_checks.slow(devices, samples, None if simulated else read)
    if output != "table":
        answer = {"schema": "tonnage.dev/agent-doctor/v1", "steps": steps, "slow": slow}
        answers.show(msgspec.json.encode(answer), output)
    else:
        _show("Does it run?", steps)
        terminal.echo()
        _show("Is it slow?", slow)
    if node_checks.worst(steps) == node_checks.FAILED:
        raise click.exceptions.Exit(1)


def _show(title: str, checks: list[NodeCheck]) -> None:
    terminal.echo(title)
    for one in checks:
        terminal.echo(f"  {one.verdict:<8} {one.name}")
        for line in one.evidence:
            lines.say(line, " " * 15, " " * 13)
        if one.help:
            lines.say(one.help, " " * 13, " " * 11 + "→ ")


def _sectors() -> int | None:
    """Sectors that were read from whole disks since the start of the machine; None where that is not said."""
    try:
        lines = Path("/proc/diskstats").read_text().splitlines()
    except OSError:
        return None
    disks = [line.split() for line in lines]
    whole = [one for one in disks if len(one) > 5 and (Path("/sys/block") / one[2]).exists()]
    return sum(int(one[5]) for one in whole if not one[2].startswith(("loop", "ram", "dm-")))
