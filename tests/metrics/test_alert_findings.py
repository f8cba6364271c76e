"""Alerts whose expressions do not say what they are named for."""

from __future__ import annotations

import pytest

from tonnage.decisions import Finding
from tonnage.metrics.alerts import analyse
from tonnage.objects.monitoring import PrometheusRule
from workload_manifests import objects

USED, FREE, UTIL = "DCGM_FI_DEV_FB_USED", "DCGM_FI_DEV_FB_FREE", "DCGM_FI_DEV_GPU_UTIL"


def findings(expr: str, kind: str = "alert") -> list[Finding]:
    text = f"""\
apiVersion: monitoring.coreos.com/v1
kind: PrometheusRule
metadata: {{name: gpu-alerts, namespace: monitoring}}
spec:
  groups:
    - name: gpu-alerts
      rules:
        - {kind}: One
          expr: '{expr}'
"""
    (rule,) = objects(text)
    assert isinstance(rule, PrometheusRule)
    return list(analyse(rule))


@pytest.mark.parametrize(
    ("expr", "share"),
    [
        (f"({USED} / {FREE}) > 0.9", "from where 47% are used"),
        (f"100 * {USED} / {FREE} > 90", "from where 47% are used"),
        (f"sum by (Hostname) ({USED}) / sum by (Hostname) ({FREE}) >= 4", "from where 80% are used"),
        (f"0.5 < max({USED} / {FREE})", "from where 33% are used"),
        (f"avg_over_time({USED}[5m]) / avg_over_time({FREE}[5m]) * 100 > 150", "from where 60% are used"),
        (f"{USED} / {FREE} < 1", "below where 50% are used"),
        (f"{USED} > 0.9 * {FREE}", "from where 47% are used"),
        (f"4 * sum by (Hostname) ({FREE}) <= sum by (Hostname) ({USED})", "from where 80% are used"),
        (f"{USED} / 0.9 >= {FREE}", "from where 47% are used"),
        (f"max_over_time(({USED} / {FREE})[5m:1m]) > 0.9", "from where 47% are used"),
    ],
)
def test_what_is_used_divided_by_what_is_free_fires_at_another_share(expr: str, share: str) -> None:
    (found,) = findings(expr)
    assert (found.rule, found.severity) == ("alert-used-by-free", "error")
    assert share in found.message
    assert "divide by (DCGM_FI_DEV_FB_USED + DCGM_FI_DEV_FB_FREE + DCGM_FI_DEV_FB_RESERVED)" in found.message
    assert (found.where.line, found.where.field) == (9, "spec.groups[0].rules[0].expr")


@pytest.mark.parametrize(
    "expr",
    [
        f"{USED} / ({USED} + {FREE}) > 0.9",
        f"{USED} / ({USED} + {FREE} + DCGM_FI_DEV_FB_RESERVED) * 100 > 90",
        f"{FREE} / {USED} < 0.1",
        f"{USED} / on (UUID) gpu_memory_total > 0.9",
        f"{USED} > 70000",
        f"{USED} > {FREE}",
        f"{USED} > 0.9 * ({USED} + {FREE})",
    ],
)
def test_other_ratios_are_left_alone(expr: str) -> None:
    assert findings(expr) == []


@pytest.mark.parametrize(
    ("expr", "op"),
    [
        (f"avg({UTIL}) > 90", "> 90"),
        (f"90 < avg by (cluster) ({UTIL})", "> 90"),
        (f"avg(avg_over_time({UTIL}[5m])) / 100 > 0.9", "> 0.9"),
        (f"sum({UTIL}) / count({UTIL}) < 10", "< 10"),
        ("avg(DCGM_FI_DEV_GPU_TEMP) >= 85", ">= 85"),
    ],
)
def test_one_average_over_all_gpus_hides_each(expr: str, op: str) -> None:
    (found,) = findings(expr)
    assert (found.rule, found.severity) == ("alert-averages-over-all", "warning")
    assert f"{op})" in found.message


@pytest.mark.parametrize(
    "expr",
    [
        f"avg by (Hostname, gpu) ({UTIL}) > 90",
        f"max({UTIL}) > 90",
        f"{UTIL} > 90",
        f'avg({UTIL}{{UUID="GPU-1"}}) > 90',
        "avg(vllm:num_requests_waiting) > 10",
        f"avg({UTIL})",
        "absent_over_time(up[5m])",
    ],
)
def test_averages_that_tell_gpus_apart_are_left_alone(expr: str) -> None:
    assert findings(expr) == []


def test_a_rule_that_only_records_is_no_alert() -> None:
    assert findings(f"avg({UTIL}) > 90", "record") == []


def test_what_is_no_promql_is_said() -> None:
    (found,) = findings(f"avg({UTIL} > 90")
    assert (found.rule, found.severity) == ("alert-expression-invalid", "error")
