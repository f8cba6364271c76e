"""What may be done to a fleet, and what is refused."""

from __future__ import annotations

import pytest

from builders import GPU, fleet, node, pod, pod_spec, taint
from tonnage.fleet.columns import BindingJournal
from tonnage.fleet.invariants import violations
from tonnage.fleet.state import FREE_DEVICE, NO_DEVICE, Conflict, Fleet
from tonnage.units import GIB


def one_gpu_node(gpus: int = 4) -> Fleet:
    return fleet(node("a", gpus=gpus), pods=[pod("p", gpus=2), pod("q", gpus=1)])


def test_a_bound_pod_takes_resources_and_the_lowest_free_devices() -> None:
    made = one_gpu_node()
    assert made.bind(0, 0) == (0, 1)
    assert made.bind(1, 0) == (2,)
    assert made.free[0, made.resource("cpu")] == 6000
    assert made.free[0, made.resource("memory")] == 30 * GIB
    assert made.free[0, made.resource("pods")] == 108
    assert made.devices[0, :5].tolist() == [0, 0, 1, FREE_DEVICE, NO_DEVICE]
    assert not made.pending
    assert violations(made) == []


def test_an_unbound_pod_gives_back_what_it_held_and_is_pending_again() -> None:
    made = one_gpu_node()
    made.bind(0, 0)
    made.unbind(0)
    assert (made.free == made.allocatable).all()
    assert made.devices[0, :4].tolist() == [FREE_DEVICE] * 4
    assert list(made.pending) == [1, 0]
    assert made.pod(0).devices == ()


@pytest.mark.parametrize(
    ("devices", "says"),
    [
        ((0, 0), "2 devices requested"),
        ((0, 0, 1), "2 devices requested"),
        ((0,), "2 devices requested"),
        ((0, 1, 2), "2 devices requested"),
        ((2, 3), "is not free"),
        ((0, 4), "is not free"),
        ((0, -1), "is not free"),
    ],
)
def test_devices_are_free_distinct_there_and_as_many_as_requested(devices: tuple[int, ...], says: str) -> None:
    made = one_gpu_node()
    made.bind(1, 0, (3,))
    with pytest.raises(Conflict, match=says):
        made.bind(0, 0, devices)
    assert made.pod(0).node == -1
    assert violations(made) == []


@pytest.mark.parametrize(
    ("name", "request_", "says"),
    [
        ("cpu", {"cpu": 9}, "8000 cpu free, the pod requests 9000"),
        ("memory", {"memory_gib": 33}, "memory free"),
        ("gpu", {"gpus": 5}, "4 nvidia.com/gpu free, the pod requests 5"),
        ("other", {"resources": {"example.com/nic": "1"}}, "0 example.com/nic free"),
    ],
)
def test_a_pod_that_requests_more_than_is_free_is_not_bound(name: str, request_: dict[str, float], says: str) -> None:
    made = fleet(node("a", gpus=4))
    row = made.add_pod(pod(name, **request_))
    with pytest.raises(Conflict, match=says):
        made.bind(row, 0)
    assert (made.free == made.allocatable).all()


def test_a_node_takes_no_more_pods_than_it_has_room_for() -> None:
    made = fleet(node("a", pods=1), pods=[pod("p", cpu=0, memory_gib=0), pod("q", cpu=0, memory_gib=0)])
    made.bind(0, 0)
    with pytest.raises(Conflict, match="0 pods free"):
        made.bind(1, 0)


def test_a_pod_is_bound_once() -> None:
    made = fleet(node("a"), pods=[pod("p")])
    made.bind(0, 0)
    with pytest.raises(Conflict, match="default/p is bound already"):
        made.bind(0, 0)


def test_names_are_taken_once() -> None:
    made = fleet(node("a"), pods=[pod("p")])
    with pytest.raises(Conflict, match="node a exists"):
        made.add_node(node("a"))
    with pytest.raises(Conflict, match="pod default/p exists"):
        made.add_pod(pod("p"))
    assert made.add_pod(pod("p", namespace="other")) == 1


def test_a_node_with_pods_is_not_removed() -> None:
    made = fleet(node("a"), bound={"a": [pod("p")]})
    with pytest.raises(Conflict, match="still holds 1 pods"):
        made.remove_node(0)
    made.remove_pod(0)
    made.remove_node(0)
    assert made.node_rows() == []
    assert violations(made) == []


@pytest.mark.parametrize("row", [-1, 1, 99])
def test_a_row_without_a_node_or_pod_is_a_conflict(row: int) -> None:
    made = fleet(node("a"), pods=[pod("p")])
    with pytest.raises(Conflict, match=f"no node in row {row}"):
        made.node(row)
    with pytest.raises(Conflict, match=f"no pod in row {row}"):
        made.pod(row)


def test_the_row_of_what_is_gone_is_used_again_and_holds_nothing_of_it() -> None:
    made = fleet(node("a", gpus=4, zone="z", taints=["x=y:NoSchedule"]), node("b"))
    made.remove_node(0)
    row = made.add_node(node("c", cpu=2))
    assert row == 0
    assert made.allocatable_of(0) == {"cpu": 2000, "memory": 32 * GIB, "pods": 110}
    assert (made.devices[0] == NO_DEVICE).all()
    assert made.label_sets.rows[made.label_set[0]] == {}
    assert made.taint_sets.rows[made.taint_set[0]] == ()
    assert violations(made) == []


def test_gpus_appear_when_the_device_plugin_registers() -> None:
    made = fleet(node("a", device_resource=GPU), pods=[pod("p", gpus=1)])
    with pytest.raises(Conflict, match=r"0 nvidia\.com/gpu free"):
        made.bind(0, 0)
    made.set_allocatable(0, made.allocatable_of(0) | {GPU: 12})
    assert made.bind(0, 0) == (0,)
    assert made.devices.shape[1] >= 12
    assert violations(made) == []


@pytest.mark.parametrize(
    ("devices", "allocatable", "says"),
    [
        (None, {"cpu": 500}, "hold more cpu"),
        (None, {GPU: 1}, "hold more nvidia.com/gpu"),
        ((2, 3), {GPU: 3}, "cannot be taken away"),
    ],
)
def test_what_pods_hold_is_not_taken_from_a_node(
    devices: tuple[int, ...] | None, allocatable: dict[str, int], says: str
) -> None:
    made = fleet(node("a", gpus=4), pods=[pod("p", gpus=2)])
    made.bind(0, 0, devices)
    before = made.allocatable_of(0)
    with pytest.raises(Conflict, match=says):
        made.set_allocatable(0, before | allocatable)
    assert made.allocatable_of(0) == before
    assert violations(made) == []


def test_tables_grow_with_nodes_and_resources() -> None:
    made = fleet(*(node(f"n{i:03d}", cpu=i, resources={f"example.com/r{i % 7}": 1}) for i in range(100)))
    assert [int(made.allocatable[row, 0]) for row in made.node_rows()] == [1000 * i for i in range(100)]
    assert all(made.allocatable_of(i)[f"example.com/r{i % 7}"] == 1 for i in range(100))
    assert violations(made) == []


def test_pods_that_no_scheduler_can_tell_apart_are_one_class() -> None:
    made = fleet(pods=[pod("a", labels={"app": "x"}), pod("b", labels={"app": "x"}, priority=9)])
    assert made.pod(0).class_id == made.pod(1).class_id


@pytest.mark.parametrize(
    "other",
    [
        {"labels": {"app": "y"}},
        {"namespace": "other"},
        {"cpu": 2},
        {"nodeSelector": {"a": "b"}},
        {"nodeName": "a"},
        {"tolerations": [{"operator": "Exists"}]},
        {"topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "z"}]},
    ],
    ids=str,
)
def test_pods_that_differ_in_anything_that_placement_sees_are_different_classes(other: dict[str, object]) -> None:
    made = fleet(pods=[pod("a", labels={"app": "x"}), pod("b", **({"labels": {"app": "x"}} | other))])
    assert made.pod(0).class_id != made.pod(1).class_id


def test_classes_that_differ_in_labels_alone_share_their_shape() -> None:
    made = fleet(pods=[pod("a", labels={"app": "x"}), pod("b", labels={"app": "y"})])
    assert made.pod_class(0).shape == made.pod_class(1).shape
    assert made.pod_class(0).identity != made.pod_class(1).identity


def test_a_template_that_many_pods_share_is_read_once_for_each_set_of_labels() -> None:
    template = pod_spec(cpu=2)
    made = fleet(pods=[pod(f"p{i}", labels={"app": str(i % 2)}, spec=template) for i in range(6)])
    assert [made.pod(row).class_id for row in range(6)] == [0, 1, 0, 1, 0, 1]


def test_the_revision_rises_with_every_change() -> None:
    made = fleet(node("a"), pods=[pod("p")])
    seen = [made.revision]
    for change in (
        lambda: made.bind(0, 0),
        lambda: made.unbind(0),
        lambda: made.set_schedulable(0, False),
        lambda: made.set_taints(0, (taint("a=b:NoSchedule"),)),
        lambda: made.set_allocatable(0, {"cpu": 1}),
        lambda: made.remove_pod(0),
        lambda: made.remove_node(0),
    ):
        change()
        seen.append(made.revision)
    assert seen == sorted(set(seen))


def test_a_reader_that_fell_behind_the_journal_is_told_so() -> None:
    journal = BindingJournal()
    for i in range(2 * BindingJournal.KEPT):
        journal.append((1, 0, i))
    assert journal.end == 2 * BindingJournal.KEPT
    assert journal.since(0) is None
    assert journal.since(journal.end - 2) == [(1, 0, journal.end - 2), (1, 0, journal.end - 1)]
    assert journal.since(journal.end) == []
