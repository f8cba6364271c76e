"""Which metrics adapters among the objects serve."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import yaml_text
from tonnage.objects import load
from tonnage.scaling.adapters import CUSTOM, EXTERNAL, AdapterMetrics, served

RULE = {"seriesQuery": 'vllm:num_requests_waiting{namespace!=""}', "name": {"as": "waiting"}}


def of(tmp_path: Path, *objects: dict[str, Any]) -> AdapterMetrics:
    (tmp_path / "x.yaml").write_text(yaml_text.dump_all(objects))
    return served(load.read([tmp_path / "x.yaml"]).objects)


def config_map(**rules: Any) -> dict[str, Any]:
    data = {"config.yaml": yaml_text.dump(rules)}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "adapter"}, "data": data}


def api_service(name: str) -> dict[str, Any]:
    return {"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService", "metadata": {"name": name}}


@pytest.mark.parametrize(
    ("written", "api", "metric", "has"),
    [
        (config_map(rules=[RULE]), CUSTOM, "waiting", True),
        (config_map(rules=[RULE]), CUSTOM, "vllm:num_requests_waiting", True),
        (config_map(rules=[RULE]), CUSTOM, "running", False),
        (config_map(rules=[RULE]), EXTERNAL, "waiting", False),
        (config_map(externalRules=[RULE]), EXTERNAL, "waiting", True),
        (
            config_map(rules=[RULE | {"name": {"matches": "^(.*)_total$", "as": "${1}_per_second"}}]),
            CUSTOM,
            "any",
            True,
        ),
        (api_service("v1beta1.external.metrics.k8s.io"), EXTERNAL, "any", True),
        (api_service("v1beta1.external.metrics.k8s.io"), CUSTOM, "any", False),
        (api_service("v1beta1.metrics.k8s.io"), CUSTOM, "any", False),
        (
            {
                "apiVersion": "helm.toolkit.fluxcd.io/v2",
                "kind": "HelmRelease",
                "metadata": {"name": "prometheus-adapter"},
                "spec": {"chart": {"spec": {"chart": "prometheus-adapter"}}, "values": {"rules": {"custom": [RULE]}}},
            },
            CUSTOM,
            "waiting",
            True,
        ),
    ],
)
def test_a_metric_is_served_by_an_adapter_whose_rules_name_it(
    tmp_path: Path, written: dict[str, Any], api: str, metric: str, has: bool
) -> None:
    assert of(tmp_path, written).has(api, metric) is has


def test_nobody_serves_anything_where_there_is_no_adapter(tmp_path: Path) -> None:
    assert of(tmp_path, config_map(other="x")) == AdapterMetrics()
