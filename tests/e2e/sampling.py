"""How often what can be repeated is repeated: `make e2e` runs every kind of case with a few numbers, drawn by a seed;
`make e2e-long` runs all of them.

The seed is TONNAGE_E2E_SEED, which `make e2e` chooses and prints; TONNAGE_E2E_LONG is set in a long run."""

from __future__ import annotations

import os
import random
from collections.abc import Sequence
from typing import TypeVar

SEED = int(os.environ.get("TONNAGE_E2E_SEED", "0"))
LONG = bool(os.environ.get("TONNAGE_E2E_LONG"))

T = TypeVar("T")
counts: dict[str, int] = {}
"""How often each thing is done in this run, by its name: for the record of a long run."""


def some(what: str, every: Sequence[T], sampled: int) -> list[T]:
    """All of them in a long run; otherwise this many, drawn by the seed, in the order in which they stand."""
    places = range(len(every)) if LONG else sorted(draw(what).sample(range(len(every)), sampled))
    counts[what] = len(places)
    return [every[place] for place in places]


def often(what: str, every: int, sampled: int) -> int:
    """How often to do something again and again."""
    counts[what] = every if LONG else sampled
    return counts[what]


def shuffled(what: str, every: Sequence[T]) -> list[T]:
    """All of them as they stand in a long run; otherwise in an order drawn by the seed, of which the first few are taken."""
    return list(every) if LONG else draw(what).sample(every, len(every))


def draw(what: str) -> random.Random:
    """What else is a matter of chance."""
    return random.Random(f"{what}/{SEED}")
