"""A node that was launched and is not there yet."""

from __future__ import annotations

from tonnage.decisions import Launch
from tonnage.partitioning.node_cuts import OWN, Configurations
from tonnage.provisioning.devices import coming, cut_by
from tonnage.provisioning.pods import ExistingNode


def on_its_way(launch: Launch, configurations: Configurations = OWN, *, parts: bool = False) -> ExistingNode:
    """A node that was launched and is not there yet, as the next plan sees it: its DaemonSets counted, its pods not.

    While they are pending its pods are planned again. ``parts``: some of them ask for parts of devices."""
    devices = None
    if parts or cut_by(launch.labels, configurations):
        devices = coming(launch.instance_type, launch.labels, launch.allocatable, launch.daemons, configurations)
    return ExistingNode(
        ref=launch.claim,
        labels=launch.labels,
        free={name: amount - launch.daemons.get(name, 0) for name, amount in launch.allocatable.items()},
        taints=launch.taints,
        startup_taints=launch.startup_taints,
        initialized=False,
        node_pool=launch.node_pool,
        capacity=launch.capacity,
        devices=devices,
    )
