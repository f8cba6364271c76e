"""Runs of the bundled surge scenario that several tests look at."""

from __future__ import annotations

import pytest
from sim_builders import EXAMPLE, Golden

import shared_runs
from tonnage.simulation.result import Result


@pytest.fixture(scope="session")
def golden() -> Golden:
    """The result of (policy, seed) on the bundled surge scenario."""

    def result(policy: str, seed: int) -> Result:
        return shared_runs.result(EXAMPLE.name, policy, seed=seed)

    return result
