"""What the health of GPUs writes to a cluster: condition, taint, evictions, and nothing twice."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from live.contract.small import Small, embedded
from tonnage.decisions import Applied
from tonnage.kube.resources import NODES, PDBS, PODS
from tonnage.live.gpu_health import GpuHealthEffects
from tonnage.node.health_effects import HealthPolicy, NodeVerdict, ToEvict

ON = "base-01"
AT = datetime(2026, 11, 29, 12, tzinfo=UTC)
WELL = NodeVerdict("True", "GPUsHealthy", "4 GPUs are healthy", None)
BAD = NodeVerdict("False", "GPUNeedsRestartBm", "GPU 3: …", ("tonnage.dev/gpu-unhealthy", "RESTART_BM", "NoSchedule"))
OTHER = {"key": "team", "value": "a", "effect": "NoSchedule"}


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Small]:
    with embedded(tmp_path) as made:
        yield made


def _node(small: Small) -> dict[str, Any]:
    return small.client.get(NODES, ON)


def _conditions(small: Small) -> dict[str, str]:
    return {one["type"]: one["status"] for one in _node(small)["status"]["conditions"]}


def test_condition_and_taint_come_and_go_and_those_of_others_stay(small: Small) -> None:
    small.client.patch(NODES, ON, {"spec": {"taints": [OTHER]}})
    before = _conditions(small)
    effects = GpuHealthEffects(small.client, ON, HealthPolicy())
    first = effects.apply(BAD, [], AT)
    assert len(first) == 2
    assert _conditions(small) == before | {"GPUHealthy": "False"}
    taints = _node(small)["spec"]["taints"]
    assert OTHER in taints
    assert {"key": "tonnage.dev/gpu-unhealthy", "value": "RESTART_BM", "effect": "NoSchedule"} in taints
    version = _node(small)["metadata"]["resourceVersion"]
    assert effects.apply(BAD, [], AT) == []
    assert _node(small)["metadata"]["resourceVersion"] == version, "nothing is written twice"
    assert effects.apply(WELL, [], AT) == [
        "taint tonnage.dev/gpu-unhealthy removed",
        "condition GPUHealthy=True: 4 GPUs are healthy",
    ]
    assert _node(small)["spec"]["taints"] == [OTHER]
    assert _conditions(small) == before | {"GPUHealthy": "True"}


def test_the_condition_can_be_another_or_none(small: Small) -> None:
    GpuHealthEffects(small.client, ON, HealthPolicy(condition="AcceleratedHardwareReady")).apply(BAD, [], AT)
    assert _conditions(small)["AcceleratedHardwareReady"] == "False"
    GpuHealthEffects(small.client, ON, HealthPolicy(condition="")).apply(WELL, [], AT)
    assert _conditions(small)["AcceleratedHardwareReady"] == "False"
    assert "GPUHealthy" not in _conditions(small)


def test_only_named_pods_are_evicted_and_a_budget_holds_that_back(small: Small) -> None:
    other, pod = small.pod(0), small.pod(1)
    assert small.apply(small.bind(pod, small.node(ON), 1)) == Applied()
    small.run(600)
    leaving = [ToEvict(f"{pod.namespace}/{pod.name}", ("GPU-3",), "Xid 119"), ToEvict("team/gone", ("GPU-3",), "")]
    labels = small.client.get(PODS, pod.name, pod.namespace)["metadata"]["labels"]
    budgets = small.client.list(PDBS, pod.namespace)
    (budget,) = (one for one in budgets if one["spec"]["selector"]["matchLabels"].items() <= labels.items())
    name = budget["metadata"]["name"]
    small.client.patch(PDBS, name, {"spec": {"minAvailable": "100%", "maxUnavailable": None}}, pod.namespace)
    small.settle()
    effects = GpuHealthEffects(small.client, ON, HealthPolicy())
    (said,) = effects.apply(WELL, leaving, AT)[1:]
    assert "is not evicted yet" in said
    assert effects.apply(WELL, leaving, AT) == [], "and that is said once"
    small.client.delete(PDBS, name, pod.namespace)
    small.settle()
    assert effects.apply(WELL, leaving, AT) == [f"{pod.namespace}/{pod.name} evicted: Xid 119"]
    small.run(120)
    names = {one["metadata"]["name"] for one in small.client.list(PODS)}
    assert pod.name not in names
    assert other.name in names
