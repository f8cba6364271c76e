"""More of the same, for `make fuzz`: what `make test` looks at in part is looked at in full there."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest


def deep(values: Iterable[object]) -> list[Any]:
    """The values as parameters of a test that `make fuzz` runs and `make test` leaves out."""
    return [pytest.param(value, marks=pytest.mark.fuzz) for value in values]
