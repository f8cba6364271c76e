"""GPUs are partitioned, and repartitioned, on an API as in the simulated world."""

from __future__ import annotations

from pathlib import Path

import pytest

from deep_seeds import deep
from live.contract.cut import bought, example, layouts, short_day, under_faults
from live.contract.same import check_same
from live.contract.worlds import opened
from tonnage.facts.labels import MIG_CONFIG
from tonnage.fleet.invariants import violations
from tonnage.simulation.driver import LoopDriver

MORNING, BEGUN = 80, 35
"""Minutes of the short day: until its layouts have followed the evening's work, and while they do."""
MORE = [
    pytest.param(kind, minutes, marks=pytest.mark.fuzz) for kind, minutes in (("embedded", MORNING), ("http", BEGUN))
]


def changes(machine: LoopDriver) -> list[tuple[int, str, str]]:
    """What has become of layouts, and when."""
    told = ("RelayoutStarted", "InstanceDestroyed", "InstanceCreated", "RelayoutDone", "RelayoutRolledBack")
    rows = machine.cluster.events.rows.values()
    return [(row.t_ns, row.reason, row.message) for row in rows if row.reason in told]


@pytest.mark.parametrize(("kind", "minutes"), [("embedded", BEGUN), *MORE])
def test_layouts_follow_the_load_on_an_api_as_in_the_simulator(kind: str, minutes: int) -> None:
    simulated = short_day(minutes, None)
    assert sum(one.kind == "Relayout" for one in simulated.recorder.decisions) > 5
    with opened(kind) as transport:
        played = short_day(minutes, transport)
    check_same(simulated, played)
    assert changes(played) == changes(simulated)


def test_layouts_follow_when_the_manager_of_a_cluster_runs_the_loops() -> None:
    with opened("embedded") as transport:
        played = short_day(BEGUN, transport, by_manager=True)
    check_same(short_day(BEGUN, None), played)


@pytest.mark.parametrize("policy", ["mig", "mps", "time-sliced"])
def test_shared_gpus(policy: str) -> None:
    with opened("embedded") as transport:
        played = example("shared-gpus", policy, 15, transport)
    check_same(example("shared-gpus", policy, 15, None), played)


@pytest.mark.parametrize("operator", [False, True], ids=["config maps alone", "a ClusterPolicy names them"])
def test_a_node_pool_that_offers_cut_nodes(operator: bool, tmp_path: Path) -> None:
    simulated = bought(tmp_path, None, operator=operator)
    labels = {node.labels[MIG_CONFIG] for node in simulated.cluster.nodes.values()}
    assert labels == {"sevenths", "halves"} | (set() if operator else {"all-disabled"})
    with opened("embedded") as transport:
        check_same(simulated, bought(tmp_path, transport, operator=operator))


@pytest.mark.parametrize("seed", [1, *deep((2,))])
def test_layouts_come_to_rest_when_calls_fail_no_more(seed: int) -> None:
    with opened("embedded") as transport:
        assert transport is not None
        steps = under_faults(transport, seed, MORNING, 30)
        machines = steps.made.cluster
        assert not machines.gpus.relayouts
        for world in (steps.world, steps.restart()):
            snapshot = world.snapshot()
            assert layouts(snapshot.fleet) == layouts(machines.fleet)
            assert (snapshot.relayouts, violations(snapshot.fleet)) == ({}, [])
        assert steps.machines.errors == {}
        steps.close()
