"""What a node must be for a pod to stand on it, whatever stands elsewhere."""

from __future__ import annotations

from typing import Any

import pytest

from builders import HOSTNAME, decide, expression, fleet, node, on_nodes, placed, pod, taint, verdict

DEDICATED = {"key": "dedicated", "operator": "Equal", "value": "gpu", "effect": "NoSchedule"}
NAMED_A = {"matchFields": [expression("metadata.name", "In", "a")]}


def test_a_pod_goes_where_its_requests_fit() -> None:
    made = fleet(node("small", cpu=1), node("large", cpu=4), pods=[pod("p", cpu=2)])
    assert placed(made) == {"p": "large"}


def test_a_request_that_fills_a_node_exactly_fits() -> None:
    made = fleet(node("a", cpu=4, memory_gib=8, gpus=2), pods=[pod("p", cpu=4, memory_gib=8, gpus=2)])
    assert placed(made) == {"p": "a"}


def test_a_resource_that_no_node_has_keeps_a_pod_waiting() -> None:
    made = fleet(node("a"), pods=[pod("p", resources={"example.com/fpga": "1"})])
    assert verdict(made, "p") == "0/1 nodes are available: 1 Insufficient example.com/fpga"


def test_a_pod_without_toleration_is_kept_off_a_tainted_node() -> None:
    made = fleet(node("a", taints=["dedicated=gpu:NoSchedule"]), pods=[pod("p")])
    assert verdict(made, "p") == "0/1 nodes are available: 1 node(s) had untolerated taint {dedicated: gpu}"


@pytest.mark.parametrize(
    ("toleration", "tolerated"),
    [
        (DEDICATED, True),
        (DEDICATED | {"effect": ""}, True),
        ({"key": "dedicated", "operator": "Exists"}, True),
        ({"operator": "Exists"}, True),
        (DEDICATED | {"value": "cpu"}, False),
        (DEDICATED | {"effect": "NoExecute"}, False),
        ({"key": "other", "operator": "Exists"}, False),
    ],
)
def test_a_toleration_covers_a_taint_by_key_value_and_effect(toleration: dict[str, str], tolerated: bool) -> None:
    made = fleet(node("a", taints=["dedicated=gpu:NoSchedule"]), pods=[pod("p", tolerations=[toleration])])
    assert bool(placed(made)) == tolerated


def test_every_hard_taint_must_be_tolerated() -> None:
    made = fleet(
        node("a", taints=["dedicated=gpu:NoSchedule", "spot=:NoExecute"]), pods=[pod("p", tolerations=[DEDICATED])]
    )
    assert verdict(made, "p") == "0/1 nodes are available: 1 node(s) had untolerated taint {spot: }"


def test_a_soft_taint_repels_but_does_not_refuse() -> None:
    soft = node("a", taints=["slow:PreferNoSchedule"])
    assert placed(fleet(soft, node("b"), pods=[pod("p")])) == {"p": "b"}
    assert placed(fleet(soft, pods=[pod("p")])) == {"p": "a"}


def test_a_taint_that_came_later_counts_and_one_that_went_does_not() -> None:
    made = fleet(node("a"), node("b", taints=["x:NoSchedule"]), pods=[pod("p")])
    made.set_taints(0, (taint("y:NoExecute"),))
    made.set_taints(1, ())
    assert placed(made) == {"p": "b"}


def test_a_cordoned_node_takes_no_pods() -> None:
    made = fleet(node("a"), pods=[pod("p")])
    made.set_schedulable(0, False)
    assert verdict(made, "p") == "0/1 nodes are available: 1 node(s) were unschedulable"


def test_a_pod_that_tolerates_the_unschedulable_taint_stands_on_a_cordoned_node() -> None:
    made = fleet(
        node("a"), pods=[pod("p", tolerations=[{"key": "node.kubernetes.io/unschedulable", "operator": "Exists"}])]
    )
    made.set_schedulable(0, False)
    assert placed(made) == {"p": "a"}


@pytest.mark.parametrize(
    ("fields", "takers"),
    [
        ({"nodeSelector": {"disk": "ssd"}}, {"a", "b"}),
        ({"nodeSelector": {"disk": "ssd", "size": "7"}}, {"b"}),
        ({"nodeSelector": {HOSTNAME: "c"}}, {"c"}),
        ({"affinity": on_nodes({"matchExpressions": [expression("disk", "In", "hdd", "ssd")]})}, {"a", "b", "c"}),
        ({"affinity": on_nodes({"matchExpressions": [expression("disk", "NotIn", "ssd")]})}, {"c", "d"}),
        ({"affinity": on_nodes({"matchExpressions": [expression("disk", "Exists")]})}, {"a", "b", "c"}),
        ({"affinity": on_nodes({"matchExpressions": [expression("disk", "DoesNotExist")]})}, {"d"}),
        ({"affinity": on_nodes({"matchExpressions": [expression("size", "Gt", "5")]})}, {"b"}),
        ({"affinity": on_nodes({"matchExpressions": [expression("size", "Lt", "5")]})}, {"a"}),
        ({"affinity": on_nodes(NAMED_A)}, {"a"}),
        ({"affinity": on_nodes({"matchFields": [expression("metadata.name", "NotIn", "a", "d")]})}, {"b", "c"}),
        ({"affinity": on_nodes(NAMED_A, {"matchExpressions": [expression("disk", "In", "hdd")]})}, {"a", "c"}),
        ({"affinity": on_nodes(NAMED_A | {"matchExpressions": [expression("disk", "In", "hdd")]})}, set()),
        ({"affinity": on_nodes({})}, set()),
        ({"nodeSelector": {"disk": "ssd"}, "affinity": on_nodes(NAMED_A)}, {"a"}),
        ({"nodeName": "d"}, {"d"}),
    ],
)
def test_selectors_and_node_affinity_choose_nodes(fields: dict[str, Any], takers: set[str]) -> None:
    nodes = [
        node("a", pods=1, labels={"disk": "ssd", "size": "3"}),
        node("b", pods=1, labels={"disk": "ssd", "size": "7"}),
        node("c", pods=1, labels={"disk": "hdd", "size": "x"}),
        node("d", pods=1),
    ]
    made = fleet(*nodes, pods=[pod(f"p{i}", **fields) for i in range(4)])
    assert set(placed(made).values()) == takers


def test_pods_with_scheduling_gates_and_of_other_schedulers_are_left_alone() -> None:
    made = fleet(
        node("a"),
        pods=[
            pod("gated", schedulingGates=[{"name": "example.com/quota"}]),
            pod("foreign", schedulerName="volcano"),
            pod("default", schedulerName="default-scheduler"),
            pod("ours", schedulerName="tonnage"),
            pod("unnamed"),
        ],
    )
    assert sorted(d.target.name for d in decide(made)) == ["default", "ours", "unnamed"]


def test_there_is_nowhere_to_go_without_nodes() -> None:
    assert verdict(fleet(pods=[pod("p")]), "p") == "no nodes available to schedule pods"
