"""Behind `tonnage up` the autoscalers that somebody creates, changes or deletes set replicas, as those of the manifests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hollow.up_in_step import UpInStep
from tonnage.apiserver import tables
from tonnage.hollow.autoscaling import AT_REST
from tonnage.kube.resources import DEPLOYMENTS, HPAS, SCALED_OBJECTS
from tonnage.simulation import run, scenario

Json = dict[str, Any]
SCENARIO = """\
kind: Scenario
name: small
duration: 1h
slo: {{ttft: 2s, tpot: 50ms}}
fleet: {{nodes: [{{instanceType: g6e.12xlarge, count: 2}}]}}
traffic: [{{service: default/chat, profile: {profile}, rate: 0.05, balancing: least-requests}}]
policies:
  as-written: {{manifests: manifests}}
  planned: {{manifests: manifests, scaling: slo}}
"""
REPOSITORY = Path(__file__).resolve().parents[2]
PROFILE = REPOSITORY / "examples" / "traffic-surge" / "traffic" / "azure-2023-conv.yaml"
MANIFESTS = """\
apiVersion: apps/v1
kind: Deployment
metadata: {name: chat}
spec:
  replicas: 1
  selector: {matchLabels: {app: chat}}
  template:
    metadata: {labels: {app: chat}}
    spec:
      containers:
        - name: engine
          image: vllm/vllm-openai:v0.11.0
          args: [--model=meta-llama/Llama-3.1-8B-Instruct, --max-model-len=8192]
          ports: [{name: http, containerPort: 8000}]
          resources: {limits: {nvidia.com/gpu: 1}}
---
apiVersion: v1
kind: Service
metadata: {name: chat}
spec: {selector: {app: chat}, ports: [{port: 80, targetPort: http}]}
---
apiVersion: keda.sh/v1alpha1
kind: ScaledObject
metadata: {name: chat}
spec:
  scaleTargetRef: {name: chat}
  minReplicaCount: 1
  maxReplicaCount: 4
  triggers:
    - {type: prometheus, metadata: {serverAddress: http://p, query: sum(vllm:num_requests_running), threshold: "1000"}}
"""


def up_of(folder: Path, policy: str) -> UpInStep:
    (folder / "manifests").mkdir()
    (folder / "manifests" / "all.yaml").write_text(MANIFESTS)
    (folder / "scenario.yaml").write_text(SCENARIO.format(profile=PROFILE))
    return UpInStep(run.set_up(scenario.load(folder), policy))


@pytest.fixture
def up(tmp_path: Path) -> Iterator[UpInStep]:
    with up_of(tmp_path, "as-written") as made:
        made.apply(web())
        yield made


def web() -> Json:
    labels = {"app": "web"}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "web", "image": "web:1"}]}}
    spec = {"replicas": 1, "selector": {"matchLabels": labels}, "template": template}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}, "spec": spec}


def autoscaler(least: int, most: int, target: str = "web") -> Json:
    """What `kubectl autoscale` makes: it asks for CPU, of which no metrics API says anything."""
    reference = {"apiVersion": "apps/v1", "kind": "Deployment", "name": target}
    spec = {"scaleTargetRef": reference, "minReplicas": least, "maxReplicas": most}
    return {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": target},
        "spec": spec,
    }


def scaled_object(value: int, target: str = "web", name: str = "mine") -> Json:
    trigger = {
        "type": "prometheus",
        "metadata": {"serverAddress": "http://p", "query": f"vector({value})", "threshold": "1"},
    }
    spec = {
        "scaleTargetRef": {"name": target},
        "minReplicaCount": 0,
        "maxReplicaCount": 5,
        "cooldownPeriod": 60,
        "triggers": [trigger],
    }
    return {"apiVersion": "keda.sh/v1alpha1", "kind": "ScaledObject", "metadata": {"name": name}, "spec": spec}


def replicas(up: UpInStep, name: str = "web") -> int:
    found: int = up.client.get(DEPLOYMENTS, name, "default")["spec"]["replicas"]
    return found


def test_an_hpa_that_is_created_holds_the_replicas_within_its_bounds(up: UpInStep) -> None:
    up.apply(autoscaler(3, 6))
    up.run_for(60)
    assert replicas(up) == 3
    up.apply({**web(), "spec": {**web()["spec"], "replicas": 9}})
    up.run_for(60)
    assert replicas(up) == 6
    reasons = {one["reason"] for one in up.events("HorizontalPodAutoscaler", "web")}
    assert any(reason.startswith("FailedGet") for reason in reasons), reasons


def test_an_hpa_that_is_changed_or_deleted_is_followed_as_it_is_now(up: UpInStep) -> None:
    up.apply(autoscaler(2, 6))
    up.run_for(60)
    assert replicas(up) == 2
    up.apply(autoscaler(4, 6))
    up.run_for(60)
    assert replicas(up) == 4
    up.client.delete(HPAS, "web", "default")
    up.apply({**web(), "spec": {**web()["spec"], "replicas": 1}})
    up.run_for(60)
    assert replicas(up) == 1


def test_a_scaled_object_that_is_created_scales_from_zero_by_its_query_and_back(up: UpInStep) -> None:
    up.apply({**web(), "spec": {**web()["spec"], "replicas": 0}})
    up.apply(scaled_object(3))
    up.run_for(120)
    assert replicas(up) == 3
    up.apply(scaled_object(0))
    up.run_for(600)
    assert replicas(up) == 0
    up.client.delete(SCALED_OBJECTS, "mine", "default")
    up.apply({**web(), "spec": {**web()["spec"], "replicas": 2}})
    up.run_for(120)
    assert replicas(up) == 2


def test_the_manifests_own_scaled_object_is_followed_as_it_was_changed(up: UpInStep) -> None:
    up.run_for(60)
    assert replicas(up, "chat") == 1
    up.apply(scaled_object(3, target="chat", name="chat"))
    up.run_for(90)
    assert replicas(up, "chat") == 3


def test_where_a_policy_plans_replicas_other_workloads_autoscalers_act_and_the_others_are_told(tmp_path: Path) -> None:
    with up_of(tmp_path, "planned") as up:
        up.apply(web())
        up.apply(autoscaler(3, 6))
        up.apply(autoscaler(7, 8, target="chat"))
        up.run_for(120)
        assert replicas(up) == 3
        assert replicas(up, "chat") < 7
        (told,) = [one for one in up.events("HorizontalPodAutoscaler", "chat") if one["reason"] == AT_REST]
        assert told["message"] == "the policy slo sets the replicas of Deployment chat"


# ---- what kubectl shows of them ----


def shown(up: UpInStep, name: str) -> dict[str, Any]:
    """The row of `kubectl get hpa`."""
    cells = tables.cells(HPAS, up.client.get(HPAS, name, "default"), up.now_s)
    return dict(zip((column.name for column in tables.columns(HPAS.kind)), cells, strict=True))


def conditions(up: UpInStep, name: str) -> dict[str, tuple[str, str]]:
    found = up.client.get(HPAS, name, "default")["status"]["conditions"]
    return {one["type"]: (one["status"], one["reason"]) for one in found}


def test_a_scaled_objects_hpa_is_there_with_what_it_measures_and_why(up: UpInStep) -> None:
    up.apply(scaled_object(3))
    up.run_for(120)
    hpa = up.client.get(HPAS, "keda-hpa-mine", "default")
    (owner,) = hpa["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["name"]) == ("ScaledObject", "mine")
    assert hpa["spec"]["metrics"][0]["external"]["metric"]["name"] == "s0-prometheus"
    row = shown(up, "keda-hpa-mine")
    assert row["Targets"] == "1/1 (avg)" and row["Replicas"] == 3 and row["MaxPods"] == 5
    assert conditions(up, "keda-hpa-mine") == {
        "AbleToScale": ("True", "ReadyForNewScale"),
        "ScalingActive": ("True", "ValidMetricFound"),
        "ScaledToZero": ("False", "NotScaledToZero"),
        "ScalingLimited": ("False", "DesiredWithinRange"),
    }
    assert hpa["status"]["lastScaleTime"]
    up.client.delete(SCALED_OBJECTS, "mine", "default")
    up.run_for(60)
    assert "keda-hpa-mine" not in {one["metadata"]["name"] for one in up.client.list(HPAS)}


def test_a_condition_keeps_the_time_since_when_it_is_so(up: UpInStep) -> None:
    up.apply(scaled_object(3))
    up.run_for(60)
    since = {one["type"]: one["lastTransitionTime"] for one in hpa_status(up, "keda-hpa-mine")["conditions"]}
    up.run_for(120)
    later = {one["type"]: one["lastTransitionTime"] for one in hpa_status(up, "keda-hpa-mine")["conditions"]}
    assert later == since


def hpa_status(up: UpInStep, name: str) -> Json:
    found: Json = up.client.get(HPAS, name, "default")["status"]
    return found


def test_an_hpa_without_readings_says_so(up: UpInStep) -> None:
    up.apply(autoscaler(1, 6))
    up.run_for(60)
    row = shown(up, "web")
    assert row["Targets"] == "cpu: <unknown>/80%" and row["Replicas"] == 1
    assert conditions(up, "web")["ScalingActive"] == ("False", "FailedGetResourceMetric")


def test_a_paused_scaled_object_has_no_hpa_and_one_that_was_deleted_is_made_again(up: UpInStep) -> None:
    up.apply(scaled_object(3))
    up.run_for(60)
    up.client.delete(HPAS, "keda-hpa-mine", "default")
    up.run_for(60)
    assert up.client.get(HPAS, "keda-hpa-mine", "default")
    paused = scaled_object(3)
    paused["metadata"]["annotations"] = {"autoscaling.keda.sh/paused": "true"}
    up.apply(paused)
    up.run_for(60)
    assert "keda-hpa-mine" not in {one["metadata"]["name"] for one in up.client.list(HPAS)}
