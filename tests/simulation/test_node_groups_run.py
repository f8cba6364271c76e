"""Node groups in the simulated cluster, sized as the Cluster Autoscaler does."""

from __future__ import annotations

from pathlib import Path

import pytest

from tonnage.simulation import scenario
from tonnage.simulation.result import Result
from tonnage.simulation.run import run

GROUPS = """\
apiVersion: eksctl.io/v1alpha5
kind: ClusterConfig
metadata: {name: ml, region: us-east-1}
availabilityZones: [us-east-1a, us-east-1b]
managedNodeGroups:
- {name: cpu, instanceType: m5.xlarge, minSize: 1, desiredCapacity: 4, maxSize: 5}
- {name: gpu, instanceType: g5.xlarge, minSize: 0, desiredCapacity: 0, maxSize: 6}
"""
FLAGS = """\
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: cluster-autoscaler, namespace: kube-system}
spec:
  selector: {matchLabels: {app: a}}
  template:
    metadata: {labels: {app: a}, annotations: {cluster-autoscaler.kubernetes.io/safe-to-evict: "true"}}
    spec:
      containers:
      - name: a
        image: registry.k8s.io/autoscaling/cluster-autoscaler:v1.35.0
        command: [./cluster-autoscaler, --scale-down-unneeded-time=5m, --scale-down-delay-after-add=2m]
        resources: {requests: {cpu: 100m, memory: 600Mi}}
"""
WORKLOAD = """\
---
apiVersion: apps/v1
kind: Deployment
metadata: {{name: {name}}}
spec:
  replicas: {replicas}
  selector: {{matchLabels: {{app: {name}}}}}
  template:
    metadata: {{labels: {{app: {name}}}{annotations}}}
    spec:
      containers:
      - name: c
        image: busybox
        resources: {{requests: {{cpu: "{cpu}"}}, limits: {{{gpus}}}}}
"""


def workload(name: str, replicas: int, cpu: str, gpus: int = 0, annotations: str = "") -> str:
    given = f"nvidia.com/gpu: {gpus}" if gpus else ""
    return WORKLOAD.format(name=name, replicas=replicas, cpu=cpu, gpus=given, annotations=annotations)


def played(folder: Path, manifests: str, seconds: int, policy: str = "cluster-autoscaler") -> Result:
    (folder / "manifests").mkdir()
    (folder / "manifests" / "all.yaml").write_text(manifests)
    file = folder / "scenario.yaml"
    file.write_text(
        f"kind: Scenario\nname: groups\nduration: {seconds}s\n"
        f"policies:\n  p: {{manifests: manifests, provisioning: {policy}}}\n"
    )
    return run(scenario.load(file), "p")


@pytest.mark.report(519)
def test_a_gpu_node_that_is_ready_without_its_gpus_is_waited_for_and_none_is_bought_beside_it(tmp_path: Path) -> None:
    result = played(tmp_path, GROUPS + workload("infer", 3, "2", gpus=1), 600)
    bought = [node for node in result.nodes if node.node_pool == "gpu"]
    assert [node.instance_type for node in bought] == ["g5.xlarge"] * 3
    assert all(node.ready_s - node.launched_s > 60 for node in bought)  # many loops have looked meanwhile
    assert sorted(node.zone for node in bought) == ["us-east-1a", "us-east-1a", "us-east-1b"]
    (told,) = [one for one in result.workloads if one.name == "default/infer"]
    assert told.max_ready_replicas == 3


def test_nodes_go_back_to_the_minimum_once_they_were_unneeded_for_as_long_as_the_flags_say(tmp_path: Path) -> None:
    result = played(tmp_path, GROUPS + FLAGS + workload("web", 1, "500m"), 1200)
    ended = sorted(node.ended_s for node in result.nodes if node.ended_s is not None)
    assert len(result.nodes) == 4 and len(ended) == 3
    assert 300 <= ended[0] <= 340  # empty ones together, one with pods once these have moved
    assert {node.end_reason for node in result.nodes if node.ended_s is not None} <= {
        "unneeded: no pod would have to move",
        "unneeded: its pods fit on other nodes",
    }


@pytest.mark.parametrize(
    "annotation", ["cluster-autoscaler.kubernetes.io/safe-to-evict", "karpenter.sh/do-not-disrupt"]
)
def test_pods_that_are_not_to_be_evicted_keep_their_nodes(tmp_path: Path, annotation: str) -> None:
    value = "false" if "safe" in annotation else "true"
    spread = workload("web", 4, "2500m", annotations=f', annotations: {{{annotation}: "{value}"}}')
    spread = spread.replace('cpu: "2500m"', 'cpu: "1500m"').replace(
        "    spec:\n      containers",
        "    spec:\n      topologySpreadConstraints:\n      - {maxSkew: 1, topologyKey: "
        "kubernetes.io/hostname, whenUnsatisfiable: DoNotSchedule, labelSelector: {matchLabels: {app: web}}}\n"
        "      containers",
    )
    result = played(tmp_path, GROUPS + FLAGS + spread, 900)
    assert [node.ended_s for node in result.nodes] == [None] * 4


@pytest.mark.parametrize("policy", ["karpenter", "optimal"])
def test_other_policies_size_the_same_groups(tmp_path: Path, policy: str) -> None:
    result = played(tmp_path, GROUPS + workload("infer", 2, "2", gpus=1), 400, policy)
    assert [node.node_pool for node in result.nodes if node.launched_s > 0] == ["gpu", "gpu"]
    assert all(node.ended_s is None for node in result.nodes if node.node_pool == "gpu")
