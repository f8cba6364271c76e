"""Pods that admission refuses: the answer of the API, and what a ReplicaSet's controller makes of it."""

from __future__ import annotations

from typing import Any

import pytest
from managed_cluster import Cluster, bare_pod, replica_set

from tonnage.kube.resources import (
    EVENTS,
    LIMIT_RANGES,
    PODS,
    REPLICA_SETS,
    RESOURCE_QUOTAS,
    RUNTIME_CLASSES,
    SERVICE_ACCOUNTS,
    Resource,
)
from tonnage.kube.transport import ApiError

LABELS = {"app": "web"}


def named(resource: Resource, name: str, **more: Any) -> dict[str, Any]:
    return {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": {"name": name}, **more}


def with_set(replicas: int = 1, **spec: Any) -> Cluster:
    cluster = Cluster()
    made = replica_set("rs", replicas, LABELS)
    made["spec"]["template"]["spec"].update(spec)
    cluster.client.create(REPLICA_SETS, made, "default")
    return cluster


def failure(cluster: Cluster) -> str:
    """The message of the ReplicaSet's condition ReplicaFailure; empty without one."""
    conditions = cluster.get(REPLICA_SETS, "rs")["status"].get("conditions", [])
    return next((one["message"] for one in conditions if one["type"] == "ReplicaFailure"), "")


def events(cluster: Cluster) -> list[str]:
    found = [one for one in cluster.all(EVENTS) if one["reason"] == "FailedCreate"]
    return [one["message"] for one in found]


def containers(**resources: Any) -> list[dict[str, Any]]:
    return [{"name": "main", "image": "i:1", "resources": resources}]


def test_without_its_service_account_no_pod_is_made_until_there_is_one() -> None:
    cluster = with_set(serviceAccountName="sa")
    cluster.settle()
    said = 'pods "rs-" is forbidden: error looking up service account default/sa: serviceaccount "sa" not found'
    assert failure(cluster) == said
    assert events(cluster) == [f"Error creating: {said}"]
    assert cluster.pods() == []
    cluster.client.create(SERVICE_ACCOUNTS, named(SERVICE_ACCOUNTS, "sa"), "default")
    cluster.wait(60)
    cluster.settle()
    assert len(cluster.pods()) == 1
    assert failure(cluster) == ""


def test_the_account_default_needs_nobody() -> None:
    cluster = with_set(serviceAccountName="default")
    cluster.settle()
    assert len(cluster.pods()) == 1


def test_a_runtime_class_has_to_be_there_and_brings_its_overhead() -> None:
    cluster = with_set(runtimeClassName="kata")
    cluster.settle()
    assert failure(cluster) == 'pods "rs-" is forbidden: pod rejected: RuntimeClass "kata" not found'
    kata = named(RUNTIME_CLASSES, "kata", handler="kata", overhead={"podFixed": {"cpu": "250m"}})
    cluster.client.create(RUNTIME_CLASSES, kata)
    cluster.wait(60)
    assert [pod["spec"]["overhead"] for pod in cluster.pods()] == [{"cpu": "250m"}]


def test_a_quota_lets_in_as_many_pods_as_it_says_and_counts_them() -> None:
    cluster = with_set(3, containers=containers(limits={"nvidia.com/gpu": "2"}))
    quota = named(RESOURCE_QUOTAS, "gpus", spec={"hard": {"requests.nvidia.com/gpu": "4", "pods": "10"}})
    cluster.client.create(RESOURCE_QUOTAS, quota, "default")
    cluster.settle()
    assert len(cluster.pods()) == 2
    assert cluster.get(RESOURCE_QUOTAS, "gpus")["status"] == {
        "hard": {"requests.nvidia.com/gpu": "4", "pods": "10"},
        "used": {"requests.nvidia.com/gpu": "4", "pods": "2"},
    }
    assert failure(cluster).endswith(
        "is forbidden: exceeded quota: gpus, requested: requests.nvidia.com/gpu=2, used: requests.nvidia.com/gpu=4, "
        "limited: requests.nvidia.com/gpu=4"
    )


def test_a_pod_that_is_gone_gives_its_quota_back() -> None:
    cluster = with_set(2)
    quota = named(RESOURCE_QUOTAS, "one", spec={"hard": {"pods": "1"}})
    cluster.client.create(RESOURCE_QUOTAS, quota, "default")
    cluster.settle()
    assert len(cluster.names()) == 1
    cluster.change("rs", {"spec": {"replicas": 0}}, REPLICA_SETS)
    cluster.settle()
    assert cluster.pods() == []
    assert cluster.get(RESOURCE_QUOTAS, "one")["status"]["used"] == {"pods": "0"}
    cluster.client.create(PODS, bare_pod("other"), "default")


def test_a_quota_on_memory_wants_every_container_to_say_how_much() -> None:
    cluster = with_set()
    quota = named(RESOURCE_QUOTAS, "memory", spec={"hard": {"limits.memory": "1Gi"}})
    cluster.client.create(RESOURCE_QUOTAS, quota, "default")
    cluster.settle()
    assert "is forbidden: failed quota: memory: must specify limits.memory for: " in failure(cluster)
    defaults = named(LIMIT_RANGES, "d", spec={"limits": [{"type": "Container", "default": {"memory": "512Mi"}}]})
    cluster.client.create(LIMIT_RANGES, defaults, "default")
    cluster.wait(60)
    (pod,) = cluster.pods()
    assert pod["spec"]["containers"][0]["resources"] == {
        "limits": {"memory": "512Mi"},
        "requests": {"memory": "512Mi"},
    }
    assert pod["status"]["qosClass"] == "Burstable"


@pytest.mark.parametrize(
    ("limits", "asked", "said"),
    [
        (
            {"max": {"cpu": "2"}},
            {"limits": {"cpu": "4"}},
            "maximum cpu usage per Container is 2, but limit is 4",
        ),
        (
            {"min": {"memory": "1Gi"}},
            {"requests": {"memory": "512Mi"}},
            "minimum memory usage per Container is 1Gi, but request is 512Mi",
        ),
        (
            {"maxLimitRequestRatio": {"cpu": "2"}},
            {"requests": {"cpu": "1"}, "limits": {"cpu": "4"}},
            "cpu max limit to request ratio per Container is 2, but provided ratio is 4.000000",
        ),
    ],
)
def test_a_limit_range_says_what_it_refuses(limits: dict[str, Any], asked: dict[str, Any], said: str) -> None:
    cluster = Cluster()
    bounds = named(LIMIT_RANGES, "l", spec={"limits": [{"type": "Container", **limits}]})
    cluster.client.create(LIMIT_RANGES, bounds, "default")
    pod = bare_pod("p")
    pod["spec"]["containers"] = containers(**asked)
    with pytest.raises(ApiError) as raised:
        cluster.client.create(PODS, pod, "default")
    assert (raised.value.code, raised.value.message) == (403, f'pods "p" is forbidden: {said}')


def test_a_default_limit_below_the_request_makes_the_pod_invalid() -> None:
    cluster = Cluster()
    bounds = named(LIMIT_RANGES, "l", spec={"limits": [{"type": "Container", "default": {"memory": "512Mi"}}]})
    cluster.client.create(LIMIT_RANGES, bounds, "default")
    pod = bare_pod("p")
    pod["spec"]["containers"] = containers(requests={"memory": "8Gi"})
    with pytest.raises(ApiError) as raised:
        cluster.client.create(PODS, pod, "default")
    assert raised.value.code == 422
    assert "must be less than or equal to memory limit of 512Mi" in raised.value.message
