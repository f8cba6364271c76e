"""What moves KV blocks from the engine that prefills to the one that decodes, and how long that takes.

Table: ``data/kv_links.csv``. A transfer takes a fixed time (handing over block ids, posting it, the notice of its end)
and its bytes at the link's rate, peak times the share of it that transfers of KV blocks reach.
"""

from __future__ import annotations

import difflib
from functools import cache

import msgspec

from tonnage.errors import InputError
from tonnage.inference import tables
from tonnage.units import NS_PER_S, NS_PER_US


class KvLink(msgspec.Struct, frozen=True):
    """A link of one GPU, NIC or host (``per``) in one direction. Rates in bytes a second, ``latency_ns`` a transfer."""

    name: str
    kind: str
    peak_bytes_per_s: float
    efficiency: float
    latency_ns: int
    per: str
    source: str

    @property
    def bytes_per_s(self) -> float:
        """What a transfer of KV blocks gets."""
        return self.peak_bytes_per_s * self.efficiency


@cache
def kv_links() -> dict[str, KvLink]:
    """Every known link, by name, in the order of the table."""
    return {
        row["name"]: KvLink(
            row["name"],
            row["kind"],
            float(row["bandwidth_gb_per_s"]) * 1e9,
            float(row["efficiency"]),
            round(float(row["latency_us"]) * NS_PER_US),
            row["per"],
            row["source"],
        )
        for row in tables.rows("kv_links.csv")
    }


def kv_link(name: str) -> KvLink:
    """A link by name. Raises InputError with near names."""
    found = kv_links().get(name)
    if found is None:
        near = difflib.get_close_matches(name, kv_links(), 1)
        hint = f"did you mean {near[0]}?" if near else f"use one of {', '.join(kv_links())}"
        raise InputError.at(f"no KV link {name!r}", field="link", hint=hint)
    return found


def kv_bytes(blocks: int, block_size: int, bytes_per_token: int) -> int:
    """Bytes of ``blocks`` blocks of ``block_size`` tokens, over all ranks of an engine."""
    return blocks * block_size * bytes_per_token


def wire_ns(link: KvLink, moved_bytes: int, lanes: int = 1) -> int:
    """Time in ns that the bytes take on ``lanes`` such links side by side, without the fixed part."""
    return -(-round(moved_bytes * NS_PER_S * 1000 / (link.bytes_per_s * lanes)) // 1000)


def transfer_ns(link: KvLink, moved_bytes: int, lanes: int = 1) -> int:
    """Time in ns of a transfer that begins when the prefill has ended. Nothing to move takes no time."""
    return link.latency_ns + wire_ns(link, moved_bytes, lanes) if moved_bytes else 0


def exposed_ns(link: KvLink, moved_bytes: int, prefill_ns: int, layers: int, lanes: int = 1) -> int:
    """What is left of a transfer after the end of a prefill of ``prefill_ns`` that sends each layer when it is done.

    Layers take equal times c to compute and s to send, and are sent one after the other. The last one is not sent
    before it is computed, nor before the others are: the rest is max(s, layers · s − (layers − 1) · c), and the fixed
    time comes once.
    """
    if not moved_bytes:
        return 0
    whole = wire_ns(link, moved_bytes, lanes)
    last = -(-whole // layers)
    behind = whole - prefill_ns * (layers - 1) // layers
    return link.latency_ns + max(last, behind)
