"""`tonnage route`: policies on a request log."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest
from cli_builders import tonnage

from tonnage.cli.engine_options import EngineChoice
from tonnage.cli.route import as_yaml
from tonnage.inference.replay.tuning import Tuned
from tonnage.inference.routing.seconds import TonnageSettings


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
    assert receipt.count(": wait ") + receipt.count(": own ") == 2, "the parts of the chosen and of the best other"


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


def test_a_log_of_which_nothing_fits_is_refused_and_nothing_is_saved(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    file, saved = tmp_path / "long.jsonl", tmp_path / "weights.yaml"
    line = {"input_length": 9_000_000, "output_length": 8, "hash_ids": []}
    file.write_text("".join(json.dumps({"timestamp": 200 * n} | line) + "\n" for n in range(6)))
    code, out, err = run(capfd, "route", "tune", file, "--rounds", "1", "--save", saved)
    assert (code, out) == (2, "")
    assert "long.jsonl: none of the 3 requests of the first half fits into an engine" in err
    assert not saved.exists()


@pytest.mark.parametrize("goal", ["latency", "ttft", "ttft-p99", "reuse"])
@pytest.mark.parametrize(("first", "second", "half"), [(64, 9_000_000, "second"), (9_000_000, 64, "first")])
def test_a_half_that_no_engine_holds_is_no_infinite_score_whatever_the_goal(
    goal: str, first: int, second: int, half: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    file, saved = tmp_path / "log.jsonl", tmp_path / "weights.yaml"
    lengths = [first] * 3 + [second] * 3
    lines = [{"timestamp": 200 * n, "input_length": of, "output_length": 8} for n, of in enumerate(lengths)]
    file.write_text("".join(json.dumps(line | {"hash_ids": []}) + "\n" for line in lines))
    command = ["route", "tune", file, "--rounds", "1", "--goal", goal, "--save", saved, "-o", "json"]
    code, out, err = run(capfd, *command)
    assert (code, out) == (2, "")
    assert f"none of the 3 requests of the {half} half fits into an engine" in err
    assert "inf" not in err.replace("inference", "").lower()
    assert not saved.exists()


def test_a_log_of_which_some_requests_fit_is_tuned_on_those(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "log.jsonl"
    lengths = [64, 9_000_000, 128, 64, 9_000_000, 128]
    lines = [{"timestamp": 200 * n, "input_length": of, "output_length": 8} for n, of in enumerate(lengths)]
    file.write_text("".join(json.dumps(line | {"hash_ids": []}) + "\n" for line in lines))
    code, out, _ = run(capfd, "route", "tune", file, "--rounds", "1", "-o", "json")
    assert code == 0
    found = json.loads(out)
    scores = [found[name] for name in ("fitted_before", "fitted_after", "held_out_before", "held_out_after")]
    assert all(isinstance(one, float) and 0 < one < 60 for one in scores)


def test_what_is_saved_is_the_defaults_where_what_was_fitted_is_worse_on_the_half_held_out() -> None:
    fitted = TonnageSettings(later_weight=4.0)
    worse = Tuned(TonnageSettings(), (), 2.0, 1.0, 2.0, 3.0, rejected=fitted)
    better = Tuned(fitted, (), 2.0, 1.0, 2.0, 1.5)
    equal = Tuned(fitted, (), 2.0, 1.0, 2.0, 2.0)
    assert msgspec.yaml.decode(as_yaml(worse), type=TonnageSettings) == TonnageSettings()
    assert "# these are the defaults" in as_yaml(worse)
    for one in (better, equal):
        assert msgspec.yaml.decode(as_yaml(one), type=TonnageSettings) == fitted
        assert "defaults" not in as_yaml(one) and one.holds


LLAMA = ("--model", "meta-llama/Llama-3.1-8B-Instruct", "--gpu", "h100")


def test_engines_can_be_of_another_kind(trace: Path, capfd: pytest.CaptureFixture[str]) -> None:
    shown = {}
    for kind in (None, "vllm", "sglang", "tensorrt-llm"):
        named = [] if kind is None else ["--engine", kind]
        arguments = ["route", "replay", trace, *LLAMA, *named, "--policy", "round-robin", "-o", "json"]
        code, out, err = run(capfd, *arguments)
        assert (code, err) == (0, "")
        (shown[kind],) = json.loads(out)
    assert shown[None] == shown["vllm"]
    assert shown["sglang"]["reuse"] > shown["vllm"]["reuse"], "hits count by the token, not by the block"
    assert shown["tensorrt-llm"] != shown["vllm"]
    assert all(row["refused"] == 0 for row in shown.values())


def test_the_limits_of_another_kind_are_its_own_unless_they_are_given() -> None:
    plain = EngineChoice(1, LLAMA[1], "h100", 1, None, None, None, None, "sglang")
    config, _ = plain.build()
    assert (config.block_size, config.max_num_batched_tokens, config.mixed_steps) == (1, 8_192, False)
    assert 350_000 < config.kv_blocks < 500_000
    given = msgspec.structs.replace(
        plain, block_size=64, gpu_blocks=100, max_num_batched_tokens=1_024, max_num_seqs=7, engine="trtllm"
    )
    config, _ = given.build()
    limits = (config.block_size, config.kv_blocks, config.max_num_batched_tokens, config.max_num_seqs)
    assert limits == (64, 100, 1_024, 7)
    assert config.reserve_output


def measured(tmp_path: Path, *rows: str) -> Path:
    file = tmp_path / "steps.csv"
    header = "kind,tokens,cached,sequences,context,ms"
    points = ["prefill,1,0,,,2", "prefill,10000,0,,,200", "decode,,,1,0,5", "decode,,,1,10000,7", "decode,,,64,0,9"]
    file.write_text("\n".join([header, *points, "decode,,,64,10000,20", *rows]) + "\n")
    return file


@pytest.mark.parametrize("model", [(), LLAMA])
def test_step_times_can_be_measured_ones(
    trace: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str], model: tuple[str, ...]
) -> None:
    arguments = ["route", "replay", trace, *model, "--policy", "round-robin", "--policy", "tonnage"]
    code, out, err = run(capfd, *arguments, "--step-times", measured(tmp_path), "-o", "json")
    assert (code, err) == (0, "")
    turns, _ = json.loads(out)
    assert turns["tpot_ms"]["p50"] == pytest.approx(5.3, abs=0.1)
    # Most prompts are there but for their last block: 2 ms for its first token, 198 / 9999 for each other.
    block = 16 if model else 64
    assert turns["ttft_ms"]["p50"] == pytest.approx(2 + (block - 1) * 198 / 9_999)
    assert turns["ttft_ms"]["p99"] == pytest.approx(2 + 2_047 * 198 / 9_999, rel=0.05)


def test_steps_beyond_the_measured_ones_are_said(
    trace: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "steps.csv"
    file.write_text("kind,tokens,ms,sequences,context\nprefill,1000,20,,\ndecode,,5,1,9000\n")
    code, out, err = run(capfd, "route", "replay", trace, "--policy", "tonnage", "--step-times", file, "-o", "json")
    assert code == 0
    assert json.loads(out)[0]["requests"] == 60
    assert err.startswith(f"note: steps beyond the points of {file} were extrapolated, up to ")
    assert "a prefill of 2,048 tokens after 0 cached" in err


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("kind,tokens,ms\nprefill,ten,1\n", ":2:tokens"),
        ("kind,tokens,sequences,context,ms\nprefill,1,,,1\ndecode,,4,7,-1\n", ":3:ms"),
        ("kind,tokens,ms\nprefill,1,1\n", "no decode row"),
        ("kind,tokens,ms\nidle,1,1\n", ":2:kind"),
        ("tokens;ms\n1;1\n", ":1: the first line is 'tokens;ms'"),
        ("", "kind,tokens,cached,sequences,context,ms"),
    ],
)
def test_bad_step_times_are_refused_with_file_and_line(
    trace: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str], text: str, said: str
) -> None:
    file = tmp_path / "steps.csv"
    file.write_text(text)
    code, out, err = run(capfd, "route", "replay", trace, "--step-times", file)
    assert (code, out) == (2, "")
    assert str(file) in err
    assert said in err


def test_outputs_that_are_known_are_told_only_when_asked_to(trace: Path, capfd: pytest.CaptureFixture[str]) -> None:
    for command in (["replay", "--policy", "tonnage"], ["tune", "--rounds", "1"]):
        code, _, _ = run(capfd, "route", command[0], trace, *command[1:], "--known-outputs", "-q")
        assert code == 0


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["replay", "TRACE", "--policy", "best"], "there is no routing policy 'best'"),
        (["replay", "TRACE", "--block-size", "48"], "a hash of"),
        (["replay", "TRACE", "--gpu", "h100"], "name the model"),
        (["replay", "TRACE", "--model", "meta-llama/Llama-3.1-8B-Instruct"], "name the GPU"),
        (["replay", "TRACE", "--engine", "sglang"], "--engine without --model"),
        (["replay", "TRACE", *LLAMA, "--engine", "xyz"], "use one of vllm, sglang, tensorrt-llm"),
        (
            ["replay", "TRACE", "--model", "meta-llama/Llama-3.1-70B-Instruct", "--gpu", "l40s", "--engine", "sglang"],
            "does not fit 1 x l40s: each GPU needs",
        ),
        (["replay", "TRACE", "--step-times", "nowhere.csv"], "nowhere.csv: cannot read it"),
        (["replay", "TRACE", "--explain", "60"], "requests 0 to 59"),
        (["replay", "nowhere.jsonl"], "nowhere.jsonl"),
        (["replay", "TRACE", "--settings", "nowhere.yaml"], "cannot read nowhere.yaml"),
        (["replay", "TRACE", "--settings", "SPOILT"], "later_weight"),
        (["tune", "TRACE", "--goal", "fame"], "one of latency, ttft, ttft-p99, reuse"),
        (["replay", "TRACE", "--workers", "0"], "--workers"),
        (["replay", "TRACE", "--event-lag", "-1"], "--event-lag"),
        (["replay", "TRACE", "--event-lag", "nan"], "--event-lag"),
        (["tune", "TRACE", "--event-lag", "inf"], "--event-lag"),
        (["replay", "TRACE", "--tensor-parallel", "2"], "name the model"),
        (["replay", "TRACE", "--settings", "UNKNOWN"], "nope"),
    ],
)
def test_bad_input_is_refused_with_what_to_do(
    trace: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str], arguments: list[str], said: str
) -> None:
    spoilt = tmp_path / "spoilt.yaml"
    spoilt.write_text("later_weight: much\n")
    unknown = tmp_path / "unknown.yaml"
    unknown.write_text("nope: 1\n")
    given = [{"TRACE": str(trace), "SPOILT": str(spoilt), "UNKNOWN": str(unknown)}.get(one, one) for one in arguments]
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
