"""What a real cluster did with the sets of manifests agrees with what is expected of them."""

from __future__ import annotations

import pytest

from health.broken_sets import all_sets
from health.real_cluster import expected, left_out, recorded


@pytest.mark.parametrize("one", [one for one in all_sets() if not left_out(one)], ids=lambda one: one.name)
def test_a_real_cluster_came_as_far_as_is_expected(one) -> None:  # type: ignore[no-untyped-def]
    """`TONNAGE_RECORD=1 python -m e2e long tests/e2e/test_sets_of_manifests.py -k NAME` records what is missing."""
    assert recorded()[one.name]["outcome"] in expected(one), recorded()[one.name]
