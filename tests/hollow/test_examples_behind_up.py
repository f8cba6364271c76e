"""Every example runs behind `tonnage up` on the embedded API."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tonnage.cluster.client.verbs import Client
from tonnage.cluster.resources import JOBS, NODES, PODS
from tonnage.cluster.server.inprocess import InProcess
from tonnage.decisions import Decision, Outcome
from tonnage.fleet.invariants import violations
from tonnage.hollow.up import Settings, Up
from tonnage.simulation import run, scenario

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
SPEED = {"training-cluster": 3600.0}
"""Simulated seconds in a real one, where nothing happens in the first minutes."""
PATIENCE_S = 20.0


class Listener:
    """Implements Observer: remembers what went wrong."""

    def __init__(self) -> None:
        self.errors: list[str] = []

    def decided(self, controller: str, loop: str, decision: Decision, outcome: Outcome) -> None: ...
    def ticked(self, loop: str, seconds: float, taken: int) -> None: ...

    def failed(self, loop: str, error: Exception) -> None:
        self.errors.append(f"{loop}: {error}")


@pytest.mark.parametrize("name", sorted(folder.name for folder in EXAMPLES.iterdir() if folder.is_dir()))
def test_an_example_runs_behind_an_api(name: str) -> None:
    loaded = scenario.load(EXAMPLES / name)
    made = run.set_up(loaded, loaded.default_policy)
    listener = Listener()
    with Up(made, Settings(speed=SPEED.get(name, 60.0)), listener) as up:
        assert up.server is not None
        client = Client(InProcess(up.server.api))
        deadline = time.monotonic() + PATIENCE_S
        while up.state().pods_running == 0 and time.monotonic() < deadline:
            time.sleep(0.1)
        time.sleep(0.5)
        state = up.state()
        with up.lock:
            assert violations(made.cluster.fleet) == []
        running = [one for one in client.list(PODS) if one["status"].get("phase") == "Running"]
        assert (state.problems, state.nodes_ready > 0, len(running) > 0) == ({}, True, True)
        assert {one["metadata"]["name"] for one in client.list(NODES)} >= {one["spec"]["nodeName"] for one in running}
        if name == "training-cluster":
            owners = {owner["uid"] for one in running for owner in one["metadata"].get("ownerReferences", ())}
            assert owners & {one["metadata"]["uid"] for one in client.list(JOBS)}
    assert listener.errors == []
