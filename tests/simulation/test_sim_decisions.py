"""Decisions meet a world that has moved on: nothing changes, and the outcome says what no longer holds."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest
from sim_builders import POOL, bind, events, launch, node, run_until, start, workload, world

from tonnage.decisions import Applied, Bind, Decision, Evict, Reason, Ref, Refused, Return, Scale, Stale, Wait
from tonnage.fleet.cluster_state import UNAVAILABLE_NS
from tonnage.fleet.invariants import violations
from tonnage.machines import nodes, pods
from tonnage.machines.cluster import SimulatedCluster
from tonnage.units import NS_PER_S

WHY = Reason("test")
DEPLOYMENT = Ref("Deployment", "model-a", "inference")
OFFERING = ("g6e.12xlarge", "us-east-1a", "on-demand")


def _occupied() -> SimulatedCluster:
    """One pod bound to node-1 (three of four GPUs free), one pending, node-2 empty, a claim on its way."""
    cluster = world()
    made = workload(cluster, replicas=2)
    pods.reconcile(cluster, made)
    bind(cluster, made.active[0], node(cluster, "node-1"))
    node(cluster, "node-2", node_pool=POOL)
    cluster.apply(launch("claim-1"))
    return cluster


def _pod(cluster: SimulatedCluster, index: int, **changes: str) -> Ref:
    pod = cluster.workloads["inference/model-a"].active[index]
    return msgspec.structs.replace(Ref("Pod", pod.name, pod.namespace, pod.uid), **changes)


def _bind(cluster: SimulatedCluster, pod: Ref, node_name: str, device: int = 1, uid: str = "") -> Bind:
    return Bind(pod, Ref("Node", node_name, uid=uid or f"node-{node_name}"), WHY, (device,))


def _gone_node(cluster: SimulatedCluster) -> Decision:
    nodes.lose_node(cluster, cluster.nodes["node-2"], "test")
    return _bind(cluster, _pod(cluster, 1), "node-2")


def _terminating_pod(cluster: SimulatedCluster) -> Decision:
    pod = _pod(cluster, 1)
    cluster.pods[pod.namespace, pod.name].terminating = True
    return _bind(cluster, pod, "node-1")


STALE: dict[str, tuple[Callable[[SimulatedCluster], Decision], str]] = {
    "bind to a node that is gone": (_gone_node, "node node-2 is gone"),
    "bind to a namesake of the node": (
        lambda c: _bind(c, _pod(c, 1), "node-2", uid="another"),
        "node node-2 is gone",
    ),
    "bind a pod that is gone": (lambda c: _bind(c, _pod(c, 1, name="nobody"), "node-2"), "nobody is gone"),
    "bind a namesake of the pod": (lambda c: _bind(c, _pod(c, 1, uid="another"), "node-2"), "is gone"),
    "bind a pod that is being deleted": (_terminating_pod, "is gone"),
    "bind a bound pod": (lambda c: _bind(c, _pod(c, 0), "node-2"), "is bound already"),
    "bind to a taken device": (lambda c: _bind(c, _pod(c, 1), "node-1", device=0), "is not free"),
    "bind without a device": (
        lambda c: msgspec.structs.replace(_bind(c, _pod(c, 1), "node-2"), devices=()),
        "1 devices requested",
    ),
    "scale from another number": (lambda c: Scale(DEPLOYMENT, 3, 4, WHY), "has 2 replicas, not 3"),
    "scale a missing workload": (lambda c: Scale(Ref("Deployment", "other", "inference"), 2, 4, WHY), "is gone"),
    "launch a claim that exists": (lambda c: launch("claim-1"), "NodeClaim claim-1 exists"),
    "launch the claim of a node": (lambda c: launch("node-1"), "NodeClaim node-1 exists"),
    "return an occupied node": (lambda c: Return(Ref("Node", "node-1", uid="node-node-1"), WHY), "is not empty"),
    "return a namesake": (lambda c: Return(Ref("Node", "node-2", uid="another"), WHY), "is gone"),
    "return a missing node": (lambda c: Return(Ref("Node", "node-9"), WHY), "is gone"),
    "evict a missing pod": (lambda c: Evict(Ref("Pod", "nobody", "inference"), WHY), "is gone"),
    "evict a namesake": (lambda c: Evict(_pod(c, 0, uid="another"), WHY), "is gone"),
}


def _state(cluster: SimulatedCluster) -> object:
    """Everything that a decision can change."""
    fleet = cluster.fleet
    return (
        fleet.revision,
        fleet.devices.tobytes(),
        sorted(fleet.pending),
        sorted(cluster.pods),
        {key: w.replicas for key, w in cluster.workloads.items()},
        sorted(cluster.cloud.claims),
        {n.name: n.ended_ns for n in cluster.nodes.values()},
        [(e.object, e.reason, e.count) for e in cluster.events.rows.values()],
        len(cluster.queue._heap),
    )


@pytest.mark.parametrize(("make", "changed"), STALE.values(), ids=STALE)
def test_a_stale_decision_says_what_changed_and_changes_nothing(
    make: Callable[[SimulatedCluster], Decision], changed: str
) -> None:
    cluster = _occupied()
    decision = make(cluster)
    before = _state(cluster)
    outcome = cluster.apply(decision)
    assert isinstance(outcome, Stale)
    assert changed in outcome.changed
    assert _state(cluster) == before
    assert violations(cluster.fleet) == []


def test_a_node_that_is_not_initialised_is_not_returned() -> None:
    cluster = world()
    cluster.apply(launch("n"))
    run_until(cluster, 60)
    outcome = cluster.apply(Return(Ref("Node", "n", uid="node-n"), WHY))
    assert outcome == Stale("node n is not empty and initialized")
    assert cluster.nodes["n"].ended_ns is None


def test_a_returned_node_is_gone_and_no_longer_billed() -> None:
    cluster = _occupied()
    assert cluster.apply(Return(Ref("Node", "node-2", uid="node-node-2"), Reason("empty"))) == Applied()
    ended = cluster.now_ns
    run_until(cluster, 5000)
    assert "node-2" not in cluster.fleet.node_by_name
    assert cluster.nodes["node-2"].ended_ns == ended
    assert cluster.records.ledger.node_cost("node-2", cluster.now_ns) == 1_000_000 * 60 // 3600  # EC2's least: a minute
    assert events(cluster, "DisruptionTerminating") == ["empty"]


def test_an_evicted_pod_is_replaced() -> None:
    cluster = world()
    made = workload(cluster)
    (pod,) = start(cluster, made, node(cluster))
    assert cluster.apply(Evict(Ref("Pod", pod.name, pod.namespace), WHY)) == Applied()
    run_until(cluster, 2)
    (other,) = made.active
    assert other.name != pod.name and other.uid != pod.uid
    assert pod.name not in made.pods


def test_a_pod_that_waits_has_its_reason_among_the_cluster_events() -> None:
    cluster = _occupied()
    assert cluster.apply(Wait(_pod(cluster, 1), Reason("0/2 nodes are available"))) == Applied()
    assert events(cluster, "FailedScheduling") == ["0/2 nodes are available"]


def test_an_offering_out_of_stock_is_refused_and_then_skipped_for_three_minutes() -> None:
    cluster = world()
    cluster.cloud.out_of_stock[OFFERING] = 1000 * NS_PER_S
    assert cluster.snapshot().unavailable == frozenset(), "nobody knows before it was tried"
    outcome = cluster.apply(launch("n"))
    assert isinstance(outcome, Refused)
    assert outcome.why.startswith("InsufficientInstanceCapacity: no g6e.12xlarge")
    assert not cluster.cloud.claims
    assert cluster.snapshot().unavailable == {OFFERING}
    assert "offering" in cluster.woken(), "the pods are planned for again, with what is left"
    run_until(cluster, 1 + UNAVAILABLE_NS / NS_PER_S)
    assert cluster.snapshot().unavailable == frozenset()


def test_an_offering_is_sold_again_when_the_stock_is_back() -> None:
    cluster = world()
    cluster.cloud.out_of_stock[OFFERING] = 10 * NS_PER_S
    run_until(cluster, 10)
    assert cluster.apply(launch("n")) == Applied()


def test_another_zone_is_not_out_of_stock() -> None:
    cluster = world()
    cluster.cloud.out_of_stock["g6e.12xlarge", "us-east-1b", "on-demand"] = 1000 * NS_PER_S
    assert cluster.apply(launch("n")) == Applied()
