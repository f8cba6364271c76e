"""How many replicas, in words."""

from __future__ import annotations

import pytest

from tonnage.scaling.words import replicas_text


@pytest.mark.parametrize(("count", "text"), [(0, "0 replicas"), (1, "1 replica"), (2, "2 replicas")])
def test_one_is_one_replica_and_any_other_number_several(count: int, text: str) -> None:
    assert replicas_text(count) == text
