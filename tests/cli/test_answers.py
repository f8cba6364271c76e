"""Answers for programs: YAML says what JSON says, and what is piped is read as a file would be."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from cli_builders import Ran, make_scenario, tonnage

from tonnage.cli import answers

LOG = b"TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:00.0,100,10\n2023-11-16 18:15:30.0,300,30\n"
PODS = """\
apiVersion: v1
kind: Pod
metadata: {name: chat, namespace: llm}
spec: {containers: [{name: c, image: "vllm/vllm-openai:v0.10.0", resources: {limits: {nvidia.com/gpu: 1}}}]}
"""


def piped(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, data: bytes, *words: object) -> Ran:
    class Input:
        buffer = io.BytesIO(data)

    monkeypatch.setattr("sys.stdin", Input())
    return tonnage(capfd, *words)


@pytest.mark.parametrize(
    "value",
    [
        {},
        [],
        None,
        {"b": 1, "a": [1, 2.5, None]},
        {"text": "1e3", "yes": "yes", "lines": "a\nb", "odd": "\x1b[2J\u202e"},
    ],
)
def test_yaml_says_what_json_says_in_the_same_order(value: Any, capfd: pytest.CaptureFixture[str]) -> None:
    document = msgspec.json.encode(value)
    answers.show(document, answers.JSON)
    assert json.loads(capfd.readouterr().out) == value
    answers.show(document, answers.YAML)
    printed = capfd.readouterr().out
    assert yaml.safe_load(printed) == value
    assert "\x1b" not in printed
    if isinstance(value, dict):
        assert list(yaml.safe_load(printed)) == list(value)


@pytest.mark.parametrize(
    "words",
    [
        "mig layouts a30",
        "mig fits h100:3g.40gb@4 3g.40gb",
        "mig defrag h100:1g.10gb@1,1g.10gb@4 3g.40gb",
        "mig relayout h100:3g.40gb@0,3g.40gb@4 h100:7x1g.10gb",
        "mig node --gpu h100 --count 8 --layout 7x1g.10gb#0-3 --strategy mixed",
        "mig plan --gpus h100=1 --demand 1g.10gb=2",
        "cuda check vllm/vllm-openai:v0.10.0 --driver 535.161.08 --gpu h100",
        "size Qwen/Qwen3-8B --gpu h100",
        "share --gpu h100 --workload chat:memory=10GiB,util=25%,count=2",
        "agent doctor --simulated h100 --window 0",
        "render agent --environment karpenter --explain",
        "version",
        "config",
    ],
)
def test_every_answer_is_the_same_in_json_and_yaml(words: str, capfd: pytest.CaptureFixture[str]) -> None:
    as_json = tonnage(capfd, *words.split(), "-o", "json")
    as_yaml = tonnage(capfd, *words.split(), "-o", "yaml")
    assert as_yaml.code == as_json.code
    assert yaml.safe_load(as_yaml.out) == json.loads(as_json.out)


def test_manifests_are_yaml_or_a_list_in_json(capfd: pytest.CaptureFixture[str]) -> None:
    words = ("render", "agent", "--environment", "karpenter")
    printed = tonnage(capfd, *words).out
    assert tonnage(capfd, *words, "-o", "yaml").out == printed
    several = json.loads(tonnage(capfd, *words, "-o", "json").out)
    assert several["kind"] == "List" and several["items"] == list(yaml.safe_load_all(printed))
    refused = tonnage(capfd, *words, "-o", "table")
    assert refused.code == 2 and "--explain" in refused.err


# ---- standard input ----


def test_a_log_that_is_piped_is_described_as_its_file(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "log.csv").write_bytes(LOG)
    of_file = json.loads(tonnage(capfd, "trace", "show", tmp_path / "log.csv", "-o", "json").out)
    of_pipe = json.loads(piped(capfd, monkeypatch, LOG, "trace", "show", "-", "-o", "json").out)
    assert of_pipe.pop("source") == "stdin" and of_file.pop("source") == "log.csv"
    assert of_pipe == of_file
    assert (of_pipe["requests"], of_pipe["span_s"], of_pipe["prompt_tokens"]["mean"]) == (2, 30, 200)


def test_manifests_that_are_piped_run_without_a_scenario(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    ran = piped(capfd, monkeypatch, PODS.encode(), "simulate", "-", "-o", "json", "-q")
    assert ran.code == 0, ran.err
    assert json.loads(ran.out)["scenario"] == "stdin"


def test_a_scenario_that_is_piped_is_refused_as_its_paths_start_at_its_folder(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    data = make_scenario(tmp_path).read_bytes()
    ran = piped(capfd, monkeypatch, data, "simulate", "-")
    assert ran.code == 2
    assert ran.err.startswith("error: -: a scenario is not read from standard input (its paths start at its folder")


@pytest.mark.parametrize(
    "prices",
    ["instance_type,usd_per_hour\ng6e.12xlarge,15\n", "- {instance_type: g6e.12xlarge, usd_per_hour: 15}\n"],
)
def test_prices_that_are_piped_are_csv_or_yaml(
    prices: str, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    scenario = make_scenario(tmp_path)
    words = ("simulate", scenario, "--trace", tmp_path / "trace.csv", "--prices", "-", "-o", "json", "-q")
    ran = piped(capfd, monkeypatch, prices.encode(), *words)
    assert ran.code == 0, ran.err
    assert json.loads(ran.out)["cost"]["total_micro_usd"] == 1_000_000  # 4 minutes at 15 dollars an hour


def test_demands_of_instances_may_be_piped_as_csv_yaml_or_manifests(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    manifest = PODS.replace("nvidia.com/gpu: 1", "nvidia.com/mig-1g.10gb: 1")
    for data in ("profile,count\n1g.10gb,1\n", "demands: [{profile: 1g.10gb, count: 1}]\n", manifest):
        ran = piped(capfd, monkeypatch, data.encode(), "mig", "plan", "-", "--gpus", "h100=1", "-o", "json")
        assert ran.code == 0, ran.err
        (demand,) = json.loads(ran.out)["demands"]
        assert (demand["count"], demand["served"]) == (1, 1)


def test_two_options_may_read_the_same_standard_input(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    ran = piped(capfd, monkeypatch, PODS.encode(), "check", "-", "-", "-o", "json")
    assert "input-refused" not in ran.out and ran.code in (0, 1)


def test_images_of_pods_that_are_piped_are_checked(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ("cuda", "check", "-", "--driver", "580.65.06", "--gpu", "h100", "-o", "json")
    (answer,) = json.loads(piped(capfd, monkeypatch, PODS.encode(), *words).out)["answers"]
    assert answer["name"] == "Pod chat, c: vllm/vllm-openai:v0.10.0"
