"""Which GPUs of a node a pod gets."""

from __future__ import annotations

import pytest

from builders import apply, decide, fleet, node, pod
from gang_builders import gang, members, snapshot
from tonnage.decisions import Bind
from tonnage.facts import interconnects
from tonnage.scheduling import place
from tonnage.scheduling.device_choice import choose, links_of


@pytest.mark.parametrize(
    ("machine", "free", "count", "chosen"),
    [
        ("g5.48xlarge", (0, 1, 2, 3, 4, 5, 6, 7), 4, (0, 1, 2, 3)),
        ("g5.48xlarge", (2, 3, 4, 5, 6, 7), 4, (4, 5, 6, 7)),
        ("g5.48xlarge", (0, 1, 2, 3, 4, 5), 2, (4, 5)),
        ("g5.48xlarge", (0, 1, 2, 3, 4), 1, (4,)),
        ("g5.12xlarge", (1, 2, 3), 2, (1, 2)),
        ("p4d.24xlarge", (0, 2, 3, 4, 5, 6, 7), 2, (2, 3)),
        ("p4d.24xlarge", (1, 2, 4, 6, 7), 2, (6, 7)),
        ("p3.16xlarge", (0, 1, 2, 3, 4, 5, 6, 7), 2, (0, 3)),
        ("p3.16xlarge", (0, 1, 2, 3, 4, 5, 6, 7), 4, (0, 1, 2, 3)),
        ("p3.16xlarge", (0, 4, 5, 7), 2, (0, 4)),
        ("unheard.of", (1, 2, 5), 2, (1, 2)),
    ],
)
def test_the_best_joined_gpus_are_taken_and_those_left_are_well_joined(
    machine: str, free: tuple[int, ...], count: int, chosen: tuple[int, ...]
) -> None:
    assert choose(machine, free, count) == chosen


def test_a_pod_with_two_gpus_stays_at_one_socket() -> None:
    """Beside five single GPUs the lowest free ones are 3 and 5 of a machine whose sockets have 0-3 and 4-7."""
    made = fleet(node("a", cpu=64, gpus=8, instance_type="g5.48xlarge"))
    for i in (0, 1, 2, 4):
        made.bind(made.add_pod(pod(f"x-{i}", gpus=1)), 0, (i,))
    made.add_pod(pod("pair", gpus=2))
    (bind,) = (d for d in decide(made) if isinstance(d, Bind))
    assert bind.devices == (5, 6)
    apply(made, [bind])


def test_members_of_a_gang_get_their_gpus_in_the_same_way() -> None:
    made = fleet(node("a", cpu=64, gpus=8, labels={"node.kubernetes.io/instance-type": "p4d.24xlarge"}))
    made.bind(made.add_pod(pod("x", gpus=1)), 0, (1,))
    for one in members(3, gpus=2):
        made.add_pod(one)
    decisions = place.decide(snapshot(made, gang(3)))
    assert [d.devices for d in decisions if isinstance(d, Bind)] == [(2, 3), (4, 5), (6, 7)]


def test_where_nothing_is_known_of_a_machine_the_lowest_indices_are_taken() -> None:
    made = fleet(node("a", cpu=64, gpus=8), pods=[pod("pair", gpus=2)])
    assert [d.devices for d in decide(made) if isinstance(d, Bind)] == [(0, 1)]


@pytest.mark.parametrize(
    ("machine", "gpus", "devices", "link"),
    [
        ("p3.16xlarge", 8, (0, 3), ("nvlink", 50e9)),
        ("p3.16xlarge", 8, (0, 1), ("nvlink", 25e9)),
        ("p3.16xlarge", 8, (0, 6), ("pcie", 16e9)),
        ("p3.16xlarge", 8, (0, 1, 2, 3), ("nvlink", 25e9)),
        ("p3.16xlarge", 8, tuple(range(8)), ("nvlink", 50e9)),
        ("p5.48xlarge", 8, (0, 6), ("nvlink", 450e9)),
        ("p5.48xlarge", 8, (0,), ("pcie", 64e9)),
        ("g5.12xlarge", 4, (0, 1), ("pcie", 32e9)),
        ("", 4, (0, 1), ("pcie", None)),
    ],
)
def test_a_ring_is_as_fast_as_its_slowest_link(
    machine: str, gpus: int, devices: tuple[int, ...], link: tuple[str, float | None]
) -> None:
    made = fleet(node("a", gpus=gpus, instance_type=machine))
    assert links_of(made.node(0), devices, switched=False) == link


def test_every_gpu_of_the_v100_mesh_has_six_links() -> None:
    topology = interconnects.gpu_topology("p3.16xlarge")
    assert topology is not None
    assert [sum(n for pair, n in topology.nvlinks.items() if gpu in pair) for gpu in range(8)] == [6] * 8


def test_the_topologies_are_those_of_machines_that_exist_and_cover_their_gpus() -> None:
    from tonnage.facts import instances, tables

    for row in tables.rows("gpu_topologies.csv"):
        topology = interconnects.gpu_topology(row["instance_type"])
        assert topology is not None
        assert topology.gpus == instances.get(topology.instance_type).gpu_count
        for groups in (topology.numa, topology.switches):
            assert sorted(gpu for group in groups for gpu in group) in ([], list(range(topology.gpus)))
