"""`tonnage route`: policies on a request log."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from cli_builders import tonnage


def run(capfd: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    ran = tonnage(capfd, *arguments)
    return ran.code, ran.out, ran.err


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    file = tmp_path / "trace.jsonl"
    lines = []
    for number in range(60):
        hashes = [number % 4, 10 + number % 4, 100 + number % 4, *([1000 + number] if number % 3 == 0 else [])]
        lines.append(
            {"timestamp": 200 * number, "input_length": 512 * len(hashes), "output_length": 8, "hash_ids": hashes}
        )
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return file


def test_json_is_a_list_with_one_object_a_policy(trace: Path, capfd: pytest.CaptureFixture[str]) -> None:
    arguments = ["route", "replay", trace, "--workers", "2", "--policy", "round-robin", "--policy", "tonnage"]
    code, out, err = run(capfd, *arguments, "-o", "json")
    assert (code, err) == (0, "")
    rows = json.loads(out)
    assert [row["policy"] for row in rows] == ["round-robin", "tonnage"]
    for row in rows:
        assert set(row["ttft_ms"]) == set(row["tpot_ms"]) == {"mean", "p50", "p99"}
        assert 0 < row["reuse"] < 1
        assert row["imbalance"] >= 1
        assert (row["requests"], row["refused"]) == (60, 0)
    assert run(capfd, *arguments, "-o", "json") == (0, out, "")


def test_the_table_shows_the_default_policies(trace: Path, capfd: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capfd, "route", "replay", trace, "--workers", "2")
    assert code == 0
    assert [line.split()[0] for line in out.splitlines()] == [
        "policy",
        "round-robin",
        "least-loaded",
        "dynamo",
        "tonnage",
        "60",
    ]


def test_a_decision_is_explained_with_what_it_beat(trace: Path, capfd: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capfd, "route", "replay", trace, "--policy", "tonnage", "--explain", "8")
    assert code == 0
    receipt = out.splitlines()[-1]
    assert receipt.startswith("request 8 to worker ")
    assert "blocks" in receipt
    assert "cost in s: worker" in receipt


def test_engines_can_be_those_of_a_model_on_a_gpu(trace: Path, capfd: pytest.CaptureFixture[str]) -> None:
    model = ["--model", "meta-llama/Llama-3.1-8B-Instruct", "--gpu", "h100"]
    code, out, _ = run(capfd, "route", "replay", trace, *model, "--policy", "least-loaded", "-o", "json")
    assert code == 0
    assert json.loads(out)[0]["requests"] == 60


def test_weights_are_fitted_saved_and_used(trace: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    saved = tmp_path / "weights.yaml"
    code, out, _ = run(capfd, "route", "tune", trace, "--workers", "2", "--rounds", "1", "--save", saved)
    assert code == 0
    assert "held-out half" in out
    code, out, _ = run(capfd, "route", "replay", trace, "--policy", "tonnage", "--settings", saved, "-o", "json")
    assert code == 0
    assert json.loads(out)[0]["policy"] == "tonnage"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["replay", "TRACE", "--policy", "best"], "there is no routing policy 'best'"),
        (["replay", "TRACE", "--block-size", "48"], "a hash of"),
        (["replay", "TRACE", "--gpu", "h100"], "name the model"),
        (["replay", "TRACE", "--model", "meta-llama/Llama-3.1-8B-Instruct"], "name the GPU"),
        (["replay", "TRACE", "--explain", "60"], "requests 0 to 59"),
        (["replay", "nowhere.jsonl"], "nowhere.jsonl"),
        (["replay", "TRACE", "--settings", "nowhere.yaml"], "cannot read nowhere.yaml"),
        (["replay", "TRACE", "--settings", "SPOILT"], "later_weight"),
        (["tune", "TRACE", "--goal", "fame"], "one of latency, ttft, ttft-p99, reuse"),
        (["replay", "TRACE", "--workers", "0"], "--workers"),
        (["replay", "TRACE", "--event-lag", "-1"], "--event-lag"),
    ],
)
def test_bad_input_is_refused_with_what_to_do(
    trace: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str], arguments: list[str], said: str
) -> None:
    spoilt = tmp_path / "spoilt.yaml"
    spoilt.write_text("later_weight: much\n")
    given = [{"TRACE": str(trace), "SPOILT": str(spoilt)}.get(one, one) for one in arguments]
    code, out, err = run(capfd, "route", *given)
    assert (code, out) == (2, "")
    assert said in err
    assert "Traceback" not in err


def test_a_broken_line_is_named(trace: Path, capfd: pytest.CaptureFixture[str]) -> None:
    lines = trace.read_text().splitlines()
    lines[6] = lines[6].replace('"output_length": 8', '"output_length": 0')
    trace.write_text("\n".join(lines))
    code, _, err = run(capfd, "route", "replay", trace)
    assert code == 2
    assert f"{trace}:7" in err
