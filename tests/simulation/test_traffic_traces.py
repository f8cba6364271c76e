"""Reading request traces: the two formats, and what is said about a file that cannot be used."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from tonnage.errors import InputError
from tonnage.traffic.trace_summary import describe
from tonnage.traffic.traces import load_trace

AZURE = """TIMESTAMP,ContextTokens,GeneratedTokens
2023-11-16 23:59:59.9999999,374,44
2023-11-17 00:00:00.0000001,396,109
2023-11-17 00:00:01,879,55
"""
MOONCAKE = """{"timestamp": 500, "input_length": 6758, "output_length": 500, "hash_ids": [0, 1]}
{"timestamp": 500, "input_length": 7322, "output_length": 490}
{"timestamp": 3000.5, "input_length": 1, "output_length": 1, "hash_ids": []}
"""


def written(tmp_path: Path, text: str, name: str = "trace") -> Path:
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    return path


def only_problem(path: Path) -> str:
    with pytest.raises(InputError) as caught:
        load_trace(path)
    (problem,) = caught.value.problems
    assert problem.hint
    return str(problem)


def test_azure_times_count_from_the_first_request_to_the_tenth_of_a_microsecond(tmp_path: Path) -> None:
    trace = load_trace(written(tmp_path, AZURE))
    assert trace.arrivals_ns.tolist() == [0, 200, 1_000_000_100]
    assert trace.prompt.tolist() == [374, 396, 879]
    assert trace.output.tolist() == [44, 109, 55]
    assert (trace.arrivals_ns.dtype, trace.prompt.dtype, trace.output.dtype) == ("int64", "int32", "int32")


def test_mooncake_times_are_milliseconds_and_prefix_blocks_are_optional(tmp_path: Path) -> None:
    trace = load_trace(written(tmp_path, MOONCAKE))
    assert trace.arrivals_ns.tolist() == [0, 0, 2_500_500_000]
    assert trace.prompt.tolist() == [6758, 7322, 1]
    assert trace.output.tolist() == [500, 490, 1]
    assert trace.hashes == ((0, 1), (), ())
    assert trace.hash_block == 512
    assert load_trace(written(tmp_path, AZURE)).hashes is None
    assert load_trace(written(tmp_path, MOONCAKE.replace("hash_ids", "ids"))).hashes is None


def test_a_trace_read_line_by_line_is_the_same_as_one_read_in_one_go(tmp_path: Path) -> None:
    quick = load_trace(written(tmp_path, MOONCAKE))
    slow = load_trace(written(tmp_path, MOONCAKE.replace("\n", "\n \n\x0c").rstrip("\x0c")))
    assert slow.arrivals_ns.tolist() == quick.arrivals_ns.tolist()
    assert slow.prompt.tolist() == quick.prompt.tolist()
    assert slow.output.tolist() == quick.output.tolist()
    assert slow.hashes == quick.hashes


def test_hash_ids_of_other_block_sizes_are_read_when_the_size_is_said(tmp_path: Path) -> None:
    path = written(tmp_path, '{"timestamp": 0, "input_length": 33, "output_length": 1, "hash_ids": [7, 8, 9]}')
    trace = load_trace(path, hash_block=16)
    assert (trace.hashes, trace.hash_block) == (((7, 8, 9),), 16)
    problem = only_problem(path)
    assert f"{path}:1:hash_ids: 3 hash ids of 512 tokens for a prompt of 33, expected at most 1" in problem


@pytest.mark.parametrize("text", [AZURE, MOONCAKE])
def test_a_gzipped_trace_reads_as_the_plain_one_whatever_its_name(tmp_path: Path, text: str) -> None:
    plain = load_trace(written(tmp_path, text, "plain.txt"))
    packed_path = tmp_path / "packed.txt"
    packed_path.write_bytes(gzip.compress(text.encode()))
    packed = load_trace(packed_path)
    assert packed.arrivals_ns.tolist() == plain.arrivals_ns.tolist()
    assert packed.prompt.tolist() == plain.prompt.tolist()


@pytest.mark.parametrize(
    "text",
    [
        AZURE.replace("\n", "\r\n"),
        "\ufeff" + AZURE,
        AZURE.replace("\n", "\n\n"),
        AZURE.rstrip("\n"),
        AZURE.replace("44\n", "44 \n"),
        AZURE.replace("9999999", "9999999+00:00"),
        AZURE.replace("-16 23", "-16T23"),
    ],
    ids=["crlf", "bom", "blank lines", "no last newline", "spaces", "utc offset", "T"],
)
def test_variants_of_the_same_azure_file_read_alike(tmp_path: Path, text: str) -> None:
    trace = load_trace(written(tmp_path, text))
    assert trace.arrivals_ns.tolist() == [0, 200, 1_000_000_100]


@pytest.mark.parametrize(
    ("old", "new", "place", "said"),
    [
        (",396,", ",39x,", "3:ContextTokens", '"39x" is not a number of tokens, expected a whole number from 1'),
        (",396,", ",,", "3:ContextTokens", '"" is not a number of tokens'),
        (",396,", ",396.5,", "3:ContextTokens", '"396.5" is not a number of tokens'),
        (",396,", ",-396,", "3:ContextTokens", '"-396" is not a number of tokens'),
        (",396,", ",0,", "3:ContextTokens", '"0" is not a number of tokens'),
        (",109", ",0", "3:GeneratedTokens", "write 1 if its prompt was computed before it failed"),
        (",109", ",99999999999", "3:GeneratedTokens", "to 2147483647"),
        (",109", "", "3", "2 cells, expected 3: TIMESTAMP,ContextTokens,GeneratedTokens"),
        ("11-17 00:00:00.0", "11-16 23:59:58.0", "3:TIMESTAMP", "arrives 2.000000 s before the request above it"),
        ("11-17 00:00:00.0", "11-16 23:59:58.0", "3:TIMESTAMP", "sort the trace by TIMESTAMP"),
        ("11-17 00:00:01", "yesterday", "4:TIMESTAMP", '"2023-yesterday" is not a time, expected the form'),
        ("11-17 00:00:01", "02-30 00:00:01", "4:TIMESTAMP", '"2023-02-30 00:00:01" is not a time'),
        ("00:00:01", "24:00:01", "4:TIMESTAMP", "is not a time"),
        ("TIMESTAMP", "time", "1", 'unknown trace format: the first line is "time,ContextTokens,GeneratedTokens"'),
    ],
)  # fmt: skip
def test_a_bad_azure_line_is_named(tmp_path: Path, old: str, new: str, place: str, said: str) -> None:
    path = written(tmp_path, AZURE.replace(old, new, 1))
    problem = only_problem(path)
    assert problem.startswith(f"{path}:{place}: ")
    assert said in problem


@pytest.mark.parametrize(
    ("old", "new", "place", "said"),
    [
        ('"input_length": 7322', '"input_length": "7322"', "2:input_length", '"7322" is not a number of tokens'),
        ('"input_length": 7322', '"input_length": true', "2:input_length", '"true" is not a number of tokens'),
        ('"input_length": 7322', '"input_length": 0', "2:input_length", '"0" is not a number of tokens'),
        ('"output_length": 490', '"output_length": -1', "2:output_length", '"-1" is not a number of tokens'),
        ('"input_length": 7322, ', "", "2:input_length", "the field is missing"),
        ('"timestamp": 3000.5', '"timestamp": 3', "3:timestamp", "sort the trace by timestamp"),
        ('"timestamp": 3000.5', '"timestamp": "3"', "3:timestamp", "expected milliseconds, at least 0"),
        ('"timestamp": 3000.5', '"timestamp": -3', "3:timestamp", "expected milliseconds, at least 0"),
        ('"hash_ids": []}', '"hash_ids": [', "3", "not a JSON object"),
        ('"hash_ids": []', '"hash_ids": [3, 4]', "3:hash_ids", "2 hash ids of 512 tokens for a prompt of 1, expected"),
        ('"hash_ids": []', '"hash_ids": ["a"]', "3:hash_ids", "are not hash ids, expected a list of whole numbers"),
        ('"hash_ids": []', '"hash_ids": 3', "3:hash_ids", "are not hash ids, expected a list of whole numbers"),
        ('{"timestamp": 3000.5', '[{"timestamp": 3000.5', "3", "not a JSON object"),
    ],
)  # fmt: skip
def test_a_bad_mooncake_line_is_named(tmp_path: Path, old: str, new: str, place: str, said: str) -> None:
    path = written(tmp_path, MOONCAKE.replace(old, new, 1))
    problem = only_problem(path)
    assert problem.startswith(f"{path}:{place}: ")
    assert said in problem


@pytest.mark.parametrize("text", ["", "\n \n", "TIMESTAMP,ContextTokens,GeneratedTokens\n"])
def test_a_trace_without_requests_is_refused(tmp_path: Path, text: str) -> None:
    assert "the trace has no requests" in only_problem(written(tmp_path, text))


def test_a_missing_trace_is_named(tmp_path: Path) -> None:
    assert "none.csv: cannot read the trace: No such file" in only_problem(tmp_path / "none.csv")


def test_a_cut_off_gzip_file_is_told_from_a_bad_trace(tmp_path: Path) -> None:
    path = tmp_path / "trace.csv.gz"
    path.write_bytes(gzip.compress(AZURE.encode())[:-12])
    assert "damaged gzip file" in only_problem(path)


def test_a_binary_file_is_not_taken_for_a_trace(tmp_path: Path) -> None:
    path = tmp_path / "trace.parquet"
    path.write_bytes(b"PAR1\xff\xfe")
    assert "not UTF-8 text: byte 0xff at offset 4" in only_problem(path)


def test_a_description_has_rates_and_lengths(tmp_path: Path) -> None:
    rows = dict(describe(load_trace(written(tmp_path, AZURE, "small.csv"))).rows())
    assert rows == {
        "source": "small.csv",
        "requests": "3",
        "span": "1.0 s",
        "mean rate": "2.00 requests/s",
        "busiest 10 s": "0.30 requests/s",
        "prompt tokens": "mean 550, p50 396, p90 782, p99 869, max 879",
        "output tokens": "mean 69, p50 55, p90 98, p99 108, max 109",
    }
