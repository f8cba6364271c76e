"""Processes that take turns on a GPU, beside what was measured on real ones."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

import pytest

from tonnage.partitioning.turns import INTERVALS_S, SWITCH_S, Process, Turn, take_turns

DATA = Path(__file__).parents[2] / "benchmarks" / "data"
SHORT = INTERVALS_S["default"]


def measured(card: str) -> Iterator[tuple[str, list[dict[str, str]]]]:
    with (DATA / f"gpu_sharing_{card}.csv").open() as file:
        rows = list(csv.DictReader(file))
    for case, of in groupby(rows, key=lambda row: row["case"]):
        yield case, list(of)


def predicted(rows: list[dict[str, str]]) -> tuple[Turn, ...]:
    processes = [Process(float(row["gpu_ms"]) / 1e3, float(row["host_ms"]) / 1e3) for row in rows]
    return take_turns(processes, interval_s=SHORT, switch_s=SWITCH_S)


def test_every_step_time_of_a_card_it_was_not_fitted_on_is_within_15_percent() -> None:
    cases = list(measured("h100"))
    assert {len(rows) for _, rows in cases} == {2, 4}
    for case, rows in cases:
        for row, turn in zip(rows, predicted(rows), strict=True):
            assert turn.step_s * 1e3 == pytest.approx(float(row["ms"]), rel=0.18), case  # 1 / 0.85
            assert turn.steps_per_s == pytest.approx(float(row["steps_per_s"]), rel=0.15), case


def test_busy_processes_share_a_gpu_equally() -> None:
    for count in (2, 4, 8):
        turns = take_turns([Process(0.010)] * count, interval_s=SHORT)
        assert [turn.share for turn in turns] == pytest.approx([1 / count] * count, abs=0.01)
        assert [turn.step_s for turn in turns] == pytest.approx([0.010 * count] * count, rel=0.01)


def test_a_process_that_waits_elsewhere_leaves_its_turn_to_the_others() -> None:
    busy, idle = take_turns([Process(0.010), Process(0.001, 0.099)], interval_s=SHORT)
    assert busy.share > 0.98
    assert idle.step_s == pytest.approx(0.100, rel=0.03)


def test_going_to_and_fro_costs_a_switch_for_every_turn() -> None:
    free, dear = (take_turns([Process(0.010)] * 2, interval_s=SHORT, switch_s=s)[0].step_s for s in (0.0, 0.0002))
    assert dear / free == pytest.approx(1.1, rel=0.01)


def test_a_longer_interval_makes_a_short_step_wait_longer() -> None:
    waits = [
        take_turns([Process(0.1), Process(0.0005, 0.01)], interval_s=INTERVALS_S[name])[1].step_s
        for name in ("short", "default", "long")
    ]
    assert waits == sorted(waits)
    assert waits[0] < waits[2]


@pytest.mark.parametrize("process", [Process(0.0), Process(-1.0), Process(0.1, -0.1)])
def test_times_that_are_not_positive_are_refused(process: Process) -> None:
    with pytest.raises(ValueError, match="must be positive"):
        take_turns([process], interval_s=SHORT)
