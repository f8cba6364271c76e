"""ReplicaSets and their pods."""

from __future__ import annotations

import pytest
from managed_cluster import START, Cluster, bare_pod, replica_set

from tonnage.kube.resources import PODS, REPLICA_SETS
from tonnage.kube.transport import LostReply, Unreachable

LABELS = {"app": "web"}


def with_set(replicas: int = 3) -> Cluster:
    cluster = Cluster()
    cluster.client.create(REPLICA_SETS, replica_set("rs", replicas, LABELS), "default")
    cluster.settle()
    return cluster


def resize(cluster: Cluster, replicas: int) -> None:
    cluster.change("rs", {"spec": {"replicas": replicas}}, REPLICA_SETS)


def test_the_status_counts_ready_labelled_and_available_pods() -> None:
    cluster = with_set(3)
    assert cluster.get(REPLICA_SETS, "rs")["status"] == {
        "replicas": 3,
        "fullyLabeledReplicas": 3,
        "readyReplicas": 3,
        "availableReplicas": 3,
        "terminatingReplicas": 0,
        "observedGeneration": 1,
    }


def test_a_deleted_or_failed_pod_is_replaced() -> None:
    cluster = with_set(2)
    first, second = cluster.names()
    cluster.client.delete(PODS, first, "default")
    cluster.change(second, {"metadata": {"labels": {"x": "y"}}}, PODS)
    cluster.client.patch(PODS, second, {"status": {"phase": "Failed"}}, "default", subresource="status")
    cluster.step()
    status = cluster.get(REPLICA_SETS, "rs")["status"]
    assert (status["replicas"], status["terminatingReplicas"]) == (2, 1)
    cluster.settle()
    active = [pod for pod in cluster.pods() if pod["status"]["phase"] == "Running"]
    assert len(active) == 2
    assert not {first, second} & {pod["metadata"]["name"] for pod in active}


def test_scaling_down_deletes_the_pods_that_matter_least() -> None:
    cluster = with_set(0)
    resize(cluster, 6)
    cluster.step()
    pods = cluster.pods()
    cluster.clock.now = START + 10_000
    for pod, node in zip(pods[:5], ["n1", "n1", "n2", "n3", "n4"], strict=True):
        cluster.make_ready(pod, node)
    names = [pod["metadata"]["name"] for pod in pods]
    cost = {"metadata": {"annotations": {"controller.kubernetes.io/pod-deletion-cost": "-1"}}}
    cluster.change(names[4], cost, PODS)
    cluster.client.patch(
        PODS,
        names[3],
        {"status": {"conditions": [{"type": "Ready", "status": "False"}]}},
        "default",
        subresource="status",
    )
    cluster.step()
    gone: list[str] = []
    for size in (5, 4, 3, 2):
        before = {pod["metadata"]["name"] for pod in cluster.pods()}
        resize(cluster, size)
        cluster.step()
        cluster.play_nodes(lambda pod: False)
        cluster.step()
        gone += before - set(cluster.names())
    assert gone[:3] == [names[5], names[3], names[4]]  # not bound; not ready; cheap
    assert gone[3] in (names[0], names[1])  # two on one node
    assert [message for reason, message in cluster.events("rs") if reason == "SuccessfulDelete"] == [
        f"Deleted pod: {name}" for name in gone
    ]


def test_pods_that_match_and_belong_to_nobody_are_adopted() -> None:
    cluster = Cluster()
    for name in ("stray-1", "stray-2"):
        cluster.client.create(PODS, bare_pod(name, LABELS), "default")
    cluster.client.create(PODS, bare_pod("other", {"app": "other"}), "default")
    cluster.client.create(REPLICA_SETS, replica_set("rs", 3, LABELS), "default")
    cluster.settle()
    owned = [pod for pod in cluster.pods() if pod["metadata"].get("ownerReferences")]
    assert len(owned) == 3
    assert {"stray-1", "stray-2"} < {pod["metadata"]["name"] for pod in owned}
    cluster.client.create(PODS, bare_pod("stray-3", LABELS), "default")
    cluster.settle()
    assert len(cluster.pods(app="web")) == 3  # adopted, and one too many


def test_a_pod_that_is_not_selected_any_more_is_let_go_and_replaced() -> None:
    cluster = with_set(2)
    name = cluster.names()[0]
    cluster.change(name, {"metadata": {"labels": {"app": "debug"}}}, PODS)
    cluster.settle()
    assert "ownerReferences" not in cluster.get(PODS, name)["metadata"]
    assert len(cluster.pods(app="web")) == 2
    cluster.change(name, {"metadata": {"labels": {"app": "web"}}}, PODS)
    cluster.settle()
    assert len(cluster.pods(app="web")) == 2


def test_refused_pods_show_as_a_condition_until_they_are_made() -> None:
    cluster = Cluster()
    cluster.api.fail = lambda method, path: 422 if (method, path.split("/")[-1]) == ("POST", "pods") else 0
    cluster.client.create(REPLICA_SETS, replica_set("rs", 2, LABELS), "default")
    cluster.step()
    (condition,) = cluster.get(REPLICA_SETS, "rs")["status"]["conditions"]
    assert (condition["type"], condition["reason"]) == ("ReplicaFailure", "FailedCreate")
    assert cluster.events("rs") == [("FailedCreate", "Error creating: made to fail")]
    cluster.api.fail = None
    cluster.wait(1)
    cluster.settle()
    assert len(cluster.pods()) == 2
    assert "conditions" not in cluster.get(REPLICA_SETS, "rs")["status"]


@pytest.mark.parametrize("error", [LostReply, Unreachable])
@pytest.mark.parametrize("verb", ["POST", "DELETE"])
def test_a_lost_answer_makes_or_deletes_no_pod_twice(error: type[Exception], verb: str) -> None:
    cluster = with_set(3 if verb == "DELETE" else 0)
    real, lost = cluster.api.request, [0]

    def request(method: str, path: str, **rest: object) -> object:
        hit = method == verb and "/pods" in path and lost[0] < 2
        if hit:
            lost[0] += 1
            if error is Unreachable:
                raise error("no route")
        reply = real(method, path, **rest)  # type: ignore[arg-type]
        if hit:
            raise error("connection reset")
        return reply

    cluster.api.request = request  # type: ignore[assignment,method-assign]
    resize(cluster, 1 if verb == "DELETE" else 3)
    made = [entry for entry in cluster.api.log if entry[0] == "POST" and entry[1].endswith("/pods")]
    cluster.step()
    cluster.wait(60)
    cluster.settle()
    assert lost[0] == 2
    assert len(cluster.pods()) == (1 if verb == "DELETE" else 3)
    after = [entry for entry in cluster.api.log if entry[0] == "POST" and entry[1].endswith("/pods")]
    assert len(after) - len(made) == (0 if verb == "DELETE" else 3)


def test_names_depend_on_the_seed_alone() -> None:
    def names(seed: int) -> list[str]:
        cluster = Cluster(seed=seed)
        cluster.client.create(REPLICA_SETS, replica_set("rs", 5, LABELS), "default")
        cluster.settle()
        return cluster.names()

    assert names(1) == names(1)
    assert names(1) != names(2)
    assert all(set(name.removeprefix("rs-")) <= set("bcdfghjklmnpqrstvwxz2456789") for name in names(1))
