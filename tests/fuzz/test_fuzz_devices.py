"""Random changes of fleets whose devices are cut and shared: invariants, exact undo, and what fits by plain search."""

from __future__ import annotations

from random import Random

import pytest
from fuzz_budget import seeds

from deep_seeds import at_share
from device_clusters import random_walk

STEPS = 500
AT_LEAST = 100_000
"""Steps, however little time there is, in a run that leaves nothing out. Every tenth is followed by a rebuild."""


@pytest.mark.fuzz
def test_devices_that_are_cut_and_shared_at_random_stay_sound_and_undo_leaves_no_trace() -> None:
    done = 0
    for seed in seeds(AT_LEAST // STEPS):
        try:
            random_walk(Random(seed), STEPS, observed=seed % 3 == 0, every=10)
        except Exception as error:
            raise AssertionError(f"seed {seed}") from error
        done += STEPS
    assert done >= at_share(AT_LEAST)
