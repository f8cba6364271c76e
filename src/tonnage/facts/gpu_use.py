"""How much of a GPU a process uses when it has it alone. Sources: data/gpu_use.csv."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from tonnage.facts import tables


class Use(NamedTuple):
    """The SMs and the memory bandwidth, as parts of the GPU's (0 to 1)."""

    sms: float
    bandwidth: float


@lru_cache(maxsize=1)
def all_uses() -> dict[str, Use]:
    """By name: an ``engine`` while it decodes, any ``other`` process."""
    return {row["name"]: Use(float(row["sms"]), float(row["bandwidth"])) for row in tables.rows("gpu_use.csv")}


def get(name: str) -> Use:
    """That of an ``engine`` or any ``other`` process. Raises KeyError for another name."""
    return all_uses()[name]
