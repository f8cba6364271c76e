"""What the HPA controller writes into a status, and which HPA KEDA makes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from tonnage.decisions import Ref
from tonnage.objects import load
from tonnage.objects.keda import ScaledObject
from tonnage.scaling import hpa, keda
from tonnage.scaling.hpa_status import HpaPass, body_of_keda, status
from tonnage.scaling.manifests import keda_spec
from tonnage.scaling.replicas import MetricReading, PodReading, TargetKind
from tonnage.units import NS_PER_S

Json = dict[str, Any]
NOW, LATER = "2026-03-02T09:00:00Z", "2026-03-02T09:00:15Z"
TARGET = Ref("Deployment", "chat", "default")


def passed(metric: hpa.Metric, reading: MetricReading, replicas: int = 2, state: hpa.HpaState | None = None) -> HpaPass:
    spec = hpa.HpaSpec(Ref("HorizontalPodAutoscaler", "chat", "default"), TARGET, 10, (metric,))
    decision, after = hpa.recommend(
        spec,
        state or hpa.HpaState(),
        [reading],
        current_replicas=replicas,
        ready_replicas=replicas,
        now_ns=100 * NS_PER_S,
    )
    return HpaPass(spec, after, replicas, decision)


PODS = (PodReading("a", 300, 1000), PodReading("b", 900, 1000))
EXTERNAL = {"metric": {"name": "queue", "selector": {"matchLabels": {"of": "chat"}}}}


@pytest.mark.parametrize(
    ("metric", "written", "reading", "current"),
    [
        (
            hpa.Metric("Resource", "cpu", TargetKind.UTILIZATION, 60),
            {"resource": {"name": "cpu"}},
            MetricReading(pods=PODS),
            {"resource": {"name": "cpu", "current": {"averageValue": "600m", "averageUtilization": 60}}},
        ),
        (
            hpa.Metric("External", "queue", TargetKind.AVERAGE_VALUE, 2000),
            {"external": EXTERNAL},
            MetricReading.of(5),
            {"external": {**EXTERNAL, "current": {"averageValue": "2500m"}}},
        ),
        (
            hpa.Metric("External", "queue", TargetKind.VALUE, 7000),
            {"external": EXTERNAL},
            MetricReading.of(7),
            {"external": {**EXTERNAL, "current": {"value": "7"}}},
        ),
        (
            hpa.Metric("Pods", "tokens", TargetKind.AVERAGE_VALUE, 600),
            {"pods": {"metric": {"name": "tokens"}}},
            MetricReading(pods=PODS),
            {"pods": {"metric": {"name": "tokens"}, "current": {"averageValue": "600m"}}},
        ),
    ],
    ids=["utilization", "average of an external metric", "its value", "average of the pods"],
)
def test_a_metrics_current_value_is_in_the_form_of_its_target(
    metric: hpa.Metric, written: Json, reading: MetricReading, current: Json
) -> None:
    (field, source), *_ = written.items()
    spec = {"metrics": [{"type": metric.kind, field: {**source, "target": {"type": metric.target_kind.value}}}]}
    found = status({"spec": spec}, passed(metric, reading), NOW)
    assert found["currentMetrics"] == [{"type": metric.kind, **current}]


QUEUE = hpa.Metric("External", "queue", TargetKind.AVERAGE_VALUE, 1000)
HPA: Json = {"spec": {"metrics": [{"type": "External", "external": EXTERNAL}]}}


def test_a_change_is_said_with_its_time_and_what_it_makes_true() -> None:
    found = status(HPA, passed(QUEUE, MetricReading.of(4)), NOW)
    assert (found["currentReplicas"], found["desiredReplicas"], found["lastScaleTime"]) == (2, 4, NOW)
    assert [(one["type"], one["status"], one["reason"]) for one in found["conditions"]] == [
        ("AbleToScale", "True", "SucceededRescale"),
        ("ScalingActive", "True", "ValidMetricFound"),
        ("ScalingLimited", "False", "DesiredWithinRange"),
        ("ScaledToZero", "False", "NotScaledToZero"),
    ]


def test_a_metric_that_cannot_be_had_is_an_empty_entry_and_what_was_wanted_stays() -> None:
    first = passed(QUEUE, MetricReading.of(4))
    before = status(HPA, first, NOW)
    lost = passed(QUEUE, MetricReading(error="no answer"), replicas=4, state=first.state)
    found = status({**HPA, "status": before}, lost, LATER)
    assert found["currentMetrics"] == [{"type": ""}]
    assert (found["currentReplicas"], found["desiredReplicas"], found["lastScaleTime"]) == (4, 4, NOW)
    since = {one["type"]: one["lastTransitionTime"] for one in found["conditions"]}
    assert since == {"AbleToScale": NOW, "ScalingActive": LATER, "ScalingLimited": NOW, "ScaledToZero": NOW}


def test_outside_of_its_bounds_an_hpa_asks_no_metric() -> None:
    found = status(HPA, passed(QUEUE, MetricReading.of(5), replicas=12), NOW)
    assert found["currentMetrics"] is None and found["desiredReplicas"] == 10


SCALED = """\
apiVersion: keda.sh/v1alpha1
kind: ScaledObject
metadata:
  name: chat
  namespace: serving
  uid: u1
  annotations: {autoscaling.keda.sh/paused-scale-in: "true"}
spec:
  scaleTargetRef: {name: chat}
  minReplicaCount: 0
  maxReplicaCount: 7
  advanced:
    horizontalPodAutoscalerConfig: {behavior: {scaleDown: {stabilizationWindowSeconds: 60}}}
  triggers:
    - {type: prometheus, metadata: {serverAddress: http://p, query: up, threshold: "2.5"}}
    - {type: cpu, metricType: Utilization, metadata: {value: "70", containerName: engine}}
"""


def test_kedas_hpa_has_its_metrics_and_bounds_and_a_direction_that_is_paused(tmp_path: Path) -> None:
    file = tmp_path / "scaled.yaml"
    file.write_text(SCALED)
    (scaled,) = load.read([file]).of(ScaledObject)
    spec = keda.generated_hpa(keda_spec(scaled))
    assert spec is not None
    body = body_of_keda(spec, yaml.safe_load(SCALED))
    assert body["metadata"]["name"] == "keda-hpa-chat" and body["metadata"]["ownerReferences"][0]["uid"] == "u1"
    assert (body["spec"]["minReplicas"], body["spec"]["maxReplicas"]) == (1, 7)
    assert body["spec"]["behavior"] == {"scaleDown": {"stabilizationWindowSeconds": 60, "selectPolicy": "Disabled"}}
    container, external = body["spec"]["metrics"]
    assert container["containerResource"] == {
        "name": "cpu",
        "container": "engine",
        "target": {"type": "Utilization", "averageUtilization": 70},
    }
    selector = {"matchLabels": {"scaledobject.keda.sh/name": "chat"}}
    assert external["external"] == {
        "metric": {"name": "s0-prometheus", "selector": selector},
        "target": {"type": "AverageValue", "averageValue": "2500m"},
    }
