"""Under faults of every kind the controllers come to rest where they should: nothing doubled, nothing lost.

A few seeds; `make fuzz` has the many."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from deep_seeds import deep
from live.contract import rest
from live.contract.processes import DRIZZLE, play, set_up
from live.contract.worlds import opened


@pytest.mark.fuzz
def test_controllers_that_fail_and_die_come_to_rest(tmp_path: Path) -> None:
    met: Counter[str] = Counter()
    for seed in range(2):
        with opened("embedded") as transport:
            assert transport is not None
            done = play(set_up(tmp_path, seed), transport, seed, late=seed % 2 == 1)
            done.steps.close()
            rest.check(done)
        met.update(fault.split()[0] for fault in done.faulty.made)
        met["died"] += done.process.started - 1
    assert {"conflict", "duplicate", "late", "unreachable"} <= met.keys(), "else there was no storm"
    assert met["died"] > 1, "which of them dies is a matter of timing, too"


@pytest.mark.fuzz
@pytest.mark.parametrize("seed", [100, *deep([101, 102])])
def test_machines_whose_calls_fail_too_come_to_rest(seed: int, tmp_path: Path) -> None:
    with opened("embedded") as transport:
        assert transport is not None
        done = play(set_up(tmp_path, seed), transport, seed, machines=DRIZZLE, late=seed % 2 == 1)
        done.steps.close()
        rest.check(done)
        assert done.steps.machines.errors == {}
