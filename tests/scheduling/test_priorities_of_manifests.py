"""The PriorityClasses of the manifests reach the pods of the simulated cluster."""

from __future__ import annotations

from pathlib import Path

from tonnage.objects import load
from tonnage.provisioning.catalogue import Catalogue
from tonnage.rng import Streams
from tonnage.simulation import scenario
from tonnage.simulation.configure import build_cluster, configure

DEPLOYMENT = """\
apiVersion: apps/v1
kind: Deployment
metadata: {{name: {name}, namespace: default}}
spec:
  replicas: 1
  selector: {{matchLabels: {{app: {name}}}}}
  template:
    metadata: {{labels: {{app: {name}}}}}
    spec:
      priorityClassName: {priority}
      containers: [{{name: main, image: busybox}}]
---
"""
CLASSES = """\
apiVersion: scheduling.k8s.io/v1
kind: PriorityClass
metadata: {name: high}
value: 1000
---
apiVersion: scheduling.k8s.io/v1
kind: PriorityClass
metadata: {name: usual}
value: 10
globalDefault: true
"""
SCENARIO = """\
kind: Scenario
name: priorities
duration: 1m
slo: {ttft: 1s, tpot: 1s}
fleet: {nodes: [{instanceType: g6e.2xlarge}]}
traffic: [{service: default/none, trace: trace.csv}]
policies: {fixed: {manifests: all.yaml}}
"""


def test_a_workload_has_the_priority_of_its_class_and_a_class_that_is_missing_is_found(tmp_path: Path) -> None:
    names = {"batch": '""', "serving": "high", "lost": "absent", "dns": "system-cluster-critical"}
    documents = [DEPLOYMENT.format(name=name, priority=priority) for name, priority in names.items()]
    (tmp_path / "all.yaml").write_text("".join(documents) + CLASSES)
    (tmp_path / "scenario.yaml").write_text(SCENARIO)
    (tmp_path / "trace.csv").write_text("TIMESTAMP,ContextTokens,GeneratedTokens\n2026-01-01 00:00:00,1,1\n")
    configuration = configure(load.read([tmp_path / "all.yaml"]), Catalogue.load(None))
    cluster = build_cluster(scenario.load(tmp_path), configuration, Streams(0))
    assert {w.name: w.template.spec.priority for w in cluster.workloads.values()} == {
        "batch": 10, "serving": 1000, "lost": 0, "dns": 2_000_000_000,
    }  # fmt: skip
    (missing,) = (f for f in configuration.findings if f.rule == "priority-class-missing")
    assert (missing.object.name, missing.where.field) == ("lost", "spec.template.spec.priorityClassName")
    assert missing.where.line == 2 * (DEPLOYMENT.count("\n")) + 10
