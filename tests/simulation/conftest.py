"""Runs of the bundled surge scenario that several tests look at."""

from __future__ import annotations

import pytest
from sim_builders import EXAMPLE, SHORT_RUN, Golden

import shared_runs
from tonnage.simulation.result import Result


@pytest.fixture(scope="session")
def golden() -> Golden:
    """The result of (policy, seed) on the bundled surge scenario, or of (policy, SHORT_RUN) on its variant."""

    def result(policy: str, which: int | str) -> Result:
        if which == SHORT_RUN:
            return shared_runs.short_surge(policy)
        return shared_runs.result(EXAMPLE.name, policy, seed=int(which))

    return result
