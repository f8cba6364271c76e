"""More of the same, for `make fuzz`: what `make test` looks at in part is looked at in full there."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import Any

import pytest

FULL = "TONNAGE_FUZZ_SECONDS" in os.environ
"""Whether this is `make fuzz`."""
PART = 3


def deep(values: Iterable[object]) -> list[Any]:
    """The values as parameters of a test that `make fuzz` runs and `make test` leaves out."""
    return [pytest.param(value, marks=pytest.mark.fuzz) for value in values]


def part(values: Sequence[object]) -> list[Any]:
    """The values as parameters of a test: one in :data:`PART` is looked at by `make test`, all by `make fuzz`."""
    return [value if number % PART == 0 else deep([value])[0] for number, value in enumerate(values)]


def examples(count: int) -> int:
    """How many examples of a property are drawn: that many by `make fuzz`, one in :data:`PART` by `make test`."""
    return count if FULL else -(-count // PART)
