"""`tonnage size --calibrate` and `--prometheus`."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from urllib.parse import parse_qs

import pytest
from cli_builders import tonnage

ROWS = (
    "gpu,concurrency,input_tokens,output_tokens,tpot_ms\nh100,8,1024,256,14\nh100,16,1024,256,16\nh100,64,1024,256,26\n"
)


def sized(capfd: pytest.CaptureFixture[str], *more: object) -> dict[str, float]:
    ran = tonnage(capfd, "size", "Qwen/Qwen3-8B", "--gpu", "h100", "-o", "json", *more)
    assert (ran.code, ran.err) == (0, "")
    found: dict[str, float] = json.loads(ran.out)["options"][0]["replica"]
    return found


def test_measurements_become_a_factor_that_is_kept_beside_them_and_can_be_given_again(
    capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file = tmp_path / "mine.csv"
    file.write_text(ROWS)
    plain, calibrated = sized(capfd), sized(capfd, "--calibrate", file)
    kept = json.loads((tmp_path / "calibration.json").read_text())
    assert kept["rows"] == 3
    assert calibrated["tpot_s"] == pytest.approx(kept["factor"] * plain["tpot_s"])
    assert sized(capfd, "--calibrate", tmp_path / "calibration.json") == calibrated


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("mine.csv", "gpu\nh100\n", "mine.csv:1: no column concurrency"),
        ("calibration.json", "{", "not a calibration"),
        ("calibration.json", '{"factor":1,"spread":1,"rows":1,"model":"x","source":"y"}', "a calibration of x, not of"),
        (
            "calibration.json",
            '{"factor":-1,"spread":1,"rows":1,"model":"Qwen/Qwen3-8B","source":"y"}',
            "factor: factor -1.0",
        ),
    ],
)
def test_a_calibration_that_cannot_be_used_is_refused(
    capfd: pytest.CaptureFixture[str], tmp_path: Path, name: str, text: str, said: str
) -> None:
    (tmp_path / name).write_text(text)
    ran = tonnage(capfd, "size", "Qwen/Qwen3-8B", "--gpu", "h100", "--calibrate", tmp_path / name)
    assert ran.code == 2
    assert said in ran.err
    assert str(tmp_path / name) in ran.err


def test_two_sources_and_a_file_that_is_not_there_are_refused(
    capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    both = ("--calibrate", tmp_path / "a.csv", "--prometheus", "http://localhost:1")
    for more, said in ((both, "give one of them"), (both[:2], "a.csv: cannot be read")):
        ran = tonnage(capfd, "size", "Qwen/Qwen3-8B", *more)
        assert ran.code == 2
        assert said in ran.err


@pytest.fixture
def server() -> Iterator[tuple[str, dict[str, dict[str, float]]]]:
    """A Prometheus that answers by the metric in the query: {part of the query: {model: value}}."""
    answers: dict[str, dict[str, float]] = {}

    class Answers(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            form = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
            values = next((found for part, found in answers.items() if part in form["query"][0]), {})
            result = [{"metric": {"model_name": name}, "value": [0, str(value)]} for name, value in values.items()]
            body = json.dumps({"status": "success", "data": {"resultType": "vector", "result": result}}).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Nothing is printed."""

    with HTTPServer(("127.0.0.1", 0), Answers) as running:
        thread = threading.Thread(target=running.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{running.server_port}", answers
        running.shutdown()
        thread.join()


SERVED = {
    "time_to_first_token": 0.2,
    "time_per_output_token": 0.02,
    "prompt_tokens": 1024.0,
    "generation_tokens": 256.0,
    "num_requests_running": 16.0,
}


def test_an_hour_of_vllm_in_prometheus_is_one_row(
    capfd: pytest.CaptureFixture[str],
    server: tuple[str, dict[str, dict[str, float]]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    url, answers = server
    answers |= {part: {"qwen3-8b": value, "other": 9 * value} for part, value in SERVED.items()}
    plain, calibrated = sized(capfd), sized(capfd, "--prometheus", url)
    kept = json.loads((tmp_path / "calibration.json").read_text())
    assert (kept["rows"], kept["source"]) == (1, url)
    assert plain["tpot_s"] < calibrated["tpot_s"] < 0.03


@pytest.mark.parametrize(
    ("found", "more", "said"),
    [
        ({}, (), "has no vllm:inter_token_latency_seconds and no vllm:time_per_output_token_seconds"),
        ({"a": 1.0, "b": 2.0}, (), "has engines of a, b, none of Qwen3-8B"),
        ({}, ("--gpu", "h200"), "2 GPUs named"),
    ],
)
def test_a_prometheus_that_does_not_tell_says_what_is_missing(
    capfd: pytest.CaptureFixture[str],
    server: tuple[str, dict[str, dict[str, float]]],
    found: dict[str, float],
    more: tuple[str, ...],
    said: str,
) -> None:
    url, answers = server
    answers |= dict.fromkeys(SERVED, found)
    ran = tonnage(capfd, "size", "Qwen/Qwen3-8B", "--gpu", "h100", "--prometheus", url, *more)
    assert ran.code == 2
    assert said in ran.err
