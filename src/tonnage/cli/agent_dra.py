"""`tonnage agent dra`: the cards of a node, served to claims."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tonnage.cli import terminal
from tonnage.cli.agent_machine import (
    LOOK_S,
    PATH,
    check_name,
    control_of,
    driver_files,
    machine,
    machine_options,
    served_options,
)
from tonnage.cli.cluster import live

if TYPE_CHECKING:
    from tonnage.kube.verbs import Client
    from tonnage.node.devices import Devices
    from tonnage.node.dra_driver import DraDriver
    from tonnage.node.health_watch import HealthWatch


@click.command()
@machine_options
@click.option("--kubelet-folder", type=PATH, metavar="DIR", help="The kubelet's folder.  [default: /var/lib/kubelet]")
@served_options
@click.option(
    "--taint",
    "effect",
    type=click.Choice(["NoSchedule", "NoExecute", "None"]),
    default="NoSchedule",
    show_default=True,
    help="Effect of the taints of what is not healthy; with NoExecute pods are evicted.",
)
@click.option("--print", "printing", is_flag=True, help="Print DeviceClasses and ResourceSlices; touch nothing.")
@live
def dra(
    simulated: str,
    state: Path | None,
    node: str,
    kubelet_folder: Path | None,
    cdi_folder: Path | None,
    health_file: Path | None,
    settle: float,
    effect: str,
    printing: bool,
    context: str,
    kubeconfig: str,
) -> None:
    """Serve this node's GPUs to ResourceClaims as the DRA driver gpu.nvidia.com, until interrupted.

    ResourceSlices say which devices there are: on simulated cards every placement of every MIG profile, made when a
    claim has it and removed when the claim is gone; on real cards what is there, as MIG layouts are read and not
    changed. What is prepared outlives restarts of the agent and of the kubelet.

    \b
    tonnage agent dra --node gpu-01 --simulated h100
    """
    from tonnage.dra.nvidia import DRIVER
    from tonnage.live.slice_publishing import NodeClaims
    from tonnage.node import cdi as specs
    from tonnage.node.device_health import DeviceHealth, HealthRules
    from tonnage.node.dra_driver import DraDriver
    from tonnage.node.dra_journal import ClaimJournal
    from tonnage.node.dra_server import KUBELET
    from tonnage.node.health_watch import HealthWatch, boot_id
    from tonnage.node.whole_files import owning

    check_name(node, "--node")
    root = kubelet_folder or KUBELET
    with machine(simulated, state, node) as devices:
        watch = HealthWatch(devices, DeviceHealth(HealthRules(settle_s=settle)), file=health_file, boot=boot_id())
        if printing:
            watch.take(devices.events(0), time.time_ns())
            _print(devices, watch, node, effect, on_demand=bool(simulated))
            return
        folder = root / "plugins" / DRIVER
        hint = "two drivers would undo each other's work: end one of them"
        with owning(folder / "driver.lock", "DRA driver", hint), _cluster(kubeconfig, context) as client:
            journal = ClaimJournal(folder / "claims.json")
            driver = DraDriver(
                devices,
                control_of(devices),
                driver_files(devices, bool(simulated)),
                cdi_folder or specs.FOLDER,
                journal,
                NodeClaims(client),
                node,
                _say,
            )
            watch.start(time.time_ns())
            if watch.problem:
                _say(watch.problem)
            _follow(devices, driver, watch, client, node, root, effect, on_demand=bool(simulated))


def _follow(
    devices: Devices,
    driver: DraDriver,
    watch: HealthWatch,
    client: Client,
    node: str,
    root: Path,
    effect: str,
    *,
    on_demand: bool,
) -> None:
    """Until interrupted; what the API refuses for a while is tried again at the next look."""
    from tonnage.dra.nvidia import DRIVER
    from tonnage.kube.transport import ClientError
    from tonnage.live.slice_publishing import SlicePublisher
    from tonnage.node.dra_node import DraNode
    from tonnage.node.dra_server import DraServer

    running = DraNode(devices, driver, watch, _say, effect, on_demand=on_demand)
    server = DraServer(DRIVER, root, driver, lambda: running.health(node), _say)
    publisher = SlicePublisher(client, node)
    said = ""
    try:
        while True:
            before = driver.offer
            cards = running.look(time.time_ns(), LOOK_S)
            running.serve(server, before)
            if not server.registered:
                continue  # a pod that came now would find no driver, and wait for the kubelet to look again
            try:
                for line in publisher.publish(cards):
                    _say(line)
                said = ""
            except ClientError as error:
                if str(error) != said:
                    _say(f"not published: {error}; tried again")
                said = str(error)
    finally:
        server.stop()
        publisher.close()


def _print(devices: Devices, watch: HealthWatch, node: str, effect: str, *, on_demand: bool) -> None:
    """The classes and slices as YAML."""
    import msgspec

    from tonnage.dra.nvidia import DRIVER, device_classes, slice_specs
    from tonnage.node.dra_offer import offered
    from tonnage.objects.base import ObjectMeta
    from tonnage.objects.dra import V1, ResourceSlice

    found = offered(devices, (), watch.health, effect, on_demand=on_demand)
    for problem in found.problems:
        _say(problem)
    slices = [
        ResourceSlice(
            api_version=V1, kind="ResourceSlice", metadata=ObjectMeta(name=f"{node}-{DRIVER}-{at}"), spec=spec
        )
        for at, spec in enumerate(slice_specs(found.cards, node, 1))
    ]
    made = [*device_classes(), *slices]
    terminal.echo(b"---\n".join(msgspec.yaml.encode(msgspec.to_builtins(one)) for one in made), nl=False)


@contextmanager
def _cluster(kubeconfig: str, context: str) -> Iterator[Client]:
    from tonnage.kube.http import open_cluster

    client = open_cluster(kubeconfig, context, ask=False)  # what is prepared is known without the API server
    try:
        yield client
    finally:
        client.transport.close()


def _say(line: str) -> None:
    terminal.echo(line, err=True)
