"""`tonnage agent mig`: the MIG layout of a node's cards, as a configuration or the node's label says it."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tonnage.cli import terminal
from tonnage.cli.agent_machine import PATH, simulated_machine
from tonnage.cli.cluster import live
from tonnage.errors import InputError
from tonnage.facts.labels import MIG_CONFIG

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from tonnage.node.mig_manager import MigManager, MigProgress
    from tonnage.partitioning.node_cuts import Configurations

_LOOK_S = 1.0


@click.command()
@click.option("--simulated", default="", metavar="TYPE", help="Simulated cards: p5.48xlarge, or 2xh100,l4.")
@click.option(
    "--state", type=PATH, metavar="FILE", help="Where simulated cards keep their state, for several processes."
)
@click.option("--node", default="", metavar="NAME", help="The node whose label is followed.")
@click.option("--config", type=PATH, metavar="FILE", help="Configurations as mig-parted has them; its own without.")
@click.option("--folder", type=PATH, required=True, metavar="DIR", help="Where the journal of a change is kept.")
@click.option("--apply", "name", default="", metavar="CONFIGURATION", help="Make this one, once, without a cluster.")
@click.option("--pod-resources", type=PATH, metavar="SOCKET", help="The kubelet's socket that lists pods' devices.")
@live
def mig(
    simulated: str,
    state: Path | None,
    node: str,
    config: Path | None,
    folder: Path,
    name: str,
    pod_resources: Path | None,
    context: str,
    kubeconfig: str,
) -> None:
    """Bring the cards to the layout that the node's label nvidia.com/mig.config names, and follow it.

    As few instances as possible are removed, none in use, and each new one has its place; an interrupted change is
    resumed. Operands of the GPU operator that are paused for it are started again whatever happens. Exit code 1 with
    --apply where it fails, or waits for what is in use. On real cards nothing is changed yet: this is for --simulated.

    \b
    tonnage agent mig --node gpu-01 --simulated h100 --config mig.yaml
    """
    from tonnage.node.mig_manager import MigManager

    if not simulated:
        hint = "give --simulated TYPE; on real cards tonnage agent doctor and tonnage mig discover read"
        raise InputError.at("changes of real cards are not made", field="--simulated", hint=hint)
    configurations = _configurations(config)
    cards = simulated_machine(simulated, state, node or "node")
    if name:
        manager = MigManager(cards, _Alone(name), folder, configurations)
        with manager.owning():
            found = manager.advance()
        _say(found)
        if found.state != "success":
            raise click.exceptions.Exit(1)
        return
    from tonnage.kube.http import open_cluster
    from tonnage.live.node_labels import NodeLabels

    if not node:
        raise InputError.at("whose label?", field="--node", hint="name the node, or give --apply CONFIGURATION")
    client = open_cluster(kubeconfig, context)
    host = NodeLabels(client, node, lambda: _held(pod_resources))
    try:
        _follow(MigManager(cards, host, folder, configurations))
    finally:
        host.close()
        client.transport.close()


def _follow(manager: MigManager) -> None:
    """Until interrupted; what cannot be asked now is asked again."""
    from tonnage.kube.transport import ClientError

    said: MigProgress | None = None
    with manager.owning():
        while True:
            try:
                now = manager.advance()
            except (ClientError, InputError) as error:
                terminal.echo(f"warning: {error}; tried again", err=True)
            else:
                if now != said:
                    _say(now)
                said = now
            time.sleep(_LOOK_S)


def _say(now: MigProgress) -> None:
    terminal.echo(f"{now.state or 'no configuration is named'}{f': {now.why}' if now.why else ''}", err=True)


def _held(socket: Path | None) -> Collection[str]:
    """UUIDs of what the kubelet gave to containers; replicas of one device count as it."""
    from tonnage.node.pod_resources import SOCKET, listed

    given = (ids for one in listed(socket or SOCKET) for each in one.plugin for ids in each.ids)
    return {one.partition("::")[0] for one in given}


def _configurations(path: Path | None) -> Configurations:
    """Those of a file, else mig-parted's own. Raises InputError with file and line."""
    from tonnage.cli import files
    from tonnage.partitioning import documents, mig_parted
    from tonnage.partitioning.node_cuts import OWN, Configurations

    if path is None:
        return OWN
    made: dict[str, mig_parted.Spec] = {}
    for document in documents.read(files.text(path, "configurations of mig-parted"), str(path)):
        spec = mig_parted.parse(document)
        made |= dict.fromkeys(spec.configs, spec)
    return Configurations(made, {}, complete=True)


class _Alone:
    """A node without a cluster: the label is what was typed, and nobody holds devices but processes."""

    def __init__(self, name: str) -> None:

        self._labels = {MIG_CONFIG: name}

    def labels(self) -> Mapping[str, str]:
        return self._labels

    def set_labels(self, changes: Mapping[str, str]) -> None:
        self._labels |= changes

    def held(self) -> Collection[str]:
        return ()
