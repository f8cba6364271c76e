"""What joins GPUs and nodes: topology labels, links between the GPUs of a machine, latencies of collectives.

Tables: ``data/topology_labels.csv``, ``data/gpu_topologies.csv`` and ``data/collective_latencies.csv``.
"""

from __future__ import annotations

from functools import lru_cache

from msgspec import Struct

from tonnage.facts import tables
from tonnage.facts.gpus import GB_PER_S

_US = 1e-6


class TopologyLabel(Struct, frozen=True):
    """A node label whose values name topology domains. ``level``: the greater, the nearer to the GPU.

    ``span``: what joins the nodes of one domain: "network", "nvlink" (GPUs reach each other over NVLink), or "host"."""

    label: str
    level: int
    span: str
    source: str


class GpuTopology(Struct, frozen=True):
    """How the GPUs of an instance type are joined, by index. ``numa``: those at one socket; ``switches``: those behind
    one PCIe switch; empty where it is not known. ``nvlinks``: links of each directly joined pair (lower index first),
    each of ``bytes_per_s_a_link`` in one direction; empty where there are none, or where a switch joins all alike."""

    instance_type: str
    gpus: int
    numa: tuple[tuple[int, ...], ...]
    switches: tuple[tuple[int, ...], ...]
    nvlinks: dict[tuple[int, int], int]
    bytes_per_s_a_link: float | None
    source: str


class CollectiveLatency(Struct, frozen=True):
    """Seconds that one step of a collective waits on a kind of link (``nvlink``, ``pcie``, ``network``), in a ring and
    in a tree; ``base_s``: once for the whole collective."""

    link: str
    ring_s: float
    tree_s: float
    base_s: float
    source: str


@lru_cache(maxsize=1)
def topology_labels() -> tuple[TopologyLabel, ...]:
    """Every well-known topology label, outermost first; labels of one level by name."""
    rows = (
        TopologyLabel(row["label"], int(row["level"]), row["span"], row["source"])
        for row in tables.rows("topology_labels.csv")
    )
    return tuple(sorted(rows, key=lambda row: (row.level, row.label)))


def gpu_topology(instance_type: str) -> GpuTopology | None:
    """How the GPUs of that type are joined; None where no source says more than the GPU's own links."""
    return _gpu_topologies().get(instance_type)


def collective_latency(link: str) -> CollectiveLatency:
    """The latencies of a kind of link. Raises KeyError for another kind."""
    return _latencies()[link]


@lru_cache(maxsize=1)
def _gpu_topologies() -> dict[str, GpuTopology]:
    return {
        row["instance_type"]: GpuTopology(
            row["instance_type"],
            int(row["gpus"]),
            _groups(row["numa"]),
            _groups(row["switches"]),
            dict(_pair(cell) for cell in row["nvlinks"].split()),
            tables.scaled(row["gb_per_s_a_link"], GB_PER_S),
            row["source"],
        )
        for row in tables.rows("gpu_topologies.csv")
    }


@lru_cache(maxsize=1)
def _latencies() -> dict[str, CollectiveLatency]:
    return {
        row["link"]: CollectiveLatency(
            row["link"],
            float(row["ring_us"]) * _US,
            float(row["tree_us"]) * _US,
            float(row["base_us"]) * _US,
            row["source"],
        )
        for row in tables.rows("collective_latencies.csv")
    }


def _groups(cell: str) -> tuple[tuple[int, ...], ...]:
    """``0-3 4-7`` as groups of indices."""
    bounds = (group.split("-") for group in cell.split())
    return tuple(tuple(range(int(low), int(high) + 1)) for low, high in bounds)


def _pair(cell: str) -> tuple[tuple[int, int], int]:
    """``0-3:2`` as a pair and its number of links."""
    pair, _, links = cell.partition(":")
    low, _, high = pair.partition("-")
    return (int(low), int(high)), int(links)
