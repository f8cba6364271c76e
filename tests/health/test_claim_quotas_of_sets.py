"""Quotas below the ResourceClaims that are made from templates, as `check` finds them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tonnage.decisions import Finding
from tonnage.simulation import run, scenario

MANIFESTS = """\
apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata: {{name: gpu.nvidia.com}}
spec: {{extendedResourceName: nvidia.com/gpu, selectors: [{{cel: {{expression: "device.driver == 'gpu.nvidia.com'"}}}}]}}
---
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {{name: two, namespace: team}}
spec: {{spec: {{devices: {{requests: [{{name: r, exactly: {{deviceClassName: gpu.nvidia.com, count: 2}}}}]}}}}}}
---
apiVersion: v1
kind: ResourceQuota
metadata: {{name: gpus, namespace: team}}
spec: {{hard: {{{hard}}}}}
---
apiVersion: apps/v1
kind: Deployment
metadata: {{name: app, namespace: team}}
spec:
  replicas: {replicas}
  selector: {{matchLabels: {{app: a}}}}
  template:
    metadata: {{labels: {{app: a}}}}
    spec:
      containers: [{{name: main, image: app, resources: {{claims: [{{name: gpus}}]}}}}]
      resourceClaims: [{{name: gpus, resourceClaimTemplateName: two}}]
"""
DEVICES = "gpu.nvidia.com.deviceclass.resource.k8s.io/devices"


def findings(tmp_path: Path, hard: str, replicas: int) -> list[Finding]:
    (tmp_path / "m.yaml").write_text(MANIFESTS.format(hard=hard, replicas=replicas))
    loaded = scenario.of_files([tmp_path / "m.yaml"])
    made = [run.set_up(loaded, name).configuration for name in loaded.spec.policies]
    return [one for one in made[0].findings if one.rule == "quota-below-claims"]


@pytest.mark.parametrize(
    ("hard", "replicas", "fits"),
    [
        (f"{DEVICES}: 6", 3, 3),
        (f"{DEVICES}: 5", 3, 2),
        (f"{DEVICES}: 1", 3, 0),
        ("requests.nvidia.com/gpu: 4", 3, 2),
        ("count/resourceclaims.resource.k8s.io: 1", 3, 1),
        ("pods: 100", 3, 3),
        (f"{DEVICES}: 5", 100_000, 2),
    ],
)
def test_a_quota_admits_as_many_claims_as_it_has_devices_for(
    hard: str, replicas: int, fits: int, tmp_path: Path
) -> None:
    found = findings(tmp_path, hard, replicas)
    assert len(found) == (0 if fits == replicas else 1)
    for one in found:
        assert str(one.object) == "Deployment team/app"
        said = f"admits {fits} of the {replicas} claims gpus of its pods" if fits else "admits no claim gpus"
        assert said in one.message and "exceeded quota: gpus, requested: " in one.message
        assert one.severity == ("warning" if fits else "error")
