"""What is marked as an end-to-end test is played by `make e2e`."""

from __future__ import annotations

import json
import os
import re
import sys
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import pytest
from side_by_side import RUNNING_TIME, lane_of

from e2e import __main__ as command
from e2e.__main__ import PATHS

ROOT = Path(__file__).resolve().parent.parent
MARKED = re.compile(r"pytest\.mark\.e2e\b")


def test_no_end_to_end_test_stands_where_nobody_plays_it() -> None:
    marked = {path.relative_to(ROOT) for path in (ROOT / "tests").rglob("test_*.py") if MARKED.search(path.read_text())}
    marked.discard(Path(__file__).relative_to(ROOT))
    assert len(marked) >= 3
    assert not [str(path) for path in sorted(marked) if not any(path.is_relative_to(folder) for folder in PATHS)]


def test_no_two_files_of_tests_have_one_name() -> None:
    """Outside a package, pytest imports a file by its name alone and cannot collect the second of one name."""
    names = Counter(path.name for path in (ROOT / "tests").rglob("test_*.py"))
    assert len(names) > 100 and not [name for name, times in names.items() if times > 1]


# ---- what runs side by side ----


def test_real_nodes_are_never_beside_one_another_and_every_file_has_a_lane() -> None:
    """Kubelets set what the whole machine has once."""
    words = ("RealNodes(", "real_nodes:", "real_nodes)")
    files = list((ROOT / "tests" / "e2e").glob("test_*.py"))
    real = {one.name for one in files if any(word in one.read_text() for word in words)}
    assert len(real) >= 5 and {lane_of(name) for name in real} == {"others"}
    assert {lane_of(one.name) for one in files} == set(command.LANES)
    assert set(RUNNING_TIME) <= {path.name for path in (ROOT / "tests").rglob("test_*.py")}


SAY = "import os, sys; print(os.environ[sys.argv[1]]); sys.exit(int(sys.argv[2]) * (os.environ[sys.argv[1]] == sys.argv[3]))"


@pytest.mark.parametrize(("fails", "status"), [("none", 0), ("timed", 3), ("others", 3)])
def test_both_lanes_run_and_the_failure_of_either_counts(
    capfd: pytest.CaptureFixture[str], fails: str, status: int
) -> None:
    words = [sys.executable, "-c", SAY, command.LANE, "3", fails]
    assert command._side_by_side(words, dict(os.environ), None) == status
    assert capfd.readouterr().out.split() == ["timed", "others"]


WRITE = "import os, sys; open(os.environ[sys.argv[1]], 'w').write(sys.argv[2]) if os.environ[sys.argv[3]] != sys.argv[4] else 0"
PART = '{"result": "passed", "seed": 7, "tests": {"passed": 2}, "counts": {"kills": 20}, "versions": {"tonnage": "1"}}'


@pytest.mark.parametrize(("silent", "written"), [("none", True), ("others", False)])
def test_what_both_lanes_recorded_is_one_record_or_none(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], silent: str, written: bool
) -> None:
    file = tmp_path / "record.json"
    words = [sys.executable, "-c", WRITE, command.RECORD, PART, command.LANE, silent]
    assert command._side_by_side(words, dict(os.environ), file) == 0
    assert file.exists() == written
    assert ("no record" in capfd.readouterr().err) != written
    if written:
        found = json.loads(file.read_text())
        assert (found["result"], found["tests"], found["counts"]) == ("passed", {"passed": 4}, {"kills": 40})


@pytest.mark.parametrize(
    ("arguments", "long", "in_turn", "reason", "beside"),
    [
        ([], False, "", "", True),
        ([], False, "1", "", False),
        (["tests/e2e/test_host.py"], False, "", "", False),
        ([], True, "", "", True),
        ([], True, "1", "", False),
        ([], False, "", "not root", False),
    ],
    ids=["all", "all in turn", "one file", "all numbers", "all numbers in turn", "where nothing can run"],
)
def test_two_files_run_at_once_where_all_run(
    monkeypatch: pytest.MonkeyPatch, arguments: list[str], long: bool, in_turn: str, reason: str, beside: bool
) -> None:
    asked: list[bool] = []
    monkeypatch.setattr(command, "_build", lambda: 0)
    monkeypatch.setattr(command.prerequisites, "to_run", lambda: reason)
    monkeypatch.setattr(command.prerequisites, "to_build", lambda: "")
    monkeypatch.setattr(
        command.subprocess, "run", lambda *_, **__: asked.append(False) or SimpleNamespace(returncode=0)
    )
    monkeypatch.setattr(command, "_side_by_side", lambda *_: asked.append(True) or 0)
    monkeypatch.setenv(command.IN_TURN, in_turn)
    assert command.main(["long" if long else "test", *arguments]) == 0
    assert asked == [beside]
