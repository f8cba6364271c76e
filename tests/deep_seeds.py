"""More of the same, for `make fuzz`: what `make test` looks at in part is looked at in full there.

With fewer than WHOLE_S seconds a test `make fuzz` looks at a share of it, drawn by the seed: that many of the
parameters of each test, and at least one; of a count, that much."""

from __future__ import annotations

import math
import os
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from random import Random
from typing import Any, TypeVar

import pytest

SECONDS, FIRST = "TONNAGE_FUZZ_SECONDS", "TONNAGE_FUZZ_SEED"
"""How long each test of `make fuzz` that draws seeds goes on, and from which seed."""
WHOLE_S = 60
"""With a budget of this many seconds a test, and in tests that are run by name, nothing is left out."""
FULL = SECONDS in os.environ
"""Whether this is `make fuzz`."""
SHARE = min(1.0, float(os.environ.get(SECONDS, WHOLE_S)) / WHOLE_S)
"""How much of the same is looked at."""
PART = 5

T = TypeVar("T")


def first_seed() -> int:
    """TONNAGE_FUZZ_SEED, or another one every day. A failure names its seed: start there to see it again."""
    return int(os.environ.get(FIRST, int(time.time()) // 86_400 * 1_000_000))


def deep(values: Iterable[object]) -> list[Any]:
    """The values as parameters of a test that `make fuzz` runs and `make test` leaves out."""
    return [pytest.param(value, marks=pytest.mark.fuzz(of_many=True)) for value in values]


def part(values: Sequence[object]) -> list[Any]:
    """The values as parameters of a test: one in :data:`PART` is looked at by `make test`, all by `make fuzz`."""
    return [value if number % PART == 0 else deep([value])[0] for number, value in enumerate(values)]


def examples(count: int) -> int:
    """How many examples of a property are drawn: that many by `make fuzz`, one in :data:`PART` by `make test`."""
    return max(at_share(count), -(-count // PART)) if FULL else -(-count // PART)


def at_share(count: int, share: float | None = None) -> int:
    """That much of a count, one at least."""
    return max(1, math.ceil(count * (SHARE if share is None else share)))


def drawn(cases: Mapping[str, Sequence[T]], share: float, seed: int) -> list[T]:
    """A share of the cases of each test, at least one, drawn by the seed and the test's name."""
    return [
        one for name, all_ in cases.items() for one in Random(f"{name}/{seed}").sample(all_, at_share(len(all_), share))
    ]


def left_out(items: Iterable[pytest.Item]) -> set[pytest.Item]:
    """What is not in the share of this run, of the parameters that :func:`deep` and :func:`part` keep for `make fuzz`."""
    cases = defaultdict[str, list[pytest.Item]](list)
    for item in items:
        if any(mark.kwargs.get("of_many") for mark in item.iter_markers("fuzz")):
            cases[item.nodeid.partition("[")[0]].append(item)
    return {one for every in cases.values() for one in every} - set(drawn(cases, SHARE, first_seed()))
