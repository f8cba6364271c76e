"""`tonnage scale tune`: what is found, beside every setting that could have been, and what is refused."""

from __future__ import annotations

import json
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from cli_builders import make_scenario, replace, tonnage

from tonnage.objects import keda, load
from tonnage.simulation import scenario
from tonnage.simulation.tuning import (
    FACTORS,
    ScalerScore,
    ScalerSetting,
    SearchGrid,
    Tuning,
    halves,
    scaled_object,
    with_setting,
    written_setting,
)
from tonnage.traffic.traces import load_trace


@pytest.fixture
def busy(tmp_path: Path) -> Path:
    """The small scenario with a trigger on requests in flight."""
    file = make_scenario(tmp_path)
    replace(file, "profile: traffic.yaml", "profile: traffic.yaml\n    balancing: least-requests")
    scaler = tmp_path / "keda" / "scaler.yaml"
    replace(scaler, 'sum(vllm:num_requests_waiting{namespace="serving"})', "sum(envoy_cluster_upstream_rq_active)")
    replace(scaler, 'threshold: "5"', 'threshold: "2"')
    return file


def source_of(file: Path) -> keda.ScaledObject:
    return scaled_object(load.read([file.parent / "keda"]).objects, "chat")


class Made(Tuning):
    """A tuning whose runs are a formula: the share falls with the threshold, the cost with it too."""

    def _play(self, setting: ScalerSetting, *, fitted: bool) -> tuple[ScalerScore, str]:
        share = 1.0 - 0.02 * setting.threshold / (1 + setting.minimum) + 0.001 * (setting.window_s == 300)
        cost = round(1000 / setting.threshold) + 40 * setting.minimum + setting.window_s // 60
        return ScalerScore(setting, share - (0 if fitted else 0.01), cost, 1.0, 1.0), "serving/chat"


@pytest.mark.parametrize("share", [0.9, 0.95, 0.97, 0.98, 0.985, 0.99])
def test_the_search_finds_what_trying_every_setting_finds(busy: Path, share: float) -> None:
    made = Made(scenario.load(busy), "keda", source_of(busy), share)
    found = made.find(SearchGrid())
    written = written_setting(source_of(busy))
    every = [
        made._play(ScalerSetting(written.threshold * factor, window, low), fitted=True)[0]
        for factor, window, low in product(FACTORS, (120, 300), (1, 2))  # maxReplicaCount is 3
    ]
    best = min((one for one in every if one.share is not None and one.share >= share), key=lambda one: one.cost)
    assert found.best == best
    assert len(found.tried) < len(every)


def test_where_no_setting_attains_the_share_none_is_best(busy: Path) -> None:
    found = Made(scenario.load(busy), "keda", source_of(busy), 0.999).find(SearchGrid())
    assert (found.best, found.held_out_best) == (None, None)
    assert found.runs == len(found.tried) + 1


def test_a_setting_changes_the_threshold_the_window_and_the_minimum_and_nothing_else(busy: Path) -> None:
    spec = source_of(busy).spec
    made = with_setting(spec, ScalerSetting(7.5, 120, 2))
    assert made.triggers[0].metadata == {**spec.triggers[0].metadata, "threshold": "7.5"}
    assert (made.min_replica_count, made.max_replica_count) == (2, spec.max_replica_count)
    advanced = made.advanced
    assert advanced is not None and advanced.horizontal_pod_autoscaler_config is not None
    behavior = advanced.horizontal_pod_autoscaler_config.behavior
    assert behavior is not None and behavior.scale_down is not None and behavior.scale_up is None
    assert behavior.scale_down.stabilization_window_seconds == 120


def test_what_is_written_is_read_with_the_apis_defaults(busy: Path) -> None:
    assert written_setting(source_of(busy)) == ScalerSetting(2.0, 300, 1)


def test_the_halves_of_a_trace_are_those_of_its_time(tmp_path: Path) -> None:
    rows = [
        f'{{"timestamp": {at}, "input_length": {i + 1}, "output_length": 5}}'
        for i, at in enumerate((0, 10, 40, 60, 70, 100))
    ]
    (tmp_path / "log.jsonl").write_text("\n".join(rows) + "\n")
    first, second = halves(load_trace(tmp_path / "log.jsonl"))
    assert (first.prompt.tolist(), second.prompt.tolist()) == ([1, 2, 3], [4, 5, 6])
    assert second.arrivals_ns.tolist() == [0, 10_000_000, 40_000_000]


def tuned(capfd: pytest.CaptureFixture[str], *arguments: object, code: int = 0) -> dict[str, Any]:
    ran = tonnage(capfd, "scale", "tune", *arguments, "-o", "json")
    assert ran.code == code, ran.err
    found: dict[str, Any] = json.loads(ran.out)
    return found


def test_a_scaled_object_is_tuned_by_runs_that_can_be_made_again(busy: Path, capfd: pytest.CaptureFixture[str]) -> None:
    found = tuned(capfd, "chat", busy, "--window", 60, "--minimum", 1, "--share", 0.9)
    assert (found["scaled_object"], found["service"], found["policy"]) == ("serving/chat", "serving/chat", "keda")
    assert found["best"]["share"] >= 0.9
    assert {one["setting"]["window_s"] for one in found["tried"]} == {60, 300}
    best = found["best"]["setting"]
    replace(busy.parent / "keda" / "scaler.yaml", 'threshold: "2"', f'threshold: "{best["threshold"]:g}"')
    behavior = f"behavior: {{scaleDown: {{stabilizationWindowSeconds: {best['window_s']}}}}}"
    replace(
        busy.parent / "keda" / "scaler.yaml",
        "minReplicaCount: 1",
        f"minReplicaCount: {best['minimum']}\n  advanced: {{horizontalPodAutoscalerConfig: {{{behavior}}}}}",
    )
    again = tuned(capfd, "serving/chat", busy, "--window", 60, "--minimum", 1, "--share", 0.9)
    assert again["written"] == found["best"]
    assert again["held_out_written"] == found["held_out_best"]


def test_a_share_that_no_setting_attains_ends_with_code_1_and_the_nearest(
    busy: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    replace(busy, "  ttft: 2s", "  ttft: 1ms")
    ran = tonnage(capfd, "scale", "tune", "chat", busy, "--window", 60, "--minimum", 1)
    assert (ran.code, ran.err) == (1, "")
    assert "no setting attains 0.99 with seed 0" in ran.out


def test_a_trace_is_searched_on_its_first_half_and_scored_on_its_second(
    busy: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    lengths = [(at, 100 if at < 120 else 4000) for at in range(0, 240, 2)]  # in the second half prompts are long
    rows = [f'{{"timestamp": {1000 * at}, "input_length": {n}, "output_length": 20}}' for at, n in lengths]
    (tmp_path / "log.jsonl").write_text("\n".join(rows) + "\n")
    replace(busy, "  ttft: 2s", "  ttft: 200ms")
    one = ("chat", busy, "--trace", tmp_path / "log.jsonl", "--window", 60, "--minimum", 1)
    found = tuned(capfd, *one)
    assert found["best"]["share"] == 1.0 and found["held_out_best"]["share"] < 0.99
    ran = tonnage(capfd, "scale", "tune", *one)
    assert "with the second half it does not attain 0.99" in ran.out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["nobody"], 'SCALEDOBJECT: "nobody": there is no ScaledObject of this name'),
        (["chat", "--policy", "fixed"], "ScaledObjects of this policy: none"),
        (["chat", "--policy", "best"], "best"),
        (["chat", "--share", "1.5"], "--share"),
        (["chat", "--minimum", "9"], "every minimum is above the maximum"),
        (["chat", "--trace", "nowhere.jsonl"], "nowhere.jsonl"),
    ],
)
def test_what_cannot_be_tuned_is_refused_in_a_line(
    busy: Path, arguments: list[str], said: str, capfd: pytest.CaptureFixture[str]
) -> None:
    ran = tonnage(capfd, "scale", "tune", arguments[0], busy, *arguments[1:])
    assert ran.code == 2 and said in ran.err, ran.err


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("    - type: prometheus", "    - type: cron\n      metadata: {timezone: UTC, start: 0 8 * * *, end: 0 9 * * *, desiredReplicas: '2'}\n    - type: prometheus", "the triggers are cron, prometheus"),
        ("    name: chat\n", "    name: other\n", "other"),
    ],
)  # fmt: skip
def test_a_scaled_object_without_one_threshold_or_traffic_is_refused_with_its_place(
    busy: Path, old: str, new: str, said: str, capfd: pytest.CaptureFixture[str]
) -> None:
    replace(busy.parent / "keda" / "scaler.yaml", old, new)
    ran = tonnage(capfd, "scale", "tune", "chat", busy)
    assert ran.code == 2 and "scaler.yaml:" in ran.err and said in ran.err, ran.err
