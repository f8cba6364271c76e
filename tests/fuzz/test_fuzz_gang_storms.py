"""Gangs of every kind whose bindings fail and whose scheduler dies, seed after seed."""

from __future__ import annotations

import pytest
from fuzz_budget import seeds

from live.gangs.gang_storm import Storm, storm

GANGS = 50
DEEP = 10_000


@pytest.mark.fuzz
def test_no_gang_is_held_in_part_after_a_storm() -> None:
    met = Storm()
    for seed in seeds(deep=DEEP // GANGS):
        try:
            met.add(storm(seed, GANGS))
        except Exception as error:
            raise AssertionError(f"seed {seed}") from error
    print(met)
    assert met.in_part and met.whole
