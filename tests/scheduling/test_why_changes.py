"""The smallest change that makes a waiting pod fit: that it does, and that none is smaller."""

from __future__ import annotations

from random import Random

import pytest

from builders import GPU, HOSTNAME, ZONE, affinity_term, away, expression, fleet, node, on_nodes, pod, spread
from deep_seeds import deep
from tonnage.fleet.devices import Cut, How
from tonnage.fleet.outfit import offered
from tonnage.fleet.state import Fleet, PodSpec
from tonnage.scheduling import place
from tonnage.scheduling.why.changes import Change
from tonnage.scheduling.why.gang import LowerMinimum, MorePlaces, RelaxLevel
from tonnage.scheduling.why.search import EVERY, smallest
from why_checks import check_change, check_gang, check_none_smaller, waiting
from why_oracle import fits


def change(made: Fleet, one: PodSpec, may: frozenset[str] = EVERY) -> Change:
    """The smallest change for the pod, which makes it fit."""
    row = made.pod_by_key[one.namespace, one.name]
    found = smallest(made, row, place.Cache(made), may)
    assert found.proved
    assert found.change is not None
    assert fits(made, row, found.change)
    return found.change


def texts(made: Fleet, one: PodSpec, may: frozenset[str] = EVERY) -> list[str]:
    return [edit.text() for edit in change(made, one, may).edits]


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({}, "tolerate taint dedicated=ml:NoSchedule"),
        ({"nodeName": "elsewhere", "tolerations": [{"operator": "Exists"}]}, "drop nodeName elsewhere"),
        (
            {"nodeSelector": {"disk": "ssd"}, "tolerations": [{"operator": "Exists"}]},
            "drop node selector disk=ssd",
        ),
        (
            {
                "affinity": on_nodes({"matchExpressions": [expression("disk", "In", "ssd", "nvme")]}),
                "tolerations": [{"operator": "Exists"}],
            },
            "drop node affinity disk in (ssd, nvme)",
        ),
    ],
)
def test_one_obstacle_is_one_edit(fields: dict[str, object], text: str) -> None:
    one = pod("waiting", **fields)
    made = fleet(node("n", taints=["dedicated=ml:NoSchedule"], labels={"disk": "hdd"}), pods=[one])
    assert texts(made, one) == [text]


def test_a_cordoned_node_is_made_schedulable_rather_than_a_request_lowered() -> None:
    one = pod("waiting", gpus=4)
    made = fleet(node("small", gpus=3), pods=[one])
    made.add_node(node("large", gpus=8), schedulable=False)
    assert texts(made, one) == ["make node large schedulable: it is cordoned or not ready"]


def test_requests_are_lowered_to_what_is_free_on_the_node_where_that_is_least() -> None:
    one = pod("waiting", cpu=8, gpus=8)
    made = fleet(node("a", gpus=4, cpu=16), node("b", gpus=6, cpu=16), pods=[one])
    assert texts(made, one) == [f"ask for 6 {GPU} instead of 8, 2 less"]


def test_the_fewest_pods_that_hold_least_go_where_the_pod_stays_as_it_is() -> None:
    one = pod("waiting", gpus=4)
    held = {"a": [pod("a1", gpus=2), pod("a2", gpus=2)], "b": [pod("b1", gpus=4)], "c": [pod("c1", gpus=8)]}
    made = fleet(node("a", gpus=4), node("b", gpus=4), node("c", gpus=8), pods=[one], bound=held)
    assert texts(made, one, frozenset({"leave"})) == ["default/b1 goes from node b"]


def test_a_node_comes_where_nothing_less_helps() -> None:
    one = pod("waiting", gpus=4)
    held = {"a": [pod("a1", gpus=2), pod("a2", gpus=2)]}
    made = fleet(node("a", gpus=4), pods=[one], bound=held)
    assert texts(made, one) == ["add one node like a"]


def test_nothing_is_offered_where_no_node_has_the_device() -> None:
    one = pod("waiting", gpus=1)
    made = fleet(node("a"), pods=[one])
    assert smallest(made, made.pod_by_key["default", "waiting"], place.Cache(made)).change is None


def test_a_rule_about_other_pods_is_given_up_or_the_pod_in_the_way_goes() -> None:
    one = pod("waiting", labels={"app": "web"}, affinity=away(affinity_term(HOSTNAME, app="web")))
    made = fleet(node("a"), pods=[one], bound={"a": [pod("there", labels={"app": "web"})]})
    assert texts(made, one) == [f"drop pod anti-affinity over {HOSTNAME}"]
    assert texts(made, one, frozenset({"leave"})) == ["default/there goes from node a"]


def test_a_spread_is_given_up_where_only_it_refuses() -> None:
    one = pod("waiting", labels={"app": "web"}, topologySpreadConstraints=[spread(ZONE)])
    there = {"a": [pod("there", labels={"app": "web"})], "b": [pod("full", cpu=8)]}
    made = fleet(node("a", zone="x"), node("b", zone="y", cpu=8), pods=[one], bound=there)
    assert texts(made, one) == [f"drop topology spread over {ZONE}"]


@pytest.mark.parametrize(
    ("annotations", "text"),
    [
        ({"gpu-fraction": "0.9"}, "ask for 0.5 gpu-fraction instead of 0.9, 0.4 less"),
        ({"gpu-memory": "70000"}, "ask for 40000 gpu-memory instead of 70000, 30000 less"),
    ],
)
def test_shares_of_devices_are_lowered_to_what_a_device_has_left(annotations: dict[str, str], text: str) -> None:
    one = pod("waiting", annotations=annotations)
    made = fleet(
        node("a", gpus=1, labels={"nvidia.com/gpu.memory": "80000"}),
        pods=[one],
        bound={"a": [pod("there", annotations={"gpu-fraction": "0.5"})]},
    )
    assert texts(made, one) == [text]


@pytest.mark.parametrize("block", [0, *deep(range(1, 4))])
@pytest.mark.parametrize("shared", [False, True])
def test_the_change_found_makes_the_pod_fit(block: int, shared: bool) -> None:
    each = 100 if shared else 250
    seeds = range(each * block, each * block + each)
    found = [check_change(*waiting(Random(seed), shared=shared)) for seed in seeds]
    assert sum(one is not None and one.change is not None for one in found) >= each // 10


@pytest.mark.slow
def test_no_smaller_change_makes_the_pod_fit() -> None:
    for seed in range(8):
        made, row = waiting(Random(f"brute-{seed}"), nodes=4, pods=6)
        found = check_change(made, row)
        if found is not None:
            check_none_smaller(made, row, found)


def test_no_smaller_change_makes_a_pod_that_shares_devices_fit() -> None:
    for seed in range(20):
        made, row = waiting(Random(f"shared-{seed}"), nodes=2, pods=4, shared=True)
        found = check_change(made, row)
        if found is not None:
            check_none_smaller(made, row, found, most=1)


def test_less_of_two_mig_profiles_is_asked_for_where_both_are_short() -> None:
    small, large = "nvidia.com/mig-1g.10gb", "nvidia.com/mig-3g.40gb"
    one = pod("waiting", resources={small: "4", large: "2"})
    cuts = (Cut(How.MIG, isolated=True, gpu="h100"),)
    made = fleet(node("a", resources=offered(cuts, GPU), device_resource=GPU, cuts=cuts), pods=[one])
    assert texts(made, one) == [f"ask for 1 {large} instead of 2, 1 less"]


def test_the_smallest_change_for_a_gang_is_of_each_kind_and_makes_it_fit() -> None:
    found = [check_gang(Random(seed), nodes=4, pods=4) for seed in range(80)]
    edits = [one.change.edits for one in found if one is not None and one.change is not None]
    singles = {type(only) for only, *more in edits if not more}
    assert singles == {LowerMinimum, RelaxLevel, MorePlaces}
    assert sum(len(pair) == 2 for pair in edits) > 2
