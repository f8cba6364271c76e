"""Controllers and machines over an API that fails, seed after seed."""

from __future__ import annotations

from pathlib import Path

import pytest
from fuzz_budget import seeds

from live.contract import rest
from live.contract.processes import DRIZZLE, play, set_up
from live.contract.worlds import opened


@pytest.mark.fuzz
def test_whatever_fails_nothing_is_doubled_and_nothing_lost(tmp_path: Path) -> None:
    for seed in seeds():
        with opened("embedded") as transport:
            assert transport is not None
            machines = DRIZZLE if seed % 3 else None
            done = play(set_up(tmp_path, seed), transport, seed, machines=machines, late=seed % 2 == 1)
            done.steps.close()
            try:
                rest.check(done)
            except AssertionError as error:
                raise AssertionError(f"seed {seed}: {error}") from error
