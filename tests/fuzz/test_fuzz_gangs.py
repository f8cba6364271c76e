"""Gangs that come, grow, finish and lose nodes, and tiny gangs against trying everything, seed after seed."""

from __future__ import annotations

from random import Random

import pytest
from fuzz_budget import seeds

from gang_checks import check_plan, check_plan_with_rules
from gang_life import Life

STEPS = 200


@pytest.mark.fuzz
def test_gangs_stay_whole_over_a_long_life() -> None:
    for seed in seeds():
        life = Life(Random(f"life/{seed}"))
        try:
            for _ in range(STEPS):
                life.step()
        except Exception as error:
            raise AssertionError(f"seed {seed}") from error


@pytest.mark.fuzz
def test_gangs_are_planned_exactly_where_there_is_a_place() -> None:
    for seed in seeds():
        try:
            check_plan(Random(f"gang/{seed}"))
            check_plan_with_rules(Random(f"ruled/{seed}"))
        except Exception as error:
            raise AssertionError(f"seed {seed}") from error
