"""The gang planner against trying everything, on tiny clusters."""

from __future__ import annotations

from random import Random

import pytest

from gang_checks import check_plan, check_plan_with_rules


@pytest.mark.parametrize("part", range(4))
def test_there_is_a_plan_exactly_if_some_placement_keeps_the_rules_and_it_is_at_the_best_level(part: int) -> None:
    placed = sum(check_plan(Random(f"gang/{part * 40 + i}")) for i in range(40))
    assert 5 < placed < 35


@pytest.mark.parametrize("part", range(2))
def test_rules_about_other_pods_stay_exact_in_a_gang(part: int) -> None:
    placed = sum(check_plan_with_rules(Random(f"ruled/{part * 12 + i}")) for i in range(12))
    assert 1 < placed < 12
