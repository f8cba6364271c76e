"""Fleets of H100 nodes whose GPUs are partitioned by layouts, and pods that ask for their instances."""

from __future__ import annotations

from typing import Any

from builders import GPU, fleet, node, pod
from tonnage.decisions import Instances, Relayout
from tonnage.facts.labels import MIG_RELAYOUT
from tonnage.fleet.devices import Cut
from tonnage.fleet.geometry import geometry
from tonnage.fleet.outfit import offered
from tonnage.fleet.rows import FleetNode, FleetPod
from tonnage.fleet.snapshot import Snapshot
from tonnage.fleet.state import Fleet
from tonnage.partitioning.fleet_layouts import cut_as, lay
from tonnage.partitioning.node_cuts import MIG_STRATEGY

MAY_CHANGE = {MIG_RELAYOUT: "true", MIG_STRATEGY: "mixed"}
GPU_MODEL = "h100"
SMALL, HALF, ALL = "1g.10gb", "3g.40gb", "7g.80gb"
SEVEN = tuple((SMALL, start) for start in range(7))
HALVES = ((HALF, 0), (HALF, 4))
EMPTY: tuple[tuple[str, int], ...] = ()
WHOLE = None


def gpu_node(name: str, *cards: Instances, may: bool = True, **more: Any) -> FleetNode:
    """A node with one H100 for each layout."""
    on = geometry(GPU_MODEL)
    assert on is not None
    cuts: tuple[Cut, ...] = tuple(cut_as(on, card) for card in cards)
    labels = dict(MAY_CHANGE) if may else {MIG_STRATEGY: "mixed"}
    return node(
        name,
        cpu=96,
        memory_gib=1024,
        labels=labels,
        gpu=GPU_MODEL,
        device_resource=GPU,
        cuts=cuts,
        resources=offered(cuts, GPU),
        **more,
    )


def asking(name: str, profile: str = SMALL, count: int = 1, **more: Any) -> FleetPod:
    """A pod that asks for instances of a profile; ``GPU``: for whole ones."""
    wanted = GPU if profile == GPU else f"nvidia.com/mig-{profile}"
    return pod(name, resources={wanted: str(count)}, **more)


def gpu_fleet(*nodes: FleetNode, waiting: list[FleetPod] | None = None, **bound: list[FleetPod]) -> Fleet:
    """A fleet, pods that wait, and pods bound to the nodes named."""
    return fleet(*nodes, pods=waiting or [], bound={name.replace("_", "-"): there for name, there in bound.items()})


def seen(made: Fleet, **more: Any) -> Snapshot:
    return Snapshot(0, made, **more)


def applied(made: Fleet, decisions: list[Relayout]) -> None:
    """Let decisions take effect at once."""
    for one in decisions:
        lay(made, (made.node_by_name[one.node.name], one.device), one.after)
