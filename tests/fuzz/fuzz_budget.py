"""How long to fuzz, and from which seed."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator

from deep_seeds import SECONDS, at_share, first_seed

DEEP_S = 600
"""With a budget of this many seconds a test, those that have a number to reach go on until they have reached it."""


def seeds(least: int = 1, deep: int = 0) -> Iterator[int]:
    """Seeds, one after another, for TONNAGE_FUZZ_SECONDS (10 unless set), at least ``least``, or its share where
    `make fuzz` has less than a minute a test; ``deep`` in a deep run (`make fuzz FUZZ_SECONDS=600`)."""
    budget_s = float(os.environ.get(SECONDS, "10"))
    end = time.monotonic() + budget_s
    least = max(least, deep) if budget_s >= DEEP_S else at_share(least)
    seed = first_seed()
    while least > 0 or time.monotonic() < end:
        yield seed
        seed += 1
        least -= 1
