"""How long to fuzz, and from which seed."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator

DEEP_S = 600
"""With a budget of this many seconds a test, those that have a number to reach go on until they have reached it."""


def seeds(least: int = 1, deep: int = 0) -> Iterator[int]:
    """Seeds, one after another, for TONNAGE_FUZZ_SECONDS (10 unless set), at least ``least``; ``deep`` in a deep run
    (`make fuzz FUZZ_SECONDS=600`).

    The first is TONNAGE_FUZZ_SEED, or another one every day. A failure names its seed: start there to see it again."""
    budget_s = float(os.environ.get("TONNAGE_FUZZ_SECONDS", "10"))
    end = time.monotonic() + budget_s
    if budget_s >= DEEP_S:
        least = max(least, deep)
    seed = int(os.environ.get("TONNAGE_FUZZ_SEED", int(time.time()) // 86_400 * 1_000_000))
    while least > 0 or time.monotonic() < end:
        yield seed
        seed += 1
        least -= 1
