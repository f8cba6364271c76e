"""Which pod comes first, which node is best, and that both depend on nothing else than the cluster."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from builders import apply, decide, fleet, node, placed, pod
from deep_seeds import examples
from random_clusters import random_node, random_pod
from tonnage.decisions import Bind, Wait
from tonnage.fleet.invariants import violations
from tonnage.fleet.snapshot import Snapshot
from tonnage.fleet.state import Fleet
from tonnage.scheduling import place


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ({"priority": 1, "created_ns": 9}, {"priority": 0, "created_ns": 1}),
        ({"created_ns": 1}, {"created_ns": 2}),
        ({"namespace": "a"}, {"namespace": "b"}),
    ],
    ids=["higher priority", "older", "earlier namespace"],
)
def test_the_last_place_goes_to_the_pod_that_comes_first(first: dict[str, int], second: dict[str, int]) -> None:
    made = fleet(node("n", pods=1), pods=[pod("second", **second), pod("first", **first)])
    assert placed(made) == {"first": "n"}


def test_the_last_place_goes_to_the_earlier_name_of_equals() -> None:
    assert placed(fleet(node("n", pods=1), pods=[pod("b"), pod("a")])) == {"a": "n"}


def test_a_small_pod_is_not_held_back_by_a_large_one_that_fits_nowhere() -> None:
    made = fleet(node("n", cpu=2), pods=[pod("large", cpu=4, priority=9), pod("small", cpu=1)])
    assert placed(made) == {"small": "n"}


def test_gpus_are_packed_on_the_fullest_node_that_fits() -> None:
    made = fleet(
        *(node(name, gpus=8) for name in "abc"),
        bound={"b": [pod("x", gpus=3)], "c": [pod("y", gpus=6)]},
        pods=[pod("p", gpus=4)],
    )
    assert placed(made) == {"p": "b"}


def test_the_spread_policy_takes_the_emptiest_node() -> None:
    made = fleet(*(node(name, gpus=8) for name in "ab"), bound={"a": [pod("x", gpus=3)]}, pods=[pod("p", gpus=4)])
    assert placed(made, policy="spread") == {"p": "b"}


def test_a_pod_without_gpus_takes_a_gpu_node_only_if_no_other_fits() -> None:
    nodes = [node("a", gpus=8), node("b")]
    assert placed(fleet(*nodes, pods=[pod("p")])) == {"p": "b"}
    assert placed(fleet(nodes[0], pods=[pod("p")])) == {"p": "a"}


def test_preferred_node_affinity_comes_before_packing() -> None:
    preference = {
        "weight": 100,
        "preference": {"matchExpressions": [{"key": "disk", "operator": "In", "values": ["ssd"]}]},
    }
    affinity = {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [preference]}}
    made = fleet(
        node("a", gpus=8), node("b", gpus=8, labels={"disk": "ssd"}),
        bound={"a": [pod("x", gpus=7)]}, pods=[pod("p", gpus=1, affinity=affinity)],
    )  # fmt: skip
    assert placed(made) == {"p": "b"}


def test_ties_go_to_the_earlier_name_in_whatever_order_nodes_came() -> None:
    for names in ("abc", "cba", "bca"):
        assert placed(fleet(*(node(name) for name in names), pods=[pod("p")])) == {"p": "a"}


def test_devices_are_the_lowest_that_are_free() -> None:
    made = fleet(node("a", gpus=4), pods=[pod("p", gpus=2), pod("q", gpus=1, created_ns=1)])
    assert [d.devices for d in decide(made) if isinstance(d, Bind)] == [(0, 1), (2,)]


def test_deciding_changes_nothing_and_applying_leaves_only_those_who_wait() -> None:
    made = fleet(node("a", gpus=4), pods=[pod(f"p{i}", gpus=1) for i in range(6)])
    decisions = decide(made)
    assert len(made.pending) == 6
    apply(made, decisions)
    assert [type(d) for d in decisions] == [Bind] * 4 + [Wait] * 2
    assert [made.pod(row).spec.name for row in made.pending] == ["p4", "p5"]
    assert violations(made) == []


def test_a_cache_serves_its_own_fleet_only() -> None:
    with pytest.raises(ValueError, match="another fleet"):
        place.decide(Snapshot(0, fleet(node("a"))), cache=place.Cache(fleet(node("a"))))


def test_one_cache_serves_both_policies() -> None:
    made = fleet(*(node(name, gpus=8) for name in "ab"), bound={"a": [pod("x", gpus=3)]}, pods=[pod("p", gpus=4)])
    cache = place.Cache(made)
    found = [
        place.decide(Snapshot(0, made), place.Settings(policy), cache) for policy in ("binpack", "spread", "binpack")
    ]
    assert [decisions[0].node.name for decisions in found] == ["a", "b", "a"]


@settings(max_examples=examples(60), deadline=None)
@given(st.integers(0, 2**32), st.randoms(use_true_random=False))
def test_decisions_do_not_depend_on_the_order_in_which_things_came(seed: int, order: Random) -> None:
    rng = Random(seed)
    nodes = [random_node(rng, f"n{i}") for i in range(rng.randint(1, 6))]
    pods = [random_pod(rng, f"p{i}") for i in range(12)]
    first = decide(fleet(*nodes, pods=pods))
    order.shuffle(nodes)
    order.shuffle(pods)
    shuffled = Fleet()
    for one in (*pods[:4], *nodes, *pods[4:]):
        if one in nodes:
            shuffled.add_node(one)
        else:
            shuffled.add_pod(one)
    assert decide(shuffled) == first


def test_the_feasible_nodes_of_a_pod_are_those_that_pass_every_filter_by_name() -> None:
    made = fleet(
        node("c", zone="a"),
        node("b", zone="b", taints=["x:NoSchedule"]),
        node("a", zone="a"),
        node("d", zone="a", cpu=0),
        bound={"a": [pod("other")]},
        pods=[pod("p", nodeSelector={"topology.kubernetes.io/zone": "a"})],
    )
    rows = place.feasible(made, made.pod_by_key["default", "p"])
    assert [made.node(row).spec.name for row in rows] == ["a", "c"]
    with pytest.raises(ValueError, match="another fleet"):
        place.feasible(made, 0, place.Cache(fleet()))


@pytest.mark.parametrize(
    ("values", "weight", "nodes", "refused"),
    [
        (["9223372036854775808"], 1, 2, True),
        (["large"], 100, 3, True),
        (["9223372036854775807"], 1, 2, False),
        (["9223372036854775808"], 1, 1, False),
    ],
    ids=["beyond 64 bits", "no number", "64 bits", "one node"],
)
def test_a_preference_that_cannot_be_read_keeps_a_pod_pending_where_there_is_a_choice(
    values: list[str], weight: int, nodes: int, refused: bool
) -> None:
    term = {"matchExpressions": [{"key": "size", "operator": "Gt", "values": values}]}
    preferred = {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": weight, "preference": term}]}
    made = fleet(
        *(node(f"n{i}", labels={"size": "7"}) for i in range(nodes)),
        pods=[pod("p", affinity={"nodeAffinity": preferred}), pod("other")],
    )
    found = {one.pod.name: one for one in decide(made) if isinstance(one, Bind | Wait)}
    assert isinstance(found["other"], Bind)
    assert isinstance(found["p"], Wait) is refused
    if refused:
        assert found["p"].reason.verdict == (
            'running PreScore plugin "NodeAffinity": [0].matchExpressions[0].values[0]: Invalid value: '
            f"\"{values[0]}\": for 'Gt', 'Lt' operators, the value must be an integer"
        )
