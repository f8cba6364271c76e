"""Every example runs behind `tonnage up` on the embedded API."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import sampling

from deep_seeds import part
from tonnage.apiserver.inprocess import InProcess
from tonnage.decisions import Decision, Outcome
from tonnage.fleet.invariants import violations
from tonnage.hollow.up import Up, UpSettings
from tonnage.kube.resources import JOBS, NODES, PODS
from tonnage.kube.verbs import Client
from tonnage.machines.cluster import SimulatedCluster
from tonnage.machines.training.part import PartState
from tonnage.simulation import run, scenario

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
NAMES = sorted(folder.name for folder in EXAMPLES.iterdir() if folder.is_dir())
SPEED = {"training-cluster": 3600.0, "shared-gpus": 240.0}
"""Simulated seconds in a real one, where nothing happens in the first minutes."""
PATIENCE_S = 20.0
HELD_S = 2.0
"""Real seconds for which pods of a gang may stand without the others: their bindings are on their way."""


class Listener:
    """Implements Observer: remembers what went wrong."""

    def __init__(self) -> None:
        self.errors: list[str] = []

    def decided(self, controller: str, loop: str, decision: Decision, outcome: Outcome) -> None: ...
    def ticked(self, loop: str, seconds: float, taken: int) -> None: ...

    def failed(self, loop: str, error: Exception) -> None:
        self.errors.append(f"{loop}: {error}")


def in_part(cluster: SimulatedCluster) -> set[str]:
    """The gangs of which some pods are bound and others have never been."""
    parts = [part for training in cluster.training.values() for part in training.parts if part.gang is not None]
    return {part.name for part in parts if part.state is PartState.WAITING and part.staying and not part.was_whole}


def stay_in_part(up: Up) -> set[str]:
    """The gangs that are partially bound, and stay so."""
    with up.lock:
        found = in_part(up.made.cluster)
    deadline = time.monotonic() + HELD_S
    while found and time.monotonic() < deadline:
        time.sleep(0.05)
        with up.lock:
            found &= in_part(up.made.cluster)
    return found


@pytest.mark.parametrize("name", part(NAMES))
def test_an_example_runs_behind_an_api(name: str) -> None:
    loaded = scenario.load(EXAMPLES / name)
    made = run.set_up(loaded, loaded.default_policy)
    listener = Listener()
    with Up(made, UpSettings(speed=SPEED.get(name, 60.0)), listener) as up:
        assert up.server is not None
        client = Client(InProcess(up.server.api))
        deadline = time.monotonic() + PATIENCE_S
        while up.state().pods_running == 0 and time.monotonic() < deadline:
            time.sleep(0.1)
        time.sleep(0.5)
        state = up.state()
        assert stay_in_part(up) == set()
        with up.lock:
            assert violations(made.cluster.fleet) == []
        running = [one for one in client.list(PODS) if one["status"].get("phase") == "Running"]
        assert (state.problems, state.nodes_ready > 0, len(running) > 0) == ({}, True, True)
        assert {one["metadata"]["name"] for one in client.list(NODES)} >= {one["spec"]["nodeName"] for one in running}
        if name == "training-cluster":
            owners = {owner["uid"] for one in running for owner in one["metadata"].get("ownerReferences", ())}
            assert owners & {one["metadata"]["uid"] for one in client.list(JOBS)}
    assert listener.errors == []


@pytest.mark.parametrize("name", NAMES)
def test_pods_behind_the_embedded_api_are_placed_as_in_a_simulation(name: str) -> None:
    """But that they wait for a group of an API which is not there."""
    loaded = scenario.load(EXAMPLES / name)
    for policy in loaded.spec.policies:
        made = run.set_up(loaded, policy)
        assert Up(made, UpSettings(), Listener()).placing() == replace(made.placing(), strict=True)


@pytest.mark.e2e
@pytest.mark.parametrize(
    ("name", "speed", "least"),
    sampling.some(
        "examples in real time",
        [("training-cluster", 3600.0, 10), ("mixed", 600.0, 3), ("mig-day-night", 3600.0, 5)],
        1,
    ),
)
def test_training_work_of_an_example_comes_to_its_end_behind_an_api(name: str, speed: float, least: int) -> None:
    loaded = scenario.load(EXAMPLES / name)
    made = run.set_up(loaded, loaded.default_policy)
    listener = Listener()
    with Up(made, UpSettings(speed=speed), listener) as up:
        assert up.server is not None
        client = Client(InProcess(up.server.api))
        deadline = time.monotonic() + 3 * PATIENCE_S
        done: list[str] = []
        while len(done) < least and time.monotonic() < deadline:
            time.sleep(0.2)
            done = [one["metadata"]["name"] for one in client.list(JOBS) if is_complete(one)]
        assert len(done) >= least
        assert stay_in_part(up) == set()
        with up.lock:
            over = {one.key.rpartition("/")[2]: one.failed for one in made.cluster.training.values() if one.over}
            assert violations(made.cluster.fleet) == []
        assert {name: over[name] for name in done} == dict.fromkeys(done, False)
        phases = {one["metadata"]["name"]: one["status"]["phase"] for one in client.list(PODS)}
        left = [f"{name}-0" for name in done if f"{name}-0" in phases]  # those of terminated nodes are gone with them
        assert {phases[name] for name in left} == {"Succeeded"}
        assert up.state().problems == {}
    assert listener.errors == []


def is_complete(job: dict[str, Any]) -> bool:
    """Whether the Job's status says that all of its work is done."""
    return any((c["type"], c["status"]) == ("Complete", "True") for c in job["status"].get("conditions", ()))
