"""What breaks: spot interruptions, lost machines, instance types out of stock."""

from __future__ import annotations

from itertools import pairwise
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
    pods_on,
    run_until,
    scheduled,
    service,
    variant,
    workload,
    world,
)

from tonnage.machines.cluster import SimulatedCluster
from tonnage.machines.objects import Workload
from tonnage.machines.serving.service import DONE, FAILED
from tonnage.simulation import run
from tonnage.simulation.driver import LoopDriver
from tonnage.simulation.faults import schedule_faults
from tonnage.simulation.result import Result
from tonnage.simulation.scenario import FaultSpec
from tonnage.units import NS_PER_S

ALL_OF_12XLARGE = {offering for offering in SOLD if offering[0] == "g6e.12xlarge"}


def _packed(*names: str, replicas: int = 2, **more: Any) -> tuple[LoopDriver, Workload]:
    """A workload that serves at 1000 s, packed on the first of these spot nodes (4 GPUs each)."""
    cluster = world(start_s=0)
    made = workload(cluster, replicas=replicas, **{"container": READINESS} | more)
    for name in names:
        node(cluster, name, node_pool=POOL, capacity_type="spot")
    machine = scheduled(cluster)
    machine.play(1000 * NS_PER_S, None)
    assert len(pods_on(cluster, names[0])) == replicas
    return machine, made


def _strike(cluster: SimulatedCluster, kind: str, **more: Any) -> None:
    schedule_faults([FaultSpec(kind=kind, at="1000s", **more)], cluster, SOLD)


# ---- spot interruptions ----


def test_a_spot_notice_cordons_the_node_and_its_pods_move_at_once() -> None:
    machine, made = _packed("n1", "n2")
    cluster, before = machine.cluster, {pod.name for pod in made.active}
    _strike(cluster, "spot-interruption")
    machine.play(1001 * NS_PER_S, None)
    assert not cluster.fleet.schedulable[cluster.fleet.node_by_name["n1"]]
    assert events(cluster, "SpotInterrupted")
    assert [pod.node for pod in made.active] == ["n2", "n2"]
    assert before.isdisjoint(pod.name for pod in made.active)


def test_a_spot_node_is_gone_two_minutes_after_the_notice() -> None:
    machine, _ = _packed("n1", "n2")
    cluster = machine.cluster
    _strike(cluster, "spot-interruption")
    machine.play(1119 * NS_PER_S, None)
    assert cluster.nodes["n1"].ended_ns is None
    machine.play(1120 * NS_PER_S, None)
    assert cluster.nodes["n1"].ended_ns == 1120 * NS_PER_S
    assert cluster.nodes["n1"].end_reason == "spot interruption"
    assert cluster.nodes["n2"].ended_ns is None
    assert machine.violations == []


def test_a_request_that_ends_within_the_drain_is_served() -> None:
    cluster = world(start_s=0)
    made = workload(cluster, container=READINESS, shutdown_s=90, terminationGracePeriodSeconds=100)
    service(cluster, made, arrivals(999.9, output=4000))
    node(cluster, "n1", node_pool=POOL, capacity_type="spot")
    machine = scheduled(cluster)
    machine.play(1000 * NS_PER_S, None)
    _strike(cluster, "spot-interruption")
    machine.play(1200 * NS_PER_S, None)
    assert made.service is not None and list(made.service.requests.status) == [DONE]


def test_what_drains_longer_than_the_notice_is_lost_with_the_node() -> None:
    slow = READINESS | {"lifecycle": {"preStop": {"exec": {"command": ["sleep", "600"]}}}}
    machine, made = _packed("n1", replicas=1, container=slow, terminationGracePeriodSeconds=900)
    (old,) = made.active
    _strike(machine.cluster, "spot-interruption")
    machine.play(1119 * NS_PER_S, None)
    assert old.name in made.pods
    machine.play(1120 * NS_PER_S, None)
    assert old.name not in made.pods
    assert machine.violations == []


def test_only_spot_nodes_are_interrupted() -> None:
    cluster = world()
    node(cluster, "a-regular")
    node(cluster, "z-spot", node_pool=POOL, capacity_type="spot")
    _strike(cluster, "spot-interruption", count=5)
    run_until(cluster, 1200)
    assert {n.name for n in cluster.nodes.values() if n.ended_ns is not None} == {"z-spot"}


# ---- lost machines ----


def test_a_lost_machine_takes_its_requests_and_its_pods_are_made_again() -> None:
    cluster = world(start_s=0)
    made = workload(cluster, replicas=2, container=READINESS)
    service(cluster, made, arrivals(999.9, 999.95, output=1000))
    node(cluster, "n1", node_pool=POOL)
    node(cluster, "n2", node_pool=POOL)
    machine = scheduled(cluster)
    machine.play(1000 * NS_PER_S, None)
    before = {pod.name for pod in made.active}
    _strike(cluster, "node-failure")
    machine.play(2000 * NS_PER_S, None)
    assert made.service is not None
    assert list(made.service.requests.status) == [FAILED, FAILED]
    assert cluster.nodes["n1"].ended_ns == 1000 * NS_PER_S
    assert cluster.nodes["n1"].end_reason == "node failure"
    assert {pod.node for pod in made.active} == {"n2"}
    assert all(pod.ready_ns is not None for pod in made.active)
    assert before.isdisjoint(pod.name for pod in made.active)
    assert machine.violations == []


@pytest.mark.parametrize(
    ("fault", "struck"),
    [
        ({}, {"a"}),
        ({"count": 2}, {"a", "b"}),
        ({"count": 9}, {"a", "b", "c"}),
        ({"node_pool": POOL}, {"b"}),
        ({"instance_type": "g6e.2xlarge"}, {"c"}),
        ({"node_pool": POOL, "instance_type": "g6e.2xlarge"}, set()),
    ],
)
def test_a_fault_strikes_the_nodes_that_it_names_in_order(fault: dict[str, Any], struck: set[str]) -> None:
    cluster = world()
    node(cluster, "c", "g6e.2xlarge")
    node(cluster, "b", node_pool=POOL)
    node(cluster, "a")
    _strike(cluster, "node-failure", **fault)
    run_until(cluster, 1000)
    assert {n.name for n in cluster.nodes.values() if n.ended_ns is not None} == struck
    assert events(cluster, "FaultHitNothing") == ([] if struck else ["node-failure: no such node"])


# ---- out of stock ----


def test_a_type_out_of_stock_is_so_in_every_zone_and_only_for_its_duration() -> None:
    cluster = world()
    schedule_faults(
        [
            FaultSpec(kind="out-of-stock", at="10s", instance_type="g6e.12xlarge", duration="60s"),
            FaultSpec(kind="out-of-stock", at="30s", instance_type="g6e.12xlarge", duration="10s"),
        ],
        cluster,
        SOLD,
    )
    run_until(cluster, 40)
    assert set(cluster.cloud.out_of_stock) == ALL_OF_12XLARGE
    assert set(cluster.cloud.out_of_stock.values()) == {70 * NS_PER_S}, "a shorter one does not end a longer one"


OUT = {"kind": "out-of-stock", "at": "1m", "duration": "20m"}


@pytest.fixture(scope="module")
def one_type_left(tmp_path_factory: pytest.TempPathFactory) -> Result:
    scenario = variant(
        tmp_path_factory.mktemp("one-type"), duration="15m", faults=[OUT | {"instanceType": "g6e.12xlarge"}]
    )
    return run.run(scenario, "corrected", run.RunOptions(seed=1))


def test_a_launch_without_capacity_is_refused_and_another_type_is_bought(one_type_left: Result) -> None:
    launches = [d for d in one_type_left.decisions if d.kind == "Launch"]
    refused = [d for d in launches if d.outcome.startswith("Refused: InsufficientInstanceCapacity")]
    assert refused and all("g6e.12xlarge" in d.summary for d in refused)
    bought = [n for n in one_type_left.nodes if n.node_pool]
    assert bought and {n.instance_type for n in bought} == {"g6e.2xlarge"}
    assert {d.outcome for d in launches} == {"Applied", *(d.outcome for d in refused)}


def test_a_zone_that_had_none_is_not_asked_again_at_once(one_type_left: Result) -> None:
    asked: dict[str, list[float]] = {}
    for decision in one_type_left.decisions:
        if decision.outcome.startswith("Refused"):
            asked.setdefault(decision.outcome, []).append(decision.t_s)
    for times in asked.values():
        rounds = sorted(set(times))
        assert all(later - earlier >= 180 for earlier, later in pairwise(rounds))


def test_with_nothing_left_to_buy_the_pods_wait(tmp_path: Path) -> None:
    faults = [OUT | {"instanceType": name} for name in ("g6e.12xlarge", "g6e.2xlarge")]
    result = run.run(variant(tmp_path, duration="12m", faults=faults), "corrected", run.RunOptions(seed=1, check=True))
    assert [n for n in result.nodes if n.node_pool] == []
    assert max(result.series.services[0].replicas_pending) > 0
    assert "InsufficientInstanceCapacity" in {e.reason for e in result.events}
    assert result.check.violations == []


# ---- GPUs that fail ----


def test_a_failed_gpu_takes_its_pod_and_its_place_until_it_is_reset() -> None:
    machine, made = _packed("spot-1", replicas=4)
    cluster = machine.cluster
    before = {pod.name for pod in made.active}
    _strike(cluster, "gpu-failure", duration="300s")
    machine.play(1100 * NS_PER_S, None)
    row = cluster.fleet.node_by_name["spot-1"]
    assert cluster.fleet.allocatable_of(row)["nvidia.com/gpu"] == 3
    assert events(cluster, "GPUUnhealthy") == ["Xid 79: GPU has fallen off the bus"]
    (lost,) = before - {pod.name for pod in made.active}
    assert lost not in made.pods
    (waiting,) = [pod for pod in made.active if pod.bound_ns is None]
    machine.play(1400 * NS_PER_S, None)
    assert cluster.fleet.allocatable_of(row)["nvidia.com/gpu"] == 4
    assert waiting.node == "spot-1"
    assert machine.violations == []


def test_a_gpu_failure_hits_only_nodes_that_have_gpus() -> None:
    cluster = world()
    node(cluster, "plain", "m7i.2xlarge")
    _strike(cluster, "gpu-failure")
    run_until(cluster, 1001)
    assert events(cluster, "FaultHitNothing") == ["gpu-failure: no such node"]


@pytest.mark.parametrize("xid", [48, 119, 145])
def test_a_faulted_gpu_is_offered_until_its_fault_is_noticed(xid: int) -> None:
    machine, made = _packed("spot-1", replicas=4)
    cluster, before = machine.cluster, {pod.name for pod in made.active}
    _strike(cluster, "gpu-failure", duration="300s", detection="8s", xid=xid)
    row = cluster.fleet.node_by_name["spot-1"]
    machine.play(1007 * NS_PER_S, None)
    assert cluster.fleet.allocatable_of(row)["nvidia.com/gpu"] == 4
    assert {pod.name for pod in made.active} == before
    machine.play(1008 * NS_PER_S, None)
    assert not cluster.nodes["spot-1"].health.healthy("GPU-spot-1-3"), "the statuses of its pods say so"
    assert {pod.name for pod in made.active} == before
    machine.play(1009 * NS_PER_S, None)
    assert cluster.fleet.allocatable_of(row)["nvidia.com/gpu"] == 3
    assert len(before - {pod.name for pod in made.active}) == 1, "only the pods on the GPU"
    machine.play(1300 * NS_PER_S, None)
    assert cluster.fleet.allocatable_of(row)["nvidia.com/gpu"] == 4
    assert cluster.nodes["spot-1"].health.healthy("GPU-spot-1-3")


@pytest.mark.parametrize(("xid", "restarts"), [(63, 0), (94, 1), (13, 1), (43, 0)])
def test_an_xid_that_is_no_fault_of_the_gpu_takes_no_gpu_away(xid: int, restarts: int) -> None:
    machine, made = _packed("spot-1", replicas=4)
    cluster, before = machine.cluster, {pod.name for pod in made.active}
    _strike(cluster, "gpu-failure", xid=xid)
    machine.play(1100 * NS_PER_S, None)
    assert cluster.fleet.allocatable_of(cluster.fleet.node_by_name["spot-1"])["nvidia.com/gpu"] == 4
    assert {pod.name for pod in made.active} == before
    assert sum(pod.crashes for pod in made.active) == restarts
    assert len(events(cluster, "GPUXid")) == 1


def test_a_gpu_that_keeps_failing_is_not_offered_again() -> None:
    cluster = world()
    node(cluster, "n", "g6e.2xlarge")
    faults = [FaultSpec(kind="gpu-failure", at=f"{1000 + 600 * n}s", duration="60s", xid=119) for n in range(5)]
    schedule_faults(faults, cluster, SOLD)
    row = cluster.fleet.node_by_name["n"]
    run_until(cluster, 1000 + 600 * 4 - 1)
    assert cluster.fleet.allocatable_of(row)["nvidia.com/gpu"] == 1
    run_until(cluster, 1000 + 600 * 5)
    assert cluster.fleet.allocatable_of(row).get("nvidia.com/gpu", 0) == 0
    assert events(cluster, "GPUUnhealthy")[-1] == "5 faults within 24 h"


def test_a_node_never_gets_more_gpus_back_than_it_has() -> None:
    cluster = world()
    node(cluster, "n", "g6e.2xlarge")
    for _ in range(3):
        _strike(cluster, "gpu-failure", duration="10s")
    run_until(cluster, 1005)
    row = cluster.fleet.node_by_name["n"]
    assert cluster.fleet.allocatable_of(row).get("nvidia.com/gpu", 0) == 0
    run_until(cluster, 1100)
    assert cluster.fleet.allocatable_of(row)["nvidia.com/gpu"] == 1
