"""Churn with faults for half an hour: pods and nodes come and go, the API server and the scheduler are killed and
stopped. Nothing is lost, nothing is bound twice, and the scheduler's memory stays what it was."""

from __future__ import annotations

import random
import signal
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

import pytest
import sampling
from e2e_builders import GPU, node, pod_spec
from e2e_controllers import LEASES, Process, controller

from e2e.api import Json
from e2e.control_plane import ADMIN, API_SERVER, UNTOUCHED, ControlPlane
from e2e.processes import until

PODS = "/api/v1/namespaces/default/pods"
NODES = "/api/v1/nodes"
GPUS, NODE_COUNT = 8, 40
ROOM = 3 * GPUS * NODE_COUNT // 4
"""This many pods there are at most: they all fit, whichever nodes are away."""
ROUND_S = 2.0
FLAT = 1.15
"""Memory of the last third of a run beside that of the second, both medians."""


@pytest.fixture(scope="module")
def plane(start_plane: Any) -> ControlPlane:
    found: ControlPlane = start_plane(controllers=(), scheduler=False, admission_off=UNTOUCHED, audit=True)
    found.namespace(LEASES)
    return found


class Churn:
    """The cluster that a test changes, with what it has made and not deleted."""

    def __init__(self, plane: ControlPlane, chance: random.Random) -> None:
        self.plane, self.api, self.chance = plane, plane.api(), chance
        self.pods: set[str] = set()
        self.away: set[str] = set()
        self.made = 0
        self.api.each(lambda name: self.api.create(NODES, self.machine(name)), self.names())

    @staticmethod
    def names() -> list[str]:
        return [f"n-{number:02}" for number in range(NODE_COUNT)]

    @staticmethod
    def machine(name: str) -> Json:
        return node(name, {"cpu": "64", "memory": "256Gi", "pods": "50", GPU: str(GPUS)})

    def step(self) -> None:
        """Some pods end, others come; now and then a node goes with its pods, or comes back."""
        gone = self.chance.sample(sorted(self.pods), min(len(self.pods), self.chance.randrange(10)))
        self.api.each(lambda name: self.api.delete(f"{PODS}/{name}"), gone)
        self.pods.difference_update(gone)
        fresh = [
            f"p-{self.made + number:05}" for number in range(self.chance.randrange(min(20, ROOM - len(self.pods))))
        ]
        self.made += len(fresh)
        spec = pod_spec(gpus=1, schedulerName="tonnage")
        self.api.each(lambda name: self.api.create(PODS, {"metadata": {"name": name}, "spec": spec}), fresh)
        self.pods.update(fresh)
        if self.away and self.chance.random() < 0.3:
            back = self.away.pop()
            self.api.create(NODES, self.machine(back))
        elif len(self.away) < NODE_COUNT // 5 and self.chance.random() < 0.2:
            name = self.chance.choice(sorted(set(self.names()) - self.away))
            self.api.delete(f"{NODES}/{name}")
            self.away.add(name)
            lost = [p["metadata"]["name"] for p in self.api.items(PODS) if p["spec"].get("nodeName") == name]
            self.api.each(lambda one: self.api.delete(f"{PODS}/{one}"), lost)
            self.pods.difference_update(lost)

    def unplaced(self) -> set[str]:
        """Pods that stand on no node."""
        return {p["metadata"]["name"] for p in self.api.items(PODS) if not p["spec"].get("nodeName")}


@pytest.fixture
def running() -> Iterator[list[Process]]:
    processes: list[Process] = []
    yield processes
    for process in processes:
        process.stop(signal.SIGKILL)


def begin(plane: ControlPlane, running: list[Process]) -> Process:
    process = controller(plane, "scheduler", user=ADMIN, more=("--no-leader-elect",))
    running.append(process)
    process.start()
    return process


def resident_mib(process: Process) -> float:
    assert process.process is not None
    lines = Path(f"/proc/{process.process.pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmRSS"))


def trouble(plane: ControlPlane, process: Process, chance: random.Random) -> None:
    """One fault that the same process has to outlive."""
    assert process.process is not None
    if chance.random() < 0.5:
        server = plane.programs[API_SERVER]
        server.stop(signal.SIGKILL)
        time.sleep(chance.uniform(0, 3))
        server.start()
    else:
        process.process.send_signal(signal.SIGSTOP)
        time.sleep(chance.uniform(1, 6))
        process.process.send_signal(signal.SIGCONT)


def test_half_an_hour_of_churn_with_faults_loses_nothing(plane: ControlPlane, running: list[Process]) -> None:
    minutes = sampling.often("minutes of churn with faults", 30, 1)
    chance = sampling.draw("churn")
    churn = Churn(plane, chance)
    process = begin(plane, running)
    begun, ends, memory = time.monotonic(), time.monotonic() + 60.0 * minutes, list[tuple[float, float]]()
    next_fault, killed = begun + 10.0, 0
    while (now := time.monotonic()) < ends:
        churn.step()
        if now >= next_fault:
            if now - begun < 20.0 * minutes and killed < 1 + minutes // 5:  # its memory is looked at after that
                process.stop(signal.SIGKILL)
                process = begin(plane, running)
                killed += 1
            else:
                trouble(plane, process, chance)
            next_fault = time.monotonic() + chance.uniform(10, 30)
        memory.append((now - begun, resident_mib(process)))
        time.sleep(ROUND_S)
    until("all that fits is placed", lambda: not churn.unplaced(), 60, 0.5)

    pods = churn.api.items(PODS)
    assert {p["metadata"]["name"] for p in pods} == churn.pods
    held = Counter(p["spec"]["nodeName"] for p in pods)
    assert all(count <= GPUS for count in held.values()), held
    calls = [one for one in plane.audit() if one.get("objectRef", {}).get("subresource") == "binding"]
    bound = Counter(one["objectRef"]["name"] for one in calls if one["responseStatus"]["code"] == 201)
    assert max(bound.values()) == 1, "no name is used twice, so none is bound twice"
    length = 60.0 * minutes
    second = median(mib for at, mib in memory if length / 3 <= at < 2 * length / 3)
    last = median(mib for at, mib in memory if at >= 2 * length / 3)
    assert last <= FLAT * second, (second, last)
    assert process.end() == 0
