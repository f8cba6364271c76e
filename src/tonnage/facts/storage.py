"""How fast weights can be read from where they lie. Table: ``data/storage.csv``."""

from __future__ import annotations

from functools import lru_cache
from typing import Literal

from msgspec import Struct, convert

from tonnage.facts import durations, names, tables

Path = Literal["ebs", "local", "network", "memory"]
"""What the bytes pass through: the instance's EBS bandwidth, its own drives, its network, or only its memory."""


class Storage(Struct, frozen=True):
    """A place for weights; ``bytes_per_s`` is what it gives by itself."""

    name: str
    label: str
    bytes_per_s: float
    network: Path
    source: str


def get(name: str) -> Storage:
    """The storage called ``name``. Raises :class:`~tonnage.errors.InputError` with near names if there is none."""
    for found in all():
        if found.name == name.lower():
            return found
    known = [found.name for found in all()]
    raise names.unknown("disk", name, known, hint=f"disks are {', '.join(known)}")


@lru_cache(maxsize=1)
def all() -> tuple[Storage, ...]:
    """Every storage, in the order of the table."""
    return tuple(
        convert({**row, "bytes_per_s": float(row["bytes_per_s"])}, Storage) for row in tables.rows("storage.csv")
    )


def loader_bytes_per_s() -> float:
    """What vLLM's default loader moves from memory to one GPU: no disk loads faster than this times the GPUs."""
    return durations.get().page_cache_bytes_per_s
