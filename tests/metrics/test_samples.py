"""Samples with their times, read from text."""

from __future__ import annotations

import math
import shutil
import subprocess
from pathlib import Path

import pytest

from tonnage.errors import InputError
from tonnage.metrics.exposition import labelled, number
from tonnage.metrics.promql import Vector, evaluate, parse
from tonnage.metrics.samples import Timed, read, stored
from tonnage.metrics.store import NAME, Series, key_of
from tonnage.units import NS_PER_S

PROMTOOL = shutil.which("promtool")
T = 1_767_603_600


def as_openmetrics(samples: list[Timed]) -> str:
    lines = []
    for at_ns, key, value in samples:
        labels = dict(key)
        lines.append(f"{labels.pop(NAME)}{labelled(labels)} {number(value)} {at_ns / NS_PER_S:.3f}")
    return "\n".join([*lines, "# EOF"]) + "\n"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("up 1 1767603600000", (T * NS_PER_S, key_of("up", {}), 1.0)),
        ("up 1 1767603600.25\n# EOF", (T * NS_PER_S + 250_000_000, key_of("up", {}), 1.0)),
        ('a:b{x="1",y="2",} 0.5 1000', (NS_PER_S, key_of("a:b", {"x": "1", "y": "2"}), 0.5)),
        (r'up{path="C:\\n \"q\"\n"} 3 1000', (NS_PER_S, key_of("up", {"path": 'C:\\n "q"\n'}), 3.0)),
        ('up{x="a # b } 4"} 3 1.0\n# EOF', (NS_PER_S, key_of("up", {"x": "a # b } 4"}), 3.0)),
        ('up{x="a # b"} 3 1000', (NS_PER_S, key_of("up", {"x": "a # b"}), 3.0)),
        ('{__name__="up", job="x"} 2 1000', (NS_PER_S, key_of("up", {"job": "x"}), 2.0)),
        ('le_bucket{le="+Inf"} +Inf 1000', (NS_PER_S, key_of("le_bucket", {"le": "+Inf"}), math.inf)),
        ('b{le="1"} 5 1.5 # {trace_id="x"} 0.7 1.4\n# EOF', (1_500_000_000, key_of("b", {"le": "1"}), 5.0)),
    ],
)
def test_a_line_is_a_sample_with_its_time(text: str, found: Timed) -> None:
    assert read(text) == [found]


def test_comments_and_empty_lines_are_passed_over() -> None:
    assert read("# HELP up it runs\n# TYPE up gauge\n\nup 1 1000\n") == [(NS_PER_S, key_of("up", {}), 1.0)]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("up 1", "the sample has no time"),
        ("up one 1000", "is not a number"),
        ("up 1 NaN", "is not a time"),
        ("up 1 -5", "is not a time"),
        ("up{x=1} 1 1000", "the labels cannot be read"),
        ('up{x="1" 1 1000', "is no sample"),
        ("{x=\"1\"} 1 1000", "is no sample"),
    ],
)  # fmt: skip
def test_what_is_no_sample_is_refused_with_its_line(line: str, said: str) -> None:
    with pytest.raises(InputError) as refused:
        read(f"up 1 1000\n{line}\n", "metrics.txt")
    (problem,) = refused.value.problems
    assert (problem.where.file, problem.where.line) == ("metrics.txt", 2)
    assert said in problem.message and problem.hint


def test_samples_of_several_files_meet_in_one_store_in_order_of_time() -> None:
    later = Series({NAME: "up", "job": "x"})
    later.append(20 * NS_PER_S, 2.0)
    later.append(30 * NS_PER_S, 3.0)
    store = stored(read('up{job="x"} 9 30000\nup{job="x"} 1 10000'), [later])
    (series,) = store
    assert list(zip(series.times, series.values, strict=True)) == [(10**10, 1.0), (2 * 10**10, 2.0), (3 * 10**10, 9.0)]


def test_a_store_of_a_long_history_forgets_nothing() -> None:
    days = [f"n {day} {day * 86_400_000}" for day in range(30)]
    store = stored(read("\n".join(days)))
    answer = evaluate(parse("count_over_time(n[29d])"), store, 29 * 86_400 * NS_PER_S)
    assert isinstance(answer, Vector) and answer.value() == 29


@pytest.mark.skipif(PROMTOOL is None, reason="promtool is not installed (apt-get install prometheus)")
def test_what_promtool_makes_of_a_file_reads_as_the_file_does(tmp_path: Path) -> None:
    assert PROMTOOL is not None
    samples = [
        ((T + 15 * i) * NS_PER_S, key_of("vllm:num_requests_running", {"pod": pod, "note": 'a "b" \\ c'}), value)
        for pod in ("a", "b")
        for i, value in enumerate((0.0, 1.5, 1e9, 7.25))
    ]
    text = as_openmetrics(samples)
    assert read(text) == samples
    (tmp_path / "in.txt").write_text(f"# TYPE vllm:num_requests_running gauge\n{text}")
    (tmp_path / "tsdb" / "wal").mkdir(parents=True)  # without one it dumps nothing
    for words in (["create-blocks-from", "openmetrics", "in.txt", "tsdb"], ["dump", "tsdb"]):
        done = subprocess.run([PROMTOOL, "tsdb", *words], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert sorted(read(done.stdout)) == sorted(samples)
