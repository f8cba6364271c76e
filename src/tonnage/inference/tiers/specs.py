"""What a tier is: its size, speed, rules and price. The usual ones are in data/kv_tiers.csv, each with its source."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from math import inf
from typing import TYPE_CHECKING, Literal

import msgspec

from tonnage.errors import InputError
from tonnage.facts import gpus
from tonnage.facts.names import unknown
from tonnage.inference import tables

if TYPE_CHECKING:
    from tonnage.facts.gpus import Gpu

_LINK_OF = "h100"
"""The GPU whose link to the host the table of tiers has."""

Fill = Literal["through", "spill"]
"""When a tier is written: as soon as blocks are computed, or when the tier above evicts them."""


class TierSpec(msgspec.Struct, frozen=True):
    """One tier below the GPU.

    ``blocks``: KV blocks that it holds, None for unlimited. Bandwidths are those that one engine gets, in bytes per
    second; ``latency_ns`` is added once to every transfer. A block is taken in when it was used often enough
    (``min_frequency``; 1 takes all). ``shared``: one for all engines, else each has its own.
    ``micro_usd_per_gib_hour`` is for the capacity; the other two are for what is read and written, per GiB.
    """

    name: str
    blocks: int | None = None
    read_bytes_per_s: float = inf
    write_bytes_per_s: float = inf
    latency_ns: int = 0
    min_frequency: int = 1
    fill: Fill = "through"
    shared: bool = False
    micro_usd_per_gib_hour: float = 0.0
    micro_usd_per_gib_read: float = 0.0
    micro_usd_per_gib_written: float = 0.0

    def __post_init__(self) -> None:
        if self.blocks is not None and self.blocks < 0:
            raise ValueError(f"tier {self.name} cannot hold {self.blocks} blocks")
        if not (self.read_bytes_per_s > 0 and self.write_bytes_per_s > 0) or self.latency_ns < 0:
            raise ValueError(f"tier {self.name} needs bandwidths above zero and a latency of zero or more")
        if self.min_frequency < 1:
            raise ValueError(f"tier {self.name} cannot ask for a frequency below 1")


class TierFinding(msgspec.Struct, frozen=True):
    """A tier that cannot be of much use: it holds no more blocks than the one above it."""

    tier: str
    blocks: int
    above: str
    blocks_above: int

    def __str__(self) -> str:
        held = "1 block" if self.blocks == 1 else f"{self.blocks:,} blocks"
        return (
            f"tier {self.tier} holds {held}, not more than the {self.blocks_above:,} of {self.above} "
            "above it: most of what it holds is there too, and it evicts before it is of use; make it larger"
        )


def find(gpu_blocks: int, specs: Sequence[TierSpec], engines: int = 1) -> list[TierFinding]:
    """Tiers that are not larger than what is above them, all ``engines`` together where a tier is shared.

    Tiers of size zero count as not there. Source: docs/components/kvbm of ai-dynamo/dynamo, where a host tier below
    the size of the GPU's cache brings nothing.
    """
    found: list[TierFinding] = []
    above, size = "the GPU", gpu_blocks
    shared = False
    for spec in specs:
        if spec.blocks == 0:
            continue
        if spec.blocks is None:
            break
        factor = engines if spec.shared and not shared else 1
        if spec.blocks <= size * factor:
            found.append(TierFinding(spec.name, spec.blocks, above, size * factor))
        above, size, shared = spec.name, spec.blocks, spec.shared
    return found


def default(name: str) -> TierSpec:
    """A usual tier, without an end.

    Raises InputError for a name that is none of :func:`names`.
    """
    known = _table()
    if name not in known:
        raise unknown("KV tier", name, known)
    return known[name]


def host_links(spec: TierSpec, gpu: Gpu, count: int = 1) -> TierSpec:
    """``spec`` with the bandwidths of an engine on ``count`` GPUs: each has its own link to the host, as fast as its
    generation of PCIe. The table has those of one H100."""
    links = count * gpu.pcie_bytes_per_s / gpus.get(_LINK_OF).pcie_bytes_per_s
    return msgspec.structs.replace(
        spec, read_bytes_per_s=spec.read_bytes_per_s * links, write_bytes_per_s=spec.write_bytes_per_s * links
    )


def names() -> tuple[str, ...]:
    """The usual tiers, from the fastest to the slowest."""
    return tuple(_table())


@cache
def _table() -> dict[str, TierSpec]:
    return {row["name"]: _spec(row) for row in tables.rows("kv_tiers.csv")}


def _spec(row: dict[str, str]) -> TierSpec:
    if row["fill"] not in ("through", "spill"):
        raise InputError.at(f"{row['fill']} is not a way to fill a tier", file="kv_tiers.csv", field="fill")
    return TierSpec(
        name=row["name"],
        read_bytes_per_s=float(row["read_gb_per_s"]) * 1e9,
        write_bytes_per_s=float(row["write_gb_per_s"]) * 1e9,
        latency_ns=round(float(row["latency_us"]) * 1_000),
        min_frequency=int(row["min_frequency"]),
        fill="spill" if row["fill"] == "spill" else "through",
        shared=row["shared"] == "1",
        micro_usd_per_gib_hour=float(row["usd_per_gib_hour"]) * 1e6,
        micro_usd_per_gib_read=float(row["usd_per_gib_read"]) * 1e6,
        micro_usd_per_gib_written=float(row["usd_per_gib_written"]) * 1e6,
    )
