"""A gang of eighteen pods with a ComputeDomain, and nodes in NVLink cliques."""

from __future__ import annotations

from pathlib import Path

MANIFESTS = """\
apiVersion: resource.nvidia.com/v1beta1
kind: ComputeDomain
metadata: {name: rack, namespace: research}
spec:
  numNodes: 0
  channel: {resourceClaimTemplate: {name: rack-channel}}
---
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {name: gpus, namespace: research}
spec:
  spec:
    devices:
      requests: [{name: gpus, exactly: {deviceClassName: gpu.nvidia.com, allocationMode: All}}]
---
apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata: {name: gpu.nvidia.com}
spec:
  selectors: [{cel: {expression: "device.driver == 'gpu.nvidia.com' && device.attributes['gpu.nvidia.com'].type == 'gpu'"}}]
---
apiVersion: kubeflow.org/v1
kind: PyTorchJob
metadata: {name: llama, namespace: research}
spec:
  pytorchReplicaSpecs:
    Worker:
      replicas: 18
      template:
        spec:
          containers:
            - name: pytorch
              image: train
              resources: {claims: [{name: gpus}, {name: channel}]}
          resourceClaims:
            - {name: gpus, resourceClaimTemplateName: gpus}
            - {name: channel, resourceClaimTemplateName: rack-channel}
"""
ENTRY = '    - {{instanceType: g6e.12xlarge, count: {count}, zone: us-east-1a, labels: {{nvidia.com/dra-kubelet-plugin: "true"{clique}}}}}\n'


def written(tmp_path: Path, cliques: dict[str, int], manifests: str = MANIFESTS) -> Path:
    """The scenario, with this number of nodes in each clique; ``""``: nodes of none."""
    nodes = "".join(
        ENTRY.format(count=count, clique=f", nvidia.com/gpu.clique: fabric.{name}" if name else "")
        for name, count in cliques.items()
    )
    (tmp_path / "manifests").mkdir()
    (tmp_path / "manifests" / "m.yaml").write_text(manifests)
    text = f"kind: Scenario\nname: rack\nduration: 10m\nfleet:\n  nodes:\n{nodes}policies:\n  one: {{manifests: manifests}}\n"
    (tmp_path / "scenario.yaml").write_text(text)
    return tmp_path / "scenario.yaml"
