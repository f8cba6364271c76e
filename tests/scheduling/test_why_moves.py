"""The moves that would make room for a pod or a gang that waits, and what forbids them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from builders import node, pod
from gang_builders import RACK, gang, members
from preemption_builders import Cluster, budget, cluster, web
from tonnage.fleet.snapshot import PodLife
from tonnage.fleet.state import FleetPod
from tonnage.scheduling.defrag import DefragLimits
from tonnage.scheduling.place import DEFAULTS, Settings
from tonnage.scheduling.why.moves import MovedPod, Moves
from tonnage.scheduling.why.receipt import why

MARKED = {"karpenter.sh/do-not-disrupt": "true"}


def owned(name: str, gpus: int = 1, **fields: Any) -> FleetPod:
    """A pod that its controller makes again."""
    return replace(pod(name, 0.1, 0.1, gpus, **fields), owner="default/some")


def scattered(*bound: FleetPod, waiting: int = 4, **fields: Any) -> Cluster:
    """Two nodes of 4 GPUs, each with one of these pods, and one pod that waits for ``waiting`` GPUs."""
    on = dict(zip("ab", ([one] for one in bound), strict=True))
    nodes = [node("a", gpus=4, price_micro_usd_per_hour=8_000_000), node("b", gpus=4)]
    return cluster(*nodes, bound=on, pods=[pod("wanting", 0.1, 0.1, waiting)], **fields)


def moves_of(made: Cluster, key: str = "default/wanting", settings: Settings = DEFAULTS) -> Moves:
    found = why(made.snapshot, key, settings).moves
    assert found is not None
    return found


def test_the_moves_and_their_cost_are_said() -> None:
    lives = {"default/x": PodLife(started_ns=0, saved_ns=100 * 10**9)}
    found = moves_of(scattered(owned("x"), owned("y", 3), lives=lives))
    assert found == Moves((MovedPod("default/x", "a", "b"),), True, 900.0, 500_000, ("a",))


@pytest.mark.parametrize(
    ("one", "said"),
    [
        (owned("x", annotations=MARKED), "it is marked karpenter.sh/do-not-disrupt"),
        (pod("x", 0.1, 0.1, 1), "it has no controller that would recreate it"),
        (web("x", gpus=1), "PodDisruptionBudget budget allows no more evictions now"),
    ],
)
def test_what_forbids_the_move_is_said(one: FleetPod, said: str) -> None:
    found = moves_of(scattered(one, owned("y", 3, annotations=MARKED), budgets=(budget(max_unavailable=0),)))
    assert (found.moves, found.allowed) == ((MovedPod("default/x", "a", "b", said),), False)


def test_a_node_that_is_not_to_be_disrupted_forbids_its_pods_to_move() -> None:
    made = scattered(owned("x"), owned("y", 3, annotations=MARKED))
    made.fleet.node(0).do_not_disrupt = True
    assert moves_of(made).moves[0].forbidden == "its node is marked karpenter.sh/do-not-disrupt"


def test_moves_that_a_budget_allows_one_by_one_but_not_together_are_not_allowed() -> None:
    made = cluster(
        node("a", gpus=4), node("b", gpus=3), node("c", gpus=3),
        bound={"a": [web("w0", gpus=2), web("w1", gpus=1)], "b": [owned("y", 1)], "c": [owned("z", 2)]},
        pods=[pod("wanting", gpus=4)], budgets=(budget(max_unavailable=1),),
    )  # fmt: skip
    found = moves_of(made)
    assert [one.forbidden for one in found.moves] == ["", "PodDisruptionBudget budget allows no more evictions now"]
    assert not found.allowed


def test_moves_that_are_allowed_are_said_though_fewer_would_do_that_are_not() -> None:
    made = cluster(
        node("a", gpus=4), node("b", gpus=4), node("c", gpus=2),
        bound={"a": [owned("x", annotations=MARKED)], "b": [owned("y"), owned("z")]}, pods=[pod("wanting", gpus=4)],
    )  # fmt: skip
    found = moves_of(made)
    assert found.allowed and {one.pod for one in found.moves} == {"default/y", "default/z"}


@pytest.mark.parametrize(
    ("there", "waiting", "said"),
    [
        ((owned("x", 2), owned("y", 3)), 4, "Pod default/wanting asks for more than is free in all"),
        ((owned("x", 3), owned("y", 3)), 2, "no 16 moves or fewer were found that make room for Pod default/wanting"),
    ],
)
def test_where_no_moves_help_that_is_said(there: tuple[FleetPod, ...], waiting: int, said: str) -> None:
    assert moves_of(scattered(*there, waiting=waiting)) == Moves(none=said)


def test_the_cooldown_of_the_scheduler_counts_where_it_moves_pods() -> None:
    made = scattered(owned("x", created_ns=10**12 - 10**9), owned("y", 3, created_ns=10**12 - 10**9))
    assert moves_of(made).allowed
    assert (
        moves_of(made, settings=Settings(defrag=DefragLimits())).moves[0].forbidden == "it started less than 600 s ago"
    )


def test_a_pod_that_was_placed_before_it_in_the_same_decision_is_not_moved() -> None:
    made = scattered(owned("x", 3), owned("y", 3))
    made.fleet.add_pod(owned("before", 1, priority=1))
    assert moves_of(made, settings=Settings(preemption=False)).none


def test_nothing_is_said_of_moves_where_room_is_being_made_already() -> None:
    made = scattered(owned("x"), owned("y", 3))
    made.fleet.add_pod(owned("important", 4, priority=1))
    assert why(made.snapshot, "default/important").moves is None
    assert why(made.snapshot, "default/x").moves is None


def test_a_gang_is_told_its_moves_too() -> None:
    racks = [node(name, gpus=4, labels={RACK: f"r{name in 'cd'}"}) for name in "abcd"]
    made = cluster(
        *racks, bound={"a": [owned("a0", 2)], "b": [owned("b0", 1)], "c": [owned("c0", 3)], "d": [owned("d0", 1)]},
        pods=members(2, gpus=4), gangs=[gang(2, required=RACK)],
    )  # fmt: skip
    found = moves_of(made, "default/g")
    assert {(one.pod, one.origin) for one in found.moves} == {("default/a0", "a"), ("default/b0", "b")}
    assert {one.target for one in found.moves} <= {"c", "d"}
    assert (found.allowed, found.into) == (True, ("a", "b"))


def test_a_gang_that_waits_for_its_pods_is_told_that_moves_do_not_help() -> None:
    made = cluster(node("a", gpus=4), pods=members(1, gpus=4), gangs=[gang(2)])
    assert moves_of(made, "default/g").none == "Gang default/g waits for its pods"


def test_asking_for_moves_changes_nothing() -> None:
    made = scattered(owned("x"), owned("y", 3))
    before = made.where(), made.fleet.free.tolist(), list(made.fleet.pending)
    moves_of(made)
    assert (made.where(), made.fleet.free.tolist(), list(made.fleet.pending)) == before
