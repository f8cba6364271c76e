"""Pods on the same GPU: how fast each is and what each takes of it."""

from __future__ import annotations

import random
from collections.abc import Mapping
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sharing_builders import MIG, MPS, SLICE, TIME_SLICED, cut_node, latencies, serving
from sim_builders import GPU, run_until, world

from deep_seeds import examples
from tonnage.machines.cluster import SimulatedCluster
from tonnage.machines.objects import SimulatedPod
from tonnage.partitioning.leases import in_leases
from tonnage.partitioning.mps import REACH, MpsClient, side_by_side
from tonnage.partitioning.turns import INTERVALS_S, SWITCH_S, Process, in_turns, switching, take_turns
from tonnage.units import NS_PER_S

ALONE_S = 10.0
"""1,000 tokens at 10 ms each."""


def taken(pod: SimulatedPod) -> float:
    assert pod.replica is not None
    return pod.replica.taken_ns / NS_PER_S


@pytest.mark.parametrize("count", [1, 2, 4])
def test_saturated_engines_are_as_fast_as_processes_that_take_turns(count: int) -> None:
    cluster = world(start_s=0)
    node = cut_node(cluster, TIME_SLICED)
    for number in range(count):
        serving(cluster, node, f"model-{number}", 5.0)
    run_until(cluster, 60)
    turns = take_turns([Process(0.01)] * count, interval_s=INTERVALS_S["default"], switch_s=SWITCH_S, steps=1000)
    for number, turn in enumerate(turns):
        assert latencies(cluster, f"model-{number}") == [pytest.approx(1000 * turn.step_s, rel=0.01)]


@pytest.mark.parametrize("saturated", [1, 2])
@pytest.mark.parametrize(("work", "idle"), [(0.5, 0.5), (0.2, 1.0), (1.0, 0.2)])
def test_an_engine_that_is_idle_now_and_then_slows_others_down_as_in_turns(
    saturated: int, work: float, idle: float
) -> None:
    processes = [Process(0.01)] * saturated + [Process(work, idle)]
    turns = take_turns(processes, interval_s=INTERVALS_S["default"], switch_s=SWITCH_S, steps=60)
    period = turns[-1].step_s
    cluster = world(start_s=0)
    node = cut_node(cluster, TIME_SLICED)
    busy = [serving(cluster, node, f"busy-{number}", *[0.0] * 64, output=4000) for number in range(saturated)]
    serving(cluster, node, "idle", *(5.0 + period * turn for turn in range(40)), output=round(100 * work))
    run_until(cluster, 5.0)
    before = [tokens(pod) for pod in busy]
    run_until(cluster, 5.0 + period * 40)
    waits = latencies(cluster, "idle")
    assert len(waits) == 40
    assert sum(waits) / 40 == pytest.approx(period - idle, rel=0.03)
    for pod, earlier, turn in zip(busy, before, turns, strict=False):
        steps = (tokens(pod) - earlier) / 8  # eight sequences run at once
        assert steps == pytest.approx(turn.steps_per_s * period * 40, rel=0.03)


def tokens(pod: SimulatedPod) -> int:
    assert pod.replica is not None and pod.replica.engine is not None
    return pod.replica.engine.generation_tokens_total


def test_two_saturated_engines_on_one_gpu_get_half_of_its_time_each() -> None:
    cluster = world(start_s=0)
    node = cut_node(cluster, TIME_SLICED)
    one, two = (serving(cluster, node, name, 5.0) for name in ("model-a", "model-b"))
    run_until(cluster, 15)
    assert (taken(one), taken(two)) == (5.0, 5.0)


def test_an_engine_that_is_alone_on_its_gpu_is_as_fast_as_on_a_gpu_of_its_own() -> None:
    finished = []
    for labels in (TIME_SLICED, {}):
        cluster = world(start_s=0)
        node = cut_node(cluster, labels)
        serving(cluster, node, "model-a", 5.0, 7.5, 20.25)
        run_until(cluster, 60)
        finished.append(latencies(cluster, "model-a"))
    assert finished[0] == finished[1]


def test_what_is_left_of_a_step_takes_longer_once_a_neighbour_has_requests() -> None:
    cluster = world(start_s=0)
    node = cut_node(cluster, TIME_SLICED)
    serving(cluster, node, "model-a", 5.0, output=1)
    serving(cluster, node, "model-b", 5.005, output=1)
    run_until(cluster, 10)
    slower = 2 * float(1 + switching("default"))
    assert latencies(cluster, "model-a") == [pytest.approx(0.005 + 0.005 * slower)]
    assert latencies(cluster, "model-b") == [pytest.approx(0.005 * slower + 0.005, rel=1e-3)]


def test_a_client_of_mps_has_no_more_than_its_percentage_of_the_sms_even_alone() -> None:
    cluster = world(start_s=0)
    node = cut_node(cluster, MPS)
    serving(cluster, node, "model-a", 5.0)
    run_until(cluster, 60)
    prompt, decode = 0.01 / 0.25, (ALONE_S - 0.01) * 0.26 / 0.25  # a prompt fills all of them, decoding 26 %
    assert latencies(cluster, "model-a") == [pytest.approx(prompt + decode, rel=1e-4)]


@pytest.mark.parametrize(("labels", "beside", "slower"), [(MPS, 0, 4.0), (MPS, 1, 4.0), (TIME_SLICED, 0, 1.0)])
def test_a_prompt_under_mps_takes_as_long_as_the_percentage_of_the_sms_says(
    labels: dict[str, str], beside: int, slower: float
) -> None:
    cluster = world(start_s=0)
    node = cut_node(cluster, labels)
    serving(cluster, node, "model-a", 8.0, output=1)
    for number in range(beside):
        serving(cluster, node, f"busy-{number}", 5.0)
    run_until(cluster, 9)
    assert latencies(cluster, "model-a") == [pytest.approx(0.01 * slower, rel=1e-3)]


def test_clients_of_mps_share_the_memory_bandwidth_and_are_faster_together_than_in_turns() -> None:
    ends = {}
    for labels in (MPS, TIME_SLICED):
        cluster = world(start_s=0)
        node = cut_node(cluster, labels)
        pods = [serving(cluster, node, name, 5.0) for name in "abcd"]
        run_until(cluster, 15)
        assert [taken(pod) for pod in pods] == [pytest.approx(2.5)] * 4
        run_until(cluster, 60)
        [ends[labels["nvidia.com/gpu.sharing-strategy"]]] = {tuple(latencies(cluster, name)) for name in "abcd"}
    assert ends["mps"] == (pytest.approx(4 * ALONE_S * 0.7 / REACH, rel=3e-3),)  # one alone takes 70 % of it
    assert ends["time-slicing"] == (pytest.approx(4 * ALONE_S * 1.06, rel=1e-3),)


def test_mig_instances_of_one_gpu_do_not_influence_each_other() -> None:
    alone, beside = world(start_s=0), world(start_s=0)
    for cluster, names in ((alone, ["a"]), (beside, ["a", "b", "c"])):
        node = cut_node(cluster, MIG, "p5.4xlarge")
        found = [serving(cluster, node, name, 5.0, 6.0, 7.5, asks={SLICE: "1"}, utilization=0.9) for name in names]
        run_until(cluster, 60)
        assert found[0].sharer is None
    assert latencies(alone, "a") == latencies(beside, "a") == latencies(beside, "c")


def test_fractions_of_kai_take_turns_and_its_memory_is_not_limited() -> None:
    cluster = world(start_s=0)
    node = cut_node(cluster, {})
    pods = [
        serving(cluster, node, name, 5.0, asks={}, annotations={"gpu-fraction": share})
        for name, share in (("a", "0.7"), ("b", "0.3"))
    ]
    run_until(cluster, 15)
    assert [taken(pod) for pod in pods] == [5.0, 5.0]
    assert all(pod.sharer is not None and pod.sharer.limit is None for pod in pods)


def test_cores_of_hami_are_a_limit_and_what_is_left_goes_to_others() -> None:
    cluster = world(start_s=0)
    node = cut_node(cluster, {})
    asks: list[Mapping[str, str]] = [
        {GPU: "1", "nvidia.com/gpumem": "10000", "nvidia.com/gpucores": "20"},
        {GPU: "1", "nvidia.com/gpumem": "10000"},
    ]
    pods = [serving(cluster, node, name, 5.0, asks=ask) for name, ask in zip("ab", asks, strict=True)]
    run_until(cluster, 12)
    assert [taken(pod) for pod in pods] == [pytest.approx(1.4), pytest.approx(5.6)]


@given(st.lists(st.integers(1, 100), min_size=1, max_size=8))
def test_the_parts_of_a_gpu_never_add_up_to_more_than_the_gpu(percents: list[int]) -> None:
    limits = [Fraction(percent, 100) for percent in percents]
    taking_turns = in_turns(limits)
    assert all(0 < speed <= share <= most for (share, speed), most in zip(taking_turns, limits, strict=True))
    assert sum(share for share, _ in taking_turns) == min(1, sum(limits))  # and nothing of it is left unused
    at_once = side_by_side([MpsClient(percent=percent) for percent in percents])
    assert sum(share for share, _ in at_once) <= 1


@settings(max_examples=examples(25), deadline=None)
@given(st.integers(0, 10_000), st.sampled_from([TIME_SLICED, MPS]))
def test_the_time_taken_of_a_gpu_never_exceeds_the_time_that_passed(seed: int, labels: dict[str, str]) -> None:
    rng = random.Random(seed)
    cluster = world(start_s=0)
    node = cut_node(cluster, labels)
    pods = []
    for name in ("a", "b", "c", "d")[: rng.randint(1, 4)]:
        times = sorted(rng.uniform(0, 30) for _ in range(rng.randint(1, 40)))
        pods.append(serving(cluster, node, name, *times, output=rng.randint(1, 400)))
    before = since = at = 0.0
    while at < 40:
        at += rng.expovariate(1.0) + 1e-6
        run_until(cluster, at)
        now = sum(taken(pod) for pod in pods)
        assert now - before <= at - since + 1e-8
        before, since = now, at
    cluster.account_busy()
    assert cluster.records.ledger.check(cluster.now_ns) == []


@pytest.mark.parametrize(
    ("asked", "parts"),
    [
        ([("0.25", "strict")], [0.25]),
        ([("0.25", "fair")], [1.0]),
        ([("0.5", "strict"), ("0.25", "strict")], [0.5, 0.25]),
        ([("0.5", "fair"), ("0.25", "fair")], [0.65, 0.35]),
        ([("0.5", "strict"), ("0.25", "fair")], [0.5, 0.5]),
        ([("0.2", "fair"), ("0.2", "fair"), ("0.6", "fair")], [0.2, 0.2, 0.6]),
        ([("0.5", ""), ("0.25", "")], [0.5, 0.5]),
        ([("0.5", "strict"), ("0.25", "")], [0.5, 0.5]),
        ([("0.25", "fair"), ("0.5", "")], [0.35, 0.65]),
        ([("0.3", "strict"), ("0.3", "strict"), ("0.2", "")], [0.3, 0.3, 0.4]),
    ],
)
def test_leases_hold_strict_pods_to_their_share_and_give_fair_ones_what_is_left(
    asked: list[tuple[str, str]], parts: list[float]
) -> None:
    cluster = world(start_s=0)
    node = cut_node(cluster, {})
    for number, (share, mode) in enumerate(asked):
        notes = {"gpu-fraction": share} | ({"tonnage.dev/gpu-time-slicing": mode} if mode else {})
        serving(
            cluster, node, f"model-{number}", *[5.0] * 64, output=4000, asks={}, annotations=notes, utilization=0.15
        )
    run_until(cluster, 5.0)
    before = [tokens(pod) for pod in running(cluster, len(asked))]
    run_until(cluster, 25.0)
    speeds = [tokens(pod) - then for pod, then in zip(running(cluster, len(asked)), before, strict=True)]
    alone = speeds[0] / parts[0]
    assert [speed / alone for speed in speeds] == [pytest.approx(part, abs=0.04) for part in parts]


def test_a_part_of_the_memory_is_a_share_of_the_time_that_is_lent_by_leases() -> None:
    cluster = world(start_s=0)
    node = cut_node(cluster, {})
    quarter = str(int(cluster.fleet.cards.memory[cluster.fleet.node_by_name[node.name]]) // 4)
    notes = {"gpu-memory": quarter, "tonnage.dev/gpu-time-slicing": "strict"}
    pods = [
        serving(cluster, node, "a", 5.0, output=4000, asks={}, annotations=notes),
        serving(cluster, node, "b", 5.0, output=4000, asks={}, annotations={"gpu-fraction": "0.5"}),
    ]
    run_until(cluster, 25)
    assert [taken(pod) for pod in pods] == [pytest.approx(5.0), pytest.approx(15.0)]


def test_an_interval_says_nothing_where_no_turns_are_taken() -> None:
    ends: dict[str, list[list[float]]] = {"mps": [], "strict": []}
    for label in ({}, {"tonnage.dev/gpu-timeslice": "short"}):
        for how, found in ends.items():
            cluster = world(start_s=0)
            node = cut_node(cluster, (MPS if how == "mps" else {}) | label)
            notes = {"gpu-fraction": "0.25", "tonnage.dev/gpu-time-slicing": how}
            more = {} if how == "mps" else {"asks": {}, "annotations": notes}
            for name in "ab":
                serving(cluster, node, name, 5.0, **more)
            run_until(cluster, 90)
            found.append([*latencies(cluster, "a"), *latencies(cluster, "b")])
    assert ends["mps"][0] == ends["mps"][1]
    assert ends["strict"][0] == ends["strict"][1]
    assert ends["mps"][0] != ends["strict"][0]


def test_fractions_without_a_mode_take_turns_of_the_interval_of_the_node() -> None:
    cluster = world(start_s=0)
    node = cut_node(cluster, {"tonnage.dev/gpu-timeslice": "long"})
    for name in "ab":
        serving(cluster, node, name, 5.0, asks={}, annotations={"gpu-fraction": "0.4"})
    run_until(cluster, 60)
    assert latencies(cluster, "a") == [pytest.approx(2 * 1.03 * ALONE_S, rel=0.001)]


def test_replicas_take_turns_whatever_mode_their_pods_name() -> None:
    cluster = world(start_s=0)
    node = cut_node(cluster, TIME_SLICED)
    notes = {"tonnage.dev/gpu-time-slicing": "strict"}
    pods = [serving(cluster, node, name, 5.0, annotations=notes if name == "a" else {}) for name in "ab"]
    run_until(cluster, 15)
    assert [taken(pod) for pod in pods] == [5.0, 5.0]


def running(cluster: SimulatedCluster, count: int) -> list[SimulatedPod]:
    return [cluster.workloads[f"inference/model-{number}"].active[0] for number in range(count)]


@pytest.mark.parametrize(
    ("interval", "slower"),
    [
        ("short", 1.12),
        ("medium", 1.06),
        ("long", 1.03),
        ("default", 1.06),
        ("Long", 1.03),
        ("0", 1.06),
        ("1", 1.12),
        ("2", 1.06),
        ("3", 1.03),
        ("4", 1.06),
        ("odd", 1.06),
    ],
)
def test_the_interval_of_turns_says_what_switching_costs(interval: str, slower: float) -> None:
    cluster = world(start_s=0)
    node = cut_node(cluster, TIME_SLICED | {"tonnage.dev/gpu-timeslice": interval})
    for number in range(2):
        serving(cluster, node, f"model-{number}", 5.0)
    run_until(cluster, 60)
    assert latencies(cluster, "model-0") == [pytest.approx(2 * slower * ALONE_S, rel=0.001)]


@pytest.mark.parametrize(
    ("shares", "modes", "held"),
    [
        (["1/4"], ["strict"], ["1/4"]),
        (["1/4"], ["fair"], ["1"]),
        (["1/100", "1/2"], ["strict", "strict"], ["1/20", "1/2"]),
        (["1/2", "1/2", "1/2"], ["fair", "fair", "fair"], ["7/20", "7/20", "3/10"]),
    ],
)
def test_leases_are_whole(shares: list[str], modes: list[str], held: list[str]) -> None:
    found = in_leases([Fraction(one) for one in shares], modes)
    assert [one.share for one in found] == [Fraction(one) for one in held]
    assert sum(one.share for one in found) <= 1
    assert all(one.speed <= one.share for one in found)
