"""What a process uses of a GPU when it has it alone. Table: ``data/gpu_use.csv``."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from tonnage.facts import tables


class GpuUse(NamedTuple):
    """Parts, above 0 and at most 1, of the SMs that its kernels fill and of the memory bandwidth that they use."""

    sms: float
    bandwidth: float


def decode() -> GpuUse:
    """A step of an engine that only decodes."""
    return _table()["decode"]


def prefill() -> GpuUse:
    """A step of an engine with prompt tokens in it."""
    return _table()["prefill"]


def other() -> GpuUse:
    """Any process that is not an engine."""
    return _table()["other"]


@lru_cache(maxsize=1)
def _table() -> dict[str, GpuUse]:
    return {row["name"]: GpuUse(float(row["sms"]), float(row["bandwidth"])) for row in tables.rows("gpu_use.csv")}
