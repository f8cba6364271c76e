"""Room that is not free yet is kept, on shared devices too; who is moved to make it does not come back to take it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from builders import node, pod
from gang_builders import gang, members
from preemption_builders import Cluster, cluster, nominated
from random_clusters import columns
from tonnage.decisions import Bind, Evict
from tonnage.fleet.invariants import violations
from tonnage.fleet.state import FleetPod
from tonnage.scheduling import place
from tonnage.scheduling.defrag import DefragLimits

MARKED = {"karpenter.sh/do-not-disrupt": "true"}


def owned(name: str, gpus: int, **fields: Any) -> FleetPod:
    """A pod that its controller makes again."""
    return replace(pod(name, 0.1, 0.1, gpus, **fields), owner="default/some")


def share(name: str, fraction: str, **fields: Any) -> FleetPod:
    """A pod of a part of a device."""
    return pod(name, 0.1, 0.1, annotations={"gpu-fraction": fraction}, **fields)


def settle(made: Cluster, steps: int = 12) -> None:
    """Decide and let go until nothing happens."""
    for _ in range(steps):
        made.step()
        assert violations(made.fleet) == []
        made.let_go()


@pytest.mark.parametrize(
    "waiting",
    [pod("first", 0.1, 0.1, 2, priority=5), share("first", "0.9", priority=5)],
    ids=["whole devices", "a large share"],
)
def test_nobody_is_let_onto_a_shared_device_that_is_being_emptied_for_another(waiting: FleetPod) -> None:
    gpus = 1 if waiting.annotations else 2
    made = cluster(node("a", gpus=gpus), bound={"a": [share("old", "0.3")]}, pods=[waiting, share("late", "0.5")])
    decisions = made.step()
    assert nominated(decisions)["first"] == "a"
    assert not [one for one in decisions if isinstance(one, Bind)]
    settle(made)
    assert made.gone == ["old"] and "first" in made.where()


def test_a_share_still_gets_a_device_that_is_not_being_emptied() -> None:
    made = cluster(
        node("a", gpus=1), node("b", gpus=1), bound={"a": [share("old", "0.3")], "b": [share("there", "0.3", priority=9)]},
        pods=[pod("first", 0.1, 0.1, 1, priority=5), share("late", "0.5")],
    )  # fmt: skip
    binds = {one.pod.name: one.node.name for one in made.decide() if isinstance(one, Bind)}
    assert binds == {"late": "b"}


def test_keeping_room_on_shared_devices_leaves_no_trace() -> None:
    made = cluster(
        node("a", gpus=2), bound={"a": [share("old", "0.3")]},
        pods=[pod("first", 0.1, 0.1, 2, priority=5), share("late", "0.5")],
    )  # fmt: skip
    before = columns(made.fleet)
    made.decide()
    assert columns(made.fleet) == before


def test_a_pod_that_asks_for_what_nobody_asked_for_before_can_preempt_too() -> None:
    """The wanted resources come into the table of candidates' requests after that was made."""
    wanted = [
        pod(f"p{i}", 0.1, 0.1, 4, priority=20 - i, resources={f"example.com/r{i}": "1"} if i else {}) for i in range(12)
    ]
    made = cluster(node("a", gpus=4), bound={"a": [pod("old", 0.1, 0.1, 4)]}, pods=wanted)
    assert nominated(made.decide()) == {"p0": "a"}


@pytest.mark.parametrize(
    ("policy", "priority", "moved"),
    [("binpack", 9, ["x"]), ("spread", 9, []), ("spread", 0, ["x"])],
    ids=["would go there by itself", "would come back, and first", "comes back after who got the room"],
)
def test_a_more_important_pod_is_moved_only_where_it_would_go_by_itself(
    policy: str, priority: int, moved: list[str]
) -> None:
    """Its controller makes it again when it is gone, so that nothing is held for it."""
    made = cluster(
        node("a", gpus=4), node("b", gpus=4),
        bound={"a": [owned("x", 1, priority=priority)], "b": [owned("y", 3, priority=99, annotations=MARKED)]},
        pods=[pod("wanting", 0.1, 0.1, 4, priority=1, created_ns=1)],
    )  # fmt: skip
    for _ in range(6):
        made.step(policy=policy, preemption=False, defrag=DefragLimits(cooldown_ns=0))
        made.let_go()
    assert [name.partition("~")[0] for name in made.gone] == moved
    assert ("wanting" in made.where()) == bool(moved)


def test_a_decision_that_is_made_twice_is_the_same() -> None:
    """The first leaves the waiting pods in another order than it found them in."""
    made = cluster(
        node("a", gpus=2), bound={"a": [pod("old", 0.1, 0.1, 2)]}, gangs=[gang(1, priority=5)],
        pods=members(4, gpus=1, cpu=0.1, memory_gib=0.1, priority=5),
    )  # fmt: skip
    cache = place.Cache(made.fleet)
    first = place.decide(made.snapshot, cache=cache)
    assert place.decide(made.snapshot, cache=cache) == first
    for row in sorted(made.fleet.pending, reverse=True):
        made.fleet.pending[row] = made.fleet.pending.pop(row)
    assert place.decide(made.snapshot, cache=cache) == first


def test_a_gang_that_is_moved_leaves_whole_though_one_of_its_pods_takes_the_place_of_another() -> None:
    there = [replace(one, owner="default/some") for one in (*members(1, gpus=3), *members(1, gpus=2, prefix="h"))]
    made = cluster(
        node("a", gpus=4), node("b", gpus=4), node("c", gpus=3),
        bound={"a": there[1:], "b": [there[0], owned("stays", 1, annotations=MARKED)]}, gangs=[gang(2)],
        pods=[pod("wanting", 0.1, 0.1, 4, priority=1)],
    )  # fmt: skip
    decisions = made.step(preemption=False, defrag=DefragLimits(cooldown_ns=0))
    moved = {one.pod.name: one.to for one in decisions if isinstance(one, Evict)}
    assert moved == {"g--0": "c", "h-0": "b"}
