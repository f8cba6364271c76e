"""How long to fuzz, and from which seed."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator


def seeds() -> Iterator[int]:
    """Seeds, one after another, for TONNAGE_FUZZ_SECONDS (10 unless set), at least one.

    The first is TONNAGE_FUZZ_SEED, or another one every day. A failure names its seed: start there to see it again."""
    end = time.monotonic() + float(os.environ.get("TONNAGE_FUZZ_SECONDS", "10"))
    seed = int(os.environ.get("TONNAGE_FUZZ_SEED", int(time.time()) // 86_400 * 1_000_000))
    while True:
        yield seed
        seed += 1
        if time.monotonic() >= end:
            return
