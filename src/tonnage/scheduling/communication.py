"""How long a gang's collectives would take where it stands: the predicted time of one all-reduce.

Nodes of one NVLink domain and the GPUs of one node are islands. An island of n GPUs reduces in a ring over its own
links (2(n-1)/n of the bytes on each, at the slowest GPU's rate), the islands among each other over the network
(2(k-1)/k of the bytes through the slowest island's interfaces, all its GPUs sharing them), as a ring or a tree,
whichever is sooner; steps wait as NCCL's model has it. Rates are the links' own: no oversubscription of the network is
known, and no other traffic. Sources: the volume of the ring, P. Patarasuk, X. Yuan, J. Parallel Distrib. Comput. 69
(2009); rates of the facts tables ``gpus.csv`` and ``accelerator_instances.csv``; latencies
``collective_latencies.csv``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from tonnage.decisions import Scalar
from tonnage.facts import instances, interconnects
from tonnage.fleet.rows import NodeRow
from tonnage.fleet.state import Fleet
from tonnage.scheduling.device_choice import instance_type, links_of
from tonnage.units import GIB

_BITS = 8


@dataclass(frozen=True, slots=True)
class AllReduceTime:
    """``seconds`` of one all-reduce, and the link (``nvlink``, ``pcie``, ``network``) on which it spends most of
    them."""

    seconds: float
    slowest: str
    gpus: int
    islands: int


@dataclass(slots=True)
class _Island:
    """GPUs that reach each other without the network. Rates in bytes a second; None where they are not known."""

    gpus: int = 0
    link: str = "nvlink"
    bytes_per_s: float | None = None
    network_bytes_per_s: float | None = 0.0
    nodes: set[int] = field(default_factory=set)


def allreduce(fleet: Fleet, placed: Iterable[tuple[int, Sequence[int]]], size: int) -> AllReduceTime | None:
    """The time to all-reduce ``size`` bytes among GPUs, given as (node row, devices); None where a rate is not known,
    or where there are fewer than two GPUs."""
    islands = _islands(fleet, placed)
    total = sum(island.gpus for island in islands)
    if total < 2:
        return None
    inside, slowest_inside = 0.0, ""
    for island in islands:
        if island.gpus < 2:
            continue
        if not island.bytes_per_s:
            return None
        latency = interconnects.collective_latency(island.link)
        steps = 2 * (island.gpus - 1)
        seconds = steps / island.gpus * size / island.bytes_per_s + steps * latency.ring_s + latency.base_s
        if seconds > inside:
            inside, slowest_inside = seconds, island.link
    between = 0.0
    if len(islands) > 1:
        rates = [island.network_bytes_per_s for island in islands]
        if not all(rates):
            return None
        between = _between(len(islands), size, min(rate for rate in rates if rate))
    return AllReduceTime(inside + between, "network" if between > inside else slowest_inside, total, len(islands))


def _between(islands: int, size: int, rate: float) -> float:
    """The sooner of a ring and a (double binary) tree over the islands."""
    latency = interconnects.collective_latency("network")
    ring = 2 * (islands - 1) / islands * size / rate + 2 * (islands - 1) * latency.ring_s
    tree = 2 * size / rate + 2 * (islands - 1).bit_length() * latency.tree_s
    return min(ring, tree) + latency.base_s


def evidence_of(fleet: Fleet, placed: Iterable[tuple[int, Sequence[int]]]) -> tuple[tuple[str, Scalar], ...]:
    """What a gang's receipt says of its communication; empty for fewer than two GPUs, None where a rate is not
    known."""
    there = [(node, devices) for node, devices in placed if devices]
    if sum(len(devices) for _, devices in there) < 2:
        return ()
    estimate = allreduce(fleet, there, GIB)
    if estimate is None:
        return (("allreduce_ms_per_gib", None),)
    return (
        ("allreduce_ms_per_gib", round(estimate.seconds * 1e3, 3)),
        ("slowest_link", estimate.slowest),
        ("nvlink_islands", estimate.islands),
    )


def _islands(fleet: Fleet, placed: Iterable[tuple[int, Sequence[int]]]) -> list[_Island]:
    by_node: dict[int, list[int]] = {}
    for row, devices in placed:
        by_node.setdefault(row, []).extend(devices)
    cliques = [row.label for row in interconnects.topology_labels() if row.span == "nvlink"]
    islands: dict[str, _Island] = {}
    for row, devices in by_node.items():
        node = fleet.node(row)
        clique = next((f"{key}={node.labels[key]}" for key in cliques if key in node.labels), f"node={row}")
        island = islands.setdefault(clique, _Island())
        island.gpus += len(set(devices))
        island.nodes.add(row)
        _join(island, node, sorted(set(devices)), len(by_node) > 1 and not clique.startswith("node="))
    return list(islands.values())


def _join(island: _Island, node: NodeRow, devices: Sequence[int], switched: bool) -> None:
    """Take the node's links into the island: the slowest counts inside, the interfaces to the network add up."""
    link, rate = links_of(node, devices, switched=switched)
    first = len(island.nodes) == 1
    if first or (rate or 0.0) < (island.bytes_per_s or 0.0):
        island.link, island.bytes_per_s = link, rate
    network = network_bytes_per_s(node)
    known = network is not None and island.network_bytes_per_s is not None
    island.network_bytes_per_s = (island.network_bytes_per_s or 0.0) + (network or 0.0) if known else None


def network_bytes_per_s(node: NodeRow) -> float | None:
    """What the node's interfaces carry in one direction; None where its instance type or that type's rate is not
    known."""
    name = instance_type(node)
    if not instances.known(name):
        return None
    mbps = instances.get(name).network_mbps
    return None if mbps is None else mbps * 1e6 / _BITS
