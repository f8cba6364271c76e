from __future__ import annotations

from pathlib import Path

import pytest

from tonnage.metrics.scrape import sample_labels, select, targets
from tonnage.objects import load
from tonnage.objects.core import Pod, Service
from tonnage.objects.monitoring import ServiceMonitor

MONITOR = """\
apiVersion: monitoring.coreos.com/v1
kind: ServiceMonitor
metadata: {name: dcgm-exporter, namespace: gpu-monitoring}
spec:
  selector:
    matchLabels: {app: dcgm-exporter}
  endpoints:
    - port: metrics
      interval: 15s
  namespaceSelector:
    matchNames: [gpu-monitoring]
"""
SERVICE = """\
apiVersion: v1
kind: Service
metadata: {name: dcgm, namespace: gpu-monitoring, labels: {app: dcgm-exporter, team: ml-infra}}
spec:
  selector: {app: dcgm}
  ports: [{name: metrics, port: 9400}, {name: other, port: 1}]
"""
POD = """\
apiVersion: v1
kind: Pod
metadata: {name: dcgm-x7, namespace: gpu-monitoring, labels: {app: dcgm}}
spec:
  containers: [{name: exporter, image: x, ports: [{name: http, containerPort: 9400}]}]
status: {phase: Running}
"""


def read(folder: Path, *documents: str) -> tuple[ServiceMonitor, list[Service], list[Pod]]:
    path = folder / "monitoring.yaml"
    path.write_text("---\n".join(documents))
    manifest = load.read([path])
    return manifest.of(ServiceMonitor)[0], list(manifest.of(Service)), list(manifest.of(Pod))


def test_a_servicemonitor_scrapes_the_pods_behind_the_service(tmp_path: Path) -> None:
    monitor, services, pods = read(tmp_path, MONITOR, SERVICE, POD)
    selection = select(monitor, services)
    assert selection.findings == ()
    [target] = targets(monitor, selection.selected, pods, {"gpu-monitoring/dcgm-x7": "10.0.0.7"})
    assert target.labels == {
        "job": "dcgm",
        "instance": "10.0.0.7:9400",
        "namespace": "gpu-monitoring",
        "service": "dcgm",
        "pod": "dcgm-x7",
        "container": "exporter",
        "endpoint": "metrics",
    }
    assert (target.interval, target.path, target.honor_labels) == ("15s", "/metrics", False)


def test_a_selector_that_no_service_meets_is_told_with_its_line(tmp_path: Path) -> None:
    monitor, services, _ = read(tmp_path, MONITOR)
    [finding] = select(monitor, services).findings
    assert (finding.rule, finding.severity) == ("servicemonitor-selects-no-service", "error")
    assert (finding.where.line, finding.where.field) == (5, "spec.selector")
    assert "no Service in gpu-monitoring" in finding.message


def test_a_service_in_a_namespace_that_is_not_searched_is_pointed_out(tmp_path: Path) -> None:
    elsewhere = SERVICE.replace("namespace: gpu-monitoring", "namespace: gpu-operator")
    monitor, services, _ = read(tmp_path, MONITOR, elsewhere)
    assert "gpu-operator/dcgm has them" in select(monitor, services).findings[0].message


@pytest.mark.parametrize(
    ("selector", "found"),
    [("matchNames: [gpu-monitoring]", True), ("matchNames: [other]", False), ("any: true", True)],
)
def test_the_namespace_selector(tmp_path: Path, selector: str, found: bool) -> None:
    monitor, services, _ = read(tmp_path, MONITOR.replace("matchNames: [gpu-monitoring]", selector), SERVICE)
    assert bool(select(monitor, services).selected) is found


def test_without_a_namespace_selector_only_the_monitors_own_namespace_is_searched(tmp_path: Path) -> None:
    text = MONITOR.split("  namespaceSelector")[0]
    monitor, services, _ = read(tmp_path, text, SERVICE, SERVICE.replace("namespace: gpu-monitoring", "namespace: b"))
    assert [s.service.namespace for s in select(monitor, services).selected] == ["gpu-monitoring"]


def test_a_port_name_that_no_service_has_is_told(tmp_path: Path) -> None:
    monitor, services, _ = read(tmp_path, MONITOR.replace("port: metrics", "port: http"), SERVICE)
    [finding] = select(monitor, services).findings
    assert finding.rule == "servicemonitor-unknown-port"
    assert "it has metrics, other" in finding.message


def test_relabelings_are_not_evaluated_and_that_is_said(tmp_path: Path) -> None:
    text = MONITOR.replace("interval: 15s", "metricRelabelings: [{action: labeldrop, regex: x}]")
    monitor, services, _ = read(tmp_path, text, SERVICE)
    assert [f.rule for f in select(monitor, services).findings] == ["servicemonitor-relabeling-ignored"]


def test_job_and_target_labels_come_from_the_service(tmp_path: Path) -> None:
    text = MONITOR.replace("spec:\n", "spec:\n  jobLabel: app\n  targetLabels: [team, absent]\n", 1)
    monitor, services, pods = read(tmp_path, text, SERVICE, POD)
    [target] = targets(monitor, select(monitor, services).selected, pods)
    assert (target.labels["job"], target.labels["team"]) == ("dcgm-exporter", "ml-infra")
    assert target.labels["instance"] == "dcgm-x7:9400"


def test_finished_pods_and_pods_of_other_services_are_not_scraped(tmp_path: Path) -> None:
    done = POD.replace("dcgm-x7", "done").replace("Running", "Succeeded")
    other = POD.replace("dcgm-x7", "other").replace("labels: {app: dcgm}", "labels: {app: vllm}")
    monitor, services, pods = read(tmp_path, MONITOR, SERVICE, POD, done, other)
    assert [t.pod.name for t in targets(monitor, select(monitor, services).selected, pods)] == ["dcgm-x7"]


def test_a_target_port_names_a_container_port(tmp_path: Path) -> None:
    monitor, services, pods = read(tmp_path, MONITOR.replace("port: metrics", "targetPort: http"), SERVICE, POD)
    [target] = targets(monitor, select(monitor, services).selected, pods)
    assert (target.labels["endpoint"], target.labels["instance"]) == ("http", "dcgm-x7:9400")


EXPOSED = {"gpu": "0", "pod": "model-a-0", "namespace": "inference", "Hostname": "node-1"}
TARGET = {"pod": "dcgm-x7", "namespace": "gpu-monitoring", "job": "dcgm"}


def test_without_honor_labels_the_workload_becomes_exported_pod() -> None:
    assert sample_labels(EXPOSED, TARGET, honor_labels=False) == {
        "gpu": "0",
        "Hostname": "node-1",
        "job": "dcgm",
        "pod": "dcgm-x7",
        "namespace": "gpu-monitoring",
        "exported_pod": "model-a-0",
        "exported_namespace": "inference",
    }


def test_with_honor_labels_the_exposed_labels_win() -> None:
    labels = sample_labels(EXPOSED, TARGET, honor_labels=True)
    assert (labels["pod"], labels["namespace"], labels["job"]) == ("model-a-0", "inference", "dcgm")
    assert "exported_pod" not in labels


def test_an_exposed_label_that_is_already_called_exported_moves_further() -> None:
    labels = sample_labels({"pod": "a", "exported_pod": "b"}, {"pod": "t"}, honor_labels=False)
    assert labels == {"pod": "t", "exported_pod": "b", "exported_exported_pod": "a"}


def test_an_empty_exposed_label_is_not_kept() -> None:
    assert sample_labels({"pod": ""}, {"pod": "t"}, honor_labels=False) == {"pod": "t"}
