"""What a gang that waits is told: numbers that agree with each other, and the part of it that is short."""

from __future__ import annotations

import pytest

from builders import HOSTNAME, away, fleet, node
from gang_builders import RACK, gang, member, members, part, snapshot
from tonnage.fleet.gangs import Gang
from tonnage.fleet.state import Fleet
from tonnage.scheduling.why.receipt import WAITS, GangReceipt, why

INDEX = "batch.kubernetes.io/job-completion-index"


def receipt(made: Fleet, one: Gang) -> GangReceipt:
    found = why(snapshot(made, one), one.key)
    assert isinstance(found, GangReceipt)
    assert found.state == WAITS
    return found


def held(found: GangReceipt) -> dict[tuple[str, str], tuple[int, int]]:
    """(needs, holds) by group and level."""
    return {(room.group, room.level): (room.needs, room.holds) for room in found.room}


def numbered(count: int, gpus: int = 1, **fields: object) -> list[object]:
    """Pods that differ in a label with their number alone."""
    return [member(f"p-{i}", gpus=gpus, labels={"app": "x", INDEX: str(i)}, **fields) for i in range(count)]


@pytest.mark.report(206)
@pytest.mark.parametrize(
    ("pods", "gpus", "nodes", "cluster", "host"),
    [(4, 1, [2], 2, 2), (5, 8, [8, 8, 8, 8], 4, 1), (6, 2, [5, 3], 3, 2)],
    ids=["four of one GPU on two", "five of eight on four nodes", "what is left of a node counts for nobody"],
)
def test_pods_that_differ_by_their_number_are_counted_as_one_class(
    pods: int, gpus: int, nodes: list[int], cluster: int, host: int
) -> None:
    made = fleet(*(node(f"n{i}", gpus=free) for i, free in enumerate(nodes)), pods=numbered(pods, gpus))
    found = receipt(made, gang(pods))
    assert found.verdict == f"gang default/g needs room for {pods} pods; the cluster has room for {cluster}"
    assert held(found) == {
        ("default/g", "the cluster"): (pods, cluster),
        ("default/g", HOSTNAME): (pods, host),
    }


def test_numbered_pods_that_keep_each_other_off_a_host_hold_one_each() -> None:
    rule = {"affinity": away({"topologyKey": HOSTNAME, "labelSelector": {"matchLabels": {"app": "x"}}})}
    made = fleet(node("a", gpus=8), node("b", gpus=8), pods=numbered(3, **rule))
    found = receipt(made, gang(3))
    assert held(found)["default/g", "the cluster"] == (3, 2)
    assert held(found)["default/g", HOSTNAME] == (3, 1)


@pytest.mark.report(210)
def test_numbered_pods_with_one_host_port_hold_one_each() -> None:
    ports = {"containers": [{"name": "main", "ports": [{"containerPort": 22, "hostPort": 22}]}]}
    made = fleet(node("a"), node("b"), pods=numbered(3, 0, **ports))
    assert held(receipt(made, gang(3)))["default/g", HOSTNAME] == (3, 1)


@pytest.mark.parametrize(
    ("asked", "free", "holds"),
    [((2, 1, 1), [2], 2), ((4, 4, 1), [6], 2), ((2, 2, 1, 1), [2, 2], 3)],
)
def test_pods_of_different_sizes_are_counted_together(asked: tuple[int, ...], free: list[int], holds: int) -> None:
    pods = [member(f"p-{i}", gpus=gpus) for i, gpus in enumerate(asked)]
    made = fleet(*(node(f"n{i}", gpus=gpus) for i, gpus in enumerate(free)), pods=pods)
    found = receipt(made, gang(len(asked)))
    assert found.verdict == f"gang default/g needs room for {len(asked)} pods; the cluster has room for {holds}"
    assert held(found)["default/g", "the cluster"] == (len(asked), holds)


@pytest.mark.report(206)
def test_the_part_that_is_short_is_named_with_its_own_numbers() -> None:
    pods = [*members(4, subgroup="large", gpus=5), *members(8, subgroup="small", gpus=1)]
    made = fleet(node("a", gpus=7), node("b", gpus=8), pods=pods)
    found = receipt(made, gang(8, part("large", 4), part("small", 4)))
    assert found.verdict == "gang default/g, subgroup large needs room for 4 pods; the cluster has room for 2"
    assert held(found)["large", "the cluster"] == (4, 2)


def test_the_part_that_is_short_is_named_though_there_is_room_for_as_many_of_others() -> None:
    pods = [*members(2, subgroup="large", gpus=8), *members(9, subgroup="small", gpus=1)]
    made = fleet(node("a", gpus=7), node("b", gpus=7), pods=pods)
    found = receipt(made, gang(4, part("large", 2), part("small", 2)))
    assert found.verdict == "gang default/g, subgroup large needs room for 2 pods; the cluster has room for 0"


def test_a_part_is_short_in_the_domain_of_its_gang() -> None:
    pods = [*members(2, subgroup="a", gpus=4), *members(2, subgroup="b", gpus=1)]
    made = fleet(node("large", gpus=8, labels={RACK: "r1"}), node("small", gpus=6, labels={RACK: "r2"}), pods=pods)
    made.bind(made.add_pod(member("other", gang="", gpus=1)), 0)
    found = receipt(made, gang(4, part("a", 2), part("b", 2), required=RACK))
    assert found.verdict == f"gang default/g, subgroup a needs 2 pods in one {RACK}; the best, r1, holds 1"
