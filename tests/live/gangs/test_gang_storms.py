"""Whatever fails between two bindings of a gang, in the end it stands whole or not at all."""

from __future__ import annotations

import pytest

from live.gangs.gang_cluster import KINDS_OF_GANGS
from live.gangs.gang_storm import Storm, storm


@pytest.mark.fuzz
def test_after_a_storm_no_gang_is_held_in_part() -> None:
    met = Storm()
    for seed in range(2):
        met.add(storm(seed, 50))
    assert met.gangs == 100
    assert met.in_part > 25 and met.evicted > 4, "hardly a gang was partially bound: nothing was tested"
    assert met.restarts > 15
    assert met.whole > 50
    assert met.kinds.keys() == set(KINDS_OF_GANGS)
    assert {"conflict", "lost-done", "crash-before", "crash-after"} <= met.faults.keys()
