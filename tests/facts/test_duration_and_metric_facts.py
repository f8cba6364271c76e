"""Durations and metric names."""

from __future__ import annotations

import msgspec
import pytest

from tonnage.errors import InputError
from tonnage.facts import durations, metric_names


def test_every_duration_is_positive_and_says_where_it_comes_from() -> None:
    for field in msgspec.structs.fields(durations.Durations):
        assert getattr(durations.get(), field.name) > 0
        assert len(durations.source(field.name)) > 20
        assert durations.unit(field.name)


def test_a_gpu_node_is_usable_after_some_minutes() -> None:
    life = durations.get()
    until_gpus = life.launch_s + life.register_s + life.ready_s + life.device_plugin_s
    assert 120 <= until_gpus <= 360


def test_the_image_of_an_engine_takes_as_long_to_pull_as_was_measured() -> None:
    life = durations.get()
    assert round(life.image_bytes / life.image_pull_bytes_per_s) == 334


def test_weights_of_140_gb_take_18_minutes_from_a_default_volume() -> None:
    assert round(140e9 / durations.get().ebs_bytes_per_s / 60) == 18
    assert durations.get().spot_notice_s == 120


def test_an_unknown_duration_is_refused_with_near_names() -> None:
    with pytest.raises(InputError, match="did you mean launch_s"):
        durations.source("launc_s")


@pytest.mark.parametrize(
    ("name", "kind", "unit", "low", "high", "status"),
    [
        ("DCGM_FI_DEV_GPU_UTIL", "gauge", "percent", 0, 100, "default"),
        ("DCGM_FI_DEV_FB_USED", "gauge", "MiB", 0, None, "default"),
        ("DCGM_FI_PROF_GR_ENGINE_ACTIVE", "gauge", "ratio", 0, 1, "default"),
        ("DCGM_FI_PROF_SM_ACTIVE", "gauge", "ratio", 0, 1, "optional"),
        ("vllm:kv_cache_usage_perc", "gauge", "ratio", 0, 1, "default"),
        ("vllm:num_requests_waiting", "gauge", "requests", 0, None, "default"),
        ("vllm:generation_tokens_total", "counter", "tokens", 0, None, "default"),
        ("vllm:time_to_first_token_seconds", "histogram", "seconds", 0, None, "default"),
    ],
)
def test_a_metric_has_the_type_unit_and_range_of_its_exporter(
    name: str, kind: str, unit: str, low: float, high: float | None, status: str
) -> None:
    metric = metric_names.get(name)
    assert (metric.type, metric.unit, metric.status) == (kind, unit, status)
    assert (metric.minimum, metric.maximum) == (low, high)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("vllm:gpu_cache_usage_perc", "vllm:kv_cache_usage_perc"),
        ("vllm:time_per_output_token_seconds", "vllm:inter_token_latency_seconds"),
        ("dcgm_gpu_utilization", "DCGM_FI_DEV_GPU_UTIL"),
    ],
)
def test_a_removed_metric_names_its_replacement(old: str, new: str) -> None:
    metric = metric_names.get(old)
    assert (metric.status, metric.replacement) == ("removed", new)


def test_every_replacement_is_a_metric_that_is_still_published() -> None:
    for metric in metric_names.all():
        if metric.replacement:
            assert metric.status == "removed"
            assert metric_names.get(metric.replacement).status != "removed"


@pytest.mark.parametrize("part", ["_bucket", "_sum", "_count"])
def test_the_series_of_a_histogram_belong_to_it(part: str) -> None:
    found = metric_names.find("vllm:e2e_request_latency_seconds" + part)
    assert found is metric_names.get("vllm:e2e_request_latency_seconds")
    assert metric_names.find("DCGM_FI_DEV_GPU_UTIL" + part) is None


def test_a_metric_of_another_exporter_is_not_found_and_a_slip_gets_near_names() -> None:
    assert metric_names.find("up") is None
    assert metric_names.near("DCGM_FI_DEV_GPU_UTILS")[0] == "DCGM_FI_DEV_GPU_UTIL"
    with pytest.raises(InputError, match="did you mean vllm:num_requests_waiting"):
        metric_names.get("vllm:num_request_waiting")


def test_labels_are_those_that_the_exporter_puts_on() -> None:
    assert metric_names.get("vllm:num_requests_waiting").labels == ("model_name", "engine")
    assert {"gpu", "UUID", "pod", "GPU_I_PROFILE"} <= set(metric_names.get("DCGM_FI_DEV_GPU_UTIL").labels)
