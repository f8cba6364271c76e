"""No half gang, no device twice, no trace of a decision, whatever happens to the cluster."""

from __future__ import annotations

from random import Random

import pytest

from deep_seeds import part
from gang_life import Life


@pytest.mark.parametrize("seed", part(range(6)))
def test_gangs_are_whole_or_nothing_while_pods_and_nodes_come_and_go(seed: int) -> None:
    life = Life(Random(f"life/{seed}"))
    for _ in range(120):
        life.step()
    assert life.bound > 50
