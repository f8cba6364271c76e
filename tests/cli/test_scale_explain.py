"""`tonnage scale explain`: a run as the history, files of samples, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from cli_builders import make_scenario, replace, tonnage

from tonnage.control.shadow import ScalerStep
from tonnage.metrics.exposition import labelled, number
from tonnage.metrics.store import NAME
from tonnage.simulation import run, scenario
from tonnage.simulation.shadows import shadowed
from tonnage.units import NS_PER_S

FILES = Path(__file__).parents[2] / "docs" / "files" / "scale-history"
SCALER, METRICS = FILES / "autoscaler.yaml", FILES / "metrics.txt"


@pytest.fixture
def busy(tmp_path: Path) -> Path:
    """The small scenario with a threshold that its traffic crosses."""
    file = make_scenario(tmp_path)
    replace(file, "profile: traffic.yaml", "profile: traffic.yaml\n    balancing: least-requests")
    scaler = tmp_path / "keda" / "scaler.yaml"
    replace(
        scaler, 'sum(vllm:num_requests_waiting{namespace="serving"})', "sum(rate(envoy_cluster_upstream_rq_total[70s]))"
    )
    at_once = "scaleDown: {stabilizationWindowSeconds: 0}"
    config = f"advanced: {{horizontalPodAutoscalerConfig: {{behavior: {{{at_once}}}}}}}"
    replace(scaler, "maxReplicaCount: 3", f"maxReplicaCount: 4\n  {config}")
    replace(scaler, 'threshold: "5"', 'threshold: "0.3"')
    return file


def explained(capfd: pytest.CaptureFixture[str], *arguments: object) -> dict[str, Any]:
    ran = tonnage(capfd, "scale", "explain", *arguments, "-o", "json")
    assert (ran.code, ran.err) == (0, "")
    found: dict[str, Any] = json.loads(ran.out)
    return found


def test_who_looks_on_decides_as_who_sets_the_replicas(busy: Path) -> None:
    loaded = scenario.load(busy)
    _, steps, _ = shadowed(loaded, "keda")
    alone = run.run(loaded, "keda")
    taken = [(round(one.t_s * NS_PER_S), one.summary) for one in alone.decisions if one.kind == "Scale"]
    asked = [
        (one.at_ns, f"scale {one.target} from {one.replicas} to {one.wanted}")
        for one in steps
        if one.wanted != one.replicas and one.by in ("hpa", "keda")
    ]
    assert len(taken) >= 3 and asked == taken


def test_looking_on_changes_nothing_of_a_run(busy: Path) -> None:
    loaded = scenario.load(busy)
    made, _, _ = shadowed(loaded, "fixed")
    assert [one.replicas for one in made.cluster.workloads.values()] == [2]


LATER_S = 0.001
"""In a run, a look comes before the scrape of the same instant."""


def _as_file(store: Any, steps: list[ScalerStep]) -> str:
    """What Prometheus would have of a run: its scrapes, and kube-state-metrics at each look of the HPA."""
    lines = [
        f"{series.labels[NAME]}{labelled({k: v for k, v in series.labels.items() if k != NAME})} {number(value)} {at / NS_PER_S + LATER_S}"
        for series in store
        for at, value in zip(series.times, series.values, strict=True)
    ]
    for one in steps:
        labels = labelled({"namespace": one.target.namespace, "deployment": one.target.name})
        lines.append(f"kube_deployment_spec_replicas{labels} {one.replicas} {one.at_ns / NS_PER_S}")
        lines.append(f"kube_deployment_status_replicas_ready{labels} {one.ready} {one.at_ns / NS_PER_S}")
    return "\n".join([*lines, "# EOF"]) + "\n"


def test_samples_of_a_run_in_a_file_are_explained_as_the_run_is(
    busy: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    made, steps, _ = shadowed(scenario.load(busy), "keda")
    own = [one for one in steps if one.by == "hpa"]
    (tmp_path / "samples.txt").write_text(_as_file(made.cluster.records.store, own))
    found = explained(
        capfd, tmp_path / "keda", "--samples", tmp_path / "samples.txt", "--only", "hpa", "--every-step", "--start", "0"
    )
    assert any(one["wanted"] != one["replicas"] for one in found["steps"])
    assert [(one["t_s"], one["replicas"], one["ready"], one["wanted"], one["verdict"]) for one in found["steps"]] == [
        (one.at_ns / NS_PER_S, one.replicas, one.ready, one.wanted, one.reason.verdict) for one in own
    ]


def test_a_scenario_is_explained_by_its_own_run(busy: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert {one["by"] for one in explained(capfd, busy, "--policy", "keda")["steps"]} == {"hpa", "keda", "slo"}
    replace(busy, "    balancing: least-requests", "    balancing: random")
    found = explained(capfd, busy, "--policy", "keda", "--every-step")
    assert {one["by"] for one in found["steps"]} == {"hpa", "keda"}
    assert found["left_out"] == [
        "slo: the slo policy counts the requests of serving/chat at a gateway, and random has none"
    ]


def test_the_table_has_what_is_new_and_json_has_each_step_when_asked(capfd: pytest.CaptureFixture[str]) -> None:
    news = explained(capfd, SCALER, "--samples", METRICS, "--only", "hpa")
    every = explained(capfd, SCALER, "--samples", METRICS, "--only", "hpa", "--every-step")
    assert len(every["steps"]) == 158
    assert [one["t_s"] for one in news["steps"]] == [15, 480, 510, 540, 600, 630, 660, 840, 1470, 1620]


def test_a_dead_exporter_looks_like_no_load_to_keda_and_to_nobody_else(capfd: pytest.CaptureFixture[str]) -> None:
    found = explained(capfd, SCALER, "--samples", METRICS, "--every-step")
    gone = [one for one in found["steps"] if 1470 <= one["t_s"] < 1620]
    assert {one["evidence"]["s0-prometheus"] for one in gone if one["by"] == "hpa"} == {0.0}
    assert {one["wanted"] for one in gone if one["by"] == "slo"} == {5}


def test_prometheus_answer_to_a_range_is_a_history(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    values = [[t, "40"] for t in range(1000, 1301, 15)]
    series = {"metric": {"__name__": "vllm:num_requests_running", "namespace": "inference"}, "values": values}
    answer = {"status": "success", "data": {"resultType": "matrix", "result": [series]}}
    (tmp_path / "range.json").write_text(json.dumps(answer))
    found = explained(capfd, SCALER, "--samples", tmp_path / "range.json", "--replicas", "3", "--only", "hpa")
    assert [(one["replicas"], one["wanted"]) for one in found["steps"]] == [(3, 5)]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([SCALER], "there is no history of metrics"),
        ([SCALER, "--samples", "nowhere.txt"], "nowhere.txt: cannot be read"),
        ([SCALER, "--samples", SCALER], "autoscaler.yaml:2: "),
        ([SCALER, "--samples", METRICS, "--only", "nobody"], '"nobody" names no autoscaler'),
        ([SCALER, "--samples", METRICS, "--start", "soon"], '"soon" is not a time'),
        ([SCALER, "--samples", METRICS, "--replicas", "3", "--ready-after", "soon"], '"soon" is not a duration'),
        ([SCALER, "--samples", METRICS, "--ready-after", "90s"], "--ready-after goes with --replicas"),
        (["examples/traffic-surge", "--ready-after", "90s"], "--ready-after goes with --replicas"),
        ([SCALER, "--samples", METRICS, "--seed", "7"], "--seed is of a run"),
        ([SCALER, "--samples", METRICS, "--prometheus", "http://x"], "give --samples or --prometheus, not both"),
        ([SCALER, "--samples", METRICS, "--replicas", 10**22], "expected up to 150,000: no cluster has more pods"),
        ([SCALER, "--samples", METRICS, "--policy", "slo"], "--policy is one of a scenario's"),
        (["examples/traffic-surge", "--replicas", "3"], "--replicas goes with --samples or --prometheus"),
        (["examples/traffic-surge", "--last", "10m"], "--last goes with --samples or --prometheus"),
        (["examples/traffic-surge", "--policy", "best"], "best"),
    ],
)
def test_what_cannot_be_explained_is_refused_in_a_line(
    arguments: list[object], said: str, capfd: pytest.CaptureFixture[str]
) -> None:
    ran = tonnage(capfd, "scale", "explain", *arguments)
    assert ran.code == 2 and ran.errors and said in ran.err, ran.err


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("tonnage.dev/max-replicas: \"10\"", "tonnage.dev/max-replicas: ten", "max-replicas"),
        ("threshold: \"8\"", "threshold: eight", "threshold"),
        ("sum(vllm:num_requests_running{namespace=\"inference\"})\n", "sum(\n", "query"),
    ],
)  # fmt: skip
def test_a_wrong_manifest_is_refused_with_its_place(
    old: str, new: str, said: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "own.yaml"
    file.write_text(SCALER.read_text())
    replace(file, old, new)
    ran = tonnage(capfd, "scale", "explain", file, "--samples", METRICS)
    assert ran.code == 2 and "own.yaml:" in ran.err and said in ran.err, ran.err


def test_an_answer_of_prometheus_that_is_none_is_refused(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    refused = '{"status": "error", "errorType": "bad_data", "error": "invalid parameter \\"query\\""}'
    for text, said in (
        ('{"status": "success", "data": {"resultType": "vector", "result": []}}', "not a range of samples"),
        ("{broken", "not an answer of Prometheus"),
        (refused, 'Prometheus refused the query: bad_data: invalid parameter "query"'),
    ):
        file = tmp_path / "answer.json"
        file.write_text(text)
        ran = tonnage(capfd, "scale", "explain", SCALER, "--samples", file)
        assert ran.code == 2 and "answer.json" in ran.err and said in ran.err, ran.err


def test_a_history_without_replicas_says_what_to_give(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "m.txt").write_text("up 1 1000\nup 1 90000\n")
    ran = tonnage(capfd, "scale", "explain", SCALER, "--samples", tmp_path / "m.txt")
    assert ran.code == 0
    assert 'no data of max(kube_deployment_spec_replicas{namespace="inference",deployment="chat"})' in " ".join(
        ran.out.split()
    )
    assert "give --replicas N" in " ".join(ran.out.split())


def test_of_a_scenario_whose_history_is_given_the_manifests_of_a_policy_are_explained(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    history = ("--samples", "docs/files/scale-history/metrics.txt", "-o", "json")
    surge = "examples/traffic-surge"
    of_scenario = explained(capfd, surge, "--policy", "corrected", *history)
    of_manifests = explained(capfd, f"{surge}/manifests/corrected", *history)
    assert of_scenario["left_out"] == of_manifests["left_out"] != []
    ran = tonnage(capfd, "scale", "explain", surge, "--policy", "best", *history)
    assert ran.code == 2 and "no policy 'best'" in ran.err
