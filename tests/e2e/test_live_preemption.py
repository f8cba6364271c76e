"""Examples with training on a real API server in real time, with the real Manager and simulated machines: gangs go
and come whole, also when the server is killed in the middle, and what finishes is what finishes in the simulator.

No kube-controller-manager runs there: all pods of training are the simulated operators'."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import sampling

from e2e.control_plane import UNTOUCHED, ControlPlane
from live.contract import in_time, shortened, training
from live.contract.same import played
from tonnage.hollow.up import UpSettings
from tonnage.kube.http import open_cluster
from tonnage.simulation.run import SetUp
from tonnage.units import NS_PER_S

HALF_S = 5.0
"""Real seconds in which pods of a gang may come or go one after the other, and in which what was bound while the API
server went away is seen and let go of."""
PATIENCE_S = 300.0


@pytest.fixture
def plane(start_plane: Any) -> Iterator[ControlPlane]:
    found: ControlPlane = start_plane(controllers=(), scheduler=False, admission_off=UNTOUCHED)
    yield found
    found.stop()


SCENARIOS: tuple[tuple[Callable[[Path], SetUp], float, str], ...] = (
    (training.rivals, 200.0, "Evict"),
    (shortened.training_cluster, 200.0, "Evict"),
    (shortened.mixed, 60.0, "Evict"),
    (shortened.mig_day_night, 60.0, "Relayout"),
)
"""Each with its speed, and the kind of decision in the middle of which the server is killed."""
BINDINGS = sampling.draw("after which binding the API server is killed").randint(10, 50)
CASES = [
    *((shorten, speed, kind, 1) for shorten, speed, kind in SCENARIOS),
    *((shorten, speed, "Bind", BINDINGS if shorten is not training.rivals else 9) for shorten, speed, _ in SCENARIOS),
]


@pytest.mark.parametrize(
    ("scenario", "speed", "kind", "times"),
    sampling.some("examples with training in real time", CASES, 2),
    ids=lambda value: value.__name__ if callable(value) else str(value),
)
def test_when_the_api_server_is_killed_in_the_middle_the_simulators_pods_finish(
    plane: ControlPlane, tmp_path: Path, scenario: Callable[[Path], SetUp], speed: float, kind: str, times: int
) -> None:
    simulated = played(scenario(tmp_path), shortened.END_S * NS_PER_S, None).cluster
    assert all(one.over and not one.failed for one in simulated.training.values())
    client = open_cluster(str(plane.kubeconfig()))
    settings = UpSettings(speed=speed, client=client, bare=True)
    killed = in_time.Disturbance(lambda: plane.restart("kube-apiserver"), kind, times)
    seen = in_time.played(scenario(tmp_path), settings, PATIENCE_S, killed)
    print(f"{seen.applied}, {seen.changes} changes of pods; bound in part, seconds at most: {seen.halves}")
    assert (seen.errors, seen.over, seen.disturbed, seen.in_part) == ([], True, True, set())
    assert seen.failed_for == {}
    assert seen.longest_s < HALF_S
    assert seen.finished == in_time.finished(simulated)
    assert (seen.unseen, seen.succeeded - in_time.bare(simulated) - seen.finished) == (set(), set())
    client.transport.close()
