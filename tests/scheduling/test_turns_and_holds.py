"""One order of turns, and rooms that are held for pods which are not there yet."""

from __future__ import annotations

from dataclasses import replace

from builders import affinity_term, fleet, near, node, pod
from tonnage.decisions import Bind
from tonnage.fleet.gangs import Gang
from tonnage.fleet.snapshot import Snapshot
from tonnage.fleet.state import Fleet, FleetPod
from tonnage.scheduling import place


def bound_names(snapshot: Snapshot) -> set[str]:
    return {one.pod.name for one in place.decide(snapshot) if isinstance(one, Bind)}


def two_that_want_the_node(*others: FleetPod) -> Snapshot:
    """A gang of priority 0 whose pods have 100, and a pod of 50; the node holds one of them."""
    member = replace(pod("member", 4, priority=100), gang="default/g")
    made = fleet(node("a", cpu=4), node("b", cpu=1), pods=[pod("single", 4, priority=50), member, *others])
    for one in others:
        made.bind(made.pod_by_key["default", one.name], made.node_by_name["b"])
    return Snapshot(0, made, gangs={"default/g": Gang("default/g", 1)})


def test_a_gang_takes_its_turn_by_the_highest_priority_of_its_own_and_its_pods() -> None:
    assert bound_names(two_that_want_the_node()) == {"member"}


def test_a_pod_of_low_priority_elsewhere_does_not_change_whose_turn_it_is() -> None:
    assert bound_names(two_that_want_the_node(pod("other", 1, priority=-5))) == {"member"}


def test_a_pod_that_is_only_nominated_is_no_company() -> None:
    leader = pod("leader", 4, priority=100, labels={"app": "leader"})
    follower = pod("follower", 1, priority=1, affinity=near(affinity_term("kubernetes.io/hostname", app="leader")))
    victim = pod("victim", 4, priority=0)
    made: Fleet = fleet(node("a", cpu=5), pods=[leader, follower, victim])
    made.bind(made.pod_by_key["default", "victim"], made.node_by_name["a"])
    decisions = place.decide(Snapshot(0, made))
    assert [one.summary() for one in decisions if not isinstance(one, Bind)][-1].startswith("evict")
    assert not any(isinstance(one, Bind) for one in decisions)
