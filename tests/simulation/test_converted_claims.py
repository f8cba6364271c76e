"""Manifests whose claims no API server takes any more, converted: their pods run."""

from __future__ import annotations

from pathlib import Path

import pytest

from tonnage.errors import Where
from tonnage.health.device_ways.convert import convert
from tonnage.health.device_ways.written import Written
from tonnage.objects import load, tree
from tonnage.objects.dump import written
from tonnage.simulation import run, scenario
from tonnage.simulation.result import Result

DEAD = Path(__file__).parents[1] / "data" / "dead-claims"
SCENARIO = """\
kind: Scenario
name: converted
duration: 10m
region: us-east-1
fleet:
  nodes:
    - instanceType: p4d.24xlarge
      count: 1
      zone: us-east-1a
      labels: {nvidia.com/dra-kubelet-plugin: "true", tonnage.dev/mig-relayout: "true"}
policies:
  converted: {manifests: manifests}
"""


def played(tmp_path: Path, *files: Path) -> Result:
    documents = [Written(one.value, Where(one.file, one.line)) for one in load.documents(files)]
    (tmp_path / "manifests").mkdir()
    (tmp_path / "manifests" / "converted.yaml").write_text(written(convert(documents).documents))
    (tmp_path / "scenario.yaml").write_text(SCENARIO)
    return run.run(scenario.load(tmp_path / "scenario.yaml"), "converted")


def scheduled(result: Result) -> int:
    return sum(one.count for one in result.events if one.reason == "Scheduled")


@pytest.mark.parametrize(("name", "pods"), [("mig", 1), ("time-slicing", 3)])
def test_pods_of_dead_manifests_run_once_they_are_converted(name: str, pods: int, tmp_path: Path) -> None:
    result = played(tmp_path, DEAD / f"{name}.yaml")
    assert scheduled(result) == pods
    assert not [one for one in result.findings if one.severity == "error"]


def test_pods_that_share_one_claim_are_charged_for_one_gpu(tmp_path: Path) -> None:
    result = played(tmp_path, DEAD / "time-slicing.yaml")
    hours = result.gpu_hours.allocated
    assert hours == pytest.approx(1 / 6, rel=0.2), "a GPU for ten minutes, not three"


def test_whole_gpus_of_a_device_plugin_are_held_by_claims(tmp_path: Path) -> None:
    file = tmp_path / "plugin.yaml"
    file.write_text("""\
apiVersion: apps/v1
kind: Deployment
metadata: {name: two, namespace: team}
spec:
  replicas: 3
  selector: {matchLabels: {app: two}}
  template:
    metadata: {labels: {app: two}}
    spec:
      containers: [{name: main, image: app, resources: {limits: {nvidia.com/gpu: 2}}}]
""")
    result = played(tmp_path, file)
    assert scheduled(result) == 3
    assert result.gpu_hours.allocated == pytest.approx(1, rel=0.2), "six GPUs for ten minutes"


def test_who_shares_a_gpu_pays_for_more_of_it_once_another_is_gone(tmp_path: Path) -> None:
    (tmp_path / "manifests").mkdir()
    claims = "\n---\n".join(
        f"""\
apiVersion: v1
kind: Pod
metadata: {{name: {name}, namespace: team}}
spec:
  containers: [{{name: main, image: app, resources: {{claims: [{{name: gpu}}]}}}}]
  resourceClaims: [{{name: gpu, resourceClaimName: shared}}]
"""
        for name in ("first", "second")
    )
    claim = """\
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: shared, namespace: team}
spec: {devices: {requests: [{name: gpu, exactly: {deviceClassName: gpu.nvidia.com}}]}}
"""
    documents = [one.value for one in tree.parse(f"{claim}\n---\n{claims}", "m.yaml")]
    made = convert([Written(one, Where("m.yaml", 1)) for one in documents]).documents
    (tmp_path / "manifests" / "m.yaml").write_text(written(made))
    training = "\ntraining:\n  - {workload: team/pod/first, work: {steps: 60, step: 4s}}\n"
    (tmp_path / "scenario.yaml").write_text(SCENARIO + training)
    result = run.run(scenario.load(tmp_path / "scenario.yaml"), "converted")
    assert result.gpu_hours.allocated == pytest.approx(1 / 6, abs=0.002), "one GPU for ten minutes, whoever has it"
