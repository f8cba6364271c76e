"""Manifests that name no namespace are those of `default`, for their autoscalers too."""

from __future__ import annotations

from pathlib import Path

import pytest

from tonnage.simulation import run, scenario
from tonnage.simulation.configure import bounds

REPOSITORY = Path(__file__).resolve().parents[2]
SCENARIO = f"""\
kind: Scenario
name: small
duration: 10m
slo: {{ttft: 2s, tpot: 50ms}}
fleet: {{nodes: [{{instanceType: g6e.12xlarge, count: 1}}]}}
traffic:
  - service: default/chat
    profile: {REPOSITORY}/examples/traffic-surge/traffic/azure-2023-conv.yaml
    rate: 0.05
    balancing: least-requests
policies:
  as-written: {{manifests: manifests.yaml}}
  planned: {{manifests: manifests.yaml, scaling: slo}}
"""
MANIFESTS = """\
apiVersion: apps/v1
kind: Deployment
metadata: {{name: chat}}
spec:
  replicas: 1
  selector: {{matchLabels: {{app: chat}}}}
  template:
    metadata: {{labels: {{app: chat}}}}
    spec:
      containers:
        - name: engine
          image: vllm/vllm-openai:v0.11.0
          args: [--model=meta-llama/Llama-3.1-8B-Instruct, --max-model-len=8192]
          ports: [{{name: http, containerPort: 8000}}]
          resources: {{limits: {{nvidia.com/gpu: 1}}}}
---
apiVersion: v1
kind: Service
metadata: {{name: chat}}
spec: {{selector: {{app: chat}}, ports: [{{port: 80, targetPort: http}}]}}
---
{autoscaler}
"""
SCALED = """\
apiVersion: keda.sh/v1alpha1
kind: ScaledObject
metadata: {name: chat}
spec:
  scaleTargetRef: {name: chat}
  minReplicaCount: 2
  maxReplicaCount: 4
  triggers: [{type: prometheus, metadata: {serverAddress: http://p, query: vector(3), threshold: "1"}}]
"""
PLAIN = """\
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {name: chat}
spec:
  scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: chat}
  minReplicas: 3
  maxReplicas: 4
"""


def made(folder: Path, autoscaler: str, policy: str = "as-written") -> run.SetUp:
    (folder / "manifests.yaml").write_text(MANIFESTS.format(autoscaler=autoscaler))
    (folder / "scenario.yaml").write_text(SCENARIO)
    return run.set_up(scenario.load(folder), policy)


@pytest.mark.parametrize("autoscaler", [SCALED, PLAIN], ids=["ScaledObject", "HPA"])
def test_an_autoscaler_without_a_namespace_sets_the_replicas_of_its_target(tmp_path: Path, autoscaler: str) -> None:
    one = made(tmp_path, autoscaler)
    run.play(one)
    assert one.cluster.workloads["default/chat"].replicas == 3


@pytest.mark.parametrize(("autoscaler", "least"), [(SCALED, 2), (PLAIN, 3)], ids=["ScaledObject", "HPA"])
def test_its_bounds_are_those_of_the_slo_policy(tmp_path: Path, autoscaler: str, least: int) -> None:
    one = made(tmp_path, autoscaler, "planned")
    assert bounds(one.configuration, list(one.cluster.workloads.values())) == {"default/chat": (least, 4)}
    run.play(one)
    assert least <= one.cluster.workloads["default/chat"].replicas <= 4
