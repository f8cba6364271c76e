"""Strategies that save money on usage: each takes what the one before has left, and the steps add up."""

from __future__ import annotations

import random
import time
from collections.abc import Iterable
from datetime import UTC, datetime
from fractions import Fraction
from typing import Any

import pytest

from deep_seeds import part
from tonnage.costs.commitments import commit
from tonnage.costs.ledger import Ledger, Resources
from tonnage.costs.strategies import STRATEGIES, BusinessHours, SavingsSettings, on_usage
from tonnage.costs.usage import NodeUsage, total
from tonnage.facts import instances, price_book, prices, savings_claims, spot
from tonnage.units import MIB, NS_PER_HOUR

DOLLAR = 1_000_000
MONDAY = round(datetime(2026, 3, 2, tzinfo=UTC).timestamp()) * 1_000_000_000
L40S = "g6e.12xlarge"
THREE = price_book.book(
    "2026-07-20",
    "us-east-1",
    [(L40S, prices.Offering("us-east-1a", kind, dollars * DOLLAR, "", "us-east-1", "test")) for kind, dollars in
     (("on-demand", 10), ("spot", 3))],
)  # fmt: skip
"""On-demand costs 10 dollars an hour, spot 3: 70 % less."""
DAILY = BusinessHours(days=tuple(range(7)), start=0, end=14)


def usage(hours: float = 20, **more: Any) -> NodeUsage:
    given = {"price_micro_usd_per_hour": 10 * DOLLAR, "gpus_used": Fraction(32), "nodes": 10} | more
    return NodeUsage(start_ns=MONDAY, end_ns=MONDAY + round(hours * NS_PER_HOUR), instance_type=L40S, **given)


def entered(usage: Iterable[NodeUsage]) -> Ledger:
    """A ledger in which every node of the usage was opened and closed at its times, without a minimum life."""
    ledger = Ledger(minimum_ns=0)
    events = []
    for i, one in enumerate(usage):
        for number in range(one.nodes):
            name = f"{i:06d}-{number:04d}"
            events += [(one.start_ns, 1, name, one), (one.paid_until_ns, 0 if one.work_ns else 2, name, one)]
    for at, opens, name, one in sorted(events, key=lambda event: event[:3]):
        if opens == 1:
            made = instances.get(one.instance_type)
            capacity = Resources(one.gpus, made.vcpu * 1000, made.memory_mib * MIB)
            ledger.open_node(name, at, price_micro_usd_per_hour=one.price_micro_usd_per_hour, capacity=capacity)
        else:
            ledger.close_node(name, at)
    return ledger


def settle_at_the_end(ledger: Ledger) -> int:
    return ledger.settle(2**62).total_micro_usd


def test_seventy_twenty_and_thirty_per_cent_on_the_same_hours_make_83_2_and_not_their_sum() -> None:
    rows = [usage(interruptible=True, off_hours=False)]  # 20 hours, of which 14 are business hours; 32 of 40 GPUs used
    order = ("spot", "consolidation", "schedules")
    found, _, _ = on_usage(rows, order, THREE, SavingsSettings(hours=DAILY))
    assert found.start_micro_usd == 2000 * DOLLAR
    assert [step.saved_micro_usd for step in found.steps] == [1400 * DOLLAR, 120 * DOLLAR, 144 * DOLLAR]
    assert found.share == pytest.approx(0.832)


@pytest.mark.parametrize("order", [("schedules", "spot", "consolidation"), ("consolidation", "schedules", "spot")])
def test_in_another_order_each_saves_something_else_and_all_save_the_same(order: tuple[str, ...]) -> None:
    rows = [usage(interruptible=True, off_hours=False)]
    found, _, _ = on_usage(rows, order, THREE, SavingsSettings(hours=DAILY))
    assert found.saved_micro_usd == 1664 * DOLLAR
    assert found.steps[0].saved_micro_usd == {"schedules": 600, "consolidation": 400}[order[0]] * DOLLAR


def test_what_guides_add_up_compounds_to_83_2_and_to_61_per_cent() -> None:
    sums = {one.name: one for one in savings_claims.sums()}
    assert sums["inference"].compounded == pytest.approx(0.832)
    assert sums["training"].compounded == pytest.approx(0.61)
    assert savings_claims.compounded([]) == 0


def test_a_commitment_covers_on_demand_hours_and_never_spot_hours() -> None:
    committed = usage(nodes=6)
    cheap = usage(nodes=4, capacity_type="spot", price_micro_usd_per_hour=6 * DOLLAR)
    found = commit([committed, cheap], 0.35, (committed.start_ns, committed.end_ns))
    assert found.level_micro_usd_per_hour == 60 * DOLLAR
    assert found.paid_micro_usd == 780 * DOLLAR  # 65 % of 1,200
    assert found.other_micro_usd == total([cheap]) == 480 * DOLLAR
    assert found.on_demand_micro_usd == 0
    # 60 % of the hours 35 % cheaper and 40 % of them 40 % cheaper save 37 % of 2,000, not 61 %
    assert found.total_micro_usd == 1260 * DOLLAR


def test_a_commitment_to_spot_nodes_alone_covers_nothing() -> None:
    row = usage(capacity_type="spot", price_micro_usd_per_hour=3 * DOLLAR)
    found = commit([row], 0.35, (row.start_ns, row.end_ns))
    assert (found.level_micro_usd_per_hour, found.paid_micro_usd, found.covered) == (0, 0, 0.0)
    assert found.total_micro_usd == row.cost_micro_usd


@pytest.mark.parametrize(("busy_hours", "level"), [(13.1, 100), (12.9, 0)])
def test_a_commitment_pays_where_it_is_used_for_more_than_its_price(busy_hours: float, level: int) -> None:
    row = usage(hours=busy_hours)  # of 20 hours: worth it from 65 % on
    found = commit([row], 0.35, (MONDAY, MONDAY + 20 * NS_PER_HOUR))
    assert found.level_micro_usd_per_hour == level * DOLLAR
    assert found.total_micro_usd <= row.cost_micro_usd


def test_the_cheapest_level_is_cheaper_than_any_other() -> None:
    rng = random.Random(7)
    rows = [usage(hours=rng.randint(1, 40), nodes=rng.randint(1, 9)) for _ in range(6)]
    span = MONDAY, MONDAY + 40 * NS_PER_HOUR
    best = commit(rows, 0.3, span).total_micro_usd
    assert all(commit(rows, 0.3, span, level * 5 * DOLLAR).total_micro_usd >= best for level in range(60))


def test_what_is_committed_and_not_used_is_paid_all_the_same() -> None:
    row = usage(hours=10)
    found = commit([row], 0.35, (MONDAY, MONDAY + 20 * NS_PER_HOUR), 100 * DOLLAR)
    assert (found.paid_micro_usd, found.used, found.covered) == (1300 * DOLLAR, 0.5, 1.0)


@pytest.mark.parametrize("seed", range(5))
def test_the_steps_add_up_to_the_difference_of_two_ledgers_to_the_micro_dollar(seed: int) -> None:
    rng = random.Random(seed)
    rows = [
        usage(
            hours=rng.uniform(1, 300),
            nodes=(nodes := rng.randint(1, 5)),
            price_micro_usd_per_hour=rng.randint(9_000_000, 11_000_000),
            gpus_used=Fraction(rng.randint(1, 4 * nodes)),
            gpus_per_pod=rng.choice((1, 2, 4)),
            interruptible=rng.random() < 0.6,
            off_hours=rng.random() < 0.5,
            training=rng.random() < 0.5,
            restart_s=600.0,
        )
        for _ in range(12)
    ]
    order = [name for name in STRATEGIES if name != "commitments"]
    rng.shuffle(order)
    found, left, _ = on_usage(rows, order, prices.load(), SavingsSettings())
    before, after = settle_at_the_end(entered(rows)), settle_at_the_end(entered(left))
    assert found.start_micro_usd == before
    assert found.end_micro_usd == after
    assert sum(step.saved_micro_usd for step in found.steps) == before - after
    assert before > after > 0


def test_interruptions_without_checkpoints_lose_half_of_the_work_each_time() -> None:
    rate = spot.per_hour(0.5)
    assert rate == pytest.approx(0.00095, rel=1e-2)
    assert spot.lost_share(rate, 100 * 3600, 3600) == pytest.approx(rate * 51)
    assert spot.lost_share(rate, 3600, 3600, 60) == pytest.approx(rate * 1.5 + 60 / 3600)


def test_the_best_interval_between_checkpoints_loses_less_than_its_neighbours() -> None:
    rate = spot.per_hour(0.2)
    best = spot.best_interval_s(rate, 60)
    lost = [spot.lost_share(rate, best * factor, 300, 60) for factor in (0.8, 1.0, 1.25)]
    assert min(lost) == lost[1]


def test_checkpoints_make_training_on_spot_cheaper_and_leave_serving_alone() -> None:
    training = usage(hours=300, interruptible=True, training=True, restart_s=900.0, gpus_used=Fraction(40))
    serving = usage(hours=300, interruptible=True, gpus_used=Fraction(40))
    found, left, _ = on_usage([training, serving], ("spot", "checkpointing"), THREE, SavingsSettings())
    lost = {one.training: one.lost for one in left}
    assert lost[False] == 0
    assert 0 < lost[True] < spot.lost_share(spot.per_hour(spot.interrupted_a_month(L40S)), 300 * 3600, 900)
    assert found.steps[1].saved_micro_usd > 0


def test_spot_is_left_alone_where_interruptions_would_lose_more_than_it_saves() -> None:
    dear = price_book.book(
        "", "us-east-1", [(L40S, prices.Offering("us-east-1a", "spot", 9_990_000, "", "us-east-1", "test"))]
    )
    training = usage(hours=2000, interruptible=True, training=True)
    found, _, _ = on_usage([training], ("spot",), dear, SavingsSettings())
    assert [(step.saved_micro_usd, step.change) for step in found.steps] == [(0, "nothing to change")]


def test_right_sizing_keeps_the_gpu_and_the_room_that_pods_need() -> None:
    price = prices.load().on_demand(L40S)
    assert price is not None
    row = usage(price_micro_usd_per_hour=price, nodes=2, gpus_used=Fraction(8))
    unknown, left, _ = on_usage([row], ("right-sizing",), prices.load(), SavingsSettings())
    assert unknown.steps[0].saved_micro_usd == 0  # a pod may need its part of the node's CPU and memory
    small = usage(
        price_micro_usd_per_hour=price,
        nodes=2,
        gpus_used=Fraction(8),
        cpu_milli_per_pod=3000,
        memory_bytes_per_pod=20 << 30,
    )
    known, left, _ = on_usage([small], ("right-sizing",), prices.load(), SavingsSettings())
    assert [(one.instance_type, one.nodes) for one in left] == [("g6e.xlarge", 8)]
    assert known.steps[0].saved_micro_usd > 0


@pytest.mark.parametrize(
    ("zone", "sized"), [("", True), ("us-east-1b", True), ("eu-west-1a", False), ("us-west-2c", False)]
)
def test_right_sizing_leaves_nodes_of_other_regions_as_their_prices_are_not_known(zone: str, sized: bool) -> None:
    row = usage(gpus_used=Fraction(1), nodes=1, cpu_milli_per_pod=3000, memory_bytes_per_pod=20 << 30, zone=zone)
    found, left, _ = on_usage([row], ("right-sizing",), prices.load(), SavingsSettings())
    assert ([one.instance_type for one in left] != [L40S], found.saved_micro_usd > 0) == (sized, sized)


def test_business_hours_are_cut_out_of_days_and_leave_weekends() -> None:
    hours = BusinessHours()
    parts = list(hours.within(MONDAY + 10 * NS_PER_HOUR, MONDAY + 8 * 24 * NS_PER_HOUR))
    lengths = [(end - start) / NS_PER_HOUR for start, end in parts]
    assert lengths == [8, 10, 10, 10, 10, 10]


def test_workloads_with_pods_of_several_sizes_share_nodes() -> None:
    rows = [
        usage(nodes=2, gpus_used=Fraction(4), gpus_per_pod=2, workload="a"),
        usage(nodes=3, gpus_used=Fraction(4), gpus_per_pod=1, workload="b"),
    ]
    _, left, _ = on_usage(rows, ("consolidation",), THREE, SavingsSettings())
    assert {one.workload: one.nodes for one in left} == {"a": 1, "b": 1}


@pytest.mark.parametrize(
    ("needs", "nodes"),
    [
        ({}, 1),  # its part of the node's CPU and memory
        ({"cpu_milli_per_pod": 40_000}, 4),  # of the 48 CPUs of a node
        ({"cpu_milli_per_pod": 20_000}, 2),
        ({"memory_bytes_per_pod": 170 << 30}, 2),  # of the 384 GiB of a node
        ({"memory_bytes_per_pod": 20 << 30}, 1),
    ],
)
def test_nodes_are_as_few_as_the_cpu_and_memory_of_their_pods_allow(needs: dict[str, int], nodes: int) -> None:
    rows = [usage(nodes=5, gpus_used=Fraction(4), **needs)]
    _, left, _ = on_usage(rows, ("consolidation",), THREE, SavingsSettings())
    assert sum(one.nodes for one in left) == nodes


@pytest.mark.parametrize("order", [("consolidation", "right-sizing"), ("right-sizing", "consolidation")])
def test_pods_that_share_a_node_are_all_there_after_it_is_right_sized(order: tuple[str, ...]) -> None:
    price = prices.load().on_demand(L40S)
    known = {"cpu_milli_per_pod": 3000, "memory_bytes_per_pod": 20 << 30}
    one = usage(price_micro_usd_per_hour=price, nodes=1, gpus_used=Fraction(2), workload="a", **known)
    other = usage(price_micro_usd_per_hour=price, nodes=1, gpus_used=Fraction(1), workload="b", **known)
    _, left, _ = on_usage([one, other], order, prices.load(), SavingsSettings())
    gpus = sum(one.nodes * one.gpus for one in left)
    assert gpus >= 3
    assert sum(one.gpus_used for one in left) == 3


def test_nodes_that_nobody_uses_go_and_are_not_right_sized() -> None:
    found, left, _ = on_usage(
        [usage(gpus_used=Fraction(0))], ("consolidation", "right-sizing"), prices.load(), SavingsSettings()
    )
    assert not left
    assert found.end_micro_usd == 0


def test_many_nodes_are_packed_by_kind_and_not_pod_by_pod() -> None:
    rows = [usage(nodes=100_000, gpus_used=Fraction(300_001), gpus_per_pod=1, restart_s=0.0)]
    began = time.process_time()
    _, left, _ = on_usage(rows, ("consolidation",), THREE, SavingsSettings())
    assert sum(one.nodes for one in left) == 75_001
    assert time.process_time() - began < 1


@pytest.mark.parametrize("seed", part(range(20)))
def test_packed_nodes_are_those_of_pods_placed_one_by_one(seed: int) -> None:
    rng = random.Random(seed)
    rows = [
        usage(
            nodes=40,
            gpus_used=Fraction(rng.randint(1, 20)),
            gpus_per_pod=per,
            cpu_milli_per_pod=rng.choice((0, per * 9000)),
        )
        for per in rng.choices((1, 2, 3, 4), k=rng.randint(1, 5))
    ]
    cpus = instances.get(L40S).allocatable_cpu_milli
    free: list[list[Fraction]] = []
    needs = {
        i: (Fraction(r.gpus_per_pod, 4), Fraction(r.cpu_milli_per_pod, cpus) or Fraction(r.gpus_per_pod, 4))
        for i, r in enumerate(rows)
    }
    for i in sorted(needs, key=lambda i: (-rows[i].gpus_per_pod, -max(needs[i]), i)):
        for _ in range(rows[i].pods):
            at = next((n for n in free if all(f >= need for f, need in zip(n, needs[i], strict=True))), None)
            if at is None:
                free.append(at := [Fraction(1), Fraction(1)])
            at[:] = [f - need for f, need in zip(at, needs[i], strict=True)]
    _, left, _ = on_usage(rows, ("consolidation",), THREE, SavingsSettings())
    assert sum(one.nodes for one in left) == len(free)
    assert sum(one.gpus_used for one in left) == sum(one.pods * one.gpus_per_pod for one in rows)


@pytest.mark.parametrize("order", [("commitments", "spot"), ("spot", "spot"), ("luck",)])
def test_an_order_that_cannot_be_is_refused(order: tuple[str, ...]) -> None:
    with pytest.raises(ValueError, match="commitments last"):
        on_usage([usage()], order, THREE, SavingsSettings())


def test_owned_machines_have_a_price_of_their_own_and_nobody_can_launch_more() -> None:
    book = prices.load()
    owned = book.owned("p5.48xlarge")
    assert owned is not None
    assert 0 < owned < (book.on_demand("p5.48xlarge") or 0)
    assert book.owned("m5.large") is None
