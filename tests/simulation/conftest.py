"""Runs of the bundled scenario that several tests look at; each is made once a session."""

from __future__ import annotations

from functools import cache

import pytest
from sim_builders import EXAMPLE, Golden

from tonnage.simulation import run, scenario
from tonnage.simulation.result import Result


@pytest.fixture(scope="session")
def golden() -> Golden:
    """The result of (policy, seed) on the bundled surge scenario."""
    loaded = scenario.load(EXAMPLE)

    @cache
    def result(policy: str, seed: int) -> Result:
        return run.run(loaded, policy, run.Options(seed=seed))

    return result
