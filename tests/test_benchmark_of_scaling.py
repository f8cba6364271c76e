"""What the scaling benchmark makes of a request log, and how it judges."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from benchmarks.common import Report
from benchmarks.scaling import _judge
from benchmarks.scaling_runs import Outcome, reversals
from benchmarks.scaling_traffic import SHAPES, Shape, halves, write
from tonnage.errors import InputError
from tonnage.traffic.traces import load_trace
from tonnage.units import NS_PER_S

SURGE, DAY, FLAT = SHAPES
MINUTE_S = 60


def a_log(folder: Path, *, seconds: int = 2400, rates: tuple[float, ...] = (1.0, 3.0, 0.5, 2.0)) -> Path:
    """Requests at these rates, each for as long as the others; prompts of 500 tokens in the first half, then of 700."""
    rng = np.random.default_rng(1)
    each = seconds / len(rates)
    times = np.concatenate(
        [number * each + np.sort(rng.random(round(rate * each))) * each for number, rate in enumerate(rates)]
    )
    path = folder / "log.jsonl"
    path.write_text(
        "".join(
            f'{{"timestamp": {at * 1000:.3f}, "input_length": {500 if at < seconds / 2 else 700}, "output_length": 100}}\n'
            for at in times.tolist()
        )
    )
    return path


def test_the_halves_are_those_of_its_time_at_an_even_pace(tmp_path: Path) -> None:
    logs = halves(a_log(tmp_path))
    assert [float(log.prompt.mean()) for log in logs.values()] == pytest.approx([500, 700], abs=1)
    for log in logs.values():
        counts, _ = np.histogram(log.arrivals_ns / NS_PER_S, 4)
        assert counts.max() < 1.1 * counts.min(), "the first half's second part had three times the requests"
        assert np.all(np.diff(log.arrivals_ns) >= 0)


def test_a_log_that_is_too_short_is_refused_with_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="expected at least 1,000 in each half"):
        halves(a_log(tmp_path, seconds=400))


@pytest.mark.parametrize("shape", SHAPES, ids=[shape.name for shape in SHAPES])
def test_the_load_is_so_many_replicas_worth(shape: Shape, tmp_path: Path) -> None:
    folder = write(tmp_path, shape, "score", halves(a_log(tmp_path))["score"], 0.25)
    log = load_trace(folder / "log.jsonl")
    at = log.arrivals_ns / NS_PER_S / MINUTE_S
    first, peak = at < 15, (at > 40) & (at < 48)
    factor = shape.surges["score"][0].factor if shape.surges["score"] else 1.0
    expected = shape.base * 0.25 * MINUTE_S
    assert first.sum() / 15 == pytest.approx(expected, rel=0.25)
    if shape is not DAY:
        assert peak.sum() / 8 == pytest.approx(expected * factor, rel=0.25)


@pytest.mark.parametrize(("replicas", "count"), [([2, 2], 0), ([2, 3, 5], 0), ([2, 4, 3], 1), ([4, 3, 3, 4, 2], 2)])
def test_changes_of_direction(replicas: list[int], count: int) -> None:
    assert reversals(replicas) == count


SLO, KEDA, RULE, ORACLE = (Outcome(0.995, 0.9, hours, 8, 0.0) for hours in (14.0, 18.0, 30.0, 10.0))


@pytest.mark.parametrize(
    ("changed", "fails"),
    [
        ({}, set()),
        ({"slo": {"share": 0.98}}, {"slo-share-day"}),
        ({"slo": {"hours": 15.0}}, {"slo-gap-closed-day"}),
        ({"slo": {"hours": 9.0}}, {"oracle-is-beaten-day"}),
        ({"keda": {"hours": 9.8}, "slo": {"hours": 9.95}}, {"oracle-is-beaten-day"}),
        ({"rule": {"hours": 27.0}}, {"slo-of-rule-day"}),
        ({"rule": {"hours": 20.0, "share": 0.9}}, set()),
    ],
)
def test_which_bars_fail(changed: dict[str, dict[str, float]], fails: set[str]) -> None:
    got = {"slo": SLO, "keda": KEDA, "rule": RULE, "oracle": ORACLE}
    got |= {name: replace(got[name], **cells) for name, cells in changed.items()}
    report = Report("scaling", ())
    _judge(report, DAY, got["slo"], got["keda"], got["rule"], got["oracle"])
    assert {bar.id for bar in report.bars if not bar.holds} == fails


def test_steady_traffic_is_judged_by_keda_and_by_changes_of_direction() -> None:
    report = Report("scaling", ())
    _judge(report, FLAT, replace(SLO, hours=19.0, reversals=1.5), KEDA, RULE, ORACLE)
    assert {bar.id for bar in report.bars if not bar.holds} == {
        "slo-of-keda-flat",
        "slo-reversals-flat",
        "slo-of-rule-flat",
    }


def test_where_no_keda_setting_attains_the_share_it_is_reported_apart() -> None:
    report = Report("scaling", ())
    _judge(report, SURGE, SLO, None, RULE, ORACLE)
    assert [bar.id for bar in report.bars] == ["slo-share-surge", "slo-of-rule-surge"]
    assert "reported apart" in report.notes[-1]
