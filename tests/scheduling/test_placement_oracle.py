"""The scheduler against a naive implementation of Kubernetes' filters, on random small clusters."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deep_seeds import examples
from placement_checks import check_feasible_sets, check_whole_decision, random_fleet

seeds = st.integers(0, 2**32)


@pytest.mark.slow
@settings(max_examples=examples(400), deadline=None)
@given(seeds)
def test_the_nodes_that_take_a_pod_are_those_that_the_naive_filters_leave(seed: int) -> None:
    rng = Random(seed)
    check_feasible_sets(random_fleet(rng))


@pytest.mark.slow
@settings(max_examples=examples(200), deadline=None)
@given(seeds)
def test_a_pod_that_fits_somewhere_is_never_refused(seed: int) -> None:
    check_whole_decision(random_fleet(Random(seed)))
