"""The status of PodDisruptionBudgets, by the arithmetic of kubernetes/kubernetes pkg/controller/disruption."""

from __future__ import annotations

import pytest
from managed_cluster import Cluster, bare_pod

from tonnage.apiserver.controllers.meta import stamp
from tonnage.kube.resources import DAEMON_SETS, PDBS, PODS

FIELDS = ("expectedPods", "currentHealthy", "desiredHealthy", "disruptionsAllowed")


def numbers(cluster: Cluster, name: str = "pdb") -> tuple[int, ...]:
    status = cluster.get(PDBS, name)["status"]
    return tuple(status[field] for field in FIELDS)


def break_pods(cluster: Cluster, count: int) -> None:
    for pod in cluster.pods(app="web")[:count]:
        patch = {"status": {"conditions": [{"type": "Ready", "status": "False"}]}}
        cluster.client.patch(PODS, pod["metadata"]["name"], patch, "default", subresource="status")
    cluster.step()


@pytest.mark.parametrize(
    ("spec", "replicas", "broken", "expected"),
    [
        ({"minAvailable": 2}, 3, 0, (3, 3, 2, 1)),
        ({"minAvailable": 2}, 3, 1, (3, 2, 2, 0)),
        ({"minAvailable": 2}, 3, 2, (3, 1, 2, 0)),
        ({"minAvailable": 5}, 3, 0, (3, 3, 5, 0)),
        ({"minAvailable": "50%"}, 3, 0, (3, 3, 2, 1)),
        ({"minAvailable": "28%"}, 7, 0, (7, 7, 2, 5)),
        ({"minAvailable": "0%"}, 3, 0, (3, 3, 0, 3)),
        ({"maxUnavailable": 1}, 3, 0, (3, 3, 2, 1)),
        ({"maxUnavailable": 1}, 3, 1, (3, 2, 2, 0)),
        ({"maxUnavailable": "30%"}, 3, 0, (3, 3, 2, 1)),
        ({"maxUnavailable": "10%"}, 7, 0, (7, 7, 6, 1)),
        ({"maxUnavailable": 10}, 3, 0, (3, 3, 0, 3)),
        ({"maxUnavailable": 0}, 3, 0, (3, 3, 3, 0)),
        ({}, 3, 0, (0, 3, 0, 0)),
    ],
)
def test_how_many_may_go(spec: dict[str, int | str], replicas: int, broken: int, expected: tuple[int, ...]) -> None:
    cluster = Cluster()
    cluster.deploy(replicas=replicas)
    cluster.budget(**spec)
    cluster.settle()
    break_pods(cluster, broken)
    assert numbers(cluster) == expected
    condition = cluster.condition(PDBS, "pdb", "DisruptionAllowed")
    allowed = expected[-1] > 0
    assert (condition["status"], condition["reason"]) == (
        ("True", "SufficientPods") if allowed else ("False", "InsufficientPods")
    )


def test_the_size_asked_for_counts_not_the_pods_that_are_there() -> None:
    cluster = Cluster()
    cluster.deploy(replicas=2)
    cluster.budget(maxUnavailable=1)
    cluster.settle()
    cluster.scale("web", 4)
    cluster.step()
    assert numbers(cluster) == (4, 2, 3, 0)
    cluster.settle()
    assert numbers(cluster) == (4, 4, 3, 1)


def test_pods_being_deleted_or_granted_to_an_eviction_are_not_healthy() -> None:
    cluster = Cluster()
    cluster.deploy(replicas=4)
    cluster.budget(minAvailable=1)
    cluster.settle()
    first, second, *_ = cluster.names()
    granted = {"status": {"disruptedPods": {first: stamp(cluster.clock.now)}}}
    cluster.client.patch(PDBS, "pdb", granted, "default", subresource="status")
    cluster.step()
    assert numbers(cluster) == (4, 3, 1, 2)
    assert set(cluster.get(PDBS, "pdb")["status"]["disruptedPods"]) == {first}
    cluster.client.delete(PODS, second, "default")
    cluster.step()
    assert numbers(cluster)[1] == 2
    cluster.settle()
    cluster.wait(121)
    assert "disruptedPods" not in cluster.get(PDBS, "pdb")["status"]
    assert numbers(cluster) == (4, 4, 1, 3)
    assert "NotDeleted" in {reason for reason, _ in cluster.events(first)}


def test_pods_without_a_controller_count_only_for_a_plain_number() -> None:
    cluster = Cluster()
    for number in range(3):
        cluster.client.create(PODS, bare_pod(f"pod-{number}", {"app": "web"}), "default")
    cluster.budget("number", minAvailable=2)
    cluster.budget("share", minAvailable="50%")
    cluster.settle()
    assert numbers(cluster, "number") == (3, 3, 2, 1)
    assert numbers(cluster, "share") == (0, 3, 0, 0)
    assert "UnmanagedPods" in {reason for reason, _ in cluster.events("share")}


def test_pods_of_a_controller_without_a_size_allow_nothing() -> None:
    cluster = Cluster()
    cluster.node("node-a")
    cluster.daemon()
    cluster.budget(app="agent", maxUnavailable=1)
    cluster.settle()
    condition = cluster.condition(PDBS, "pdb", "DisruptionAllowed")
    assert (condition["status"], condition["reason"]) == ("False", "SyncFailed")
    assert cluster.get(PDBS, "pdb")["status"]["disruptionsAllowed"] == 0
    assert cluster.get(DAEMON_SETS, "agent")["status"]["numberReady"] == 1


def test_a_budget_without_pods_says_so() -> None:
    cluster = Cluster()
    cluster.budget(app="nothing", minAvailable=1)
    cluster.step()
    assert numbers(cluster) == (0, 0, 1, 0)
    assert cluster.events("pdb") == [("NoPods", "No matching pods found")]


def test_labels_that_change_move_a_pod_in_and_out_of_a_budget() -> None:
    cluster = Cluster()
    cluster.client.create(PODS, bare_pod("pod", {"app": "other"}), "default")
    cluster.budget(minAvailable=0)
    cluster.settle()
    assert numbers(cluster) == (0, 0, 0, 0)
    cluster.change("pod", {"metadata": {"labels": {"app": "web"}}}, PODS)
    cluster.step()
    assert numbers(cluster) == (1, 1, 0, 1)
    cluster.change("pod", {"metadata": {"labels": {"app": "other"}}}, PODS)
    cluster.step()
    assert numbers(cluster) == (0, 0, 0, 0)
