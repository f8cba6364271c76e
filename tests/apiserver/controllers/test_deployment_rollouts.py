"""Deployments from their first pod to their last ReplicaSet."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from managed_cluster import Cluster, Json, replica_set, rolling

from tonnage.apiserver.controllers.arithmetic import bounds
from tonnage.kube.resources import DEPLOYMENTS, PODS, REPLICA_SETS

REVISION = "deployment.kubernetes.io/revision"
HISTORY = "deployment.kubernetes.io/revision-history"


def revisions(cluster: Cluster) -> dict[str, str]:
    return {
        one["spec"]["template"]["spec"]["containers"][0]["image"]: one["metadata"]["annotations"][REVISION]
        for one in cluster.all(REPLICA_SETS)
    }


def test_a_new_deployment_gets_one_replica_set_with_its_pods() -> None:
    cluster = Cluster()
    cluster.deploy(replicas=3)
    cluster.settle()
    (one,) = cluster.all(REPLICA_SETS)
    hash_value = one["metadata"]["labels"]["pod-template-hash"]
    assert one["metadata"]["name"] == f"web-{hash_value}"
    assert one["spec"]["selector"]["matchLabels"] == {"app": "web", "pod-template-hash": hash_value}
    assert one["metadata"]["annotations"] == {
        REVISION: "1",
        "deployment.kubernetes.io/desired-replicas": "3",
        "deployment.kubernetes.io/max-replicas": "4",
    }
    pods = cluster.pods(**{"app": "web", "pod-template-hash": hash_value})
    assert len(pods) == 3
    for pod in pods:
        assert pod["metadata"]["generateName"] == f"web-{hash_value}-"
        assert len(pod["metadata"]["name"]) == len(f"web-{hash_value}-") + 5
        (owner,) = pod["metadata"]["ownerReferences"]
        assert (owner["uid"], owner["controller"], owner["blockOwnerDeletion"]) == (one["metadata"]["uid"], True, True)
    deployment = cluster.get(DEPLOYMENTS, "web")
    assert deployment["metadata"]["annotations"][REVISION] == "1"
    status = {key: value for key, value in deployment["status"].items() if key != "conditions"}
    assert status == {
        "observedGeneration": deployment["metadata"]["generation"],
        "replicas": 3,
        "updatedReplicas": 3,
        "readyReplicas": 3,
        "availableReplicas": 3,
        "terminatingReplicas": 0,
    }
    assert [(one["type"], one["status"], one["reason"]) for one in deployment["status"]["conditions"]] == [
        ("Available", "True", "MinimumReplicasAvailable"),
        ("Progressing", "True", "NewReplicaSetAvailable"),
    ]
    assert cluster.events("web") == [("ScalingReplicaSet", f"Scaled up replica set web-{hash_value} from 0 to 3")]
    assert {reason for reason, _ in cluster.events(f"web-{hash_value}")} == {"SuccessfulCreate"}


SURGES: list[int | str] = [0, 1, 3, "25%", "100%"]
UNAVAILABLES: list[int | str] = [0, 1, 2, "25%", "100%"]
ROLLS = [
    (replicas, surge, unavailable)
    for replicas, surge, unavailable in itertools.product([1, 2, 3, 10], SURGES, UNAVAILABLES)
    if (surge, unavailable) != (0, 0)
]


@pytest.mark.parametrize(("replicas", "surge", "unavailable"), ROLLS)
def test_a_rolling_update_keeps_its_bounds_at_every_step_and_ends_with_the_new_pods(
    replicas: int, surge: int | str, unavailable: int | str
) -> None:
    cluster = Cluster()
    cluster.deploy(replicas=replicas, strategy=rolling(surge, unavailable))
    cluster.settle()
    cluster.set_image("web", "v2")
    limits = bounds(surge, unavailable, replicas)
    most, least, rounds = 0, replicas, 0
    while True:
        cluster.step()
        active = [pod for pod in cluster.pods() if not pod["metadata"].get("deletionTimestamp")]
        ready = [pod for pod in active if pod["status"].get("conditions")]
        most, least = max(most, len(active)), min(least, len(ready))
        assert len(active) <= replicas + limits.surge
        assert len(ready) >= replicas - limits.unavailable
        if not cluster.play_nodes():
            break
        rounds += 1
    assert cluster.sizes() == {"v1": 0, "v2": replicas}
    assert {pod["spec"]["containers"][0]["image"] for pod in cluster.pods()} == {"v2"}
    assert (
        most == min(replicas + limits.surge, 2 * replicas) or limits.unavailable > 0
    )  # the bounds are used, not only kept
    assert least == replicas - limits.unavailable
    assert cluster.condition(DEPLOYMENTS, "web", "Progressing")["reason"] == "NewReplicaSetAvailable"
    assert revisions(cluster) == {"v1": "1", "v2": "2"}


def test_the_first_steps_of_the_documented_example_are_taken() -> None:
    """10 pods, at most 3 more and 2 fewer: 3 new ones are made and 2 old ones stopped, then 2 more are made."""
    cluster = Cluster()
    cluster.deploy(replicas=10, strategy=rolling(3, 2))
    cluster.settle()
    cluster.set_image("web", "v2")
    cluster.step()
    assert cluster.sizes() == {"v1": 8, "v2": 5}
    messages = [message.split("set ")[1].split(" ", 1)[1] for _, message in cluster.events("web")]
    assert messages == ["from 0 to 10", "from 0 to 3", "from 10 to 8", "from 3 to 5"]


def test_pods_that_never_start_stop_the_rollout_and_a_rollback_removes_them_first() -> None:
    cluster = Cluster()
    cluster.deploy(replicas=10, strategy=rolling(3, 2))
    cluster.settle()
    cluster.set_image("web", "bad")

    def good(pod: Json) -> bool:
        return bool(pod["spec"]["containers"][0]["image"] != "bad")

    cluster.settle(ready=good)
    assert cluster.sizes() == {"v1": 8, "bad": 5}
    cluster.set_image("web", "v1")
    cluster.settle(ready=good)
    assert cluster.sizes() == {"v1": 10, "bad": 0}
    assert revisions(cluster) == {"v1": "3", "bad": "2"}
    (back,) = (one for one in cluster.all(REPLICA_SETS) if one["metadata"]["annotations"][REVISION] == "3")
    assert back["metadata"]["annotations"][HISTORY] == "1"
    assert cluster.get(DEPLOYMENTS, "web")["metadata"]["annotations"][REVISION] == "3"


def test_recreate_stops_all_old_pods_before_it_makes_new_ones() -> None:
    cluster = Cluster()
    cluster.deploy(replicas=3, strategy={"type": "Recreate"})
    cluster.settle()
    cluster.set_image("web", "v2")
    cluster.step()
    assert cluster.sizes() == {"v1": 0}
    assert len(cluster.pods()) == 3  # still ending
    for pod in cluster.pods()[:2]:
        cluster.client.delete(PODS, pod["metadata"]["name"], "default", grace_s=0)
        cluster.step()
        assert cluster.sizes() == {"v1": 0}
    cluster.settle()
    assert cluster.sizes() == {"v1": 0, "v2": 3}
    assert cluster.get(DEPLOYMENTS, "web")["status"]["availableReplicas"] == 3


def test_minimum_ready_seconds_delay_what_counts_as_available() -> None:
    cluster = Cluster()
    cluster.deploy(replicas=2, minReadySeconds=30, strategy=rolling(1, 0))
    cluster.settle()
    status = cluster.get(DEPLOYMENTS, "web")["status"]
    assert (status["readyReplicas"], status.get("availableReplicas", 0)) == (2, 0)
    cluster.wait(29)
    assert cluster.get(DEPLOYMENTS, "web")["status"].get("availableReplicas", 0) == 0
    cluster.wait(1)
    assert cluster.get(DEPLOYMENTS, "web")["status"]["availableReplicas"] == 2
    cluster.set_image("web", "v2")
    cluster.settle()
    assert cluster.sizes() == {"v1": 2, "v2": 1}
    cluster.wait(30)
    cluster.settle()
    assert cluster.sizes() == {"v1": 1, "v2": 2}


def test_the_deadline_passes_without_progress_and_progress_resumes() -> None:
    cluster = Cluster()
    cluster.deploy(replicas=1, progressDeadlineSeconds=60)
    cluster.step()
    assert cluster.condition(DEPLOYMENTS, "web", "Progressing")["reason"] == "ReplicaSetUpdated"
    cluster.wait(60)
    assert cluster.condition(DEPLOYMENTS, "web", "Progressing")["status"] == "True"
    cluster.wait(2)
    late = cluster.condition(DEPLOYMENTS, "web", "Progressing")
    name = cluster.names(REPLICA_SETS)[0]
    assert (late["status"], late["reason"]) == ("False", "ProgressDeadlineExceeded")
    assert late["message"] == f'ReplicaSet "{name}" has timed out progressing.'
    cluster.settle()
    done = cluster.condition(DEPLOYMENTS, "web", "Progressing")
    assert (done["status"], done["reason"]) == ("True", "NewReplicaSetAvailable")
    assert done["message"] == f'ReplicaSet "{name}" has successfully progressed.'


def test_a_paused_deployment_scales_but_does_not_roll() -> None:
    cluster = Cluster()
    cluster.deploy(replicas=2)
    cluster.settle()
    cluster.change("web", {"spec": {"paused": True}})
    cluster.step()
    assert cluster.condition(DEPLOYMENTS, "web", "Progressing")["reason"] == "DeploymentPaused"
    cluster.set_image("web", "v2")
    cluster.scale("web", 4)
    cluster.settle()
    assert cluster.sizes() == {"v1": 4}
    cluster.change("web", {"spec": {"paused": False}})
    cluster.step()
    assert cluster.condition(DEPLOYMENTS, "web", "Progressing")["reason"] != "DeploymentPaused"
    cluster.settle()
    assert cluster.sizes() == {"v1": 0, "v2": 4}


def test_scaling_in_the_middle_of_a_rollout_is_shared_in_proportion() -> None:
    cluster = Cluster()
    cluster.deploy(replicas=10, strategy=rolling(3, 2))
    cluster.settle()
    cluster.set_image("web", "v2")
    cluster.step()
    assert cluster.sizes() == {"v1": 8, "v2": 5}
    cluster.scale("web", 15)
    # Of 5 more the old one takes round(8 * 18 / 13) - 8 = 3, the new one 2: Kubernetes' documented example.
    cluster.step()
    assert cluster.sizes() == {"v1": 11, "v2": 7}


def test_old_replica_sets_beyond_the_history_limit_are_deleted_oldest_first() -> None:
    cluster = Cluster()
    cluster.deploy(replicas=1, revisionHistoryLimit=2)
    cluster.settle()
    for number in range(2, 6):
        cluster.clock.now += 1
        cluster.set_image("web", f"v{number}")
        cluster.settle()
    assert cluster.sizes() == {"v3": 0, "v4": 0, "v5": 1}


def test_annotations_are_copied_to_the_newest_replica_set_but_for_kubectls_own() -> None:
    cluster = Cluster()
    cluster.deploy(replicas=1)
    cluster.settle()
    cause = {"kubernetes.io/change-cause": "first", "kubectl.kubernetes.io/last-applied-configuration": "{}"}
    cluster.change("web", {"metadata": {"annotations": cause}})
    cluster.step()
    annotations = cluster.all(REPLICA_SETS)[0]["metadata"]["annotations"]
    assert annotations["kubernetes.io/change-cause"] == "first"
    assert "kubectl.kubernetes.io/last-applied-configuration" not in annotations


def test_a_restart_annotation_in_the_template_rolls_all_pods() -> None:
    cluster = Cluster()
    cluster.deploy(replicas=3)
    cluster.settle()
    before = set(cluster.names())
    restarted = {"kubectl.kubernetes.io/restartedAt": "2025-01-01T00:00:00Z"}
    cluster.change("web", {"spec": {"template": {"metadata": {"annotations": restarted}}}})
    cluster.settle()
    assert len(cluster.names()) == 3
    assert not before & set(cluster.names())


def test_a_matching_orphan_replica_set_is_adopted_and_scaled_away() -> None:
    cluster = Cluster()
    cluster.client.create(REPLICA_SETS, replica_set("stray", 2, {"app": "web", "track": "old"}), "default")
    cluster.settle()
    cluster.deploy(replicas=2, image="v2")
    cluster.settle()
    stray = cluster.get(REPLICA_SETS, "stray")
    assert stray["metadata"]["ownerReferences"][0]["name"] == "web"
    assert stray["spec"]["replicas"] == 0
    assert {pod["spec"]["containers"][0]["image"] for pod in cluster.pods()} == {"v2"}


def test_a_replica_set_that_is_not_selected_any_more_is_let_go() -> None:
    cluster = Cluster()
    cluster.deploy(replicas=1)
    cluster.settle()
    (old,) = cluster.all(REPLICA_SETS)
    cluster.change(old["metadata"]["name"], {"metadata": {"labels": {"app": "other"}}}, REPLICA_SETS)
    cluster.step()
    released = cluster.get(REPLICA_SETS, old["metadata"]["name"])
    assert "ownerReferences" not in released["metadata"]


def test_a_hash_that_is_taken_by_chance_is_counted_and_another_one_used() -> None:
    cluster = Cluster()
    other = Cluster()
    other.deploy(replicas=1)
    other.step()
    taken = other.names(REPLICA_SETS)[0]
    cluster.client.create(REPLICA_SETS, replica_set(taken, 0, {"app": "else"}), "default")
    cluster.deploy(replicas=1)
    cluster.settle()
    cluster.wait(5)
    cluster.settle()
    assert cluster.get(DEPLOYMENTS, "web")["status"]["collisionCount"] == 1
    assert len(cluster.pods(app="web")) == 1


def test_a_refused_replica_set_shows_in_the_conditions_and_events() -> None:
    cluster = Cluster()
    cluster.api.fail = lambda method, path: 500 if (method, path.split("/")[-1]) == ("POST", "replicasets") else 0
    cluster.deploy()
    cluster.step()
    failed = cluster.condition(DEPLOYMENTS, "web", "Progressing")
    assert (failed["status"], failed["reason"]) == ("False", "ReplicaSetCreateError")
    assert [reason for reason, _ in cluster.events("web")] == ["ReplicaSetCreateError"]
    cluster.api.fail = None
    cluster.wait(5)
    cluster.settle()
    assert cluster.get(DEPLOYMENTS, "web")["status"]["availableReplicas"] == 3


@pytest.mark.parametrize("replicas", [0, 1, 7])
def test_scaling_follows_the_size(replicas: int) -> None:
    cluster = Cluster()
    cluster.deploy(replicas=3)
    cluster.settle()
    cluster.scale("web", replicas)
    cluster.settle()
    assert len(cluster.pods()) == replicas
    deployment = cluster.get(DEPLOYMENTS, "web")
    status: dict[str, Any] = deployment["status"]
    assert status["observedGeneration"] == deployment["metadata"]["generation"]
    assert status.get("availableReplicas", 0) == replicas
