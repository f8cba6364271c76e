"""What the two sides of a transfer say to each other, and what they ask of their own engine and NIC."""

from __future__ import annotations

from typing import Literal, NamedTuple, TypeAlias

Kind: TypeAlias = Literal["reserved", "ready", "reading", "heartbeat", "alive", "done", "written", "abort", "quiesced"]
"""From the decode side: ``reserved`` (pages are there), ``heartbeat``, ``reading`` and ``done`` (its read has begun,
has ended), ``abort``. From the prefill side: ``alive`` (answers a heartbeat), ``ready`` (blocks are computed),
``written`` (its write has ended), ``abort``, ``quiesced`` (no write of its is in flight any more)."""


class Send(NamedTuple):
    """Tell the other side."""

    transfer: int
    kind: Kind


class StartTransfer(NamedTuple):
    """Start to move the data; ``moved`` is to be called when it has ended, well or not."""

    transfer: int


class Deregister(NamedTuple):
    """Withdraw the pages' registration: an access of the other side that is still to come fails, and harms nobody.

    What NIXL does when an agent's metadata is invalidated, and RDMA when a memory region is deregistered.
    """

    transfer: int


class Free(NamedTuple):
    """Give the blocks back to the engine."""

    transfer: int
    blocks: int


class Cancel(NamedTuple):
    """Nobody wants the prefill any more: abort it in the engine, which frees its blocks itself."""

    transfer: int


class StartDecode(NamedTuple):
    """All blocks have arrived: from now on they are the running request's."""

    transfer: int


class Lost(NamedTuple):
    """The blocks will not come: prefill again, or fail the request. Told once, and at once."""

    transfer: int
    reason: str


Action: TypeAlias = Send | StartTransfer | Deregister | Free | Cancel | StartDecode | Lost


class Leases(NamedTuple):
    """Times in ns. ``lease_ns``: how long prefilled blocks are kept for a decode side that is silent; a heartbeat
    makes it last at least two thirds of that from then on. ``patience_ns``: how long the decode side waits for a
    prefill side that is silent. ``heartbeat_ns``: between heartbeats.

    Source: vllm-project/vllm docs/design/nixl_kv_cache_lease.md: kv_lease_duration 30 s, extension 2/3, interval 1/6.
    """

    lease_ns: int = 30_000_000_000
    patience_ns: int = 20_000_000_000
    heartbeat_ns: int = 5_000_000_000

    @property
    def extension_ns(self) -> int:
        """What a heartbeat extends the lease to, from its arrival on."""
        return self.lease_ns * 2 // 3
