from __future__ import annotations

from pathlib import Path

import guide_manifests as guide
import pytest

from tonnage.decisions import Finding
from tonnage.objects.autoscaling import HorizontalPodAutoscaler
from tonnage.objects.keda import ScaledObject
from tonnage.objects.monitoring import ServiceMonitor
from tonnage.scaling.triggers import analyse, analyse_hpa, honored_labels

QUERY = 'avg(DCGM_FI_DEV_GPU_UTIL{pod=~"model-a-.*"})'


def scaled_object(folder: Path, query: str = QUERY, threshold: str = "70", *edits: tuple[str, str]) -> ScaledObject:
    text = guide.SCALED_OBJECT.replace(QUERY, query).replace('threshold: "70"', f'threshold: "{threshold}"')
    for old, new in edits:
        assert old in text
        text = text.replace(old, new)
    return guide.read(folder, text).of(ScaledObject)[0]


def rules(findings: tuple[Finding, ...]) -> dict[str, Finding]:
    return {finding.rule: finding for finding in findings}


def line(folder: Path, finding: Finding) -> str:
    return (folder / "manifests.yaml").read_text().splitlines()[finding.where.line - 1].strip()


def test_the_published_trigger_can_never_scale_beyond_two_replicas(tmp_path: Path) -> None:
    found = rules(analyse(scaled_object(tmp_path)))
    finding = found["trigger-never-scales-out"]
    assert "ceil(100 / 70) = 2 replicas whatever runs now" in finding.message
    assert "metricType Value, or a sum" in finding.message
    assert dict(finding.evidence)["never beyond"] == 2
    assert dict(finding.evidence)["fallback replicas"] == 3
    assert line(tmp_path, finding) == 'threshold: "70"'
    assert finding.object.name == "model-a-gpu-scaler"


def test_the_published_timing_fields_are_dead_text(tmp_path: Path) -> None:
    found = rules(analyse(scaled_object(tmp_path)))
    assert line(tmp_path, found["polling-interval-dead"]) == "pollingInterval: 15"
    assert line(tmp_path, found["cooldown-period-dead"]) == "cooldownPeriod: 60"
    assert line(tmp_path, found["activation-threshold-dead"]) == 'activationThreshold: "50"'
    assert line(tmp_path, found["trigger-metricname-ignored"]) == "metricName: gpu_utilization"
    assert "s0-prometheus" in found["trigger-metricname-ignored"].message


@pytest.mark.parametrize(
    "edit",
    [("minReplicaCount: 2", "minReplicaCount: 0"), ("minReplicaCount: 2", "minReplicaCount: 2\n  idleReplicaCount: 0")],
)
def test_timing_fields_live_while_the_workload_may_go_to_zero_or_idle(tmp_path: Path, edit: tuple[str, str]) -> None:
    found = rules(analyse(scaled_object(tmp_path, QUERY, "70", edit)))
    assert not {"polling-interval-dead", "cooldown-period-dead", "activation-threshold-dead"} & found.keys()


def test_the_published_plain_hpa_asks_for_a_metric_nobody_serves(tmp_path: Path) -> None:
    manifest = guide.read(tmp_path, guide.SCALED_OBJECT, guide.HPA)
    [hpa] = manifest.of(HorizontalPodAutoscaler)
    [finding] = analyse_hpa(hpa, manifest.of(ScaledObject))
    assert (finding.rule, finding.severity) == ("external-metric-not-served", "error")
    assert "KEDA serves s0-prometheus for model-a-gpu-scaler" in finding.message
    assert line(tmp_path, finding) == "name: gpu_utilization"


def test_an_hpa_that_asks_for_keda_s_own_metric_is_served(tmp_path: Path) -> None:
    manifest = guide.read(tmp_path, guide.SCALED_OBJECT, guide.HPA.replace("gpu_utilization", "s0-prometheus"))
    assert analyse_hpa(manifest.of(HorizontalPodAutoscaler)[0], manifest.of(ScaledObject)) == ()


@pytest.mark.report(407)
@pytest.mark.parametrize(
    ("query", "threshold", "rule", "words"),
    [
        ("avg(vllm_gpu_cache_usage_perc)", "80", "vllm-metric-name", "did you mean vllm:kv_cache_usage_perc?"),
        ("avg(vllm_gpu_cache_usage_perc)", "80", "trigger-never-fires", "a share from 0 to 1, not a percentage"),
        ("avg(vllm:kv_cache_usage_perc)", "80", "trigger-never-fires", "ceil(1 / 80) = 1"),
        ("sum(vllm_num_requests_waiting)", "10", "vllm-metric-name", "did you mean vllm:num_requests_waiting?"),
        ("avg(vllm:gpu_cache_usage_perc)", "0.8", "metric-removed", "it is vllm:kv_cache_usage_perc now"),
        ("sum(DCGM_FI_PROF_SM_ACTIVE)", "0.8", "metric-not-collected", "unless it is switched on"),
        ("sum(DCGM_FI_DEV_GPU_UTILS)", "70", "metric-unknown", "DCGM_FI_DEV_GPU_UTIL"),
        (
            "histogram_quantile(0.95, rate(vllm:time_to_first_token_seconds_bucket[5m]))",
            "2",
            "trigger-several-series",
            "sum by (le)",
        ),
        ("DCGM_FI_DEV_GPU_UTIL", "70", "trigger-several-series", "one series per pod or GPU"),
        ("sum by (pod) (DCGM_FI_DEV_GPU_UTIL)", "70", "trigger-several-series", "one series per pod or GPU"),
        (
            "histogram_quantile(0.95, sum by (le) (rate(vllm:time_to_first_token_seconds_bucket[5m])))",
            "2",
            "averagevalue-divides-level",
            "metricType Value",
        ),
        ("avg(DCGM_FI_DEV_FB_USED / DCGM_FI_DEV_FB_FREE)", "0.9", "memory-ratio", "at 47% used"),
        ("1 + 1", "1", "trigger-scalar", "wrap it in vector()"),
        ("vector(100)", "1", "trigger-always-fires", "never below 100"),
        ("limitk(1, up)", "1", "trigger-not-analysed", "limitk()"),
        ("sum(up", "1", "trigger-query-invalid", "not a PromQL query"),
    ],
)
def test_what_a_trigger_will_do_is_told(tmp_path: Path, query: str, threshold: str, rule: str, words: str) -> None:
    found = rules(analyse(scaled_object(tmp_path, query, threshold)))
    assert rule in found
    assert words in found[rule].message
    assert found[rule].where.line > 35


@pytest.mark.parametrize(
    "query",
    [
        "sum(vllm:num_requests_waiting)",
        "sum(vllm:num_requests_running) + sum(vllm:num_requests_waiting)",
        "sum by (model_name) (rate(vllm:prompt_tokens_total[2m]))",
        "sum(DCGM_FI_DEV_GPU_UTIL)",
        "my_recorded:gpu:load",
    ],
)
def test_a_sound_trigger_gets_no_finding_about_its_query(tmp_path: Path, query: str) -> None:
    found = analyse(scaled_object(tmp_path, query, "10"))
    dead = {"polling-interval-dead", "cooldown-period-dead", "activation-threshold-dead"}
    assert {f.rule for f in found} - dead == {"trigger-no-data-is-zero", "trigger-metricname-ignored"}


def test_no_data_counting_as_zero_is_told_with_what_it_does_to_a_fallback(tmp_path: Path) -> None:
    found = rules(analyse(scaled_object(tmp_path)))
    assert "only while Prometheus itself does not answer" in found["trigger-no-data-is-zero"].message
    written = ('threshold: "70"', 'threshold: "70"\n        ignoreNullValues: "false"')
    strict = rules(analyse(scaled_object(tmp_path, "avg(vllm_gpu_cache_usage_perc)", "70", written)))
    assert "trigger-no-data-is-zero" not in strict
    assert "an error of the trigger" in strict["vllm-metric-name"].message


@pytest.mark.parametrize(("honor", "severity"), [("", "error"), ("      honorLabels: true\n", None), (None, "warning")])
def test_a_pod_label_needs_honor_labels_in_the_scrape(tmp_path: Path, honor: str | None, severity: str | None) -> None:
    settings = None
    if honor is not None:
        text = guide.SERVICE_MONITOR.replace("      path: /metrics\n", f"      path: /metrics\n{honor}")
        settings = honored_labels(guide.read(tmp_path, text).of(ServiceMonitor))
    found = rules(analyse(scaled_object(tmp_path), honor_labels=settings))
    if severity is None:
        assert "exported-pod-label" not in found
        return
    finding = found["exported-pod-label"]
    assert finding.severity == severity
    assert line(tmp_path, finding) == "query: |"
    assert "exported_pod" in finding.message


def test_a_query_by_exported_pod_is_in_order(tmp_path: Path) -> None:
    query = 'avg(DCGM_FI_DEV_GPU_UTIL{exported_pod=~"model-a-.*"})'
    assert "exported-pod-label" not in rules(
        analyse(scaled_object(tmp_path, query), honor_labels={"dcgm-exporter": False})
    )


def test_a_value_target_lets_the_same_average_scale(tmp_path: Path) -> None:
    value = ("- type: prometheus\n", "- type: prometheus\n      metricType: Value\n")
    found = rules(analyse(scaled_object(tmp_path, QUERY, "70", value)))
    assert not {"trigger-never-scales-out", "averagevalue-divides-level"} & found.keys()
    found = rules(analyse(scaled_object(tmp_path, QUERY, "95", value)))
    assert "1.05 times the ready replicas" in found["trigger-never-scales-out"].message


def test_a_limit_between_the_bounds_is_a_warning(tmp_path: Path) -> None:
    found = rules(analyse(scaled_object(tmp_path, QUERY, "20")))
    assert "never scales beyond 5 of 10 replicas" in found["trigger-limited"].message


def test_an_activation_threshold_out_of_reach_never_wakes_the_workload(tmp_path: Path) -> None:
    edits = (("minReplicaCount: 2", "minReplicaCount: 0"), ('activationThreshold: "50"', 'activationThreshold: "5"'))
    found = rules(analyse(scaled_object(tmp_path, "avg(vllm:kv_cache_usage_perc)", "0.5", *edits)))
    finding = found["trigger-never-activates"]
    assert "at most 1" in finding.message and line(tmp_path, finding) == 'activationThreshold: "5"'
