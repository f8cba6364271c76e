"""`tonnage bench paged`: the table, the JSON, and what is refused."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from cli_builders import PROFILE, TRACE

from tonnage.cli import main


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as ended:
        main(["bench", "paged", *arguments])
    out, err = capsys.readouterr()
    return int(ended.value.code or 0), out, err


def profile(folder: Path) -> str:
    path = folder / "traffic.yaml"
    path.write_text(PROFILE, encoding="utf-8")
    return str(path)


def test_the_table_has_every_scheme_and_every_claim_with_its_verdict(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    code, out, err = run(capsys, "--profile", profile(tmp_path), "--kv-tokens", "4096", "--requests", "120")
    assert (code, err) == (0, "")
    schemes, claims = out.partition("\nPagedAttention's claim")[0], out.split("\n\n")[-1]
    for block in schemes.strip().split("\n\n")[1:]:  # of columns
        assert len(block.splitlines()) == 1 + 8
        assert "paged, blocks of 16" in block and "contiguous, max length" in block
    rows = claims.strip().splitlines()
    assert len(rows) == 1 + 3 + 1 + 3 + 3
    assert all(row.endswith(("holds", "exceeded", "does not hold", "not measured")) for row in rows[1:])


def test_the_json_has_the_numbers_and_is_the_same_again(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ("--paper", "alpaca", "--requests", "100", "-o", "json")
    code, out, _ = run(capsys, *arguments)
    found = json.loads(out)
    assert code == 0 and found["schema"] == "tonnage.dev/bench-paged/v1"
    assert found["kv_tokens"] == 15_700 and found["requests"] == 100
    by_name = {one["scheme"]: one for one in found["schemes"]}
    assert sum(by_name["contiguous, max length"]["memory"].values()) == pytest.approx(1)
    assert run(capsys, *arguments)[1] == out
    assert run(capsys, *arguments, "--seed", "1")[1] != out


def test_a_trace_is_played_as_far_as_asked(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "trace.csv"
    path.write_text(TRACE, encoding="utf-8")
    code, out, _ = run(capsys, "--trace", str(path), "--requests", "3", "--kv-tokens", "2048", "-o", "json")
    found = json.loads(out)
    assert (code, found["requests"], found["max_model_len"]) == (0, 3, 1024)


def test_requests_over_the_longest_sequence_are_counted(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    arguments = ("--profile", profile(tmp_path), "--kv-tokens", "4096", "--requests", "60", "--max-model-len", "300")
    code, out, _ = run(capsys, *arguments)
    assert code == 0 and "longer than the longest sequence left out" in " ".join(out.split())


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--model", "nope"), "--model: unknown model 'nope'"),
        (("--gpu", "nope"), "--gpu: unknown GPU 'nope'"),
        (("--trace", "/nowhere"), "/nowhere: cannot read the trace"),
        (("--profile", "/nowhere.yaml"), "/nowhere.yaml"),
        (("--paper", "alpaca", "--gpu", "l4"), "--paper and --gpu exclude each other"),
        (("--paper", "alpaca", "--tensor-parallel", "2"), "--paper and --tensor-parallel exclude each other"),
        (("--paper", "alpaca", "--trace", "x"), "--trace and --paper exclude each other"),
        (("--max-model-len", "9000", "--kv-tokens", "8000"), "--max-model-len is 9000, but the KV cache holds 8000"),
        (("--kv-tokens", "100"), "no request fits"),
        (("--max-model-len", "2"), "no request fits"),
        (("--tensor-parallel", "3"), "error: --tensor-parallel: tensor parallel size 3 does not divide"),
        (("--model", "meta-llama/Llama-3.1-70B", "--gpu", "l40s"), "(raise --tensor-parallel or use a larger GPU)"),
        (("--load", "0"), "--load"),
        (("--load", "nan"), "'--load': nan"),
        (("--load", "inf"), "'--load': inf"),
        (("--load", "1e300"), "'--load': 1e+300"),
        (("--requests", "0"), "--requests"),
        (("--requests", "1000001"), "--requests"),
        (("--kv-tokens", "999999999999999999"), "'--kv-tokens': 999999999999999999 is not in the range"),
        (("--max-model-len", "999999999999999999"), "'--max-model-len'"),
    ],
)
def test_bad_input_ends_with_one_line_and_code_2(
    capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], words: str
) -> None:
    code, out, err = run(capsys, *arguments)
    assert (code, out) == (2, "")
    assert words in err and len(err.splitlines()) == 1
    assert "--tensor-parallel-size" not in err and "--quantization" not in err


def test_one_request_measures_nothing_that_is_claimed(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    code, out, _ = run(capsys, "--profile", profile(tmp_path), "--requests", "1")
    assert code == 0 and ": 1 request, mean" in out and "no TTFT, as all arrive at once" in out
    rows = out.split("\n\n")[-1].strip().splitlines()[1:]
    assert len(rows) == 10 and all(row.endswith("not measured") for row in rows)


def test_memory_as_large_as_a_data_centre_takes_no_memory_here(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    code, out, _ = run(capsys, "--profile", profile(tmp_path), "--requests", "3", "--kv-tokens", "1000000000000")
    assert code == 0 and "KV memory of 1,000,000,000,000 tokens" in out


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("quiet", [False, True])
def test_progress_is_drawn_on_a_terminal_unless_asked_for_quiet(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], quiet: bool
) -> None:
    screen = _Terminal()
    monkeypatch.setattr("sys.stderr", screen)
    code, _, _ = run(capsys, "--paper", "alpaca", "--requests", "20", *["-q"] * quiet)
    assert code == 0
    assert ("100%" in screen.getvalue()) is not quiet
