"""The predicted time of a gang's all-reduce."""

from __future__ import annotations

import pytest

from builders import fleet, node
from gang_builders import CLIQUE
from tonnage.fleet.state import Fleet
from tonnage.scheduling.communication import allreduce, evidence_of
from tonnage.units import GIB

EIGHT = tuple(range(8))


def machines(count: int, kind: str = "p5.48xlarge", **fields: object) -> Fleet:
    """Nodes of one type."""
    return fleet(*(node(f"n{i}", gpus=8, instance_type=kind, **fields) for i in range(count)))  # type: ignore[arg-type]


def test_inside_a_node_it_is_the_ring_over_nvlink() -> None:
    found = allreduce(machines(1), [(0, EIGHT)], GIB)
    assert found is not None
    assert found.seconds == pytest.approx(2 * 7 / 8 * GIB / 450e9 + 14 * 3.4e-6 + 8.4e-6)
    assert (found.slowest, found.gpus, found.islands) == ("nvlink", 8, 1)


def test_between_nodes_the_interfaces_of_a_node_are_shared_by_its_gpus() -> None:
    """Two p4d: 400 Gb/s carry 2 * 1/2 of a GiB."""
    found = allreduce(machines(2, "p4d.24xlarge"), [(0, EIGHT), (1, EIGHT)], GIB)
    assert found is not None
    inside = 2 * 7 / 8 * GIB / 300e9 + 14 * 3.4e-6 + 8.4e-6
    between = GIB / 50e9 + 2 * 9.6e-6 + 8.4e-6
    assert found.seconds == pytest.approx(inside + between)
    assert found.slowest == "network"


def test_the_slowest_link_counts() -> None:
    mixed = fleet(
        node("a", gpus=8, instance_type="p5.48xlarge"),
        node("b", gpus=8, instance_type="p5.48xlarge"),
        node("c", gpus=8, instance_type="g5.48xlarge"),
    )
    fast = allreduce(mixed, [(0, EIGHT), (1, EIGHT)], GIB)
    slow = allreduce(mixed, [(0, EIGHT), (2, EIGHT)], GIB)
    assert fast is not None
    assert slow is not None
    assert slow.seconds > 10 * fast.seconds


def test_nodes_of_one_nvlink_domain_need_no_network() -> None:
    rack = fleet(*(node(f"n{i}", gpus=4, gpu="gb200", labels={CLIQUE: f"uuid.{i // 2}"}) for i in range(4)))
    four = (0, 1, 2, 3)
    found = allreduce(rack, [(0, four), (1, four)], GIB)
    assert found is not None
    assert (found.islands, found.slowest) == (1, "nvlink")
    assert found.seconds == pytest.approx(2 * 7 / 8 * GIB / 900e9 + 14 * 3.4e-6 + 8.4e-6)
    assert allreduce(rack, [(1, four), (2, four)], GIB) is None  # and what lies between domains is not known


def test_a_tree_is_taken_where_many_nodes_would_make_a_long_ring() -> None:
    many = machines(1_000)
    found = allreduce(many, [(i, EIGHT) for i in range(1_000)], 1_000)
    assert found is not None
    assert found.seconds < 2 * 999 * 9.6e-6 / 5


def test_fewer_than_two_gpus_have_nothing_to_reduce_and_an_unknown_model_is_no_data() -> None:
    assert evidence_of(machines(1), [(0, (0,))]) == ()
    assert evidence_of(machines(1), [(0, ())]) == ()
    assert evidence_of(machines(2, ""), [(0, EIGHT), (1, EIGHT)]) == (("allreduce_ms_per_gib", None),)


def test_more_nodes_never_make_it_sooner() -> None:
    made = machines(16, "p4d.24xlarge")
    times = [allreduce(made, [(i, EIGHT) for i in range(n)], GIB) for n in range(1, 17)]
    seconds = [one.seconds for one in times if one is not None]
    assert len(seconds) == 16
    assert seconds == sorted(seconds)
