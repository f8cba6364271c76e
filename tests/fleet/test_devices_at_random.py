"""Devices that are cut and shared: any sequence of changes keeps every invariant, and undoing leaves no trace."""

from __future__ import annotations

from random import Random

import pytest

from deep_seeds import part
from device_clusters import random_walk


@pytest.mark.report(128, 131)
@pytest.mark.parametrize("seed", part(range(8)))
def test_any_changes_keep_the_invariants_and_are_undone(seed: int) -> None:
    random_walk(Random(seed), 120, observed=False)


@pytest.mark.report(109)
@pytest.mark.parametrize("seed", range(4))
def test_what_a_cluster_does_unasked_keeps_every_table_like_a_rebuild(seed: int) -> None:
    random_walk(Random(seed), 120, observed=True)
