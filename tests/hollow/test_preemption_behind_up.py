"""In running time gangs are preempted whole, and what finishes is what finishes in the simulated world."""

from __future__ import annotations

from pathlib import Path

import pytest

from cluster.contract import in_time, training
from cluster.contract.same import played
from tonnage.hollow.up import Settings
from tonnage.simulation.cluster import SimulatedCluster
from tonnage.units import NS_PER_S

pytestmark = pytest.mark.e2e
SPEED = 600.0
"""Three hours in 18 seconds."""


def test_gangs_are_preempted_whole_and_the_simulators_pods_finish(tmp_path: Path) -> None:
    simulated = played(training.rivals(tmp_path), training.END_S * NS_PER_S, None)
    assert all(one.over and not one.failed for one in simulated.cluster.training.values())
    made = training.rivals(tmp_path)
    seen = in_time.played(made, Settings(speed=SPEED), 180)
    assert (seen.errors, seen.over) == ([], True)
    assert seen.applied["Evict"] >= 4
    assert seen.halves < 2, "seconds in which pods of a gang come or go one after the other"
    assert seen.succeeded == {name for one in simulated.cluster.training.values() for name in one.succeeded}


def test_the_workloads_of_the_training_cluster_finish_as_in_the_simulated_world(tmp_path: Path) -> None:
    simulated = played(training.cluster_in_short(tmp_path), 9 * 3600 * NS_PER_S, None)
    made = training.cluster_in_short(tmp_path)
    seen = in_time.played(made, Settings(speed=1200.0), 240)
    assert (seen.errors, seen.over) == ([], True)
    assert seen.applied["Evict"] > 5
    assert seen.halves < 2
    expected, found = finished(simulated.cluster), finished(made.cluster)
    assert found == expected
    assert seen.succeeded <= {name for names in found.values() for name in names} | BARE


def finished(cluster: SimulatedCluster) -> dict[str, set[str]]:
    """The pods that have done their work, of each workload but the bare pods: who evicts those ends them for good."""
    return {key: one.succeeded for key, one in cluster.training.items() if one.kind != "Pod" and not one.failed}


BARE = {f"protein-{number}" for number in range(4)}
