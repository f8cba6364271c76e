"""Waves, zone outages and stock-outs; requests that migrate; nodes that are replaced before their notice."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from sim_builders import (
    POOL,
    READINESS,
    SOLD,
    arrivals,
    events,
    node,
    run_until,
    scheduled,
    service,
    variant,
    workload,
    world,
)

from tonnage.errors import InputError
from tonnage.machines.cluster import SimulatedCluster
from tonnage.machines.serving.service import DONE, FAILED
from tonnage.simulation.faults import schedule_faults
from tonnage.simulation.scenario import FaultSpec
from tonnage.units import NS_PER_S


def strike(cluster: SimulatedCluster, kind: str, **more: Any) -> None:
    schedule_faults([FaultSpec(kind=kind, at="1000s", **more)], cluster, SOLD)


def spot_nodes(count: int, seed: int = 0) -> SimulatedCluster:
    cluster = world(seed=seed)
    for number in range(count):
        node(cluster, f"n{number}", node_pool=POOL, capacity_type="spot")
    return cluster


# ---- waves, zones, stock ----


@pytest.mark.parametrize(
    ("count", "share", "struck"), [(6, None, 3), (5, 0.5, 3), (8, 0.25, 2), (4, 1.0, 4), (1, 0.5, 1), (4, 0.0, 0)]
)
def test_a_wave_takes_its_share_of_the_nodes_within_its_time(count: int, share: float | None, struck: int) -> None:
    cluster = spot_nodes(count)
    strike(cluster, "spot-wave", share=share, within="30s")
    run_until(cluster, 1031)
    assert len(events(cluster, "SpotInterrupted")) == struck
    run_until(cluster, 1200)
    ended = [one.ended_ns for one in cluster.nodes.values() if one.ended_ns is not None]
    assert len(ended) == struck
    assert all(1120 * NS_PER_S <= at <= 1150 * NS_PER_S for at in ended)


def test_seeds_draw_different_nodes_and_one_seed_the_same() -> None:
    found = []
    for seed in (1, 1, 2, 3):
        cluster = spot_nodes(8, seed)
        strike(cluster, "spot-wave")
        run_until(cluster, 1200)
        found.append({one.name for one in cluster.nodes.values() if one.ended_ns is not None})
    assert found[0] == found[1]
    assert len({frozenset(one) for one in found}) > 1


def test_some_of_a_wave_are_recommended_for_a_rebalance_before_their_notice() -> None:
    cluster = spot_nodes(8)
    strike(cluster, "spot-wave", rebalance=0.5, lead="3m")
    run_until(cluster, 881)
    assert events(cluster, "SpotInterrupted") == []
    run_until(cluster, 1061)
    assert len(events(cluster, "SpotRebalanceRecommendation")) == 2
    assert len(events(cluster, "SpotInterrupted")) == 4
    assert all(not cluster.fleet.node(row).taints for row in cluster.fleet.node_rows())  # Karpenter does nothing


@pytest.mark.parametrize("lead", ["5m", "1001s", "1h"])
def test_a_wave_comes_at_its_time_however_long_before_it_nodes_are_recommended(lead: str) -> None:
    cluster = spot_nodes(4)
    strike(cluster, "spot-wave", share=1.0, rebalance=1.0, lead=lead, within="0s")
    run_until(cluster, 999)
    assert len(events(cluster, "SpotRebalanceRecommendation")) == 4
    assert events(cluster, "SpotInterrupted") == []
    run_until(cluster, 1001)
    assert len(events(cluster, "SpotInterrupted")) == 4


def test_after_a_wave_that_type_is_not_sold_on_spot_in_that_zone() -> None:
    cluster = spot_nodes(4)
    strike(cluster, "spot-wave", duration="5m")
    run_until(cluster, 1001)
    gone = {one for one, until in cluster.cloud.out_of_stock.items() if until == 1300 * NS_PER_S}
    assert gone == {("g6e.12xlarge", "us-east-1a", "spot")}


def test_an_interruption_makes_the_type_unavailable_on_spot_for_plans() -> None:
    cluster = spot_nodes(1)
    strike(cluster, "spot-interruption")
    run_until(cluster, 1001)
    assert ("g6e.12xlarge", "us-east-1a", "spot") in cluster.snapshot().unavailable


def test_a_zone_outage_takes_all_its_nodes_and_sells_nothing() -> None:
    cluster = world()
    node(cluster, "mine")
    node(cluster, "theirs", node_pool=POOL, capacity_type="spot")
    strike(cluster, "zone-outage", zone="us-east-1a")
    run_until(cluster, 1001)
    assert {one.end_reason for one in cluster.nodes.values()} == {"zone outage"}
    assert set(cluster.cloud.out_of_stock) == {one for one in SOLD if one[1] == "us-east-1a"}


@pytest.mark.parametrize(
    ("more", "held"),
    [
        ({}, {one for one in SOLD if one[0] == "g6e.2xlarge"}),
        ({"capacity_type": "spot"}, {one for one in SOLD if one[0] == "g6e.2xlarge" and one[2] == "spot"}),
        ({"zone": "us-east-1b"}, {one for one in SOLD if one[:2] == ("g6e.2xlarge", "us-east-1b")}),
    ],
)
def test_a_stock_out_may_be_of_one_zone_or_capacity_type(more: dict[str, str], held: set[object]) -> None:
    cluster = world()
    strike(cluster, "out-of-stock", instance_type="g6e.2xlarge", **more)
    run_until(cluster, 1001)
    assert held
    assert set(cluster.cloud.out_of_stock) == held


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        (
            {"kind": "spot-interruption", "at": "12h"},
            r'faults\[0\].at: "12h" is not before the end of the run, .*: it would never come',
        ),
        ({"kind": "zone-outage"}, r"faults\[0\].zone: zone-outage needs a zone"),
        ({"kind": "spot-wave", "share": 1.5}, r"faults\[0\].share: 1.5, expected a share from 0 to 1"),
        ({"kind": "node-failure", "share": 0.5}, r"faults\[0\].share: only a spot-wave has it"),
        ({"kind": "spot-wave", "within": "soon"}, r'faults\[0\].within: "soon" is not a duration'),
        ({"kind": "spot-wave", "capacityType": "spot"}, r"faults\[0\].capacityType: only an out-of-stock has it"),
    ],
)
def test_faults_that_cannot_be_are_refused_at_their_field(tmp_path: Path, fault: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        variant(tmp_path, faults=[{"at": "1m", **fault}])


# ---- requests that migrate ----


def serving(*times: float, output: int, migration: bool, replicas: int = 2, shutdown_s: int = 0) -> tuple[Any, Any]:
    cluster = world(start_s=0)
    made = workload(cluster, replicas=replicas, container=READINESS, shutdown_s=shutdown_s)
    found = service(cluster, made, arrivals(*times, output=output))
    found.migration = migration
    for name in ("n1", "n2")[:replicas]:
        node(cluster, name, "g6e.2xlarge", node_pool=POOL, capacity_type="spot")
    return scheduled(cluster), found


@pytest.mark.parametrize(("migration", "status"), [(False, {DONE, FAILED}), (True, {DONE})])
def test_requests_of_a_lost_node_go_on_at_another_pod(migration: bool, status: set[int]) -> None:
    machine, found = serving(999.0, 999.1, 999.2, 999.3, output=1000, migration=migration)
    strike(machine.cluster, "node-failure")
    machine.play(1100 * NS_PER_S, None)
    assert set(found.requests.status) == status
    assert machine.violations == []


def test_a_migrated_request_keeps_its_first_token_and_generates_the_rest_alone() -> None:
    machine, found = serving(990.0, 990.1, output=2000, migration=True)
    machine.play(999 * NS_PER_S, None)
    first = list(found.requests.first_ns)
    strike(machine.cluster, "node-failure")
    machine.play(1100 * NS_PER_S, None)
    assert list(found.requests.first_ns) == first
    ends = [at / NS_PER_S for at in found.requests.finish_ns]
    assert max(ends) == pytest.approx(1010.1, abs=0.2)  # 2,000 steps of 10 ms, and the prompt once more


def test_requests_wait_at_the_gateway_while_no_pod_is_ready_and_each_ends_once() -> None:
    machine, found = serving(999.0, 1010.0, 1020.0, output=500, migration=True, replicas=1)
    strike(machine.cluster, "node-failure")
    machine.play(1030 * NS_PER_S, None)
    assert found.in_flight == 3
    node(machine.cluster, "n9", "g6e.2xlarge", node_pool=POOL)
    machine.play(2500 * NS_PER_S, None)
    assert list(found.requests.status) == [DONE] * 3
    assert found.failed == 0
    assert found.in_flight == 0


def test_a_client_that_goes_away_leaves_the_gateway() -> None:
    machine, found = serving(999.0, output=500, migration=True, replicas=1)
    strike(machine.cluster, "node-failure")
    machine.play(1010 * NS_PER_S, None)
    found.abort(0, machine.cluster.now_ns)
    assert (found.in_flight, list(found.requests.status)) == (0, [FAILED])


@pytest.mark.parametrize(
    ("more", "said"),
    [({"balancing": "random"}, "kube-proxy knows no requests"), ({"balancing": "round-robin"}, "")],
)
def test_requests_migrate_behind_a_gateway_alone(tmp_path: Path, more: dict[str, Any], said: str) -> None:
    traffic = [{"service": "inference/model-a", "profile": "traffic/azure-2023-conv.yaml", "migration": True, **more}]
    if not said:
        assert variant(tmp_path, traffic=traffic).traffic[0].spec.migration
        return
    with pytest.raises(InputError, match=said):
        variant(tmp_path, traffic=traffic)
