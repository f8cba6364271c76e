"""Consolidation of m nodes to n: what goes back, what takes the pods, and when a move is not worth it."""

from __future__ import annotations

import msgspec
import pytest
from provisioning_builders import GPU, instance, node, node_pool, on_demand, pods, shape

from tonnage.provisioning.optimal.replan import Replan, replan
from tonnage.provisioning.optimal.supply import Occupied
from tonnage.provisioning.pods import PendingPod

SMALL = instance("g.small", cpu=4, memory_gib=16, gpus=1)
LARGE = instance("g.large", cpu=64, memory_gib=256, gpus=8)
WORLD = on_demand({SMALL: 1_000_000, LARGE: 6_000_000})
POOL = node_pool()


def occupied(
    name: str, on: list[PendingPod], price: int, *, cpu: float = 0, memory_gib: float = 0, gpus: int = 0
) -> Occupied:
    there = node(name, cpu=cpu, memory_gib=memory_gib, gpus=gpus, node_pool="default", capacity={GPU: 1})
    return Occupied(node=there, pods=tuple(on), micro_usd_per_hour=price)


def smalls(count: int) -> list[Occupied]:
    """Nodes with one pod each and no room beside it."""
    return [occupied(f"n{n}", pods(1, shape(3, 12, 1), f"p{n}"), 1_000_000) for n in range(count)]


def names(found: Replan) -> list[str]:
    return [ref.name for ref in found.returned]


def test_eight_nodes_give_way_to_one_that_is_cheaper() -> None:
    found = replan(smalls(8), [], [], [POOL], WORLD)
    assert len(found.returned) == found.moves == 8
    assert [one.instance_type for one in found.plan.launches] == ["g.large"]
    assert (found.before, found.after, found.bound) == (8_000_000, 6_000_000, 6_000_000)


@pytest.mark.report(506)
def test_one_node_gives_way_to_several() -> None:
    big = occupied("big", pods(3, shape(3, 12, 1)), 6_000_000, cpu=50, memory_gib=200, gpus=5)
    found = replan([big], [], [], [POOL], WORLD)
    assert names(found) == ["big"]
    assert [one.instance_type for one in found.plan.launches] == ["g.small"] * 3
    assert found.after == 3_000_000


@pytest.mark.parametrize(("move", "returned"), [(200_000, 8), (300_000, 0)])
def test_a_move_must_save_its_price(move: int, returned: int) -> None:
    found = replan(smalls(8), [], [], [POOL], WORLD, micro_usd_per_move=move)
    assert len(found.returned) == returned
    assert found.after == (6_000_000 if returned else 8_000_000)


def test_pods_move_into_free_room_of_nodes_that_stay() -> None:
    roomy = occupied("roomy", pods(2, shape(3, 12, 1), "a"), 6_000_000, cpu=50, memory_gib=200, gpus=6)
    found = replan([roomy, *smalls(3)], pods(1, shape(3, 12, 1), "new"), [], [POOL], WORLD)
    assert not found.plan.launches or found.after <= 6_000_000
    assert found.after <= 6_000_000, "what waits and what moves fits on one node"


def test_an_empty_node_goes_back_and_one_that_is_used_does_not() -> None:
    empty = occupied("empty", [], 1_000_000, cpu=4, memory_gib=16, gpus=1)
    assert names(replan([empty], [], [], [POOL], WORLD)) == ["empty"]
    found = replan([empty], pods(1, shape(3, 12, 1)), [], [POOL], WORLD)
    assert found.after == 1_000_000


@pytest.mark.report(510)
def test_equal_prices_move_nothing() -> None:
    found = replan(smalls(3), [], [], [POOL], WORLD, micro_usd_per_move=1)
    assert (found.returned, found.moves, found.after) == ((), 0, 3_000_000)


def test_pods_that_patterns_do_not_express_keep_their_node() -> None:
    spread = msgspec.structs.replace(shape(3, 12, 1), unplanned=("topologySpreadConstraints",))
    bound = [occupied(f"s{n}", pods(1, spread, f"s{n}"), 1_000_000) for n in range(8)]
    found = replan(bound, [], [], [POOL], WORLD)
    assert (found.returned, found.after, found.bound) == ((), 8_000_000, 8_000_000)


@pytest.mark.report(508)
def test_nodes_for_cpu_and_nodes_for_memory_give_way_to_both_kinds_at_once() -> None:
    plain = instance("m.large", cpu=8, memory_gib=32)
    much_cpu, much_memory = instance("c.large", cpu=8, memory_gib=16), instance("r.large", cpu=8, memory_gib=64)
    world = on_demand({plain: 400_000, much_cpu: 340_000, much_memory: 420_000})
    pool = node_pool()
    computing, caching = pods(4, shape(3.9, 1.5), "c"), pods(4, shape(0.2, 15), "r")
    mixed = [
        occupied(f"n{at}", [computing[at], caching[at]], 400_000, cpu=3.9, memory_gib=15.5) for at in range(4)
    ]  # each holds one of both, and neither kind alone fills such a node
    found = replan(mixed, [], [], [pool], world)
    assert len(found.returned) == 4
    assert sorted(one.instance_type for one in found.plan.launches) == ["c.large", "c.large", "r.large"]
    assert (found.before, found.after) == (1_600_000, 1_100_000)


@pytest.mark.report(511)
def test_pods_that_wait_and_pods_that_may_move_are_planned_together() -> None:
    found = replan(smalls(6), pods(2, shape(3, 12, 1), "new"), [], [POOL], WORLD)
    assert len(found.returned) == 6, "one large node takes all eight"
    assert [one.instance_type for one in found.plan.launches] == ["g.large"]
    assert (found.before, found.after) == (6_000_000, 6_000_000)
    assert {pod.name for pod in found.plan.launches[0].pods} >= {"new-00000", "new-00001"}
