"""The traffic surge on a real API server with simulated machines: what the simulator says is what happens."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import sampling
from e2e_controllers import USERS
from e2e_surge import CLAIMS, SEED, SURGE, Live, changed, running

from e2e.api import Json
from e2e.control_plane import UNTOUCHED
from e2e.processes import until
from tonnage.hollow.lockstep import play
from tonnage.kube.http import open_cluster
from tonnage.simulation import run, scenario
from tonnage.simulation.result import Result

SHORTER = {
    "duration: 90m": "duration: 30m",
    "start: [20m, 30m]": "start: [4m, 5m]",
    "duration: 30m\n        ramp": "duration: 12m\n        ramp",
    "factor: [4, 6]": "factor: [8, 8.2]",
}
"""The same surge in a third of the time, and so much larger that nodes must be launched whatever the moment."""
MORE_NODES = 8
"""How many more nodes than in the simulator may be launched. A second on the API server is twenty for the machines, and
the slo policy looks every fifteen of theirs: a moment later it sees other queues, and wants more or less. Between 3 and
6 nodes were seen where the simulator buys one."""

# ---- by the simulator's clock ----


def told(result: Result) -> Json:
    """A run's result without its events and the words for the end of a node: those are the cluster's own."""
    found: Json = msgspec.to_builtins(result)
    del found["events"]
    for node in found["nodes"]:
        node["end_reason"] = bool(node["end_reason"])
    return found


@pytest.mark.parametrize("seed", sampling.some("seeds of the surge in lockstep", range(1, 4), 1))
def test_by_the_simulators_clock_it_is_the_simulators_run_to_the_last_microdollar(
    start_plane: Any, seed: int, tmp_path: Path
) -> None:
    """The whole surge in a long run, otherwise the shorter one."""
    surge = scenario.load(SURGE) if sampling.LONG else changed(tmp_path / "scenario", SHORTER)
    options = run.RunOptions(seed=seed)
    simulated = told(run.run(surge, "slo", options))
    plane = start_plane(controllers=(), scheduler=False, admission_off=UNTOUCHED)
    made = run.set_up(surge, "slo", options)
    machine, steps = play(made, open_cluster(str(plane.kubeconfig())).transport)
    try:
        real = told(made.result(machine))
        stored = {
            f"{pod['metadata']['namespace']}/{pod['metadata']['name']}": pod["spec"].get("nodeName", "")
            for pod in plane.api().items("/api/v1/pods")
        }
    finally:
        steps.close()
    assert simulated["decision_counts"].keys() >= {"Bind", "Scale", "Launch", "Return"}
    for part in simulated:
        assert real[part] == simulated[part], part
    fleet = made.cluster.fleet
    assert stored == {
        f"{pod.spec.namespace}/{pod.spec.name}": fleet.node(pod.node).spec.name if pod.node >= 0 else ""
        for pod in fleet.pods
        if pod is not None
    }


# ---- in real time ----


@pytest.fixture(scope="module")
def surge_files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("surge") / "scenario"


@pytest.fixture(scope="module")
def expected(surge_files: Path) -> Result:
    """What the simulator says of the shortened surge."""
    return run.run(changed(surge_files, SHORTER), "slo", run.RunOptions(seed=SEED))


@pytest.fixture(scope="module")
def live(start_plane: Any, surge_files: Path, expected: Result) -> Iterator[Live]:
    with running(start_plane(scheduler=False, users=USERS), surge_files, scenario.load(surge_files)) as found:
        yield found


def test_in_running_time_separate_controllers_come_to_the_simulators_end(live: Live, expected: Result) -> None:
    base = [node.name for node in expected.nodes if not node.node_pool]
    bought = [node.name for node in expected.nodes if node.node_pool]
    assert bought, "the surge is meant to launch nodes"
    owners = expected.heatmap.owners
    final = Counter((row.node, owners[row.owner[-1]]) for row in expected.heatmap.rows if row.owner[-1] > 0)
    until("the first nodes", lambda: live.nodes() == base, 60)
    before = live.wanted()
    until("model A scales out", lambda: sum(live.wanted().values()) > sum(before.values()), 90, 0.2)
    until("a node is launched", lambda: len(live.nodes()) > len(base), 90, 0.2)
    until("pods serve on a launched node", lambda: {node for node, _ in live.placed()} - set(base), 90, 0.1)
    until("the nodes are returned", lambda: live.nodes() == base and not live.api.items(CLAIMS), 120, 0.2)
    until("the simulator's end", lambda: live.placed() == final, 30, 0.2)
    applied = {kind: live.controllers[name].decided(kind) for name, kind in (("nodes", "Launch"), ("nodes", "Return"))}
    assert len(applied["Launch"]) == len(applied["Return"])
    assert 1 <= len(applied["Launch"]) <= len(bought) + MORE_NODES
    binds = Counter(line["decision"]["pod"]["uid"] for line in live.controllers["scheduler"].decided("Bind"))
    assert set(binds.values()) == {1}


def test_all_processes_end_in_order_and_leave_no_machine_behind(live: Live) -> None:
    for process in live.controllers.values():
        assert process.complaints() == [], process.tail()
        assert process.end() == 0
    assert live.machines.end(30) == 0, live.machines.tail()
    assert live.nodes() == []
