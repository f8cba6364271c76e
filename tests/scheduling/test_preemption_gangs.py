"""Preemption by gangs and of gangs: whole, or only what is above the minimum."""

from __future__ import annotations

import pytest

from builders import node, pod
from gang_builders import RACK, gang, member, members, part
from preemption_builders import budget, cluster, nominated, victims
from tonnage.decisions import Bind, Evict
from tonnage.fleet.snapshot import PodLife


def test_a_gang_above_its_minimum_loses_the_pods_that_may_go_alone() -> None:
    made = cluster(
        node("a", gpus=4),
        bound={"a": members(4)},
        pods=[pod("wanting", gpus=2, priority=9)],
        gangs=[gang(2)],
        lives={f"default/g--{i}": PodLife(started_ns=i) for i in range(4)},
    )
    assert victims(made.decide()) == {"g--2", "g--3"}  # the last to start


@pytest.mark.report(122)
def test_going_below_the_minimum_takes_the_whole_gang_wherever_it_stands() -> None:
    made = cluster(
        node("a", gpus=4), node("b", gpus=4), node("c"),
        bound={"a": members(3), "b": members(1, prefix="far")},
        pods=[pod("wanting", gpus=4, priority=9, nodeSelector={"kubernetes.io/hostname": "a"})],
        gangs=[gang(2)],
    )  # fmt: skip
    assert victims(made.decide()) == {"g--0", "g--1", "g--2", "far-0"}


def test_a_single_pod_goes_rather_than_a_gang_of_the_same_priority() -> None:
    made = cluster(
        node("a", gpus=2), node("b", gpus=2), node("c", gpus=2),
        bound={"a": [member("m0", gpus=2)], "b": [member("m1", gpus=2)], "c": [pod("single", gpus=2)]},
        pods=[pod("wanting", gpus=2, priority=9)],
        gangs=[gang(2)],
    )  # fmt: skip
    assert victims(made.decide()) == {"single"}


def test_each_subgroup_keeps_its_minimum() -> None:
    bound = {"a": members(2, subgroup="ps") + members(2, subgroup="worker")}
    waiting = [pod("wanting", gpus=1, priority=9)]
    known = gang(2, part("ps", 2), part("worker", 1))
    made = cluster(node("a", gpus=4), bound=bound, pods=waiting, gangs=[known])
    assert victims(made.decide()) == {"g-worker-0"}


@pytest.mark.parametrize("protected", ["not preemptible", "one marked do-not-disrupt", "one under a budget"])
def test_a_gang_that_cannot_go_whole_does_not_go(protected: str) -> None:
    marks = {"karpenter.sh/do-not-disrupt": "true"} if protected.startswith("one marked") else {}
    labels = {"app": "web"} if protected.endswith("budget") else {}
    pods = [member("m0", gpus=2), member("m1", gpus=2, annotations=marks, labels=labels)]
    known = gang(2)
    if protected == "not preemptible":
        object.__setattr__(known, "preemptible", False)
    made = cluster(
        node("a", gpus=4), bound={"a": pods}, pods=[pod("wanting", gpus=2, priority=9)], gangs=[known],
        budgets=(budget(min_available=1),),
    )  # fmt: skip
    assert victims(made.decide()) == set()


def test_a_gang_is_as_important_as_its_most_important_part() -> None:
    pods = [member("m0", gpus=2), member("m1", gpus=2, priority=50)]
    for priority, goes in ((50, False), (51, True)):
        made = cluster(
            node("a", gpus=4), bound={"a": pods}, pods=[pod("w", gpus=2, priority=priority)], gangs=[gang(2)]
        )
        assert bool(victims(made.decide())) == goes


def test_a_gang_gets_room_for_all_of_its_minimum_or_nobody_is_evicted() -> None:
    for size, goes in ((3, True), (4, False)):
        made = cluster(
            node("a", gpus=2), node("b", gpus=2), node("c", gpus=2),
            bound={"a": [pod("a1", gpus=2)], "b": [pod("b1", gpus=2)]},
            pods=members(size, gpus=2, priority=9), gangs=[gang(size, priority=9)],
        )  # fmt: skip
        decisions = made.decide()
        assert victims(decisions) == ({"a1", "b1"} if goes else set())
        assert sorted(nominated(decisions).values()) == (["a", "b", "c"] if goes else [])
        assert not [one for one in decisions if isinstance(one, Bind)]
        assert all(
            one.by and (one.by.kind, str(one.by)) == ("Gang", "Gang default/g")
            for one in decisions
            if isinstance(one, Evict)
        )


def test_a_gang_that_has_not_all_its_pods_yet_evicts_nobody() -> None:
    made = cluster(
        node("a", gpus=4), bound={"a": [pod("x", gpus=4)]}, pods=members(2, priority=9), gangs=[gang(3, priority=9)]
    )
    assert victims(made.decide()) == set()


def test_only_as_many_go_as_the_gang_needs_and_where_fewest_must() -> None:
    bound = {
        "a": [pod(f"a{i}", gpus=1) for i in range(4)],
        "b": [pod("b0", gpus=4)],
        "c": [pod(f"c{i}", gpus=2) for i in range(2)],
        "d": [pod("d0", gpus=4, priority=5)],
    }
    made = cluster(
        *(node(name, gpus=4) for name in "abcd"), bound=bound,
        pods=members(2, gpus=4, priority=9), gangs=[gang(2, priority=9)],
    )  # fmt: skip
    assert victims(made.decide()) == {"b0", "c0", "c1"}


def test_room_is_made_in_one_domain_where_the_gang_must_stand_in_one() -> None:
    nodes = [
        node(name, gpus=4, labels={RACK: rack}) for name, rack in (("a", "r1"), ("b", "r1"), ("c", "r2"), ("d", "r2"))
    ]
    bound = {
        "a": [pod("a0", gpus=4)],
        "b": [pod("b0", gpus=4, priority=5)],
        "c": [pod("c0", gpus=4)],
        "d": [pod("d0", gpus=2), pod("d1", gpus=2)],
    }
    made = cluster(*nodes, bound=bound, pods=members(2, gpus=4, priority=9), gangs=[gang(2, required=RACK, priority=9)])
    decisions = made.decide()
    assert victims(decisions) == {"c0", "d0", "d1"}  # three of priority 0 rather than one of priority 5
    assert set(nominated(decisions).values()) == {"c", "d"}


def test_a_gang_is_bound_whole_when_the_last_of_its_room_is_free() -> None:
    made = cluster(
        node("a", gpus=2), node("b", gpus=2),
        bound={"a": [pod("a0", gpus=2)], "b": [pod("b0", gpus=2)]},
        pods=members(2, gpus=2, priority=9), gangs=[gang(2, priority=9)],
    )  # fmt: skip
    made.step()
    made.let_go(only=["default/a0"])
    assert not [one for one in made.step() if isinstance(one, Bind)]
    made.let_go()
    assert {one.pod.name for one in made.step() if isinstance(one, Bind)} == {"g--0", "g--1"}
    assert made.gone == ["a0", "b0"]


def test_pods_above_a_gangs_minimum_take_free_room_only() -> None:
    made = cluster(
        node("a", gpus=2), node("b", gpus=2),
        bound={"a": [*members(2, priority=9)], "b": [pod("x", gpus=2)]},
        pods=members(1, prefix="more", priority=9), gangs=[gang(2, priority=9)],
    )  # fmt: skip
    assert victims(made.decide()) == set()


def test_a_gang_of_which_pods_are_leaving_is_not_pushed_below_its_minimum_by_single_evictions() -> None:
    made = cluster(
        node("a", gpus=3), bound={"a": members(3)}, pods=[pod("w", gpus=2, priority=9)], gangs=[gang(2)],
        lives={"default/g--0": PodLife(leaving=True)},
    )  # fmt: skip
    assert victims(made.decide()) == {"g--1", "g--2"}  # two are left, so the rest of it goes whole


def test_a_gang_that_is_chosen_to_go_does_not_grow_in_the_same_decision() -> None:
    made = cluster(
        node("a", gpus=4), node("b", gpus=1),
        bound={"a": members(2, gpus=2)}, pods=[pod("w", gpus=4, priority=9), *members(1, prefix="more")],
        gangs=[gang(2)],
    )  # fmt: skip
    decisions = made.decide()
    assert victims(decisions) == {"g--0", "g--1"}
    assert not [one for one in decisions if isinstance(one, Bind)]
