"""The receipt of a pod or a gang: which nodes are out for which reason, and why the chosen node won."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from builders import GPU, ZONE, affinity_term, fleet, near, node, pod
from gang_builders import RACK, gang, members, snapshot
from tonnage.fleet.snapshot import Snapshot
from tonnage.fleet.state import Fleet
from tonnage.scheduling import place
from tonnage.scheduling.why.changes import Lower
from tonnage.scheduling.why.gang import LowerMinimum, MorePlaces
from tonnage.scheduling.why.receipt import FITS, HELD, RUNS, WAITS, GangReceipt, PodReceipt, why
from why_checks import everything, waiting


def of_pod(made: Fleet, name: str, policy: str = "tonnage") -> PodReceipt:
    before = everything(made)
    receipt = why(Snapshot(0, made), f"default/{name}", place.Settings(policy))
    assert everything(made) == before
    assert isinstance(receipt, PodReceipt)
    return receipt


@pytest.mark.report(111)
def test_each_node_counts_for_the_first_filter_that_refuses_it_with_examples_by_name() -> None:
    one = pod("waiting", gpus=2, nodeSelector={"disk": "ssd"})
    ssd = {"disk": "ssd"}
    made = fleet(
        node("b-tainted", gpus=8, labels=ssd, taints=["dedicated=ml:NoSchedule"]),
        node("c-other"),
        *(node(f"d-{i}", gpus=1, labels=ssd) for i in range(5)),
        pods=[one],
    )
    made.add_node(node("a-cordoned", taints=["dedicated=ml:NoSchedule"]), schedulable=False)
    out = [(one.reason, one.nodes, one.examples) for one in of_pod(made, "waiting").out]
    assert out == [
        ("node(s) were unschedulable", 1, ("a-cordoned",)),
        ("node(s) had untolerated taint {dedicated: ml}", 1, ("b-tainted",)),
        ("node(s) didn't match Pod's node affinity/selector", 1, ("c-other",)),
        (f"Insufficient {GPU}", 5, ("d-0", "d-1", "d-2")),
    ]


@pytest.mark.parametrize("policy", place.POLICIES)
def test_the_winner_stands_beside_the_runner_up_part_by_part(policy: str) -> None:
    held = {"b": [pod("there", gpus=2)]}
    made = fleet(node("a", gpus=4), node("b", gpus=4), pods=[pod("next", gpus=1)], bound=held)
    receipt = of_pod(made, "next", policy)
    assert receipt.state == FITS
    assert receipt.best is not None
    assert receipt.runner_up is not None
    assert {receipt.best.node, receipt.runner_up.node} == {"a", "b"}
    assert receipt.best.node == receipt.node
    assert sum(points for _, points in receipt.best.parts) >= sum(points for _, points in receipt.runner_up.parts)
    assert [name for name, _ in receipt.best.parts] == [name for name, _ in receipt.runner_up.parts]


def test_a_pod_that_runs_is_weighed_as_if_it_were_not_there() -> None:
    made = fleet(node("a", gpus=1), node("b"), bound={"a": [pod("there", gpus=1)]})
    receipt = of_pod(made, "there")
    assert (receipt.state, receipt.node, receipt.fit) == (RUNS, "a", 1)
    assert receipt.best is not None


def test_pods_whose_turn_is_before_are_counted_as_placed() -> None:
    first, second = pod("first", gpus=1, priority=1), pod("second", gpus=1)
    receipt = of_pod(fleet(node("a", gpus=1), pods=[second, first]), "second")
    assert (receipt.state, receipt.ahead) == (WAITS, 1)
    assert [one.reason for one in receipt.out] == [f"Insufficient {GPU}"]


def test_pods_whose_turn_is_after_do_not_count() -> None:
    high, low = pod("high", gpus=8, priority=10), pod("low", gpus=4)
    there = {"a": [pod("there", gpus=1, priority=10)]}
    receipt = of_pod(fleet(node("a", gpus=8), pods=[low, high], bound=there), "high")
    assert (receipt.state, receipt.ahead) == (WAITS, 0)
    assert receipt.changes[0].change.edits == (Lower(GPU, 1, 7),)
    assert receipt.changes[0].proved


def test_pods_before_are_taken_as_given_and_those_after_are_not() -> None:
    pods = [pod("first", gpus=1, priority=2), pod("mine", gpus=8, priority=1), pod("last", gpus=4)]
    receipt = of_pod(fleet(node("a", gpus=8), pods=pods), "mine")
    assert (receipt.state, receipt.ahead) == (WAITS, 1)
    assert receipt.changes[0].change.edits == (Lower(GPU, 1, 7),)


def test_a_gang_does_not_count_pods_whose_turn_is_after() -> None:
    known = gang(5, priority=5)
    made = fleet(node("a", gpus=4), pods=[*members(5, gpus=1, priority=5), pod("low", gpus=2)])
    receipt = why(snapshot(made, known), known.key)
    assert isinstance(receipt, GangReceipt)
    assert (receipt.state, receipt.ahead) == (WAITS, 0)
    assert receipt.changes[0].change.edits == (LowerMinimum(known.key, 1, 4),)


def test_company_that_comes_after_a_pod_counts_where_the_pod_asks_for_it() -> None:
    with_web = {"affinity": near(affinity_term(ZONE, app="web"))}
    pods = [pod("first", priority=1, **with_web), pod("web", labels={"app": "web"})]
    receipt = of_pod(fleet(node("a", zone="z"), pods=pods), "first")
    assert (receipt.state, receipt.node, receipt.ahead) == (FITS, "a", 1)


def test_asking_leaves_no_trace_in_later_decisions() -> None:
    asked = 0
    for seed in range(60):
        made, row = waiting(Random(f"trace-{seed}"))
        world, cache = Snapshot(0, made), place.Cache(made)
        first = place.decide(world, cache=cache)
        before = everything(made)
        asked += why(world, made.pod(row).key, cache=cache).state == WAITS
        assert everything(made) == before
        assert place.decide(world, cache=cache) == first
    assert asked > 10


def test_who_is_evicted_for_a_pod_is_named() -> None:
    held = {"a": [pod("low", gpus=1)]}
    receipt = of_pod(fleet(node("a", gpus=1), pods=[pod("high", gpus=1, priority=9)], bound=held), "high")
    assert (receipt.nominated, receipt.evicted) == ("a", ("default/low",))


def test_a_gated_pod_is_said_to_be_held() -> None:
    made = fleet(node("a"), pods=[pod("gated", schedulingGates=[{"name": "quota"}])])
    receipt = of_pod(made, "gated")
    assert (receipt.state, receipt.verdict) == (HELD, "it has scheduling gates: quota")


def test_an_unknown_pod_is_a_key_error() -> None:
    with pytest.raises(KeyError):
        why(Snapshot(0, fleet(node("a"))), "default/nobody")


def racks() -> Fleet:
    return fleet(
        *(node(f"n{i}", gpus=4, cpu=64, zone="z", labels={RACK: f"r{i // 2}"}) for i in range(4)),
        pods=members(8, gpus=2),
        bound={"n0": [pod("there", gpus=4)], "n2": [pod("here", gpus=2)]},
    )


def test_a_waiting_gang_is_told_for_each_level_what_it_needs_and_the_best_domain_holds() -> None:
    known = gang(5, required=RACK)
    receipt = why(snapshot(racks(), known), known.key)
    assert isinstance(receipt, GangReceipt)
    room = {one.level: (one.needs, one.best, one.holds, one.required) for one in receipt.room}
    assert room["the cluster"] == (5, "", 5, False)
    assert room[ZONE] == (5, "z", 5, False)
    assert room[RACK] == (5, "z/r1", 3, True)
    assert receipt.state == WAITS
    edits = [edit for option in receipt.changes for edit in option.change.edits]
    assert LowerMinimum("default/g", 2, 3) in edits
    assert MorePlaces(RACK, "z/r1", 2, "n2") in edits


def test_a_gang_that_fits_is_told_where_it_would_stand() -> None:
    known = gang(3, required=RACK)
    receipt = why(snapshot(racks(), known), known.key)
    assert isinstance(receipt, GangReceipt)
    assert (receipt.state, receipt.level, receipt.domain) == (FITS, RACK, "z/r1")
    assert sum(pods for _, pods in receipt.on) == 3
    assert receipt.communication


def test_a_pod_of_a_waiting_gang_gets_the_gangs_receipt() -> None:
    known = replace(gang(5, required=RACK))
    assert isinstance(why(snapshot(racks(), known), "default/g--0"), GangReceipt)
