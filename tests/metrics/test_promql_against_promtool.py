"""The evaluator against the real Prometheus engine: random series, random queries, answers compared label by label."""

from __future__ import annotations

import json
import math
import random
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from random_queries import (
    ERROR,
    LENGTH_S,
    STEP_S,
    Answer,
    Inquiry,
    MoreQueries,
    Points,
    Queries,
    SeriesKey,
)

from deep_seeds import deep
from tonnage.metrics.functions import Dialect

PROMTOOL = shutil.which("promtool")
pytestmark = [
    pytest.mark.peer,
    pytest.mark.skipif(PROMTOOL is None, reason="promtool is not installed (apt-get install prometheus)"),
]

SENTINEL = {"labels": "sentinel", "value": 1}  # never equal, so that promtool prints what it got


def notation(points: Points) -> str:
    """promtool's series notation at one point a second."""
    words, silent = [], 0
    for second in range(LENGTH_S):
        if second not in points:
            silent += 1
            continue
        if silent:
            words.append(f"_x{silent}")
            silent = 0
        value = points[second]
        words.append(
            "stale"
            if value is None
            else "NaN"
            if math.isnan(value)
            else f"{value:g}"
            if math.isinf(value)
            else repr(value)
        )
    return " ".join(words)


def ask_promtool(folder: Path, series: dict[SeriesKey, Points], cases: list[tuple[str, int]]) -> list[str]:
    """What promtool got for each case: the text after ``got:``, or ``err`` for an error."""
    spec = {
        "evaluation_interval": f"{STEP_S}s",  # promtool loads samples up to the last whole interval only
        "tests": [
            {
                "interval": "1s",
                "input_series": [
                    {
                        "series": name + json.dumps(dict(labels)).replace(": ", "=").replace('"', "'"),
                        "values": notation(points),
                    }
                    for (name, labels), points in series.items()
                ],
                "promql_expr_test": [{"expr": q, "eval_time": f"{t}s", "exp_samples": [SENTINEL]} for q, t in cases],
            }
        ],
    }
    for item in spec["tests"][0]["input_series"]:
        item["series"] = re.sub(r"'(\w+)'=", r"\1=", item["series"])
    path = folder / "rules.yml"
    path.write_text(json.dumps(spec))
    assert PROMTOOL is not None
    done = subprocess.run([PROMTOOL, "test", "rules", str(path)], capture_output=True, text=True, check=False)
    blocks = (done.stdout + done.stderr).split('    expr: "')[1:]
    assert len(blocks) == len(cases), done.stderr[-2000:]
    return ["err" if " err: " in block.splitlines()[0] else block.rpartition("got:")[2].strip() for block in blocks]


def read_vector(text: str) -> Answer:
    if text in ("nil", "[]", "err"):
        return ERROR if text == "err" else {}
    found = re.findall(r"\{([^}]*)\} ([^,\s]+)", text)
    return {tuple(sorted(re.findall(r'(\w+)="([^"]*)"', labels))): float(value) for labels, value in found}


def dialect() -> Dialect:
    assert PROMTOOL is not None
    done = subprocess.run([PROMTOOL, "--version"], capture_output=True, text=True, check=False)
    major, minor = re.findall(r"version (\d+)\.(\d+)", done.stdout + done.stderr)[0]
    return Dialect.of(int(major), int(minor))


@pytest.mark.parametrize("seed", range(12))
def test_random_queries_give_what_prometheus_gives(seed: int, tmp_path: Path) -> None:
    hold_beside(random.Random(seed), Queries, tmp_path, 80)


@pytest.mark.parametrize("seed", range(100, 106))
def test_functions_of_dashboards_give_what_prometheus_gives(seed: int, tmp_path: Path) -> None:
    hold_beside(random.Random(seed), MoreQueries, tmp_path, 60)


@pytest.mark.parametrize("seed", deep(range(200, 230)))
def test_many_functions_give_what_prometheus_gives(seed: int, tmp_path: Path) -> None:
    hold_beside(random.Random(seed), MoreQueries, tmp_path, 60)


def hold_beside(rng: random.Random, kind: type[Queries], tmp_path: Path, least: int) -> None:
    inquiry = Inquiry(rng, kind)
    theirs = [read_vector(one) for one in ask_promtool(tmp_path, inquiry.series, inquiry.cases)]
    assert inquiry.hold(theirs, dialect()) > least  # the comparison has substance
