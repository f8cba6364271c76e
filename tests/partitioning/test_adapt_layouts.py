"""Which GPUs are repartitioned when pods wait: only those on which one can run then, and never what is in use."""

from __future__ import annotations

import random
import time
from dataclasses import replace

import pytest

from builders import GPU
from relayout_builders import (
    ALL,
    EMPTY,
    HALF,
    HALVES,
    SEVEN,
    SMALL,
    WHOLE,
    applied,
    asking,
    gpu_fleet,
    gpu_node,
    seen,
)
from tonnage.decisions import Launch, Reason, Ref, Relayout
from tonnage.fleet.gangs import Gang
from tonnage.fleet.invariants import violations
from tonnage.fleet.rows import FleetPod
from tonnage.fleet.snapshot import ClaimView, Snapshot
from tonnage.fleet.state import Conflict, Fleet
from tonnage.partitioning import adapt
from tonnage.partitioning.fleet_layouts import as_layout, busy_in, instances_of
from tonnage.scheduling.filters import SchedulerFilters


def decide(snapshot: Snapshot) -> list[Relayout]:
    return adapt.decide(snapshot, SchedulerFilters.of(snapshot.fleet))


def names(made: Fleet) -> set[str]:
    return {made.pod(row).spec.name for row in made.pending}


def place_all(made: Fleet) -> None:
    """Bind every pod that fits, as a scheduler would."""
    for row in list(made.pending):
        for node in made.node_rows():
            try:
                made.bind(row, node)
            except Conflict:
                continue
            break


def test_nothing_changes_while_nobody_waits() -> None:
    assert decide(seen(gpu_fleet(gpu_node("a", SEVEN, EMPTY, WHOLE)))) == []


def test_nothing_changes_for_a_pod_that_fits_as_things_stand() -> None:
    assert decide(seen(gpu_fleet(gpu_node("a", SEVEN, HALVES), waiting=[asking("p", HALF)]))) == []


def test_idle_small_instances_make_room_for_a_large_one_that_is_waited_for() -> None:
    made = gpu_fleet(gpu_node("a", SEVEN), waiting=[asking("p", HALF)])
    (one,) = decide(seen(made))
    assert (one.before, one.device, one.node.name) == (SEVEN, 0, "a")
    assert [profile for profile, _ in one.after or ()].count(HALF) == 1
    assert one.reason.verdict == "no GPU offers nvidia.com/mig-3g.40gb for default/p"
    assert dict(one.reason.evidence) == {
        "waiting": 1,
        "served here": 1,
        "destroyed": 3,
        "created": 1,
        "in use": 0,
    }
    applied(made, [one])
    place_all(made)
    assert names(made) == set()


def test_as_few_instances_go_as_serve_the_pod() -> None:
    made = gpu_fleet(gpu_node("a", SEVEN), waiting=[asking("p", "2g.20gb")])
    (one,) = decide(seen(made))
    assert len([kept for kept in one.after or () if kept in (SEVEN or ())]) == 5


def test_instances_in_use_stay_where_they_are() -> None:
    busy = [asking(f"busy-{i}") for i in range(3)]
    made = gpu_fleet(gpu_node("a", SEVEN), a=busy, waiting=[asking("p", HALF)])
    held = set(busy_in(made, (0, 0)))
    (one,) = decide(seen(made))
    assert held <= set(as_layout(one.after))
    applied(made, [one])
    place_all(made)
    assert names(made) == set()
    assert held <= set(busy_in(made, (0, 0)))


def test_where_all_is_in_use_nothing_changes() -> None:
    made = gpu_fleet(gpu_node("a", SEVEN), a=[asking(f"b{i}") for i in range(7)], waiting=[asking("p", HALF)])
    assert decide(seen(made)) == []


def test_a_node_without_the_label_is_left_as_it_is() -> None:
    made = gpu_fleet(gpu_node("a", SEVEN, may=False), waiting=[asking("p", HALF)])
    assert decide(seen(made)) == []


def test_a_cordoned_node_is_left_as_it_is() -> None:
    made = gpu_fleet(gpu_node("a", SEVEN), waiting=[asking("p", HALF)])
    made.set_schedulable(0, False)
    assert decide(seen(made)) == []


def test_of_two_gpus_the_one_where_fewer_instances_go_is_cut_and_the_reason_names_the_other() -> None:
    made = gpu_fleet(gpu_node("a", SEVEN), gpu_node("b", ((SMALL, 0), (SMALL, 6))), waiting=[asking("p", HALF)])
    (one,) = decide(seen(made))
    assert one.node.name == "b"
    assert [(a.name, a.why, a.score) for a in one.reason.alternatives] == [
        ("GPU a/0", "destroys 3", 3.0),
        ("stay 2 x 1g.10gb", "none of them can run", None),
    ]


def test_a_whole_idle_gpu_is_cut_for_a_pod_that_asks_for_an_instance() -> None:
    made = gpu_fleet(gpu_node("a", WHOLE, WHOLE), a=[asking("busy", GPU)], waiting=[asking("p", SMALL)])
    (one,) = decide(seen(made))
    assert (one.device, one.before) == (1, None)
    assert one.after is not None and {profile for profile, _ in one.after} == {SMALL}


def test_cut_gpus_without_use_become_whole_for_a_pod_that_asks_for_two() -> None:
    cards = (SEVEN, HALVES, SEVEN)
    made = gpu_fleet(gpu_node("a", *cards), a=[asking("busy")], waiting=[asking("p", GPU, 2)])
    found = decide(seen(made))
    free = [device for device in range(3) if not busy_in(made, (0, device))]
    assert [one.device for one in found] == free
    assert {one.after for one in found} == {None}
    applied(made, found)
    place_all(made)
    assert names(made) == set()


def test_a_whole_gpu_is_told_from_an_instance_of_all_of_it() -> None:
    made = gpu_fleet(gpu_node("a", ((ALL, 0),)), waiting=[asking("p", GPU)])
    (one,) = decide(seen(made))
    assert (one.before, one.after) == (((ALL, 0),), None)
    made = gpu_fleet(gpu_node("a", WHOLE), waiting=[asking("p", ALL)])
    (one,) = decide(seen(made))
    assert (one.before, one.after) == (None, ((ALL, 0),))


def test_a_pod_that_asks_for_several_instances_gets_them_on_one_node() -> None:
    made = gpu_fleet(
        gpu_node("a", SEVEN), gpu_node("b", HALVES, SEVEN), b=[asking("busy")], waiting=[asking("p", HALF, 3)]
    )
    found = decide(seen(made))
    assert {one.node.name for one in found} == {"b"}
    applied(made, found)
    place_all(made)
    assert names(made) == set()


def test_a_gang_of_which_only_a_part_would_fit_changes_nothing() -> None:
    def waiting(count: int) -> list[FleetPod]:
        return [_member(f"p{i}", "default/g") for i in range(count)]

    gangs = {"default/g": Gang("default/g", 3)}
    made = gpu_fleet(gpu_node("a", SEVEN), waiting=waiting(3))
    assert decide(seen(made, gangs=gangs)) == []
    made = gpu_fleet(gpu_node("a", SEVEN), gpu_node("b", SEVEN), waiting=waiting(3))
    assert {one.node.name for one in decide(seen(made, gangs=gangs))} == {"a", "b"}


def _member(name: str, gang: str) -> FleetPod:
    return replace(asking(name, HALF), gang=gang)


def test_pods_of_higher_priority_are_served_first() -> None:
    made = gpu_fleet(
        gpu_node("a", HALVES), waiting=[asking("low", ALL, created_ns=0), asking("high", SMALL, priority=9)]
    )
    found = decide(seen(made))
    applied(made, found)
    place_all(made)
    assert names(made) == {"low"}


def test_a_pod_that_may_stand_on_one_node_only_is_served_there() -> None:
    choosy = asking("p", HALF, nodeSelector={"kubernetes.io/hostname": "b"})
    made = gpu_fleet(gpu_node("a", SEVEN), gpu_node("b", SEVEN), waiting=[choosy])
    assert [one.node.name for one in decide(seen(made))] == ["b"]


def test_no_gpu_is_cut_for_a_pod_that_lacks_something_else() -> None:
    made = gpu_fleet(gpu_node("a", SEVEN), waiting=[asking("p", HALF, cpu=500)])
    assert decide(seen(made)) == []


def test_a_gpu_that_is_being_cut_is_counted_as_it_will_be_and_not_planned_again() -> None:
    made = gpu_fleet(gpu_node("a", EMPTY, SEVEN), waiting=[asking("p", HALF)])
    assert decide(seen(made, relayouts={("a", 0): HALVES})) == []
    for i in range(2):
        made.add_pod(asking(f"more-{i}", HALF))
    assert [one.device for one in decide(seen(made, relayouts={("a", 0): HALVES}))] == [1]


def test_a_pod_for_whom_a_node_is_on_its_way_or_room_is_made_changes_nothing() -> None:
    made = gpu_fleet(gpu_node("a", SEVEN), waiting=[asking("p", HALF)])
    launch = Launch(
        Ref("NodeClaim", "n"), "pool", "p5.4xlarge", "z", "spot", 1, Reason("x"), (Ref("Pod", "p", "default"),)
    )
    assert decide(seen(made, claims=(ClaimView(launch, 0),))) == []
    assert decide(seen(made, nominations={"default/p": "a"})) == []


def test_demand_that_alternates_and_fits_changes_nothing() -> None:
    made = gpu_fleet(gpu_node("a", ((HALF, 0), *((SMALL, start) for start in (4, 5, 6)))))
    for turn in range(20):
        row = made.add_pod(asking(f"p{turn}", HALF if turn % 2 else SMALL))
        assert decide(seen(made)) == []
        place_all(made)
        assert not made.pending
        made.remove_pod(row)


def test_what_it_decides_lets_pods_run_and_leaves_no_trace_by_itself() -> None:
    rng = random.Random(7)
    changed = 0
    for _ in range(60):
        cards = [rng.choice((SEVEN, HALVES, EMPTY, WHOLE, ((ALL, 0),))) for _ in range(3)]
        made = gpu_fleet(gpu_node("a", *cards), gpu_node("b", *cards[:2]))
        for i in range(rng.randrange(12)):
            made.add_pod(asking(f"p{i:02d}", rng.choice((SMALL, SMALL, HALF, ALL, GPU))))
        place_all(made)
        for row in [row for row, pod in enumerate(made.pods) if pod is not None and pod.node >= 0]:
            if rng.random() < 0.5:
                made.remove_pod(row)
        for i in range(rng.randrange(1, 6)):
            made.add_pod(asking(f"q{i:02d}", rng.choice((SMALL, HALF, ALL, GPU)), priority=rng.randrange(2)))
        place_all(made)
        before = [instances_of(made, (row, device)) for row in (0, 1) for device in range(len(cards) - row)]
        waiting, held = names(made), {pod.key: pod.pieces for pod in made.pods if pod is not None}
        found = decide(seen(made))
        assert decide(seen(made)) == found
        assert before == [instances_of(made, (row, device)) for row in (0, 1) for device in range(len(cards) - row)]
        applied(made, found)  # raises where something in use would go
        assert held == {pod.key: pod.pieces for pod in made.pods if pod is not None}
        place_all(made)
        assert violations(made) == []
        assert len(names(made)) <= len(waiting) - bool(found)
        changed += bool(found)
    assert changed > 20


@pytest.mark.parametrize("count", [1, 7, 14])
def test_all_demand_is_looked_at_together(count: int) -> None:
    made = gpu_fleet(gpu_node("a", HALVES, HALVES), waiting=[asking(f"p{i:02d}") for i in range(count)])
    found = decide(seen(made))
    assert len(found) == -(-count // 7)
    applied(made, found)
    place_all(made)
    assert names(made) == set()


def test_a_thousand_gpus_with_eight_hundred_pods_that_wait_take_three_seconds_at_most() -> None:
    rng = random.Random(1)
    layouts = (SEVEN, HALVES, WHOLE, ((ALL, 0),))
    made = gpu_fleet(*(gpu_node(f"n{i:03d}", *(rng.choice(layouts) for _ in range(8))) for i in range(125)))
    for i in range(1500):
        made.add_pod(asking(f"b{i}", rng.choice((SMALL, HALF))))
    place_all(made)
    for i in range(500):
        made.add_pod(asking(f"w{i}", rng.choice((SMALL, HALF, GPU)), priority=i % 3))
    for i in range(40):
        made.add_pod(asking(f"x{i}", GPU, 4))
    assert len(made.pending) > 800
    began = time.process_time()
    found = decide(seen(made))
    assert time.process_time() - began < 3
    assert len(found) > 300
