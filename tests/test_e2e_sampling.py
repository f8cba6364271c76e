"""What `make e2e` leaves out, and what is written down of the runs that leave nothing out."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import sampling
from recorder import Recorder

from e2e import __main__ as run
from e2e import record
from e2e.recipe import RECIPE


@pytest.fixture(autouse=True)
def sampled(monkeypatch: pytest.MonkeyPatch) -> None:
    """A sampled run, whatever the environment says."""
    monkeypatch.setattr(sampling, "LONG", False)
    monkeypatch.setattr(sampling, "SEED", 1)
    monkeypatch.setattr(sampling, "counts", {})


def test_a_sample_is_drawn_by_its_name_and_the_seed_and_stands_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    found = sampling.some("worlds", range(100), 10)
    assert found == sorted(set(found)) and len(found) == 10
    assert sampling.some("worlds", range(100), 10) == found
    assert sampling.some("storms", range(100), 10) != found
    monkeypatch.setattr(sampling, "SEED", 2)
    assert sampling.some("worlds", range(100), 10) != found
    assert sampling.counts == {"worlds": 10, "storms": 10}


def test_a_long_run_has_all(monkeypatch: pytest.MonkeyPatch) -> None:
    assert sorted(sampling.shuffled("pairs", range(50))) == list(range(50)) != sampling.shuffled("pairs", range(50))
    assert sampling.often("kills", 20, 4) == 4
    monkeypatch.setattr(sampling, "LONG", True)
    assert sampling.some("worlds", range(100), 10) == list(range(100))
    assert sampling.shuffled("pairs", range(50)) == list(range(50))
    assert sampling.often("kills", 20, 4) == 20
    assert sampling.counts == {"worlds": 100, "kills": 20}


@pytest.mark.parametrize(
    ("first", "second", "joined", "result"),
    [
        ({"passed": 9, "skipped": 1}, {"passed": 4}, {"passed": 13, "skipped": 1}, "passed"),
        ({"passed": 9}, {"passed": 4, "failed": 1}, {"passed": 13, "failed": 1}, "failed"),
        ({"passed": 9}, {"skipped": 1}, {"error": 1, "passed": 9, "skipped": 1}, "failed"),
    ],
    ids=["both passed", "one failed", "in one nothing ran"],
)
def test_records_of_two_processes_are_one(
    tmp_path: Path, first: dict[str, int], second: dict[str, int], joined: dict[str, int], result: str
) -> None:
    parts = [tmp_path / "first.json", tmp_path / "second.json"]
    for part, outcomes in zip(parts, (first, second), strict=True):
        record.write(part, 7, {"kills": 20, part.stem: 1}, outcomes, record.versions(), 60.0)
    file = tmp_path / "record.json"
    assert record.join(parts, file, 90.0)
    found = json.loads(file.read_text())
    assert (found["result"], found["tests"], found["minutes"]) == (result, joined, 1.5)
    assert found["counts"] == {"first": 1, "kills": 40, "second": 1}


@pytest.mark.parametrize(
    ("outcomes", "result"),
    [
        ({"passed": 9, "skipped": 1}, "passed"),
        ({"passed": 9, "failed": 1}, "failed"),
        ({"passed": 9, "error": 1}, "failed"),
        ({"skipped": 10}, "failed"),
    ],
)
def test_a_record_says_how_the_run_ended_and_of_what(tmp_path: Path, outcomes: dict[str, int], result: str) -> None:
    file = tmp_path / "record.json"
    record.write(file, 7, {"kills": 20}, outcomes, record.versions(), 754.0)
    found = json.loads(file.read_text())
    assert (found["result"], found["tests"]) == (result, outcomes)
    assert (found["seed"], found["counts"], found["minutes"]) == (7, {"kills": 20}, 12.6)
    assert found["versions"]["k8s.io/kubernetes"] == RECIPE[0].version("k8s.io/kubernetes")
    assert all(version for name, version in found["versions"].items() if name != "commit")


HELD_UP = """
import os
from pathlib import Path

def test_quick():
    assert os.environ["TONNAGE_E2E_LANE"] in ("timed", "others")

def test_held_up():
    before = Path(__file__).with_name(os.environ["TONNAGE_E2E_LANE"])
    first = not before.exists()
    before.touch()
    assert before.name == "timed" or not first{and_then}
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("and_then", "status", "said"), [("", 0, "passed alone"), (" and False", 1, "once more, alone")]
)
def test_what_fails_beside_others_runs_once_more_alone_and_is_named(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], and_then: str, status: int, said: str
) -> None:
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    (tmp_path / "test_lanes.py").write_text(HELD_UP.replace("{and_then}", and_then))
    words = [sys.executable, "-m", "pytest", "-q", "-c", str(tmp_path / "pytest.ini"), str(tmp_path)]
    assert run._side_by_side(words, dict(os.environ), None) == status
    printed = capfd.readouterr().out
    assert said in printed and "test_lanes.py::test_held_up" in printed.partition(said)[2]


class _Lanes:
    """Two lanes that have ended in these ways; what is run after them writes a report of so many tests skipped."""

    def __init__(self, statuses: tuple[int, int], failed: dict[str, bool] | None, skipped: int = 0) -> None:
        self.statuses, self.failed, self.skipped = dict(zip(run.LANES, statuses, strict=True)), failed, skipped
        self.again: list[list[str]] = []

    def begun(self, words: list[str], env: dict[str, str], **_: object) -> SimpleNamespace:
        lane = env[run.LANE]
        if report := next((one.partition("=")[2] for one in words if one.startswith("--junit-xml=")), ""):
            self.again.append(words)
            Path(report).write_text(f'<testsuites><testsuite skipped="{self.skipped}"/></testsuites>')
            return SimpleNamespace(returncode=0)
        if self.failed is not None:
            file = (
                Path(next(one.partition("=")[2] for one in words if one.startswith("cache_dir=")))
                / "v/cache/lastfailed"
            )
            file.parent.mkdir(parents=True)
            file.write_text(json.dumps(self.failed))
        status = self.statuses[lane]
        return SimpleNamespace(returncode=status, wait=lambda: status, kill=lambda: None)


@pytest.mark.parametrize(
    ("statuses", "failed", "skipped", "status"),
    [
        ((0, -9), None, 0, -9),
        ((-9, 0), None, 0, -9),
        ((1, 0), None, 0, 1),
        ((1, 0), {}, 0, 1),
        ((1, 0), {"test_a": True}, 1, 1),
        ((1, 0), {"test_a": True}, 0, 0),
        ((1, 0), dict.fromkeys("abcd", True), 0, 1),
    ],
    ids=[
        "second killed",
        "first killed",
        "no tests begun",
        "none failed",
        "then skipped",
        "then passed",
        "many failed",
    ],
)
def test_only_tests_that_pass_alone_make_good_what_a_lane_ended_with(
    monkeypatch: pytest.MonkeyPatch,
    statuses: tuple[int, int],
    failed: dict[str, bool] | None,
    skipped: int,
    status: int,
) -> None:
    lanes = _Lanes(statuses, failed, skipped)
    monkeypatch.setattr(run.subprocess, "Popen", lanes.begun)
    monkeypatch.setattr(run.subprocess, "run", lanes.begun)
    assert run._side_by_side(["pytest"], {}, None) == status
    assert len(lanes.again) == (failed == {"test_a": True})


def test_a_test_that_fails_and_leaves_a_fault_behind_counts_once() -> None:
    recorder = Recorder(Path("record.json"))
    for when, outcome in (("setup", "passed"), ("call", "failed"), ("teardown", "failed")):
        report: Any = SimpleNamespace(nodeid="test_a", when=when, outcome=outcome, failed=outcome == "failed")
        recorder.pytest_runtest_logreport(report)
    assert recorder.ended == {"test_a": "failed"}


def test_what_passed_alone_is_named_in_the_record(tmp_path: Path) -> None:
    parts = [tmp_path / "first.json", tmp_path / "second.json"]
    for part, outcomes in zip(parts, ({"passed": 9}, {"passed": 3, "failed": 1}), strict=True):
        record.write(part, 7, {}, outcomes, record.versions(), 60.0)
    file = tmp_path / "record.json"
    assert record.join(parts, file, 90.0, ["tests/e2e/test_soak.py::test_churn"])
    found = json.loads(file.read_text())
    assert (found["result"], found["tests"]) == ("passed", {"passed": 13})
    assert found["passed alone, after they had failed beside others"] == ["tests/e2e/test_soak.py::test_churn"]
