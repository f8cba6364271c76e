"""A GPU of a simulated node that fails, as kubectl sees it: in the statuses of its pods, of its node, and who leaves."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from live.contract.small import Small, embedded
from tonnage.decisions import Applied
from tonnage.kube.resources import NODES, PODS
from tonnage.machines.gpu_faults import XidReported
from tonnage.units import NS_PER_S

ON = "base-01"


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Small]:
    with embedded(tmp_path) as made:
        yield made


def _devices(pod: dict[str, Any]) -> list[Any]:
    return [one for c in pod["status"].get("containerStatuses", ()) for one in c.get("allocatedResourcesStatus", ())]


def _report(small: Small, xid: int, detection_s: int = 0, duration_s: int = 300) -> None:
    cluster = small.made.cluster
    cluster.queue.push(cluster.now_ns, XidReported(ON, xid, detection_s * NS_PER_S, duration_s * NS_PER_S))


def _of(small: Small, index: int) -> dict[str, Any]:
    pod = small.pod(index)
    return small.client.get(PODS, pod.name, pod.namespace)


def _said(small: Small) -> dict[str, str]:
    conditions = small.client.get(NODES, ON)["status"]["conditions"]
    return next((c for c in conditions if c["type"] == "GPUHealthy"), {})


def _condition(small: Small) -> tuple[str, str]:
    return _said(small)["status"], _said(small)["reason"]


def _message(small: Small) -> str:
    return _said(small)["message"]


def test_a_faulted_gpu_is_named_in_the_pod_before_the_pod_leaves(small: Small) -> None:
    pod = small.pod(1)
    for _ in range(2):  # GPUs 3 and 2, for long: the pod is on the last one that is left
        _report(small, 79, duration_s=9000)
    small.run(2)
    assert small.apply(small.bind(pod, small.node(ON), 1)) == Applied()
    small.run(60)

    def said() -> list[Any]:
        return _devices(small.client.get(PODS, pod.name, pod.namespace))

    healthy = [{"name": "nvidia.com/gpu", "resources": [{"resourceID": "GPU-base-01-1", "health": "Healthy"}]}]
    assert said() == healthy
    assert _condition(small) == ("False", "GPUNeedsRestartBm")
    _report(small, 119, detection_s=4)
    small.run(3)
    assert said() == healthy, "nobody has noticed yet"
    small.run(1)
    assert said() == [{"name": "nvidia.com/gpu", "resources": [{"resourceID": "GPU-base-01-1", "health": "Unhealthy"}]}]
    assert "GPU 1 (GPU-base-01-1): Xid 119: GSP RPC timeout" in _message(small)
    other = _of(small, 0)
    assert _devices(other)[0]["resources"] == [{"resourceID": "GPU-base-01-0", "health": "Healthy"}]
    small.run(1)
    names = {one["metadata"]["name"] for one in small.client.list(PODS)}
    assert pod.name not in names
    assert other["metadata"]["name"] in names, "only the pods on the card leave"
    assert small.client.get(NODES, ON)["status"]["allocatable"]["nvidia.com/gpu"] == "1"
    small.run(300)
    assert small.client.get(NODES, ON)["status"]["allocatable"]["nvidia.com/gpu"] == "2"
    assert "GPU 1" not in _message(small)
    small.run(8_800)
    assert small.client.get(NODES, ON)["status"]["allocatable"]["nvidia.com/gpu"] == "4"
    assert _condition(small) == ("True", "GPUsHealthy")


def test_an_error_of_the_application_leaves_capacity_and_health_alone(small: Small) -> None:
    assert _said(small) == {}, "before anything happens nobody says anything"
    _report(small, 31)
    small.run(10)
    assert small.client.get(NODES, ON)["status"]["allocatable"]["nvidia.com/gpu"] == "4"
    assert {d["health"] for one in _devices(_of(small, 0)) for d in one["resources"]} == {"Healthy"}
