"""Schedulers that are known by name: who a pod's schedulerName may mean. Table: ``data/schedulers.csv``."""

from __future__ import annotations

from functools import lru_cache

from tonnage.facts import tables


@lru_cache(maxsize=1)
def names() -> tuple[str, ...]:
    """Every known schedulerName."""
    return tuple(row["name"] for row in tables.rows("schedulers.csv"))
