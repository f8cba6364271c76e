"""Whole simulated runs, seed after seed: machines that break under every policy, fleets in which work makes room."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest
from fuzz_budget import seeds
from run_checks import FAULTS, POLICIES, busy_fleet, check_busy_fleet, check_faulty, faulty
from training_builders import exact, play

from tonnage.simulation import run

__all__ = ["exact"]


@pytest.mark.fuzz
def test_no_invariant_breaks_when_machines_do(tmp_path: Path) -> None:
    for seed in seeds():
        rng = Random(f"faulty/{seed}")
        times = [f"{rng.randint(60, 1080)}s" for _ in FAULTS]
        faults = [fault | {"at": at} for fault, at in zip(FAULTS, times, strict=True)]
        made = faulty(tmp_path, faults=faults)
        for policy in POLICIES:
            try:
                check_faulty(run.run(made, policy, run.RunOptions(seed=seed, check=True)))
            except Exception as error:
                raise AssertionError(f"seed {seed}, policy {policy}, faults at {times}: {error}") from error


@pytest.mark.fuzz
@pytest.mark.usefixtures("exact")
def test_in_a_busy_fleet_all_work_is_done_and_no_job_is_moved_again_and_again(tmp_path: Path) -> None:
    for seed in seeds():
        try:
            check_busy_fleet(play(busy_fleet(tmp_path, seed)))
        except Exception as error:
            raise AssertionError(f"seed {seed}: {error}") from error
