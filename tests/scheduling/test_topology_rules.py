"""Topology spread, pod affinity and anti-affinity."""

from __future__ import annotations

from typing import Any

import pytest

from builders import (
    HOSTNAME,
    ZONE,
    affinity_term,
    away,
    expression,
    fleet,
    near,
    node,
    placed,
    pod,
    spread,
    verdict,
)
from tonnage.decisions import Bind
from tonnage.fleet.snapshot import Snapshot
from tonnage.fleet.state import FleetPod
from tonnage.scheduling import place

WEB = {"app": "web"}


def webs(prefix: str, count: int, **fields: Any) -> list[FleetPod]:
    return [pod(f"{prefix}{i}", cpu=0.1, memory_gib=0.1, labels=WEB, **fields) for i in range(count)]


def one_pod(**fields: Any) -> list[FleetPod]:
    return [pod("p", cpu=0.1, memory_gib=0.1, labels={**WEB, **fields.pop("labels", {})}, **fields)]


# ---- topology spread ----


def test_pods_spread_evenly_over_zones() -> None:
    made = fleet(
        node("a", zone="a"), node("b", zone="b"), node("c", zone="c"),
        pods=webs("p", 7, topologySpreadConstraints=[spread()]),
    )  # fmt: skip
    nodes = list(placed(made).values())
    assert sorted(nodes.count(name) for name in "abc") == [2, 2, 3]


@pytest.mark.parametrize(
    ("constraint", "takers"),
    [
        (spread(), {"b"}),
        (spread(max_skew=2), {"b"}),
        (spread(max_skew=3), {"a", "b"}),
        (spread(selector={"app": "other"}), {"a", "b"}),
        (spread(minDomains=2), {"b"}),
        (spread(minDomains=3), {"b"}),
        (spread(max_skew=4, minDomains=3), {"a", "b"}),
        (spread(key=HOSTNAME), {"b", "c"}),
        (spread(whenUnsatisfiable="ScheduleAnyway"), {"b"}),
        (spread(matchLabelKeys=["version"]), {"a", "b"}),
        (spread(matchLabelKeys=["absent"]), {"b"}),
    ],
)
def test_a_spread_constraint_leaves_the_nodes_within_the_skew(constraint: dict[str, Any], takers: set[str]) -> None:
    """Zone a holds two of the group (of an older version), zone b none; node c is in no zone."""
    old = [pod(f"old{i}", cpu=0, memory_gib=0, labels=WEB | {"version": "1"}) for i in range(2)]
    nodes = [node("a", zone="a", pods=3), node("b", zone="b", pods=1), node("c", pods=1)]
    new = one_pod(labels={"version": "2"}, topologySpreadConstraints=[constraint])
    soft = constraint["whenUnsatisfiable"] == "ScheduleAnyway"
    taken = set()
    for name in ["any"] if soft else "abc":
        made = fleet(*nodes, bound={"a": old}, pods=new)
        for other in set() if soft else set("abc") - {name}:
            row = made.node_by_name[other]
            made.set_allocatable(row, made.allocatable_of(row) | {"pods": len(made.node(row).pods)})
        taken |= set(placed(made).values())
    assert taken == takers


def test_the_least_domain_counts_only_nodes_that_the_pod_selects() -> None:
    """Zone b has nothing for this pod, so that its emptiness does not hold zone a back."""
    nodes = [node("a", zone="a", labels={"disk": "ssd"}), node("b", zone="b")]
    for policy, fits in (("Honor", True), ("Ignore", False)):
        constraint = spread(nodeAffinityPolicy=policy)
        pods = one_pod(nodeSelector={"disk": "ssd"}, topologySpreadConstraints=[constraint])
        made = fleet(*nodes, bound={"a": webs("x", 1)}, pods=pods)
        assert bool(placed(made)) == fits


def test_pods_on_nodes_that_the_pod_does_not_select_do_not_count() -> None:
    nodes = [
        node("a1", zone="a", labels={"disk": "ssd"}), node("a2", zone="a"), node("b", zone="b", labels={"disk": "ssd"}, pods=0),
    ]  # fmt: skip
    pods = one_pod(nodeSelector={"disk": "ssd"}, topologySpreadConstraints=[spread()])
    assert placed(fleet(*nodes, bound={"a2": webs("x", 3)}, pods=pods)) == {"p": "a1"}


@pytest.mark.parametrize("how", ["taint", "cordon"])
def test_tainted_and_cordoned_nodes_make_domains_unless_taints_are_honored(how: str) -> None:
    for policy, fits in (("Ignore", False), ("Honor", True)):
        taints = ["x:NoSchedule"] if how == "taint" else []
        pods = one_pod(topologySpreadConstraints=[spread(nodeTaintsPolicy=policy)])
        made = fleet(node("a", zone="a"), node("b", zone="b", taints=taints), bound={"a": webs("x", 1)}, pods=pods)
        if how == "cordon":
            made.set_schedulable(1, False)
        assert bool(placed(made)) == fits


def test_a_node_counts_only_if_it_has_the_keys_of_all_constraints() -> None:
    both = [spread(), spread(key="rack", max_skew=5)]
    nodes = [node("a", zone="a", labels={"rack": "1"}), node("b", zone="b")]
    pods = one_pod(topologySpreadConstraints=both)
    assert placed(fleet(*nodes, bound={"a": webs("x", 1)}, pods=pods)) == {"p": "a"}  # zone b has no node with a rack


def test_a_spread_constraint_with_an_empty_selector_counts_no_pods() -> None:
    everything = spread() | {"labelSelector": {}}
    made = fleet(
        node("a", zone="a", pods=4),
        node("b", zone="b", pods=1),
        bound={"a": webs("x", 3)},
        pods=webs("p", 2, topologySpreadConstraints=[everything]),
    )
    assert sorted(placed(made).values()) == ["a", "b"]
    made = fleet(node("a", zone="a"), pods=one_pod(topologySpreadConstraints=[everything | {"topologyKey": "rack"}]))
    assert verdict(made, "p").endswith(
        "1 node(s) didn't match pod topology spread constraints (missing required label)"
    )


def test_pods_of_other_namespaces_do_not_count_for_spread() -> None:
    others = [pod(f"x{i}", cpu=0, memory_gib=0, namespace="other", labels=WEB) for i in range(3)]
    made = fleet(
        node("a", zone="a"), node("b", zone="b", pods=0),
        bound={"a": others}, pods=one_pod(topologySpreadConstraints=[spread()]),
    )  # fmt: skip
    assert placed(made) == {"p": "a"}


# ---- pod affinity ----


def test_a_pod_goes_to_the_zone_of_its_company() -> None:
    made = fleet(
        node("a", zone="a"), node("b", zone="b"),
        bound={"b": [pod("db", labels={"app": "db"})]},
        pods=[pod("p", affinity=near(affinity_term(app="db")))],
    )  # fmt: skip
    assert placed(made) == {"p": "b"}


def test_the_first_pod_of_a_group_that_seeks_its_own_company_may_go_anywhere_and_the_others_follow() -> None:
    made = fleet(
        node("a", zone="a", pods=2), node("b", zone="b", pods=4),
        pods=webs("p", 3, affinity=near(affinity_term(app="web"))),
    )  # fmt: skip
    assert len(set(placed(made).values())) == 1


def test_the_first_pod_of_a_group_needs_a_node_with_the_topology_key() -> None:
    made = fleet(node("a"), pods=one_pod(affinity=near(affinity_term(app="web"))))
    assert verdict(made, "p") == "0/1 nodes are available: 1 node(s) didn't match pod affinity rules"


def test_a_pod_that_seeks_company_of_others_waits_until_they_are_there() -> None:
    alone = [pod("p", affinity=near(affinity_term(app="db")), priority=9)]
    assert placed(fleet(node("a", zone="a"), pods=alone)) == {}
    both = [*alone, pod("db", labels={"app": "db"})]
    assert placed(fleet(node("a", zone="a"), pods=both)) == {"p": "a", "db": "a"}


def test_only_pods_that_all_terms_select_are_company() -> None:
    terms = near(affinity_term(app="db"), affinity_term(key=HOSTNAME, tier="fast"))
    there = {"a": [pod("x", labels={"app": "db"}), pod("y", labels={"tier": "fast"})]}
    pods = [pod("p", affinity=terms)]
    assert placed(fleet(node("a", zone="a"), bound=there, pods=pods)) == {}
    there["a"].append(pod("z", labels={"app": "db", "tier": "fast"}))
    assert placed(fleet(node("a", zone="a"), bound=there, pods=pods)) == {"p": "a"}


# ---- pod anti-affinity ----


def test_replicas_that_avoid_each_other_stand_on_different_hosts() -> None:
    made = fleet(
        node("a"), node("b"),
        pods=webs("p", 3, affinity=away(affinity_term(key=HOSTNAME, app="web"))),
    )  # fmt: skip
    assert sorted(placed(made).values()) == ["a", "b"]
    assert verdict(made, "p2") == "0/2 nodes are available: 2 node(s) didn't match pod anti-affinity rules"


def test_anti_affinity_also_keeps_out_the_pod_that_says_nothing() -> None:
    shy = pod("shy", affinity=away(affinity_term(app="web")))
    made = fleet(node("a1", zone="a"), node("a2", zone="a"), node("b", zone="b"), bound={"a1": [shy]}, pods=one_pod())
    assert placed(made) == {"p": "b"}
    made = fleet(node("a1", zone="a"), node("a2", zone="a"), bound={"a1": [shy]}, pods=one_pod())
    expected = "0/2 nodes are available: 2 node(s) didn't satisfy existing pods anti-affinity rules"
    assert verdict(made, "p") == expected


def test_a_node_without_the_topology_key_is_in_no_domain() -> None:
    made = fleet(
        node("a", zone="a"), node("b"),
        bound={"a": webs("x", 1)}, pods=one_pod(affinity=away(affinity_term(app="web"))),
    )  # fmt: skip
    assert placed(made) == {"p": "b"}


@pytest.mark.parametrize(
    ("term", "kept_off"),
    [
        ({}, False),
        ({"namespaces": ["other"]}, True),
        ({"namespaces": ["third"]}, False),
        ({"namespaceSelector": {}}, True),
        ({"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "other"}}}, True),
        ({"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "third"}}}, False),
        ({"namespaceSelector": {"matchLabels": {"team": "x"}}, "namespaces": ["other"]}, True),
        ({"namespaceSelector": {"matchExpressions": [expression("team", "DoesNotExist")]}}, True),
    ],
)
def test_a_term_looks_at_the_namespaces_that_it_names_or_selects(term: dict[str, Any], kept_off: bool) -> None:
    rule = affinity_term(key=HOSTNAME, app="web") | term
    there = [pod("x", namespace="other", labels=WEB)]
    made = fleet(node("a"), bound={"a": there}, pods=one_pod(affinity=away(rule)))
    assert bool(placed(made)) != kept_off


TEAM_A = {"namespaceSelector": {"matchLabels": {"team": "a"}}}


@pytest.mark.parametrize(
    ("labels", "kept_off"),
    [(None, False), ({"team": "a"}, True), ({"team": "b"}, False), ({"team": "a", "x": ""}, True)],
)
@pytest.mark.parametrize("carrier", ["it", "other"])
def test_a_term_sees_the_labels_that_namespaces_have_now(
    labels: dict[str, str] | None, kept_off: bool, carrier: str
) -> None:
    rule = away(affinity_term(key=HOSTNAME, app="web") | TEAM_A)
    mine, others = ({"affinity": rule}, {}) if carrier == "it" else ({}, {"affinity": rule})
    there = pod("x", namespace="other", labels=WEB, **others)
    made = fleet(node("a"), bound={"a": [there]}, pods=[pod("p", namespace="mine", labels=WEB, **mine)])
    selected = "other" if carrier == "it" else "mine"
    cache = place.Cache(made)
    for now in ({"team": "z"}, labels, {"team": "z"}, labels):  # tables that are kept follow every change
        made.namespaces.put(selected, now)
        found = place.decide(Snapshot(0, made), cache=cache)
        assert isinstance(found[0], Bind) != (kept_off and now == labels)


@pytest.mark.parametrize(
    ("expressions", "kept_off"),
    [
        ([expression("team", "DoesNotExist")], True),
        ([expression("team", "NotIn", "a")], True),
        ([expression("team", "Exists")], True),
        ([expression("team", "In", "b")], False),
    ],
)
def test_a_pods_own_anti_affinity_is_as_wide_as_kube_schedulers(expressions: list[Any], kept_off: bool) -> None:
    rule = affinity_term(key=HOSTNAME, app="web") | {"namespaceSelector": {"matchExpressions": expressions}}
    there = [pod("x", namespace="other", labels=WEB)]
    made = fleet(node("a"), bound={"a": there}, pods=one_pod(affinity=away(rule)))
    made.namespaces.put("other", {"team": "a"})
    assert bool(placed(made)) != kept_off
    company = [pod("near", affinity=near(rule))]
    made = fleet(node("a"), bound={"a": there}, pods=company)
    made.namespaces.put("other", {"team": "a"})
    assert bool(placed(made)) is (expressions == [expression("team", "Exists")])  # none but those that are meant


def test_company_is_found_in_the_namespaces_that_a_selector_means() -> None:
    rule = near(affinity_term(key=HOSTNAME, app="db") | TEAM_A)
    there = {"b": [pod("db", namespace="data", labels={"app": "db"})]}
    made = fleet(node("a"), node("b"), bound=there, pods=[pod("p", affinity=rule)])
    assert verdict(made, "p").endswith("2 node(s) didn't match pod affinity rules")
    made.namespaces.put("data", {"team": "a"})
    assert placed(made) == {"p": "b"}


@pytest.mark.parametrize(("keys", "kept_off"), [("matchLabelKeys", False), ("mismatchLabelKeys", True)])
def test_label_keys_narrow_a_term_to_pods_like_or_unlike_the_pod(keys: str, kept_off: bool) -> None:
    rule = affinity_term(key=HOSTNAME, app="web") | {keys: ["version"]}
    old = [pod("old", labels=WEB | {"version": "1"})]
    made = fleet(node("a"), bound={"a": old}, pods=one_pod(labels={"version": "2"}, affinity=away(rule)))
    assert bool(placed(made)) != kept_off


# ---- preferences ----


def wish(kind: str, weight: int, **labels: str) -> dict[str, Any]:
    return {
        kind: {
            "preferredDuringSchedulingIgnoredDuringExecution": [
                {"weight": weight, "podAffinityTerm": affinity_term(**labels)}
            ]
        }
    }


@pytest.mark.parametrize(("kind", "expected"), [("podAffinity", "b"), ("podAntiAffinity", "a")])
def test_a_wish_about_other_pods_decides_between_nodes_that_fit(kind: str, expected: str) -> None:
    made = fleet(
        node("a", zone="a"), node("b", zone="b"),
        bound={"b": [pod("db", cpu=0, memory_gib=0, labels={"app": "db"})]},
        pods=[pod("p", affinity=wish(kind, 1, app="db"))],
    )  # fmt: skip
    assert placed(made) == {"p": expected}


def test_however_many_pods_a_wish_is_about_a_node_that_fits_stays_one() -> None:
    crowd = [pod(f"x{i}", cpu=0, memory_gib=0, labels=WEB) for i in range(90)]
    pods = one_pod(affinity=wish("podAntiAffinity", 100, app="web"))
    assert placed(fleet(node("a", zone="a"), bound={"a": crowd}, pods=pods)) == {"p": "a"}


def test_a_soft_spread_yields_when_it_cannot_be_kept() -> None:
    soft = [spread(whenUnsatisfiable="ScheduleAnyway")]
    made = fleet(
        node("a", zone="a", pods=9), node("b", zone="b", pods=1), node("c", labels={ZONE: "c"}, pods=0),
        pods=webs("p", 4, topologySpreadConstraints=soft),
    )  # fmt: skip
    assert sorted(placed(made).values()) == ["a", "a", "a", "b"]
