"""For how long a node may say that it is unhealthy until Karpenter replaces it. ``data/repair_policies.csv``."""

from __future__ import annotations

from functools import lru_cache

from msgspec import Struct

from tonnage.facts import tables
from tonnage.units import NS_PER_S


class RepairPolicy(Struct, frozen=True):
    """A node whose ``condition`` has this ``status`` is unhealthy, and is replaced after ``toleration_ns``."""

    condition: str
    status: str
    toleration_ns: int
    source: str


@lru_cache(maxsize=1)
def repair_policies() -> tuple[RepairPolicy, ...]:
    """All of them, in the order in which they are looked at."""
    return tuple(
        RepairPolicy(row["condition"], row["status"], int(row["toleration_s"]) * NS_PER_S, row["source"])
        for row in tables.rows("repair_policies.csv")
    )
