"""`tonnage agent health`: what the health of this node's GPUs asks for, said or done."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tonnage.cli import terminal
from tonnage.cli.agent_machine import machine, machine_options
from tonnage.cli.options import Finite
from tonnage.errors import InputError

if TYPE_CHECKING:
    from tonnage.live.gpu_health import GpuHealthEffects
    from tonnage.node.devices import Devices
    from tonnage.node.health_effects import HealthPolicy, NodeVerdict, ToEvict
    from tonnage.node.health_watch import HealthWatch

_PATH = click.Path(path_type=Path)
_LOOK_S = 1.0
_EVICT_S, _AGAIN_S = 5.0, 60.0
"""How often an eviction is asked for again, and the node is held to what was written."""


@click.command()
@machine_options
@click.option("--pod-resources", type=_PATH, metavar="SOCKET", help="The kubelet's socket that lists pods' devices.")
@click.option("--file", "file", type=_PATH, metavar="FILE", help="Where faults are kept over restarts of the agent.")
@click.option("--condition", default="GPUHealthy", show_default=True, metavar="TYPE", help="Of the node; empty: none.")
@click.option("--taint", type=click.Choice(["never", "reboot", "all", "any"]), default="never", show_default=True,
              help="When the node is tainted: to be rebooted, all GPUs unhealthy, any GPU unhealthy.")  # fmt: skip
@click.option(
    "--drain/--no-drain", default=True, show_default=True, help="Whether pods on an unhealthy GPU are evicted."
)
@click.option("--settle", default=30.0, type=Finite(0), show_default=True, metavar="SECONDS",
              help="How long a card has to be without fault before it counts as healthy again.")  # fmt: skip
@click.option("--ignore-xid", type=click.IntRange(1, 999), multiple=True, metavar="N", help="Never counts as a fault.")
@click.option("--fatal-xid", type=click.IntRange(1, 999), multiple=True, metavar="N", help="Always counts as a fault.")
@click.option("--apply", "doing", is_flag=True, help="Write it to the cluster, until interrupted; else it is printed.")
@click.option("--kubeconfig", metavar="FILE", default="", help="[default: as kubectl, then the pod's own account]")
@click.option("--context", metavar="NAME", default="", help="A context of the kubeconfig. [default: the current one]")
def health(
    simulated: str,
    state: Path | None,
    node: str,
    pod_resources: Path | None,
    file: Path | None,
    condition: str,
    taint: str,
    drain: bool,
    settle: float,
    ignore_xid: tuple[int, ...],
    fatal_xid: tuple[int, ...],
    doing: bool,
    kubeconfig: str,
    context: str,
) -> None:
    """Whether the GPUs of this node are healthy, and what follows: a node condition, a taint by policy, and the
    eviction of the pods on an unhealthy GPU, and of no others. Without --apply nothing is written to the cluster.

    \b
    tonnage agent health --node gpu-01
    tonnage agent health --node gpu-01 --apply
    """
    from tonnage.node.device_health import DeviceHealth, HealthRules
    from tonnage.node.health_effects import HealthPolicy
    from tonnage.node.health_watch import BOOT_ID, HealthWatch

    policy = HealthPolicy(condition=condition, taint=taint, drain=drain)
    rules = HealthRules(settle_s=settle, ignored=frozenset(ignore_xid), faults=frozenset(fatal_xid))
    with machine(simulated, state, node) as devices:
        boot = BOOT_ID.read_text().strip() if BOOT_ID.exists() else ""
        watch = HealthWatch(devices, DeviceHealth(rules), file=file, boot=boot)
        watch.start(time.time_ns())
        if watch.problem:
            terminal.echo(f"warning: {watch.problem}", err=True)
        if not doing:
            watch.take(devices.events(0), time.time_ns())
            _say(*_found(devices, watch, policy, pod_resources))
            return
        from tonnage.kube.http import open_cluster
        from tonnage.live.gpu_health import GpuHealthEffects

        client = open_cluster(kubeconfig, context)
        try:
            _follow(devices, watch, policy, pod_resources, GpuHealthEffects(client, node, policy))
        finally:
            client.transport.close()


def _found(
    devices: Devices, watch: HealthWatch, policy: HealthPolicy, socket: Path | None
) -> tuple[NodeVerdict, list[ToEvict]]:
    from tonnage.node.attribution import by_pod, holders, names_of
    from tonnage.node.health_effects import of_node, to_evict
    from tonnage.node.pod_resources import listed

    gpus = [card.uuid for card in devices.cards()]
    verdict = of_node(watch.health, gpus, policy)
    if verdict.status == "True" or socket is None:
        return verdict, []
    names = names_of(devices)
    try:
        pods = by_pod(holders(listed(socket), names))
    except InputError as error:
        terminal.echo(f"warning: {error}", err=True)
        return verdict, []
    return verdict, to_evict(watch.health, pods, {one.uuid: one.gpu for one in names}, policy)


def _say(verdict: NodeVerdict, leaving: list[ToEvict]) -> None:
    terminal.echo(f"{verdict.reason}: {verdict.message}")
    if verdict.taint is not None:
        terminal.echo("taint " + "{}={}:{}".format(*verdict.taint))
    for one in leaving:
        terminal.echo(f"evict {one.pod}: {one.reason}")


def _follow(
    devices: Devices, watch: HealthWatch, policy: HealthPolicy, socket: Path | None, effects: GpuHealthEffects
) -> None:
    """Go on until interrupted. What the API refuses for a while is tried again at the next look."""
    from tonnage.kube.transport import ClientError

    written: tuple[NodeVerdict, list[ToEvict]] | None = None
    looked = 0.0
    while True:
        for one in watch.take(devices.events(_LOOK_S), time.time_ns()):
            terminal.echo(f"GPU {one.gpu} is {'healthy' if one.healthy else 'unhealthy'}: {one.message}", err=True)
        found = _found(devices, watch, policy, socket)
        if found == written and time.monotonic() - looked < (_EVICT_S if found[1] else _AGAIN_S):
            continue
        written, looked = found, time.monotonic()
        try:
            done = effects.apply(*found, datetime.now(UTC))
        except ClientError as error:
            done, written = [f"the cluster does not answer: {error}"], None
        for line in done:
            terminal.echo(line, err=True)
