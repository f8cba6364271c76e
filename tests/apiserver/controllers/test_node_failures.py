"""Nodes that are not ready, cordoned, silent or gone, and what becomes of their pods."""

from __future__ import annotations

from managed_cluster import Cluster, Json, bare_pod, condition, replica_set

from tonnage.apiserver.controllers import ManagerOptions
from tonnage.apiserver.controllers.meta import stamp_micro
from tonnage.kube.resources import LEASES, NODES, PODS, REPLICA_SETS

KEYS = "node.kubernetes.io/"
NOT_READY, UNREACHABLE = f"{KEYS}not-ready", f"{KEYS}unreachable"


def taints(cluster: Cluster, name: str = "node-a") -> list[tuple[str, str]]:
    return [
        (one["key"].removeprefix(KEYS), one["effect"]) for one in cluster.get(NODES, name)["spec"].get("taints", [])
    ]


def with_node(grace_s: float = 0.0) -> Cluster:
    cluster = Cluster(options=ManagerOptions(node_grace_s=grace_s, quarantine_s=40.0))
    cluster.node("node-a")
    cluster.step()
    return cluster


def run_pod(cluster: Cluster, name: str, *tolerations: Json) -> None:
    body = bare_pod(name)
    body["spec"]["tolerations"] = list(tolerations)
    cluster.make_ready(cluster.client.create(PODS, body, "default"))
    cluster.step()


def tolerate(key: str, seconds: int | None) -> Json:
    limit = {} if seconds is None else {"tolerationSeconds": seconds}
    return {"key": key, "operator": "Exists", "effect": "NoExecute", **limit}


def test_taints_follow_the_conditions_and_leave_other_taints_alone() -> None:
    cluster = with_node()
    mine: Json = {"key": "team", "value": "x", "effect": "NoExecute"}
    cluster.change("node-a", {"spec": {"taints": [mine]}}, NODES)
    cases: list[tuple[list[Json], list[tuple[str, str]]]] = [
        ([condition("Ready", "False")], [("not-ready", "NoSchedule"), ("not-ready", "NoExecute")]),
        ([condition("Ready", "Unknown")], [("unreachable", "NoSchedule"), ("unreachable", "NoExecute")]),
        ([condition("Ready", "True"), condition("MemoryPressure", "True")], [("memory-pressure", "NoSchedule")]),
        ([condition("Ready", "True"), condition("MemoryPressure", "False")], []),
    ]
    for conditions, expected in cases:
        cluster.client.patch(NODES, "node-a", {"status": {"conditions": conditions}}, subresource="status")
        cluster.step()
        assert taints(cluster) == [("team", "NoExecute"), *expected]


def test_a_cordoned_node_is_tainted_until_it_is_uncordoned() -> None:
    cluster = with_node()
    cluster.change("node-a", {"spec": {"unschedulable": True}}, NODES)
    cluster.step()
    assert taints(cluster) == [("unschedulable", "NoSchedule")]
    cluster.change("node-a", {"spec": {"unschedulable": None}}, NODES)
    cluster.step()
    assert taints(cluster) == []


def test_pods_are_evicted_when_their_toleration_ends() -> None:
    cluster = with_node()
    run_pod(cluster, "five-minutes", tolerate(UNREACHABLE, 300), tolerate(NOT_READY, 300))
    run_pod(cluster, "one-minute", tolerate(UNREACHABLE, 300), tolerate(NOT_READY, 60))
    run_pod(cluster, "for-ever", tolerate(NOT_READY, None))
    run_pod(cluster, "not-at-all", tolerate(NOT_READY, 0))
    cluster.node_ready("node-a", "False")
    cluster.step()

    def marked() -> list[str]:
        return sorted(pod["metadata"]["name"] for pod in cluster.pods() if pod["metadata"].get("deletionTimestamp"))

    assert marked() == ["not-at-all"]
    cluster.wait(59)
    assert marked() == ["not-at-all"]
    cluster.restart()
    cluster.wait(1)
    assert marked() == ["not-at-all", "one-minute"]
    cluster.wait(241)
    assert marked() == ["five-minutes", "not-at-all", "one-minute"]
    target = cluster.condition(PODS, "one-minute", "DisruptionTarget")
    assert (target["status"], target["reason"]) == ("True", "DeletionByTaintManager")
    assert ("TaintManagerEviction", "Marking for deletion Pod default/one-minute") in cluster.events("one-minute")


def test_a_node_that_recovers_in_time_keeps_its_pods() -> None:
    cluster = with_node()
    run_pod(cluster, "pod", tolerate(NOT_READY, 300))
    cluster.node_ready("node-a", "False")
    cluster.wait(100)
    cluster.node_ready("node-a", "True")
    cluster.wait(1000)
    assert taints(cluster) == []
    assert "deletionTimestamp" not in cluster.get(PODS, "pod")["metadata"]


def test_pods_of_a_node_that_is_not_ready_are_not_ready() -> None:
    cluster = with_node()
    run_pod(cluster, "pod", tolerate(NOT_READY, 300))
    cluster.node_ready("node-a", "False")
    cluster.step()
    assert cluster.condition(PODS, "pod", "Ready")["status"] == "False"
    assert ("NodeNotReady", "Node is not ready") in cluster.events("pod")


def renew(cluster: Cluster, name: str) -> None:
    spec = {"spec": {"renewTime": stamp_micro(cluster.clock.now)}}
    cluster.client.patch(LEASES, name, spec, "kube-node-lease")


def test_a_node_is_unknown_when_its_heartbeat_stops_for_longer_than_the_grace() -> None:
    cluster = with_node(grace_s=50)
    cluster.client.create(LEASES, {"metadata": {"name": "node-a"}}, "kube-node-lease")
    for _ in range(10):
        cluster.wait(10)
        renew(cluster, "node-a")
    cluster.step()
    assert cluster.condition(NODES, "node-a", "Ready")["status"] == "True"
    cluster.wait(49)
    assert cluster.condition(NODES, "node-a", "Ready")["status"] == "True"
    cluster.wait(2)
    ready = cluster.condition(NODES, "node-a", "Ready")
    assert (ready["status"], ready["reason"]) == ("Unknown", "NodeStatusUnknown")
    assert cluster.condition(NODES, "node-a", "MemoryPressure")["reason"] == "NodeStatusNeverUpdated"
    assert taints(cluster) == [("unreachable", "NoSchedule"), ("unreachable", "NoExecute")]
    renew(cluster, "node-a")
    cluster.node_ready("node-a", "True")
    cluster.wait(10)
    assert taints(cluster) == []


def test_pods_of_a_node_that_is_gone_are_deleted_after_the_quarantine_and_replaced() -> None:
    cluster = with_node()
    cluster.client.create(REPLICA_SETS, replica_set("rs", 2, {"app": "web"}), "default")
    cluster.settle()
    first = set(cluster.names())
    cluster.delete(NODES, "node-a")
    cluster.wait(39)
    assert set(cluster.names()) == first
    cluster.wait(1)
    assert len(cluster.names()) == 2
    assert not first & set(cluster.names())


def test_a_node_that_comes_back_within_the_quarantine_keeps_its_pods() -> None:
    cluster = with_node()
    run_pod(cluster, "pod")
    cluster.delete(NODES, "node-a")
    cluster.wait(30)
    cluster.node("node-a")
    cluster.wait(300)
    assert cluster.get(PODS, "pod")["status"]["phase"] == "Running"
