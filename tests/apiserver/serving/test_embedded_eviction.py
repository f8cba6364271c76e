"""The Eviction API under PodDisruptionBudgets."""

from __future__ import annotations

import json

import pytest
from embedded import Embedded, Json, deployment, refused

from tonnage.apiserver.eviction import budget
from tonnage.kube.resources import DAEMON_SETS, DEPLOYMENTS, PDBS, PODS, REPLICA_SETS

LABELS = {"app": "web"}


@pytest.fixture
def embedded() -> Embedded:
    return Embedded()


def protect(embedded: Embedded, name: str = "budget", **spec: object) -> Json:
    body = {"metadata": {"name": name}, "spec": {"selector": {"matchLabels": LABELS}, **spec}}
    return embedded.client.create(PDBS, body, "default")


def replicas(embedded: Embedded, count: int, asked: int) -> None:
    """``count`` ready pods of a Deployment that asks for ``asked``."""
    top = embedded.client.create(DEPLOYMENTS, deployment(replicas=asked), "default")
    middle = deployment(replicas=asked)
    middle |= {"kind": "ReplicaSet"}
    middle["metadata"] = {"name": "web-1", "ownerReferences": [owner(top)]}
    made = embedded.client.create(REPLICA_SETS, middle, "default")
    for i in range(count):
        embedded.pod(f"web-{i}", node="n1", ready=True, ownerReferences=[owner(made)])


def owner(obj: Json) -> Json:
    meta = obj["metadata"]
    return {
        "apiVersion": obj["apiVersion"],
        "kind": obj["kind"],
        "name": meta["name"],
        "uid": meta["uid"],
        "controller": True,
    }


def allowed(embedded: Embedded) -> int:
    return budget(embedded.api.store, embedded.client.get(PDBS, "budget", "default")).allowed


def test_without_a_budget_a_pod_is_evicted_gracefully_and_marked(embedded: Embedded) -> None:
    embedded.pod("web", node="n1", ready=True)
    embedded.client.evict("web", "default")
    found = embedded.client.get(PODS, "web", "default")
    assert found["metadata"]["deletionGracePeriodSeconds"] == 30
    (mark,) = [one for one in found["status"]["conditions"] if one["type"] == "DisruptionTarget"]
    assert (mark["status"], mark["reason"], mark["message"]) == (
        "True",
        "EvictionByEvictionAPI",
        "Eviction API: evicting",
    )


def test_a_budget_refuses_as_kubernetes_words_it(embedded: Embedded) -> None:
    for i in range(2):
        embedded.pod(f"web-{i}", node="n1", ready=True)
    protect(embedded, minAvailable=2)
    path = PODS.path("default", "web-0", "eviction")
    answer = embedded.call("POST", path, {"metadata": {"name": "web-0"}})
    status = json.loads(answer.body)
    assert (answer.status, status["reason"]) == (429, "TooManyRequests")
    assert status["message"] == "Cannot evict pod as it would violate the pod's disruption budget."
    assert status["details"]["causes"] == [
        {
            "reason": "DisruptionBudget",
            "message": "The disruption budget budget needs 2 healthy pods and has 2 currently",
        }
    ]
    assert "deletionTimestamp" not in embedded.client.get(PODS, "web-0", "default")["metadata"]


def test_each_eviction_counts_at_once(embedded: Embedded) -> None:
    for i in range(4):
        embedded.pod(f"web-{i}", node="n1", ready=True)
    protect(embedded, minAvailable=2)
    outcomes = []
    for i in range(4):
        try:
            embedded.client.evict(f"web-{i}", "default")
        except Exception as error:
            outcomes.append(getattr(error, "code", None))
        else:
            outcomes.append(201)
    assert outcomes == [201, 201, 429, 429]


@pytest.mark.parametrize(
    ("spec", "ready", "asked", "expected"),
    [
        ({"minAvailable": 2}, 3, 3, 1),
        ({"minAvailable": 5}, 3, 3, 0),
        ({"minAvailable": "50%"}, 3, 3, 1),  # 1.5 pods are 2
        ({"minAvailable": "100%"}, 3, 3, 0),
        ({"maxUnavailable": 1}, 3, 3, 1),
        ({"maxUnavailable": 1}, 3, 5, 0),  # two are missing already
        ({"maxUnavailable": "34%"}, 3, 3, 2),  # 1.02 pods are 2
        ({"maxUnavailable": 0}, 3, 3, 0),
        ({}, 3, 3, 3),
    ],
)
def test_a_budget_counts_as_the_disruption_controller_does(
    embedded: Embedded, spec: Json, ready: int, asked: int, expected: int
) -> None:
    replicas(embedded, ready, asked)
    protect(embedded, **spec)
    assert allowed(embedded) == expected


def test_pods_of_a_daemon_set_are_expected_where_it_wants_them(embedded: Embedded) -> None:
    body = deployment("agent")
    body |= {"kind": "DaemonSet", "spec": {key: body["spec"][key] for key in ("selector", "template")}}
    made = embedded.client.create(DAEMON_SETS, body, "default")
    status = {
        "currentNumberScheduled": 2,
        "desiredNumberScheduled": 3,
        "numberMisscheduled": 0,
        "numberReady": 2,
    }
    embedded.client.replace(DAEMON_SETS, made | {"status": status}, "default", subresource="status")
    for i in range(2):
        embedded.pod(f"agent-{i}", node="n1", ready=True, ownerReferences=[owner(made)])
    protect(embedded, maxUnavailable=2)
    assert allowed(embedded) == 1


def test_pods_that_are_not_ready_or_are_going_are_not_healthy(embedded: Embedded) -> None:
    embedded.pod("ready", node="n1", ready=True)
    embedded.pod("starting", node="n1")
    embedded.pod("going", node="n1", ready=True)
    embedded.client.delete(PODS, "going", "default")
    protect(embedded, minAvailable=1)
    assert allowed(embedded) == 0


def running_but_not_ready(embedded: Embedded, name: str) -> None:
    embedded.pod(name, node="n1")
    status = {"phase": "Running", "conditions": [{"type": "Ready", "status": "False"}]}
    embedded.client.patch(PODS, name, {"status": status}, "default", subresource="status")


@pytest.mark.parametrize(
    ("policy", "healthy", "refusal"),
    [("", 1, 0), ("", 0, 429), ("IfHealthyBudget", 0, 429), ("AlwaysAllow", 0, 0)],
)
def test_a_broken_pod_may_go_as_the_budgets_policy_says(
    embedded: Embedded, policy: str, healthy: int, refusal: int
) -> None:
    running_but_not_ready(embedded, "broken")
    for i in range(healthy):
        embedded.pod(f"fine-{i}", node="n1", ready=True)
    protect(embedded, minAvailable=1, **({"unhealthyPodEvictionPolicy": policy} if policy else {}))
    if refusal:
        assert refused(lambda: embedded.client.evict("broken", "default")).code == refusal
    else:
        embedded.client.evict("broken", "default")
        assert "deletionTimestamp" in embedded.client.get(PODS, "broken", "default")["metadata"]


def test_a_pod_that_does_not_run_yet_needs_no_budget(embedded: Embedded) -> None:
    embedded.pod("waiting")
    protect(embedded, minAvailable=1)
    embedded.client.evict("waiting", "default")
    assert refused(lambda: embedded.client.get(PODS, "waiting", "default")).code == 404


def test_two_budgets_for_one_pod_are_refused(embedded: Embedded) -> None:
    embedded.pod("web", node="n1", ready=True)
    protect(embedded, "one", minAvailable=0)
    protect(embedded, "two", minAvailable=0)
    error = refused(lambda: embedded.client.evict("web", "default"))
    assert (error.code, "more than one PodDisruptionBudget" in error.message) == (500, True)


def test_a_dry_run_and_a_precondition_are_honoured(embedded: Embedded) -> None:
    made = embedded.pod("web", node="n1", ready=True)
    path = PODS.path("default", "web", "eviction")
    for body, query in (
        ({"deleteOptions": {"dryRun": ["All"]}}, {}),
        ({}, {"dryRun": "All"}),
    ):
        assert embedded.call("POST", path, {"metadata": {"name": "web"}, **body}, **query).status == 201
    assert embedded.client.get(PODS, "web", "default") == made
    error = refused(lambda: embedded.client.evict("web", "default", uid="another"))
    assert (error.code, error.reason) == (409, "Conflict")
    assert embedded.client.get(PODS, "web", "default") == made
    embedded.client.evict("web", "default", uid=made["metadata"]["uid"])
    assert "deletionTimestamp" in embedded.client.get(PODS, "web", "default")["metadata"]


@pytest.mark.parametrize(
    ("body", "code"),
    [({"metadata": {"name": "other"}}, 400), ({"kind": "Pod", "metadata": {"name": "web"}}, 400)],
)
def test_an_eviction_of_something_else_is_refused(embedded: Embedded, body: Json, code: int) -> None:
    embedded.pod("web", node="n1", ready=True)
    assert embedded.call("POST", PODS.path("default", "web", "eviction"), body).status == code
    assert refused(lambda: embedded.client.evict("none", "default")).code == 404
