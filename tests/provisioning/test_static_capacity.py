"""How many nodes a static NodePool launches, which, and which of its nodes go first."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from provisioning_builders import instance, node, node_pool, on_demand, pods, shape

from tonnage.decisions import Ref
from tonnage.objects import karpenter
from tonnage.provisioning import static
from tonnage.provisioning.candidates import MovablePod, RunningNode
from tonnage.provisioning.disruption import NodeState
from tonnage.provisioning.findings import analyse
from tonnage.provisioning.karpenter import plan
from tonnage.provisioning.optimal import plan as optimal

SMALL, LARGE = instance("m1.small", cpu=2), instance("m1.large", cpu=8)
MARKET = on_demand({SMALL: 100_000, LARGE: 350_000})


def static_pool(replicas: int, *requirements: tuple[Any, ...], **more: Any) -> karpenter.NodePool:
    made = node_pool("fixed", *requirements, **more)
    return msgspec.structs.replace(made, spec=msgspec.structs.replace(made.spec, replicas=replicas))


@pytest.mark.parametrize(
    ("replicas", "limit", "staying", "every", "launched"),
    [
        (3, None, 0, 0, 3),
        (3, None, 2, 2, 1),
        (3, None, 3, 3, 0),
        (3, None, 5, 5, 0),
        (3, None, 2, 3, 1),
        (3, "4", 2, 3, 1),
        (3, "3", 2, 3, 0),
        (3, "2", 0, 0, 2),
        (0, None, 0, 0, 0),
    ],
)
def test_what_is_missing_is_launched_within_the_limit_that_leaving_nodes_count_for(
    replicas: int, limit: str | None, staying: int, every: int, launched: int
) -> None:
    pool = static_pool(replicas, limits=None if limit is None else {"nodes": limit})
    assert static.missing(pool, staying, every) == launched


def test_the_cheapest_type_that_the_nodepool_allows_is_launched() -> None:
    found = static.plan([static_pool(2), node_pool("other")], {}, {}, MARKET)
    assert [(one.claim.name, one.instance_type, one.pods) for one in found.launches] == [
        ("fixed-00001", "m1.small", ()),
        ("fixed-00002", "m1.small", ()),
    ]
    assert dict(found.launches[0].reason.evidence)["replicas"] == 2


def test_nothing_is_launched_where_nothing_is_offered() -> None:
    none = static_pool(1, ("karpenter.sh/capacity-type", "In", ["spot"]))
    assert static.plan([none], {}, {}, MARKET).launches == ()


def test_replicas_beyond_the_limit_of_nodes_are_told() -> None:
    (found,) = [one for one in analyse(static_pool(5, limits={"nodes": "2"}), MARKET) if "replicas" in one.rule]
    assert found.rule == "nodepool-replicas-beyond-limit"
    assert found.message == "3 of 5 replicas are never launched: limits.nodes is 2"
    assert not [one for one in analyse(static_pool(2, limits={"nodes": "2"}), MARKET) if "replicas" in one.rule]


def running(name: str, *held: MovablePod) -> RunningNode:
    state = NodeState(node=Ref("Node", name), node_pool="fixed", price_micro_usd_per_hour=0, initialized_ns=0)
    return RunningNode(state=state, node=node(name), pods=held)


def test_nodes_go_that_are_empty_then_unprotected_then_cheap_to_move() -> None:
    (pod,) = pods(1, shape())
    daemon = MovablePod(pod=pod, belongs=True)
    dear, cheap = MovablePod(pod=pod, priority=10**9), MovablePod(pod=pod)
    kept = MovablePod(pod=pod, do_not_disrupt="true")
    nodes = [running("a-kept", kept), running("b-dear", dear), running("c-cheap", cheap), running("d-bare", daemon)]
    assert [one.name for one in static.beyond(nodes, 4, 0)] == ["d-bare", "c-cheap", "b-dear", "a-kept"]
    assert [one.name for one in static.beyond(nodes, 1, 0)] == ["d-bare"]


def test_no_pod_launches_a_node_of_a_static_nodepool() -> None:
    found = plan(pods(1, shape()), [], [static_pool(1)], MARKET)
    assert found.launches == () and len(found.waits) == 1


@pytest.mark.parametrize(("replicas", "nodes"), [(0, "no nodes"), (1, "1 node"), (3, "3 nodes")])
def test_a_static_nodepool_is_named_among_those_that_launch_nothing_for_a_pod(replicas: int, nodes: str) -> None:
    arguments = (pods(1, shape()), [], [static_pool(replicas)], MARKET)
    for made in (plan(*arguments), optimal.plan(*arguments).plan):
        (wait,) = made.waits
        (refused,) = wait.reason.alternatives
        assert refused.name == "NodePool fixed"
        assert refused.why == f"it is static: it has {nodes} (replicas: {replicas}), whatever pods there are"


def test_nodes_of_a_static_nodepool_come_for_as_many_pods_as_there_are_nodes() -> None:
    coming = static.to_come(static_pool(1))
    assert not coming.is_static
    found = plan(pods(40, shape()), [], [coming], MARKET)
    assert len(found.launches) == 1
    assert static.to_come(static_pool(0)).is_static
