"""Whose turn is when, and what room that is kept for a pod means to the others and to itself."""

from __future__ import annotations

import pytest

from builders import ZONE, affinity_term, node, pod, spread
from builders import near as near_to
from gang_builders import RACK, gang, member, members
from preemption_builders import Cluster, cluster, nominated, victims
from tonnage.decisions import Bind, Evict, Wait
from tonnage.fleet.snapshot import PodLife
from tonnage.fleet.state import FleetPod
from tonnage.scheduling.assumed import Assumed
from tonnage.scheduling.bound import BoundPods
from tonnage.scheduling.gangs.plan import GangPlan, PodPlace
from tonnage.scheduling.gangs.queue import Gangs
from tonnage.scheduling.make_room import OnNode
from tonnage.scheduling.order import in_turn, units_of
from tonnage.scheduling.place import Cache, Settings
from tonnage.scheduling.trial import Trial
from tonnage.scheduling.turns import Turns
from tonnage.scheduling.victims import Candidates

# ---- the one order ----


def turns(made: Cluster) -> list[str]:
    """Names of the units in the order of their turns."""
    rows = in_turn(made.snapshot, made.fleet.pending)
    return [unit.about.name for unit in units_of(made.snapshot, rows)]


@pytest.mark.parametrize(
    ("pods", "nominations", "expected"),
    [
        ([pod("a", priority=1), pod("b", priority=2)], {}, ["b", "a"]),
        ([pod("a", created_ns=2), pod("b", created_ns=1)], {}, ["b", "a"]),
        ([pod("b"), pod("a")], {}, ["a", "b"]),
        ([pod("a"), pod("b")], {"default/b": "n"}, ["b", "a"]),
        ([pod("a", priority=1), pod("b")], {"default/b": "n"}, ["a", "b"]),
        ([pod("a"), pod("b")], {"default/b": "gone"}, ["a", "b"]),
        ([member("m0"), member("m1", priority=9), pod("a", priority=5)], {}, ["g", "a"]),
        ([member("m0"), member("m1"), pod("a")], {"default/m1": "n"}, ["g", "a"]),
    ],
    ids=[
        "higher priority first", "then the older", "then by name", "of equals the nominated first",
        "priority before nominations", "a node that is gone nominates nobody",
        "a gang is as important as its most important pod", "a gang is nominated when one of its pods is",
    ],
)  # fmt: skip
def test_turns(pods: list[FleetPod], nominations: dict[str, str], expected: list[str]) -> None:
    made = cluster(node("n"), pods=pods, gangs=[gang(2)], nominations=nominations)
    assert turns(made) == expected


@pytest.mark.parametrize("low", [False, True], ids=["alone", "with an unrelated pod of low priority"])
def test_the_order_is_the_same_whether_or_not_somebody_could_be_preempted(low: bool) -> None:
    made = cluster(
        node("a", gpus=2), node("z"), bound={"z": [pod("unrelated", priority=-5)]} if low else {},
        pods=[*members(2, priority=100), pod("single", gpus=2, priority=50)], gangs=[gang(2)],
    )  # fmt: skip
    assert {one.pod.name for one in made.decide() if isinstance(one, Bind)} == {"g--0", "g--1"}


# ---- who is not there yet is no company ----


def waiting_for_lead(*followers: FleetPod, nearby: tuple[FleetPod, ...] = ()) -> Cluster:
    """Nodes a and b in one zone each; ``lead`` is nominated for a, where a pod is leaving; ``nearby`` stand on b."""
    return cluster(
        node("a", gpus=5, labels={ZONE: "za"}), node("b", gpus=3, labels={ZONE: "zb"}),
        bound={"a": [pod("old", gpus=4)], "b": nearby},
        pods=[pod("lead", gpus=4, priority=9, labels={"app": "lead"}), *followers],
        lives={"default/old": PodLife(leaving=True)}, nominations={"default/lead": "a"}, gangs=[gang(2)],
    )  # fmt: skip


@pytest.mark.parametrize("kind", ["a pod", "a gang"])
def test_company_that_is_not_there_yet_lets_nobody_in(kind: str) -> None:
    affinity = near_to(affinity_term(ZONE, app="lead"))
    small = {"cpu": 0.1, "memory_gib": 0.1, "affinity": affinity}
    followers = [pod("fol", **small)] if kind == "a pod" else members(2, gpus=0, **small)
    made = waiting_for_lead(*followers)
    decisions = made.step()
    assert not [one for one in decisions if isinstance(one, Bind)] and nominated(decisions)["lead"] == "a"
    made.let_go(again=False)
    assert {one.pod.name for one in made.step() if isinstance(one, Bind)} == {
        "lead", *(one.name for one in followers)
    }  # fmt: skip


def test_who_is_not_there_yet_neither_opens_nor_spares_a_domain_of_a_spread() -> None:
    rule = spread(ZONE, selector={"app": "lead"})
    follower = pod("fol", gpus=1, labels={"app": "lead"}, topologySpreadConstraints=[rule])
    made = waiting_for_lead(follower, nearby=(pod("one", gpus=1, labels={"app": "lead"}),))
    assert not [one for one in made.decide() if isinstance(one, Bind)]


# ---- pods of other schedulers ----

THEIRS = {"schedulerName": "another"}


@pytest.mark.parametrize("preemption", [True, False])
def test_room_that_another_scheduler_makes_is_kept_from_pods_of_no_higher_priority(preemption: bool) -> None:
    made = cluster(
        node("a", gpus=4), bound={"a": [pod("old", gpus=2)]},
        pods=[pod("theirs", gpus=4, priority=5, **THEIRS), pod("high", gpus=1, priority=9), pod("low", gpus=1)],
        lives={"default/old": PodLife(leaving=True)}, nominations={"default/theirs": "a"},
    )  # fmt: skip
    decisions = made.step(preemption=preemption, scheduler_names=("",))
    assert [one.pod.name for one in decisions if isinstance(one, Bind)] == ["high"]
    assert {one.pod.name for one in decisions if isinstance(one, Wait)} == {"low"}
    made.nominations.clear()
    assert [one.pod.name for one in made.decide(scheduler_names=("",)) if isinstance(one, Bind)] == ["low"]


def test_nobody_is_evicted_for_room_that_another_scheduler_has_made_for_a_more_important_pod() -> None:
    def made(theirs: int) -> Cluster:
        return cluster(
            node("a", gpus=4), node("b", gpus=4), bound={"a": [pod("old", gpus=4)], "b": [pod("cheap", gpus=4)]},
            pods=[pod("theirs", gpus=4, priority=theirs, **THEIRS), pod("mine", gpus=4, priority=7)],
            lives={"default/old": PodLife(leaving=True)}, nominations={"default/theirs": "a"},
        )  # fmt: skip

    important = made(9).decide(scheduler_names=("",))
    assert (nominated(important), victims(important)) == ({"mine": "b"}, {"cheap"})
    lesser = made(5).decide(scheduler_names=("",))
    assert (nominated(lesser), victims(lesser)) == ({"mine": "a"}, set())


def test_pods_that_never_preempt_wait_for_room_that_others_leave() -> None:
    made = cluster(
        node("a", gpus=4), bound={"a": [pod("old", gpus=4)]},
        pods=[pod("polite", gpus=4, priority=9, preemptionPolicy="Never"), pod("other", gpus=4, priority=5)],
    )  # fmt: skip
    decisions = made.decide()
    assert (nominated(decisions), victims(decisions)) == ({"other": "a"}, {"old"})


# ---- the pod itself ----


def test_who_gets_the_room_made_for_it_gets_the_best_joined_gpus_and_a_receipt() -> None:
    made = cluster(
        node("a", cpu=64, gpus=8, instance_type="g5.48xlarge"), pods=[pod("pair", gpus=2)],
        nominations={"default/pair": "a"},
    )  # fmt: skip
    for i in (0, 1, 2, 4):
        made.fleet.bind(made.fleet.add_pod(pod(f"x-{i}", gpus=1)), 0, (i,))
    (bind,) = (one for one in made.decide() if isinstance(one, Bind))
    assert (bind.devices, bind.reason.verdict) == ((5, 6), "room was made for it on this node")
    assert [name for name, _ in bind.reason.evidence] == ["nodes_that_fit", "score"]


def test_a_gang_that_gets_the_room_made_for_it_is_told_how_long_it_communicates() -> None:
    made = cluster(
        node("a", cpu=64, gpus=8, labels={"node.kubernetes.io/instance-type": "p4d.24xlarge"}),
        pods=members(2, gpus=2), gangs=[gang(2)], nominations={f"default/g--{i}": "a" for i in range(2)},
    )  # fmt: skip
    binds = [one for one in made.decide() if isinstance(one, Bind)]
    assert len(binds) == 2
    evidence = dict(binds[0].reason.evidence)
    assert (evidence["gang"], evidence["pods"], evidence["nvlink_islands"]) == ("default/g", 2, 1)
    assert isinstance(evidence["allreduce_ms_per_gib"], float)


def test_pods_beyond_the_minimum_that_fit_no_more_are_left_out() -> None:
    made = cluster(node("a", gpus=2), pods=members(3), gangs=[gang(1)])
    rows = [made.row(f"default/g--{i}") for i in range(3)]
    with made.fleet.what_if():
        known = Gangs(made.snapshot, Cache(made.fleet), rows, Assumed(made.fleet), receipts=True)
        first, *rest = (PodPlace(row, 0) for row in rows)
        binds = known._bind(GangPlan("default/g", (first,), tuple(rest)))
    assert [one.pod.name for one in binds] == ["g--0", "g--1"]


# ---- room that is given up ----


def test_room_that_is_given_up_is_offered_to_others_in_the_same_decision() -> None:
    """``more`` is too large for the node for which it is nominated, so that nothing is kept for it there."""
    made = cluster(
        node("a", gpus=4), pods=[pod("more", gpus=6, priority=5), pod("other", gpus=2)],
        nominations={"default/more": "a"},
    )  # fmt: skip
    assert [one.pod.name for one in made.decide() if isinstance(one, Bind)] == ["other"]
    made = cluster(
        node("a", gpus=4), pods=[pod("more", gpus=6), pod("other", gpus=2)], nominations={"default/more": "a"}
    )
    assert [one.pod.name for one in made.decide() if isinstance(one, Bind)] == ["other"]


def test_room_that_a_pod_leaves_as_it_found_company_elsewhere_is_offered_to_others() -> None:
    """``fol`` has room coming on a, finds ``lead`` on b in the second round, and leaves a to ``later``."""
    near = near_to(affinity_term(ZONE, app="lead"))
    made = cluster(
        node("a", gpus=4, labels={ZONE: "za"}), node("b", gpus=4, labels={ZONE: "zb", "for": "lead"}),
        pods=[
            pod("fol", gpus=3, affinity=near),
            pod("lead", gpus=1, labels={"app": "lead"}, nodeSelector={"for": "lead"}, created_ns=1),
            pod("later", gpus=4, created_ns=2),
        ],
        nominations={"default/fol": "a"},
    )  # fmt: skip
    made.step()
    assert made.where() == {"lead": "b", "fol": "b", "later": "a"}


def test_holds_are_taken_back_when_what_is_done_under_them_fails() -> None:
    made = cluster(
        node("a", gpus=2), node("b", gpus=2), bound={"a": [pod("x", gpus=2)], "b": [pod("y", gpus=2)]},
        pods=[pod("one", gpus=2, priority=1), pod("two", gpus=2, priority=1)],
        nominations={"default/one": "a", "default/two": "b"},
    )  # fmt: skip
    rows = in_turn(made.snapshot, made.fleet.pending)
    preemptor = Turns(made.snapshot, Cache(made.fleet), Settings().how, rows).preemptor
    (unit, _), *_ = preemptor.bands()
    before = made.fleet.free.tolist()
    with pytest.raises(ZeroDivisionError), made.fleet.what_if(), preemptor.leaving_claims(unit) as held:
        assert held and made.fleet.free.tolist() != before
        raise ZeroDivisionError
    assert made.fleet.free.tolist() == before and made.fleet.pod(made.row("default/two")).node < 0


# ---- the cheapest set ----


def test_sets_of_victims_that_differ_in_their_start_alone_are_tried_from_the_latest() -> None:
    saved = {f"default/{name}": PodLife(started_ns=at, saved_ns=10**12) for name, at in (("early", 1), ("late", 9))}
    made = cluster(
        node("a", gpus=2), bound={"a": [pod("early", gpus=1), pod("late", gpus=1)]}, lives=saved,
        pods=[pod("wanting", gpus=1, priority=1)],
    )  # fmt: skip
    candidates = Candidates(made.snapshot, BoundPods(made.fleet), respect_budgets=True)
    candidates.budgets.count()
    trial = Trial(made.snapshot, Cache(made.fleet), "binpack", Assumed(made.fleet))
    one = OnNode(made.fleet, made.row("default/wanting"), 0, candidates, trial)
    victims = sorted(candidates.on((0,), 1), key=lambda victim: victim.name)
    assert [victim.name for victim in one.cheapest(victims) or ()] == ["default/late"]


def test_racks_of_one_name_in_two_zones_are_compared_as_two() -> None:
    zones = {"a": "za", "b": "za", "c": "zb", "d": "zb"}
    nodes = [node(name, gpus=4, labels={ZONE: zone, RACK: "r1"}) for name, zone in zones.items()]
    bound = {
        name: [pod(f"on-{name}", gpus=4, priority=priority)]
        for name, priority in zip(zones, (-5, -1, -5, -2), strict=True)
    }
    waiting = members(2, gpus=4, priority=9)
    made = cluster(*nodes, bound=bound, pods=waiting, gangs=[gang(2, required=RACK, priority=9)])
    evicted = [one for one in made.decide() if isinstance(one, Evict)]
    assert {one.pod.name for one in evicted} == {"on-c", "on-d"}
    assert [other.name for other in evicted[0].reason.alternatives] == ["za/r1"]


def test_a_waiting_pod_says_why_when_only_pods_to_come_would_let_it_in() -> None:
    made = waiting_for_lead(pod("fol", cpu=0.1, memory_gib=0.1, affinity=near_to(affinity_term(ZONE, app="lead"))))
    (why,) = (one.reason.verdict for one in made.decide() if isinstance(one, Wait) and one.pod.name == "fol")
    assert why == "its pod affinity or topology spread needs pods that are not scheduled yet"
