"""Why a pod waits, in kube-scheduler's words, and why it went where it went."""

from __future__ import annotations

import pytest

from builders import affinity_term, away, decide, expression, fleet, near, node, on_nodes, pod, spread, verdict
from tonnage.decisions import Bind, Wait
from tonnage.fleet.rows import FleetPod
from tonnage.fleet.snapshot import Snapshot
from tonnage.scheduling import place
from tonnage.scheduling.why.receipt import PodReceipt, why


def test_each_node_is_counted_under_the_first_filter_that_refuses_it() -> None:
    made = fleet(
        node("cordoned", cpu=0, taints=["k=v:NoSchedule"]),
        node("tainted", cpu=0, taints=["k=v:NoSchedule"]),
        node("unlabelled", cpu=0),
        node("small", cpu=0, labels={"disk": "ssd"}),
        pods=[pod("p", gpus=1, nodeSelector={"disk": "ssd"})],
    )
    made.set_schedulable(0, False)
    assert verdict(made, "p") == (
        "0/4 nodes are available: 1 Insufficient cpu, 1 Insufficient nvidia.com/gpu, "
        "1 node(s) didn't match Pod's node affinity/selector, 1 node(s) had untolerated taint {k: v}, "
        "1 node(s) were unschedulable"
    )


def test_reasons_stand_in_the_order_of_their_text_count_first() -> None:
    made = fleet(
        node("a", gpus=1),
        *(node(f"n{i}", gpus=4, taints=["key=value:NoSchedule"]) for i in range(2)),
        pods=[pod("p", gpus=2)],
    )
    assert verdict(made, "p") == (
        "0/3 nodes are available: 1 Insufficient nvidia.com/gpu, 2 node(s) had untolerated taint {key: value}"
    )


def test_different_taints_are_told_apart() -> None:
    made = fleet(node("a", taints=["x=1:NoSchedule"]), node("b", taints=["x=2:NoExecute"]), pods=[pod("p")])
    assert verdict(made, "p") == (
        "0/2 nodes are available: 1 node(s) had untolerated taint {x: 1}, 1 node(s) had untolerated taint {x: 2}"
    )


def test_a_node_without_room_for_another_pod_has_too_many_pods() -> None:
    made = fleet(node("a", pods=0), pods=[pod("p")])
    assert verdict(made, "p") == "0/1 nodes are available: 1 Too many pods"


def test_rules_about_other_pods_are_named() -> None:
    web, db = {"app": "web"}, {"app": "db"}
    made = fleet(
        node("a", zone="z"),
        node("b"),
        bound={"a": [pod("web", labels=web, affinity=away(affinity_term(app="shy")))]},
        pods=[
            pod("near", affinity=near(affinity_term(app="db"))),
            pod(
                "away",
                labels=web,
                affinity=away(affinity_term(app="web")),
                nodeSelector={"topology.kubernetes.io/zone": "z"},
            ),
            pod("shy", labels={"app": "shy"}, nodeName="a"),
            pod("even", labels=web, topologySpreadConstraints=[spread(minDomains=2)]),
            pod("db", labels=db, cpu=99),
        ],
    )
    says = {d.pod.name: dict(d.reason.evidence) for d in decide(made) if isinstance(d, Wait)}
    selector = "node(s) didn't match Pod's node affinity/selector"
    assert says == {
        "near": {"node(s) didn't match pod affinity rules": 2},
        "away": {"node(s) didn't match pod anti-affinity rules": 1, selector: 1},
        "shy": {
            "node(s) didn't satisfy existing pods anti-affinity rules": 1,
            "node(s) didn't match the requested node name": 1,
        },
        "even": {
            "node(s) didn't match pod topology spread constraints": 1,
            "node(s) didn't match pod topology spread constraints (missing required label)": 1,
        },
        "db": {"Insufficient cpu": 2},
    }


NAMED_A = {"matchFields": [expression("metadata.name", "In", "a")]}
GONE = {"matchFields": [expression("metadata.name", "In", "gone")]}
NAMED_TWICE = {"matchFields": [expression("metadata.name", "In", "a"), expression("metadata.name", "In", "b")]}
NOT_B = {"matchFields": [expression("metadata.name", "NotIn", "b")]}


@pytest.mark.parametrize(
    ("terms", "why"),
    [
        ([NAMED_A], "1 Insufficient cpu, 2 node(s) didn't satisfy plugin(s) [NodeAffinity]"),
        ([NAMED_A, GONE], "1 Insufficient cpu, 2 node(s) didn't satisfy plugin(s) [NodeAffinity]"),
        ([NAMED_A, NAMED_TWICE], "1 Insufficient cpu, 2 node(s) didn't satisfy plugin(s) [NodeAffinity]"),
        ([GONE], "3 node(s) didn't satisfy plugin(s) [NodeAffinity]"),
        ([NAMED_TWICE], "pod affinity terms conflict"),
        (
            [NOT_B],
            "1 Insufficient cpu, 1 node(s) didn't match Pod's node affinity/selector, 1 node(s) were unschedulable",
        ),
    ],
)
def test_a_pod_that_names_its_nodes_is_told_of_those_alone(terms: list[dict[str, object]], why: str) -> None:
    made = fleet(node("a"), node("b"), node("c"), pods=[pod("p", cpu=99, affinity=on_nodes(*terms))])
    made.set_schedulable(made.node_by_name["c"], False)
    assert verdict(made, "p") == f"0/3 nodes are available: {why}"


def test_a_receipt_has_the_score_and_the_runner_up() -> None:
    made = fleet(node("a", gpus=4), node("b", gpus=4), bound={"b": [pod("x", gpus=2)]}, pods=[pod("p", gpus=1)])
    (decision,) = decide(made)
    assert isinstance(decision, Bind)
    evidence = dict(decision.reason.evidence)
    assert evidence["nodes_that_fit"] == 2
    (second,) = decision.reason.alternatives
    assert (second.name, second.why) == ("a", "lower score")
    assert second.score is not None and second.score < evidence["score"]


def test_a_runner_up_with_the_same_score_lost_by_its_name() -> None:
    (decision,) = decide(fleet(node("b"), node("a"), pods=[pod("p")]))
    assert isinstance(decision, Bind)
    assert decision.node.name == "a"
    assert [(a.name, a.why) for a in decision.reason.alternatives] == [("b", "same score, later name")]


def test_without_receipts_the_choice_is_the_same() -> None:
    made = fleet(node("a", gpus=4), node("b", gpus=2), pods=[pod(f"p{i}", gpus=1) for i in range(5)])
    with_, without = decide(made), decide(made, receipts=False)
    assert [(d.target, d.node, d.devices) for d in with_] == [(d.target, d.node, d.devices) for d in without]
    assert {d.reason.alternatives for d in without} == {()}


SOFT = {"whenUnsatisfiable": "ScheduleAnyway", "topologyKey": "kubernetes.io/hostname"}


@pytest.mark.parametrize("policy", ["tonnage", "fgd", "binpack", "spread"])
@pytest.mark.parametrize(
    "one",
    [
        pod("p"),  # takes a node with GPUs only where no other fits: 2,000 points of preferences less
        pod("p", gpus=1),
        pod("p", gpus=1, labels={"app": "web"}, topologySpreadConstraints=[spread(**SOFT)]),
        pod("p", gpus=1, tolerations=[{"operator": "Exists", "effect": "NoSchedule"}]),
    ],
    ids=["no GPU", "a GPU", "spread", "tolerant"],
)
def test_the_score_of_a_decision_is_the_sum_of_the_points_that_the_receipt_lists(one: FleetPod, policy: str) -> None:
    web = pod("other", gpus=1, labels={"app": "web"})
    made = fleet(
        node("a", gpus=4, taints=["soft=x:PreferNoSchedule"]), node("b", gpus=8), pods=[one], bound={"b": [web]}
    )
    (bind,) = decide(made, policy=policy)
    assert isinstance(bind, Bind)
    told = why(Snapshot(0, made), "default/p", place.Settings(policy=policy))
    assert isinstance(told, PodReceipt) and told.best is not None and told.runner_up is not None
    assert dict(bind.reason.evidence)["score"] == pytest.approx(sum(points for _, points in told.best.parts), abs=0.002)
    (other,) = bind.reason.alternatives
    assert other.score == pytest.approx(sum(points for _, points in told.runner_up.parts), abs=0.002)
