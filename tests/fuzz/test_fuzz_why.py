"""Random small clusters: the change that is found makes the pod or the gang fit, and none is smaller."""

from __future__ import annotations

from random import Random

import pytest
from fuzz_budget import seeds

from why_checks import check_change, check_gang, check_none_smaller, waiting

PODS, BRUTE, GANGS = 100_000, 500, 2_000
"""Clusters at least in a deep run (`make fuzz FUZZ_SECONDS=600`): whose change is applied, and is compared with all smaller ones."""


@pytest.mark.fuzz
def test_the_smallest_change_makes_a_random_pod_fit() -> None:
    asked = changed = 0
    for seed in seeds(deep=PODS):
        try:
            found = check_change(*waiting(Random(seed), nodes=3, pods=6, shared=seed % 5 == 0))
        except Exception as error:
            raise AssertionError(f"seed {seed}") from error
        asked += 1
        changed += found is not None and found.change is not None
    assert changed > asked // 10


@pytest.mark.fuzz
def test_no_change_is_smaller_for_a_random_pod() -> None:
    asked = 0
    for seed in seeds(deep=BRUTE):
        shared = seed % 5 == 0
        made, row = waiting(Random(seed), nodes=2 if shared else 4, pods=6, shared=shared)
        try:
            found = check_change(made, row)
            if found is not None:
                check_none_smaller(made, row, found, most=1 if shared else 2)
        except Exception as error:
            raise AssertionError(f"seed {seed}") from error
        asked += 1
    assert asked


@pytest.mark.fuzz
def test_no_change_is_smaller_for_a_random_gang() -> None:
    asked = 0
    for seed in seeds(deep=GANGS):
        try:
            check_gang(Random(seed), nodes=4, pods=4)
        except Exception as error:
            raise AssertionError(f"seed {seed}") from error
        asked += 1
    assert asked
