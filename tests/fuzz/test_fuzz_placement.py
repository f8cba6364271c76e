"""Random changes of a cluster with the scheduler in between: invariants, exact undo, tables, and the naive oracle."""

from __future__ import annotations

from random import Random

import pytest
from fuzz_budget import seeds

from placement_checks import check_feasible_sets, check_table_equals_rebuild, check_whole_decision
from random_clusters import Changes, columns
from tonnage.fleet.invariants import violations
from tonnage.fleet.snapshot import Snapshot
from tonnage.fleet.state import Fleet
from tonnage.scheduling import place

STEPS = 40


@pytest.mark.fuzz
def test_a_cluster_that_changes_at_random_stays_sound_and_its_pods_are_placed_as_kubernetes_would() -> None:
    for seed in seeds():
        rng, fleet = Random(seed), Fleet()
        cache = place.Cache(fleet)

        def check(fleet: Fleet = fleet) -> None:
            assert violations(fleet) == []

        changes = Changes(rng, fleet, check)
        try:
            for _ in range(STEPS):
                changes.step()
                chance = rng.random()
                if chance < 0.1:
                    check_feasible_sets(fleet, cache)
                elif chance < 0.2:
                    check_whole_decision(fleet, cache)
                elif chance < 0.25:
                    check_table_equals_rebuild(cache)
                elif chance < 0.3:
                    before = columns(fleet)
                    place.decide(Snapshot(0, fleet), place.Settings("spread"), cache)
                    assert columns(fleet) == before
        except Exception as error:
            raise AssertionError(f"seed {seed}") from error
