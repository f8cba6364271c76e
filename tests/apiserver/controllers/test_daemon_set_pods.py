"""DaemonSets on nodes that come, change and go."""

from __future__ import annotations

from managed_cluster import Cluster, Json, pinned

from tonnage.kube.resources import DAEMON_SETS, NODES, PODS

GPU = {"gpu": "yes"}


def with_nodes(count: int = 3, **spec: object) -> Cluster:
    cluster = Cluster()
    for number in range(count):
        cluster.node(f"node-{number}", GPU if number else {})
    cluster.daemon(**spec)
    cluster.settle()
    return cluster


def where(cluster: Cluster) -> list[str]:
    return sorted(pod["spec"].get("nodeName") or pinned(pod) for pod in cluster.pods())


def images(cluster: Cluster) -> list[str]:
    return sorted(pod["spec"]["containers"][0]["image"] for pod in cluster.pods())


def test_every_node_gets_one_pod_pinned_to_it_by_name() -> None:
    cluster = Cluster()
    for number in range(3):
        cluster.node(f"node-{number}")
    cluster.daemon()
    cluster.step()
    assert where(cluster) == ["node-0", "node-1", "node-2"]
    for pod in cluster.pods():
        assert "nodeName" not in pod["spec"]  # whoever schedules binds it
        tolerated = {(one["key"].split("/")[1], one["effect"]) for one in pod["spec"]["tolerations"]}
        assert tolerated == {
            ("not-ready", "NoExecute"),
            ("unreachable", "NoExecute"),
            ("disk-pressure", "NoSchedule"),
            ("memory-pressure", "NoSchedule"),
            ("pid-pressure", "NoSchedule"),
            ("unschedulable", "NoSchedule"),
        }
    cluster.settle()
    assert cluster.get(DAEMON_SETS, "agent")["status"] == {
        "currentNumberScheduled": 3,
        "numberMisscheduled": 0,
        "desiredNumberScheduled": 3,
        "numberReady": 3,
        "observedGeneration": 1,
        "updatedNumberScheduled": 3,
        "numberAvailable": 3,
    }


def test_the_affinity_by_name_replaces_required_terms_and_keeps_preferred_ones() -> None:
    cluster = Cluster()
    cluster.node("node-0", GPU)
    required = {"nodeSelectorTerms": [{"matchExpressions": [{"key": "gpu", "operator": "Exists"}]}]}
    preferred = [{"weight": 1, "preference": {"matchExpressions": [{"key": "x", "operator": "Exists"}]}}]
    affinity = {
        "requiredDuringSchedulingIgnoredDuringExecution": required,
        "preferredDuringSchedulingIgnoredDuringExecution": preferred,
    }
    template: Json = {
        "metadata": {"labels": {"app": "agent"}},
        "spec": {"containers": [{"name": "main", "image": "v1"}], "affinity": {"nodeAffinity": affinity}},
    }
    cluster.daemon(template=template)
    cluster.step()
    (pod,) = cluster.pods()
    found = pod["spec"]["affinity"]["nodeAffinity"]
    assert found["preferredDuringSchedulingIgnoredDuringExecution"] == preferred
    assert pinned(pod) == "node-0"


def test_a_node_that_comes_later_gets_a_pod_and_labels_decide() -> None:
    selecting: Json = {
        "metadata": {"labels": {"app": "agent"}},
        "spec": {"containers": [{"name": "main", "image": "v1"}], "nodeSelector": GPU},
    }
    cluster = with_nodes(3, template=selecting)
    assert where(cluster) == ["node-1", "node-2"]
    cluster.node("node-9", GPU)
    cluster.settle()
    assert where(cluster) == ["node-1", "node-2", "node-9"]
    cluster.change("node-1", {"metadata": {"labels": {"gpu": None}}}, NODES)
    cluster.settle()
    assert where(cluster) == ["node-2", "node-9"]


def test_a_tainted_node_gets_no_pod_but_one_that_is_there_stays_unless_it_must_go() -> None:
    cluster = with_nodes(2)
    cluster.node("tainted", taints=[{"key": "team", "value": "x", "effect": "NoSchedule"}])
    cluster.settle()
    assert where(cluster) == ["node-0", "node-1"]
    cluster.change("node-0", {"spec": {"taints": [{"key": "team", "effect": "NoSchedule"}]}}, NODES)
    cluster.settle()
    assert where(cluster) == ["node-0", "node-1"]
    status = cluster.get(DAEMON_SETS, "agent")["status"]
    assert (status["desiredNumberScheduled"], status["numberMisscheduled"]) == (1, 1)
    cluster.change("node-0", {"spec": {"taints": [{"key": "team", "effect": "NoExecute"}]}}, NODES)
    cluster.settle()
    assert where(cluster) == ["node-1"]


def test_a_cordoned_node_keeps_and_gets_its_pod() -> None:
    cluster = with_nodes(1)
    cluster.change("node-0", {"spec": {"unschedulable": True}}, NODES)
    cluster.delete(PODS, cluster.names()[0])
    cluster.settle()
    assert where(cluster) == ["node-0"]


def test_a_failed_pod_is_replaced_not_faster_than_its_backoff() -> None:
    cluster = with_nodes(1)

    def fail() -> None:
        (pod,) = cluster.pods()
        patch = {"status": {"phase": "Failed"}}
        cluster.client.patch(PODS, pod["metadata"]["name"], patch, "default", subresource="status")

    first = cluster.names()
    fail()
    cluster.settle()
    second = cluster.names()
    assert second != first
    assert "FailedDaemonPod" in {reason for reason, _ in cluster.events("agent")}
    fail()
    cluster.settle()
    assert cluster.names() == second
    cluster.wait(1)
    cluster.settle()
    assert cluster.names() != second


def test_an_update_replaces_as_many_pods_as_may_be_unavailable_at_a_time() -> None:
    cluster = with_nodes(4, updateStrategy={"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 2}})
    cluster.set_image("agent", "v2", DAEMON_SETS)
    for _ in range(20):
        cluster.step()
        alive = [pod for pod in cluster.pods() if not pod["metadata"].get("deletionTimestamp")]
        assert sum(bool(pod["status"].get("conditions")) for pod in alive) >= 2
        if not cluster.play_nodes():
            break
    assert images(cluster) == ["v2"] * 4
    assert cluster.get(DAEMON_SETS, "agent")["status"]["updatedNumberScheduled"] == 4


def test_with_surge_the_old_pod_goes_when_the_new_one_is_available() -> None:
    strategy = {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}
    cluster = with_nodes(2, updateStrategy=strategy)
    cluster.set_image("agent", "v2", DAEMON_SETS)
    cluster.step()
    assert images(cluster) == ["v1", "v1", "v2"]
    for _ in range(20):
        ready = [pod for pod in cluster.pods() if pod["status"].get("conditions")]
        alive = [pod for pod in ready if not pod["metadata"].get("deletionTimestamp")]
        assert len(alive) >= 2
        if not cluster.play_nodes() and not cluster.step():
            break
        cluster.step()
    assert images(cluster) == ["v2", "v2"]


def test_on_delete_updates_wait_for_the_pod_to_be_deleted() -> None:
    cluster = with_nodes(2, updateStrategy={"type": "OnDelete"})
    cluster.set_image("agent", "v2", DAEMON_SETS)
    cluster.settle()
    assert images(cluster) == ["v1", "v1"]
    cluster.delete(PODS, cluster.names()[0])
    cluster.settle()
    assert images(cluster) == ["v1", "v2"]


def test_minimum_ready_seconds_count_for_daemons_too() -> None:
    cluster = with_nodes(1, minReadySeconds=10)
    assert cluster.get(DAEMON_SETS, "agent")["status"].get("numberAvailable", 0) == 0
    cluster.wait(10)
    assert cluster.get(DAEMON_SETS, "agent")["status"]["numberAvailable"] == 1
