"""What the ranks of a replica talk over. Table: ``data/estimator_links.csv``."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Literal, NamedTuple

from tonnage.inference import tables

if TYPE_CHECKING:
    from tonnage.facts.gpus import Gpu


class Links(NamedTuple):
    """The narrowest link between the ranks: its kind and the peak rate of one GPU in one direction."""

    kind: Literal["nvlink", "pcie", "network"]
    bytes_per_s: float


class Domain(NamedTuple):
    """Of a GPU: how many are joined by NVLink or sit in one node, the network rate of each, and whether measured
    points of it are behind the constants."""

    gpus: int
    network_bytes_per_s: float
    measured: bool


def links(gpu: Gpu, ranks: int) -> Links:
    """What ``ranks`` ranks on GPUs of this model talk over: NVLink inside its domain (8 GPUs of a node, 72 of an NVL72
    rack), PCIe in a node without it, the network beyond. MIG instances have no peer-to-peer access."""
    domain = domain_of(gpu)
    if ranks > domain.gpus:
        return Links("network", domain.network_bytes_per_s)
    if gpu.nvlink_bytes_per_s is not None:
        return Links("nvlink", float(gpu.nvlink_bytes_per_s))
    return Links("pcie", float(gpu.pcie_bytes_per_s))


def domain_of(gpu: Gpu) -> Domain:
    """The domain of ``gpu``; that of its family where it has no row of its own."""
    known = _domains()
    return known.get(gpu.name.partition(":")[0], known[""])


@cache
def _domains() -> dict[str, Domain]:
    return {
        row["gpu"]: Domain(int(row["domain_gpus"]), float(row["network_gb_per_s"]) * 1e9, row["measured"] == "1")
        for row in tables.rows("estimator_links.csv")
    }
