"""Metrics that are missing for a while: what the slo policy and KEDA make of it, and that nothing else changes. What
faults of metrics and of readiness cannot mean."""

from __future__ import annotations

from pathlib import Path

import pytest
from cli_builders import make_scenario, replace

from tonnage.errors import InputError
from tonnage.simulation import run, scenario
from tonnage.simulation.result import Result

FAULT = "faults: [{kind: scrape-failure, at: 60s, duration: 2m%s}]\n"


def _run(tmp_path: Path, policy: str, fault: str, ignore: str = "true") -> Result:
    file = make_scenario(tmp_path)
    replace(file, "profile: traffic.yaml", "profile: traffic.yaml\n    balancing: least-requests")
    replace(file, "    manifests: keda\n", "    manifests: keda\n  slo:\n    manifests: keda\n    scaling: slo\n")
    scaler = tmp_path / "keda" / "scaler.yaml"
    replace(scaler, 'sum(vllm:num_requests_waiting{namespace="serving"})', "sum(envoy_cluster_upstream_rq_total)")
    replace(scaler, 'threshold: "5"', f'threshold: "1"\n        ignoreNullValues: "{ignore}"')
    replace(scaler, "minReplicaCount: 1", "minReplicaCount: 1\n  advanced: {horizontalPodAutoscalerConfig: {behavior: {scaleDown: {stabilizationWindowSeconds: 0}}}}")  # fmt: skip
    file.write_text(file.read_text() + fault)
    return run.run(scenario.load(file), policy)


def _asked_while_missing(result: Result) -> set[int]:
    (series,) = result.series.services
    return {n for t, n in zip(result.series.t_s, series.replicas_wanted, strict=True) if 75 <= t < 180}


def test_the_slo_policy_holds_while_metrics_are_missing(tmp_path: Path) -> None:
    result = _run(tmp_path, "slo", FAULT % "")
    assert len(_asked_while_missing(result)) == 1
    assert not [one for one in result.decisions if one.kind == "Scale" and 75 <= one.t_s < 180]


@pytest.mark.parametrize(("ignore", "asked"), [("true", {1}), ("false", {3})])
def test_keda_takes_missing_metrics_for_no_load_unless_it_is_told_not_to(
    tmp_path: Path, ignore: str, asked: set[int]
) -> None:
    """The series are stale a scrape after the failure begins; the replicas were three, as many as are allowed."""
    assert _asked_while_missing(_run(tmp_path, "keda", FAULT % "", ignore=ignore)) == asked


def test_a_failure_of_another_service_changes_nothing_and_is_said(tmp_path: Path) -> None:
    result = _run(tmp_path, "keda", FAULT % ", service: serving/other")
    assert _asked_while_missing(result) == {3}
    assert [one.reason for one in result.events if one.object == "Scenario"] == ["FaultHitNothing"]


def test_only_a_scrape_failure_names_a_service(tmp_path: Path) -> None:
    with pytest.raises(Exception, match="only faults of metrics have it"):
        _run(tmp_path, "keda", "faults: [{kind: node-failure, at: 60s, service: serving/chat}]\n")


# ---- what a fault cannot mean ----


@pytest.mark.parametrize(
    ("fault", "field", "message"),
    [
        ("kind: late-scrapes", "delay", "needs how much later samples can be queried"),
        ("kind: late-scrapes, delay: 0s", "delay", "is not above 0"),
        ("kind: nan-samples, delay: 5s", "delay", "only a late-scrapes has it"),
        ("kind: nan-samples, exporter: dcgm", "exporter", "expected one of service, gpus"),
        ("kind: nan-samples, exporter: gpus, service: serving/chat", "service", "serves no metrics of GPUs"),
        ("kind: node-failure, exporter: gpus", "exporter", "only faults of metrics have it"),
        ("kind: readiness-flapping", "workload", "needs the workload whose pods flap"),
        ("kind: readiness-flapping, workload: serving/chat, exit: 3", "exit", "only a pod-failure has it"),
        ("kind: readiness-flapping, workload: serving/chat, period: 0s", "period", "is not above 0"),
        ("kind: pod-failure, workload: serving/chat, period: 5s", "period", "only a readiness-flapping has it"),
    ],
)
def test_a_mistake_in_such_a_fault_is_told(tmp_path: Path, fault: str, field: str, message: str) -> None:
    file = make_scenario(tmp_path)
    file.write_text(file.read_text() + f"faults: [{{at: 60s, {fault}}}]\n")
    with pytest.raises(InputError) as found:
        scenario.load(file)
    told = [one for one in found.value.problems if one.where.field == f"faults[0].{field}"]
    assert len(told) == 1 and message in told[0].message


def test_readiness_flaps_of_a_deployment_that_is_there(tmp_path: Path) -> None:
    file = make_scenario(tmp_path)
    file.write_text(file.read_text() + "faults: [{at: 60s, kind: readiness-flapping, workload: serving/chatt}]\n")
    with pytest.raises(InputError, match="serving/chat"):
        run.run(scenario.load(file), "fixed")
