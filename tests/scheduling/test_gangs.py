"""Gangs: all or none, in the right place, and what they say when they wait."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from builders import ZONE, affinity_term, apply, away, fleet, near, node, on_nodes, pod, spread
from gang_builders import BLOCK, RACK, bind_all, decide, gang, member, members, nodes_used, part, placed, plan, why
from tonnage.decisions import Bind, Wait
from tonnage.fleet.invariants import violations
from tonnage.fleet.state import Fleet, FleetNode
from tonnage.scheduling.gangs.plan import GangPlan, NoPlan

HOST = "kubernetes.io/hostname"


def rack(name: str, *gpus: int, zone: str = "", **fields: Any) -> list[FleetNode]:
    """Nodes of a rack with this many GPUs each: ``r1-0``, ``r1-1``, …"""
    return [node(f"{name}-{i}", cpu=64, gpus=n, zone=zone, labels={RACK: name}, **fields) for i, n in enumerate(gpus)]


# ---- all or none ----


def test_a_gang_is_bound_whole_when_it_fits() -> None:
    made = fleet(node("a", gpus=2), node("b", gpus=2), pods=members(4))
    assert len(placed(made, gang(4))) == 4


@pytest.mark.report(104)
def test_a_gang_that_does_not_fit_whole_gets_nothing() -> None:
    made = fleet(node("a", gpus=2), node("b", gpus=1), pods=members(4))
    assert placed(made, gang(4)) == {}
    assert why(made, gang(4)) == "gang default/g needs room for 4 pods; the cluster has room for 3"


@pytest.mark.report(112)
def test_others_pass_a_gang_that_waits_and_never_half_fill_it() -> None:
    made = fleet(node("a", gpus=3), pods=[*members(4), pod("later", gpus=2, created_ns=5)])
    assert placed(made, gang(4)) == {"later": "a"}


@pytest.mark.report(126)
def test_two_gangs_that_fit_one_at_a_time_do_not_hold_each_others_room() -> None:
    pods = [one for pair in zip(members(3, "default/a"), members(3, "default/b"), strict=True) for one in pair]
    made = fleet(node("n0", gpus=2), node("n1", gpus=2), pods=pods)
    found = placed(made, gang(3, key="default/a"), gang(3, key="default/b"))
    assert sorted(found) == ["a--0", "a--1", "a--2"]


def test_a_gang_waits_until_enough_of_its_pods_are_there() -> None:
    made = fleet(node("a", gpus=8), pods=members(3))
    assert placed(made, gang(4)) == {}
    assert why(made, gang(4)) == "gang default/g waits for its pods: 3 of 4 exist"


def test_a_pod_behind_a_gate_is_not_there_yet() -> None:
    made = fleet(node("a", gpus=8), pods=[*members(3), member("g--3", schedulingGates=[{"name": "example.com/x"}])])
    assert placed(made, gang(4)) == {}


def test_a_pod_of_a_gang_that_does_not_exist_waits() -> None:
    made = fleet(node("a", gpus=8), pods=members(1))
    assert why(made) == "gang default/g does not exist, or has not been seen yet"


def test_gangs_and_pods_take_their_turns_by_priority_then_age_then_name() -> None:
    pods = [*members(2, "default/low"), *members(2, "default/high"), pod("single", gpus=2, priority=5)]
    known = (gang(2, key="default/low"), gang(2, key="default/high", priority=9))
    assert set(placed(fleet(node("a", gpus=2), pods=pods), *known)) == {"high--0", "high--1"}
    assert set(placed(fleet(node("a", gpus=4), pods=pods), *known)) == {"high--0", "high--1", "single"}
    same = (gang(2, key="default/low", created_ns=2), gang(2, key="default/high", created_ns=1))
    assert set(placed(fleet(node("a", gpus=2), pods=pods[:4]), *same)) == {"high--0", "high--1"}


def test_planning_changes_nothing() -> None:
    made = fleet(*rack("r1", 2, 2), pods=members(4))
    before = made.free.copy()
    assert isinstance(plan(made, gang(4, required=RACK)), GangPlan)
    assert (made.free == before).all()
    assert violations(made) == []


# ---- beyond the minimum ----


def test_pods_beyond_the_minimum_follow_one_by_one() -> None:
    made = fleet(node("a", gpus=3), pods=members(5))
    assert len(placed(made, gang(2))) == 3
    assert why(made, gang(2)) == ("gang default/g has its minimum; no feasible node has room for more of its pods")


def test_a_gang_that_runs_grows_inside_the_domain_that_it_requires() -> None:
    made = fleet(*rack("r1", 3), *rack("r2", 8), bound={"r1-0": members(2)}, pods=members(3, prefix="more"))
    assert placed(made, gang(2, required=RACK)) == {"more-0": "r1-0"}


def test_a_gang_grows_nearest_first() -> None:
    made = fleet(
        *rack("r1", 2, 1, zone="z1"), *rack("r2", 8, zone="z1"), bound={"r1-0": members(1)}, pods=members(3, prefix="x")
    )
    assert placed(made, gang(1, required=ZONE, preferred=RACK)) == {"x-0": "r1-0", "x-1": "r1-1", "x-2": "r2-0"}


# ---- levels ----


def test_a_required_level_holds_the_whole_gang_in_one_domain() -> None:
    made = fleet(*rack("r1", 4, 2), *rack("r2", 4, 4), pods=members(8))
    assert nodes_used(made, gang(8, required=RACK)) == {"r2-0", "r2-1"}


@pytest.mark.report(111)
def test_a_gang_says_which_domain_came_nearest() -> None:
    made = fleet(*rack("r1", 2, 2), *rack("r2", 4, 2), pods=members(8))
    known = gang(8, required=RACK)
    assert placed(made, known) == {}
    assert why(made, known) == f"gang default/g needs 8 pods in one {RACK}; the best, r2, holds 6"
    (evidence,) = {d.reason.evidence for d in decide(made, known) if isinstance(d, Wait)}
    assert dict(evidence) == {
        "gang": "default/g",
        "group": "default/g",
        "needs": 8,
        "bound": 0,
        "level": RACK,
        "nearest": "r2",
        "holds": 6,
    }


@pytest.mark.report(114)
def test_the_fullest_rack_that_fits_is_taken_and_whole_racks_stay_free() -> None:
    made = fleet(
        *rack("r1", 4, 4), *rack("r2", 4, 4), *rack("r3", 4, 4), bound={"r2-0": [pod("x", gpus=4)]}, pods=members(4)
    )
    assert nodes_used(made, gang(4, required=RACK)) == {"r2-1"}


def test_of_racks_with_the_same_room_for_the_gang_the_fuller_one_is_taken() -> None:
    made = fleet(*rack("r1", 8, 7, 7), *rack("r2", 8, 2, 2), pods=members(1, gpus=8))
    assert nodes_used(made, gang(1, required=RACK)) == {"r2-0"}


@pytest.mark.report(113)
def test_two_one_one_free_does_not_hold_two_pairs() -> None:
    made = fleet(*rack("r1", 2, 1, 1), pods=members(2, gpus=2))
    assert placed(made, gang(2, required=RACK)) == {}
    assert "the best, r1, holds 1" in why(made, gang(2, required=RACK))


@pytest.mark.parametrize(
    ("gpus", "nodes"),
    [
        (((8,), (4, 4)), {"r1-0"}),
        (((2, 2), (4, 4)), {"r2-0", "r2-1"}),
        (((6,), (4,)), {"r1-0", "r2-0"}),
    ],
    ids=["one host", "one rack", "no rack, so several"],
)
def test_a_preferred_level_climbs_until_one_domain_holds_the_gang(
    gpus: tuple[tuple[int, ...], ...], nodes: set[str]
) -> None:
    made = fleet(*rack("r1", *gpus[0]), *rack("r2", *gpus[1]), pods=members(8))
    assert nodes_used(made, gang(8, preferred=HOST)) == nodes


def test_preferred_inside_required_never_leaves_what_is_required() -> None:
    nodes = [*rack("r1", 2, zone="z1"), *rack("r2", 2, zone="z1"), *rack("r3", 3, zone="z2")]
    made = fleet(*nodes, pods=members(4))
    assert nodes_used(made, gang(4, required=ZONE, preferred=RACK)) == {"r1-0", "r2-0"}
    assert placed(fleet(*nodes, pods=members(5)), gang(5, required=ZONE, preferred=RACK)) == {}


def test_unconstrained_fills_gaps_first() -> None:
    made = fleet(node("a", gpus=8), node("b", gpus=1), node("c", gpus=2), pods=members(3))
    assert nodes_used(made, gang(3, unconstrained=True)) == {"b", "c"}


def test_without_a_rule_a_gang_stands_as_near_together_as_it_can() -> None:
    made = fleet(*rack("r1", 2, 2), *rack("r2", 1, 1, 1, 1, 8), pods=members(4))
    assert nodes_used(made, gang(4)) == {"r2-4"}


def test_nodes_without_the_label_hold_nothing_of_a_gang_that_requires_it() -> None:
    made = fleet(node("a", gpus=8), *rack("r1", 2), pods=members(3))
    assert placed(made, gang(3, required=RACK)) == {}
    assert why(fleet(node("a", gpus=8), pods=members(3)), gang(3, required=RACK)) == (
        f"gang default/g needs 3 pods in one {RACK}; no node has that label"
    )


@pytest.mark.report(116)
def test_racks_of_one_name_in_two_zones_are_not_taken_for_one() -> None:
    made = fleet(
        node("a", gpus=2, zone="z1", labels={RACK: "r"}),
        node("b", gpus=2, zone="z2", labels={RACK: "r"}),
        pods=members(4),
    )
    assert placed(made, gang(4, required=RACK)) == {}


def test_the_levels_of_a_topology_object_are_followed() -> None:
    labels = [{"b": "x", "r": "1"}, {"b": "x", "r": "2"}, {"b": "y", "r": "1"}]
    made = fleet(*(node(f"n{i}", gpus=2, labels=one) for i, one in enumerate(labels)), pods=members(4))
    known = gang(4, preferred="r", required="b", topology="dc")
    assert nodes_used(made, known, topologies={"dc": ("b", "r")}) == {"n0", "n1"}
    assert why(made, known) == "gang default/g: topology dc does not exist"


@pytest.mark.report(117)
def test_pods_that_are_no_part_of_the_gang_count_on_their_nodes() -> None:
    made = fleet(*rack("r1", 4), bound={"r1-0": [pod("plain", gpus=1)]}, pods=members(4))
    assert placed(made, gang(4, required=RACK)) == {}


def test_a_preferred_level_that_no_node_has_is_no_hindrance() -> None:
    assert nodes_used(fleet(node("a", gpus=8), pods=members(3)), gang(3, preferred=RACK)) == {"a"}


# ---- slices and subgroups ----


def test_slices_stand_whole_in_a_domain_each() -> None:
    made = fleet(*rack("r1", 3), *rack("r2", 3), *rack("r3", 2), pods=members(6))
    found = list(placed(made, gang(6, slice_size=2, slice_required=RACK)).values())
    assert {name: found.count(name) for name in found} == {"r1-0": 2, "r2-0": 2, "r3-0": 2}
    assert nodes_used(made, gang(6, slice_size=3, slice_required=RACK)) == {"r1-0", "r2-0"}
    assert (
        placed(fleet(*rack("r1", 3), *rack("r2", 3), pods=members(6)), gang(6, slice_size=4, slice_required=RACK)) == {}
    )


def test_a_slice_that_lost_a_pod_is_filled_up_where_it_stands() -> None:
    made = fleet(
        *rack("r1", 3), *rack("r2", 2), *rack("r3", 8), bound={"r1-0": members(2), "r2-0": members(1, prefix="y")}
    )
    made.add_pod(member("again"))
    assert placed(made, gang(4, slice_size=2, slice_required=RACK)) == {"again": "r2-0"}


def test_a_gang_grows_by_whole_slices() -> None:
    made = fleet(*rack("r1", 3), *rack("r2", 1), *rack("r3", 2), pods=members(6))
    found = placed(made, gang(2, slice_size=2, slice_required=RACK))
    assert sorted(found.values()) == ["r1-0", "r1-0", "r3-0", "r3-0"]


def test_each_subgroup_keeps_its_own_rule() -> None:
    pods = [*members(2, subgroup="a"), *members(4, subgroup="b")]
    made = fleet(*rack("r1", 4), *rack("r2", 2), *rack("r3", 1, 1), pods=pods)
    found = placed(made, gang(6, part("a", 2, required=RACK), part("b", 4, required=RACK)))
    assert {found[f"g-b-{i}"] for i in range(4)} == {"r1-0"}
    assert {found[f"g-a-{i}"] for i in range(2)} == {"r2-0"}


def test_a_subgroup_inside_another_stands_inside_its_domain() -> None:
    nodes = [node(f"n{i}", cpu=64, gpus=2, labels={BLOCK: f"b{i // 2}", RACK: f"r{i}"}) for i in range(4)]
    pods = [*members(2, subgroup="x"), *members(2, subgroup="y")]
    made = fleet(*nodes, pods=pods)
    parts = (
        part("outer", 4, required=BLOCK),
        part("x", 2, parent="outer", required=RACK),
        part("y", 2, parent="outer", required=RACK),
    )
    assert nodes_used(made, gang(4, *parts)) in ({"n0", "n1"}, {"n2", "n3"})


def test_the_minimum_of_each_subgroup_counts_and_not_only_the_sum() -> None:
    pods = [*members(1, subgroup="head", gpus=2), *members(5, subgroup="worker")]
    known = gang(3, part("head", 1), part("worker", 2))
    assert placed(fleet(*(node(f"n{i}", gpus=1) for i in range(6)), pods=pods), known) == {}
    assert len(placed(fleet(node("a", gpus=2), node("b", gpus=2), pods=pods), known)) == 3


def test_a_subgroup_that_fits_nowhere_is_named() -> None:
    made = fleet(*rack("r1", 2), *rack("r2", 2), pods=[*members(3, subgroup="s"), *members(1)])
    known = gang(4, part("s", 3, required=RACK))
    assert why(made, known) == f"gang default/g, subgroup s needs 3 pods in one {RACK}; the best, r1, holds 2"


@pytest.mark.report(120)
def test_several_pod_sets_together_never_exceed_a_node() -> None:
    pods = [*members(2, subgroup="a", cpu=3), *members(2, subgroup="b", cpu=4)]
    known = gang(4, part("a", 2), part("b", 2), required=HOST)
    assert placed(fleet(node("n", cpu=13, gpus=8), pods=pods), known) == {}
    assert len(placed(fleet(node("n", cpu=14, gpus=8), pods=pods), known)) == 4


def test_the_order_of_subgroups_does_not_decide_whether_the_gang_fits() -> None:
    """Two pods of three GPUs and three of two: the largest first, packed tightest, would leave no pair for the last."""
    pods = [*members(2, subgroup="a", gpus=3), *members(3, subgroup="b", gpus=2)]
    made = fleet(node("n0", cpu=64, gpus=6), node("n1", cpu=64, gpus=6), pods=pods)
    assert len(placed(made, gang(5, part("a", 2), part("b", 3)))) == 5


@pytest.mark.report(130)
def test_a_search_that_is_cut_short_says_so_and_not_that_there_is_no_place() -> None:
    pods = [*members(2, subgroup="a", gpus=3), *members(3, subgroup="b", gpus=2)]
    nodes = [node("n0", cpu=64, gpus=5), node("n1", cpu=64, gpus=7)]
    known = gang(5, part("a", 2), part("b", 3), unconstrained=True)
    assert isinstance(plan(fleet(*nodes, pods=pods), known), GangPlan)
    short = plan(fleet(*nodes, pods=pods), known, budget=1)
    assert isinstance(short, NoPlan)
    assert short.unknown
    assert short.reason.verdict.endswith("before the search reached its budget")
    never = plan(fleet(*nodes[:1], pods=pods), known, budget=1)
    assert isinstance(never, NoPlan)
    assert not never.unknown


# ---- members that are bound ----


@pytest.mark.report(121)
def test_a_gang_that_lost_a_node_is_made_whole_in_its_own_domain() -> None:
    made = fleet(*rack("r1", 2, 2, 2), *rack("r2", 8), pods=members(4))
    known = gang(4, required=RACK)
    first = bind_all(made, known)
    lost = sorted(set(first.values()))[0]
    for name in [name for name, at in first.items() if at == lost]:
        made.remove_pod(made.pod_by_key["default", name])
        made.add_pod(member(name))
    made.remove_node(made.node_by_name[lost])
    again = bind_all(made, known)
    assert len(again) == 2
    racks = {made.node(made.pod(row).node).labels[RACK] for row in made.gang_pods[known.key]}
    assert len(racks) == 1
    assert violations(made) == []


def test_a_gang_that_cannot_be_made_whole_where_it_stands_says_so() -> None:
    made = fleet(*rack("r1", 2), *rack("r2", 8), bound={"r1-0": members(2)}, pods=members(2, prefix="new"))
    known = gang(4, required=RACK)
    assert placed(made, known) == {}
    assert why(made, known) == f"gang default/g needs 2 more pods in {RACK} r1, where it runs; it holds 0"


@pytest.mark.report(115)
def test_replacements_of_two_gangs_are_never_given_the_same_room() -> None:
    made = fleet(
        *rack("r1", 3, 3),
        bound={"r1-0": members(2, "default/a"), "r1-1": members(2, "default/b")},
        pods=[member("new-a", "default/a", gpus=1), member("new-b", "default/b", gpus=1), member("c", "default/a")],
    )
    bind_all(made, gang(3, key="default/a", required=RACK), gang(3, key="default/b", required=RACK))
    assert violations(made) == []


# ---- rules about other pods ----


def test_members_that_keep_apart_stand_one_a_host() -> None:
    apart = {"affinity": away(affinity_term(HOST, job="g")), "labels": {"job": "g"}}
    made = fleet(*rack("r1", 8, 8), *rack("r2", 2, 2, 2), pods=members(3, **apart))
    assert nodes_used(made, gang(3, required=RACK)) == {"r2-0", "r2-1", "r2-2"}
    assert placed(fleet(*rack("r1", 8, 8), pods=members(3, **apart)), gang(3, required=RACK)) == {}


def test_workers_that_want_their_head_near_are_bound_after_it() -> None:
    head = member("z-head", labels={"role": "head"}, gpus=0)
    workers = members(3, affinity=near(affinity_term(ZONE, role="head")))
    made = fleet(node("a", gpus=2, zone="z1"), node("b", gpus=3, zone="z2"), pods=[*workers, head])
    decisions = decide(made, gang(4))
    assert next(d.pod.name for d in decisions if isinstance(d, Bind)) == "z-head"
    assert {d.node.name for d in decisions if isinstance(d, Bind)} == {"b"}


def test_members_spread_evenly_where_they_ask_for_it() -> None:
    evenly = {"topologySpreadConstraints": [spread(ZONE, selector={"job": "g"})], "labels": {"job": "g"}}
    nodes = [node("a", gpus=8, zone="z1"), node("b", gpus=2, zone="z2")]
    found = placed(fleet(*nodes, pods=members(4, **evenly)), gang(4))
    assert sorted(found.values()) == ["a", "a", "b", "b"]
    assert placed(fleet(*nodes, pods=members(6, **evenly)), gang(6)) == {}


def test_a_node_that_a_member_may_not_use_holds_none_of_it() -> None:
    only = {"affinity": on_nodes({"matchExpressions": [{"key": "tier", "operator": "In", "values": ["fast"]}]})}
    made = fleet(node("a", gpus=8), node("b", gpus=2, labels={"tier": "fast"}), pods=members(3, **only))
    assert placed(made, gang(3)) == {}


# ---- shares ----


def shares(*parts: str, subgroup: str = "") -> list[Any]:
    """Members with a fraction of a GPU each."""
    return [
        replace(member(f"g-{subgroup}-{i}", subgroup=subgroup, gpus=0), annotations={"gpu-fraction": f})
        for i, f in enumerate(parts)
    ]


def test_a_gang_of_shares_is_bound_whole_or_not_at_all() -> None:
    assert len(placed(fleet(node("a", gpus=1), pods=shares("0.5", "0.5")), gang(2))) == 2
    assert placed(fleet(node("a", gpus=1), pods=shares("0.5", "0.6")), gang(2)) == {}


@pytest.mark.report(127)
def test_another_choice_of_device_is_tried_when_the_first_does_not_lead_to_the_end() -> None:
    """Two GPUs hold 0.2 + 0.2 + 0.6 and 0.3 + 0.7, and no other way; the best fit of each pod by itself misses that."""
    made = fleet(node("a", gpus=2), pods=shares("0.2", "0.3", "0.2", "0.6", "0.7"))
    assert isinstance(plan(made, gang(5), budget=0), NoPlan)
    decisions = decide(made, gang(5))
    assert sum(isinstance(d, Bind) for d in decisions) == 5
    apply(made, decisions)
    assert violations(made) == []


# ---- receipts ----


def test_a_receipt_says_where_the_gang_stands_and_what_its_collectives_take() -> None:
    made = fleet(
        *rack("r1", 8, 8, instance_type="p5.48xlarge"), *rack("r2", 4, instance_type="p5.48xlarge"), pods=members(16)
    )
    (evidence,) = {d.reason.evidence for d in decide(made, gang(16, required=RACK)) if isinstance(d, Bind)}
    told = dict(evidence)
    ms = told.pop("allreduce_ms_per_gib")
    assert told == {
        "gang": "default/g",
        "pods": 16,
        "minimum": 16,
        "level": RACK,
        "domain": "r1",
        "nodes": 2,
        "slowest_link": "nvlink",
        "nvlink_islands": 2,
    }
    assert isinstance(ms, float)
    assert 2 * 7 / 8 * 1024**3 / 450e9 * 1e3 < ms < 10


def test_pods_of_a_gang_without_gpus_say_nothing_of_collectives() -> None:
    made = fleet(node("a"), pods=members(2, gpus=0))
    (evidence,) = {d.reason.evidence for d in decide(made, gang(2)) if isinstance(d, Bind)}
    assert "allreduce_ms_per_gib" not in dict(evidence)


def test_an_empty_cluster_is_said_to_be_empty() -> None:
    made = Fleet()
    for one in members(2):
        made.add_pod(one)
    assert why(made, gang(2)) == "gang default/g needs room for 2 pods; the cluster has room for 0"
