"""In running time gangs are preempted whole, and what finishes is what finishes in the simulated world."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from live.contract import in_time, shortened, training
from live.contract.same import played
from tonnage.hollow.up import UpSettings
from tonnage.simulation.run import SetUp
from tonnage.units import NS_PER_S

pytestmark = pytest.mark.e2e
SPEED = 600.0
"""Three hours in 18 seconds."""


def test_gangs_are_preempted_whole_and_the_simulators_pods_finish(tmp_path: Path) -> None:
    simulated = played(training.rivals(tmp_path), training.END_S * NS_PER_S, None)
    assert all(one.over and not one.failed for one in simulated.cluster.training.values())
    made = training.rivals(tmp_path)
    seen = in_time.played(made, UpSettings(speed=SPEED), 180)
    assert (seen.errors, seen.over, seen.in_part) == ([], True, set())
    assert seen.applied["Evict"] >= 4
    assert seen.longest_s < 2, "seconds in which pods of a gang come or go one after the other"
    assert seen.finished == in_time.finished(simulated.cluster)
    assert (seen.unseen, seen.succeeded - seen.finished) == (set(), set())


@pytest.mark.parametrize(
    ("shorten", "speed", "kind", "least"),
    [
        (shortened.training_cluster, 600.0, "Evict", 6),
        (shortened.mixed, 150.0, "Evict", 2),
        (shortened.mig_day_night, 150.0, "Relayout", 5),
    ],
)
def test_the_workloads_of_an_example_finish_as_in_the_simulated_world(
    tmp_path: Path, shorten: Callable[[Path], SetUp], speed: float, kind: str, least: int
) -> None:
    simulated = played(shorten(tmp_path), shortened.END_S * NS_PER_S, None).cluster
    assert all(one.over and not one.failed for one in simulated.training.values())
    made = shorten(tmp_path)
    seen = in_time.played(made, UpSettings(speed=speed), 240)
    assert (seen.errors, seen.over, seen.in_part) == ([], True, set())
    assert seen.applied[kind] >= least
    assert seen.longest_s < 2
    assert seen.finished == in_time.finished(simulated)
    assert (seen.unseen, seen.succeeded - in_time.bare(simulated) - seen.finished) == (set(), set())
