"""Engines that find no memory on a GPU that they share, and pods that end with others on the same GPU."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import pytest
from sharing_builders import MIG, MPS, SLICE, TIME_SLICED, cut_node, latencies, serving
from sim_builders import GPU, arrivals, events, node, run_until, service, start, workload, world

from tonnage.costs.ledger import Resources
from tonnage.facts import mig
from tonnage.machines.cluster import SimulatedCluster
from tonnage.machines.life import NodeLost
from tonnage.machines.loading import memory_mib
from tonnage.machines.objects import EngineSetup, SimulatedPod, Workload
from tonnage.machines.pods import end_pod, reconcile
from tonnage.machines.training.happened import Then
from tonnage.simulation.faults import PodFailure
from tonnage.simulation.scenario import FaultSpec
from tonnage.units import NS_PER_S


def fail(cluster: SimulatedCluster, at: float, name: str, exit_: int | str = "oom") -> None:
    """Let the pod of a workload end at this time."""
    fault = FaultSpec(kind="pod-failure", at=f"{at}s", workload=f"inference/{name}", exit=exit_)
    cluster.queue.push(round(at * NS_PER_S), PodFailure(fault))


def crashes(*pods: SimulatedPod) -> list[int]:
    return [pod.crashes for pod in pods]


def test_an_engine_does_not_start_where_less_memory_is_free_than_it_claims() -> None:
    cluster = world(start_s=0)
    shared = cut_node(cluster, TIME_SLICED)
    first = serving(cluster, shared, "a", 5.0, utilization=0.6)
    second = serving(cluster, shared, "b", 5.0, utilization=0.6)
    run_until(cluster, 9)
    assert first.ready_ns == 0 and second.ready_ns is None
    [said] = events(cluster, "BackOff")
    assert said.startswith("Free memory on device cuda:0 (17.")
    assert "is less than desired GPU memory utilization (0.6, " in said
    assert latencies(cluster, "a") == [] and second.crashes == 2
    run_until(cluster, 20)
    assert latencies(cluster, "a") == [pytest.approx(10.0)]  # the neighbour goes on


def test_it_tries_again_and_waits_longer_each_time_until_there_is_room() -> None:
    cluster = world(start_s=0)
    shared = cut_node(cluster, TIME_SLICED)
    serving(cluster, shared, "a", utilization=0.6)
    second = serving(cluster, shared, "b", 500.0, utilization=0.6)
    tried = []
    for at in range(1, 300):
        run_until(cluster, at)
        if not tried or tried[-1] != second.crashes:
            tried.append(second.crashes)
    assert tried == [2, 3, 4, 5, 6]  # at 10 + 20 + 40 + 80 + 160 s and the time that a container takes to start
    cluster.workloads["inference/a"].replicas = 0
    reconcile(cluster, cluster.workloads["inference/a"])
    run_until(cluster, 700)
    assert second.ready_ns is not None and second.crashes == 6
    assert cluster.workloads["inference/b"].cold_starts_ns == []


def test_limits_of_mps_and_hami_keep_room_for_every_engine() -> None:
    cluster = world(start_s=0)
    shared = cut_node(cluster, MPS)
    pods = [serving(cluster, shared, name, utilization=0.9) for name in "abcd"]
    run_until(cluster, 1)
    assert [pod.sharer.claimed if pod.sharer else None for pod in pods] == [Fraction(1, 4)] * 4
    assert all(pod.ready_ns == 0 for pod in pods)


def test_an_engine_under_hami_is_shown_its_part_of_the_memory_as_if_it_were_all() -> None:
    cluster = world(start_s=0)
    shared = cut_node(cluster, {})
    pod = serving(cluster, shared, "a", utilization=0.8, asks={GPU: "1", "nvidia.com/gpumem-percentage": "50"})
    run_until(cluster, 1)
    assert pod.sharer is not None
    assert float(pod.sharer.claimed) == pytest.approx(0.4, rel=1e-3)


def test_out_of_memory_under_time_slicing_takes_the_neighbours_on_the_gpu_and_nobody_else() -> None:
    cluster = world(start_s=0)
    shared = cut_node(cluster, TIME_SLICED, "g6e.12xlarge")
    a, b, c, d, elsewhere = (serving(cluster, shared, name, 5.0, utilization=0.2) for name in "abcde")
    fail(cluster, 7, "a")
    run_until(cluster, 7)
    assert crashes(a, b, c, d, elsewhere) == [1, 1, 1, 1, 0]
    assert events(cluster, "Failed") == [
        *["CUDA out of memory in Pod inference/a-00001 on the same GPU"] * 3,
        "CUDA out of memory",
    ]
    failed = [cluster.workloads[f"inference/{name}"].service for name in "abcde"]
    assert [one.failed for one in failed if one is not None] == [1, 1, 1, 1, 0]  # requests in flight


def test_containers_that_ended_start_again_in_the_same_pods_and_serve() -> None:
    cluster = world(start_s=0)
    shared = cut_node(cluster, TIME_SLICED)
    a, b = (serving(cluster, shared, name, 5.0, 400.0, utilization=0.2) for name in "ab")
    fail(cluster, 7, "a")
    run_until(cluster, 8)
    assert a.ready_ns is None and b.ready_ns is None
    run_until(cluster, 600)
    assert a.running_since(2) and b.running_since(2)
    assert len(latencies(cluster, "a")) == len(latencies(cluster, "b")) == 1


@pytest.mark.parametrize(("exit_", "hit"), [("oom", 0), (137, 1), (139, 1), (1, 0)])
def test_a_client_of_mps_that_a_signal_ends_takes_the_others_and_one_without_memory_does_not(
    exit_: int | str, hit: int
) -> None:
    cluster = world(start_s=0)
    shared = cut_node(cluster, MPS)
    a, b = (serving(cluster, shared, name) for name in "ab")
    fail(cluster, 7, "a", exit_)
    run_until(cluster, 7)
    assert crashes(a, b) == [1, hit]


def test_out_of_memory_on_a_mig_instance_takes_nobody() -> None:
    cluster = world(start_s=0)
    shared = cut_node(cluster, MIG, "p5.4xlarge")
    a, b = (serving(cluster, shared, name, asks={SLICE: "1"}) for name in "ab")
    fail(cluster, 7, "a")
    run_until(cluster, 7)
    assert crashes(a, b) == [1, 0]
    assert events(cluster, "Failed") == ["CUDA out of memory"]


def test_fractions_without_a_limit_end_together_and_those_with_one_do_not() -> None:
    kai = {"asks": {}, "annotations": {"gpu-fraction": "0.3"}}
    hami = {"asks": {GPU: "1", "nvidia.com/gpumem": "10000"}}
    for how, hit in ((kai, 1), (hami, 0)):
        cluster = world(start_s=0)
        shared = cut_node(cluster, {})
        a, b = (serving(cluster, shared, name, **how) for name in "ab")  # type: ignore[arg-type]
        fail(cluster, 7, "a")
        run_until(cluster, 7)
        assert crashes(a, b) == [1, hit]


def test_a_neighbour_is_fast_again_once_the_other_has_crashed() -> None:
    cluster = world(start_s=0)
    shared = cut_node(cluster, MPS | {"nvidia.com/gpu.sharing-strategy": "time-slicing"})
    serving(cluster, shared, "a", 5.0)
    serving(cluster, shared, "b", 5.0)
    fail(cluster, 7, "a", 1)
    run_until(cluster, 30)
    # two seconds at half speed, less what switching costs; the rest alone
    assert latencies(cluster, "b") == [pytest.approx(2 + (10 - 1 / 1.06), abs=0.02)]


def test_a_pod_without_an_engine_takes_its_turns_until_it_is_gone() -> None:
    cluster = world(start_s=0)
    shared = cut_node(cluster, TIME_SLICED)
    made = workload(cluster, "notebook")
    made.server = None
    reconcile(cluster, made)
    cluster.assign(made.active[0], shared)
    serving(cluster, shared, "a", 5.0)
    serving(cluster, shared, "b", 11.5, output=1)
    [notebook] = made.active
    cluster.queue.push(12 * NS_PER_S, Then(lambda cluster: end_pod(cluster, notebook)))
    run_until(cluster, 30)
    half = 7 / (2 * 1.06)  # of the work of seven seconds
    assert latencies(cluster, "a") == [pytest.approx(7 + 10 - half, abs=0.02)]


def test_a_pod_with_a_gpu_of_its_own_crashes_alone_and_comes_back() -> None:
    cluster = world(start_s=0)
    made = workload(cluster)
    found = service(cluster, made, arrivals(5.0, 400.0, output=1000))
    target = node(cluster)
    [pod] = start(cluster, made, target)
    fail(cluster, 7, "model-a")
    run_until(cluster, 420)
    assert pod.crashes == 1 and pod.running_since(2)
    assert found.failed == 1
    assert cluster.records.ledger.check(cluster.now_ns) == []


def test_a_node_that_is_lost_while_a_container_waits_to_start_leaves_nothing_behind() -> None:
    cluster = world(start_s=0)
    shared = cut_node(cluster, TIME_SLICED)
    pod = serving(cluster, shared, "a", 5.0)
    fail(cluster, 7, "a")
    fail(cluster, 8, "a")
    cluster.queue.push(8 * NS_PER_S, NodeLost("node-1", "test"))
    run_until(cluster, 60)
    assert pod.sharer is None and pod.crashes == 1
    assert events(cluster, "FaultHitNothing") == ["pod-failure: no such pod runs"]


@pytest.mark.parametrize(
    ("labels", "kind", "asks", "part"),
    [
        (TIME_SLICED, "g6e.xlarge", None, Fraction(1, 4)),
        (TIME_SLICED | {"nvidia.com/gpu.replicas": "3"}, "g6e.xlarge", None, Fraction(1, 3)),
        (MPS, "g6e.xlarge", None, Fraction(1, 4)),
    ],
)
def test_a_replica_is_charged_its_part_of_the_gpu(
    labels: dict[str, str], kind: str, asks: dict[str, str] | None, part: Fraction
) -> None:
    cluster = world(start_s=0)
    assert serving(cluster, cut_node(cluster, labels, kind), "a", asks=asks).held == Resources(part)


def test_seven_mig_instances_are_charged_by_compute_and_memory_and_never_more_than_the_gpu() -> None:
    cluster = world(start_s=0)
    shared = cut_node(cluster, MIG, "p5.4xlarge")
    held = [serving(cluster, shared, name, asks={SLICE: "1"}).held.gpus for name in "abcdefg"]
    assert len(set(held)) == 1
    assert float(held[0]) == pytest.approx((1 / 7 + 1 / 8) / 2, rel=0.03)
    assert sum(held) <= 1


def test_what_nobody_holds_of_a_gpu_is_idle_cost_and_what_is_not_computed_on_is_idle_in_its_allocation() -> None:
    cluster = world(start_s=0)
    shared = cut_node(cluster, TIME_SLICED)
    serving(cluster, shared, "a", 5.0)  # computes for 10 s alone: all of the GPU's time
    run_until(cluster, 40)
    cluster.account_busy()
    bill = cluster.records.ledger.settle(cluster.now_ns)
    nobody, a = bill.lines
    whole = bill.total_micro_usd
    assert nobody.idle_micro_usd == pytest.approx(whole * (1 - 40 / 60 / 4), rel=1e-3)  # 60 s are billed
    assert a.used_micro_usd == pytest.approx(whole * 40 / 60 / 4, rel=1e-3)  # 10 GPU-s: all that it holds in 40 s
    assert bill.gpu_time.busy_ns == pytest.approx(10 * NS_PER_S, rel=1e-3)
    assert cluster.records.ledger.check(cluster.now_ns) == []


@pytest.mark.parametrize(
    ("labels", "kind", "resource", "gpu"),
    [
        (MIG, "p5.4xlarge", SLICE, "h100:1g.10gb"),
        (
            MIG | {"nvidia.com/mig.config": "all-1g.24gb.gfx"},
            "g7e.2xlarge",
            "nvidia.com/mig-1g.24gb.gfx",
            "rtx-pro-6000:1g.24gb+gfx",
        ),
    ],
)
def test_the_memory_of_an_engine_on_an_instance_is_that_of_the_instance(
    labels: dict[str, str], kind: str, resource: str, gpu: str
) -> None:
    cluster = world(start_s=0)
    asked: list[str] = []
    engine = cluster.physics.engine

    def listening(made: Workload, on: str, utilization: float | None = None) -> EngineSetup | str:
        asked.append(on)
        return engine(made, on, utilization)

    cluster.physics = replace(cluster.physics, engine=listening)
    pod = serving(cluster, cut_node(cluster, labels, kind), "a", utilization=0.5, asks={resource: "1"})
    run_until(cluster, 1)
    assert set(asked) == {gpu}
    assert memory_mib(cluster, pod) == mig.resolve(gpu)[0].memory_mib / 2
