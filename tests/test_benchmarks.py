"""What fails a benchmark: a crash and a wrong result always, a cost only in a full run."""

from __future__ import annotations

import importlib
import json
import sys
from types import SimpleNamespace

import pytest

from benchmarks import __main__ as command
from benchmarks.common import Kind, Options, Report
from benchmarks.main import place


def a_benchmark(monkeypatch: pytest.MonkeyPatch, name: str, *, kind: Kind, holds: bool) -> None:
    """Stand in for the benchmark ``name`` with one bar."""

    def run(options: Options) -> Report:
        report = Report(name, ("what",))
        report.bar("one", 1.0, "==", 1.0 if holds else 2.0, "pods", kind)
        return report

    monkeypatch.setitem(sys.modules, f"benchmarks.{name}", SimpleNamespace(run=run))


def a_crash(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    def run(options: Options) -> Report:
        raise AssertionError("two answers differ")

    monkeypatch.setitem(sys.modules, f"benchmarks.{name}", SimpleNamespace(run=run))


def code(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr(sys, "argv", ["benchmarks", *arguments])
    return command.main()


@pytest.mark.parametrize("name", command.NAMES)
def test_every_benchmark_can_be_begun(name: str) -> None:
    assert callable(importlib.import_module(f"benchmarks.{name}").run)


@pytest.mark.parametrize(
    ("kind", "quick", "exit_code"), [("result", False, 1), ("result", True, 1), ("cost", False, 1), ("cost", True, 0)]
)
def test_a_wrong_result_fails_always_and_a_cost_in_full_runs_alone(
    monkeypatch: pytest.MonkeyPatch, kind: Kind, quick: bool, exit_code: int
) -> None:
    a_benchmark(monkeypatch, "main", kind=kind, holds=False)
    assert code(monkeypatch, "main", *(["--quick"] if quick else [])) == exit_code


@pytest.mark.parametrize(
    ("value", "quick", "fails"),
    [(0.1, True, False), (0.2, True, False), (0.2, False, True), (0.4, True, True), (0.4, False, True)],
    ids=["holds", "known", "known, in full", "worse", "worse, in full"],
)
def test_a_known_miss_fails_a_quick_look_only_where_it_got_worse(value: float, quick: bool, fails: bool) -> None:
    report = Report("main", ("what",))
    report.bar("error", value, "<=", 0.15, "relative error", "result", 0.3)
    assert bool(report.missed(quick)) is fails


def test_bars_that_hold_fail_nothing_and_their_kind_is_in_the_json(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    a_benchmark(monkeypatch, "main", kind="result", holds=True)
    assert code(monkeypatch, "main", "--json") == 0
    (bar,) = json.loads(capsys.readouterr().out.splitlines()[-1])["bars"]
    assert (bar["id"], bar["kind"], bar["holds"]) == ("one", "result", True)


def test_a_benchmark_that_crashes_fails_and_the_others_run(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    first, *others = command.NAMES
    a_crash(monkeypatch, first)
    for name in others:
        a_benchmark(monkeypatch, name, kind="cost", holds=False)
    assert code(monkeypatch, "all", "--quick") == 1
    said = capsys.readouterr()
    assert "two answers differ" in said.err
    assert said.out.count("slow   cost  one: 1 pods (== 2)") == len(others)
    last = said.out.splitlines()[-1]
    assert last.endswith(f"; failed: {first}") and all(f"{name} 0" in last for name in command.NAMES)


def test_the_plainest_policy_places_all_pods_of_the_large_cluster_and_the_default_one_nearly_all() -> None:
    plain, default = place("40", "binpack"), place("40", "tonnage")
    assert plain["placed"] == plain["pods"] == 400
    assert plain["gpus"] == plain["gpus_asked"]
    assert 0.95 * default["pods"] <= default["placed"] <= default["pods"]
