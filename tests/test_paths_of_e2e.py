"""What is marked as an end-to-end test is played by `make e2e`."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace

import pytest
from side_by_side import REAL_NODES, TOGETHER, group

from e2e import __main__ as command
from e2e.__main__ import PATHS

ROOT = Path(__file__).resolve().parent.parent
MARKED = re.compile(r"pytest\.mark\.e2e\b")


def test_no_end_to_end_test_stands_where_nobody_plays_it() -> None:
    marked = {path.relative_to(ROOT) for path in (ROOT / "tests").rglob("test_*.py") if MARKED.search(path.read_text())}
    marked.discard(Path(__file__).relative_to(ROOT))
    assert len(marked) >= 3
    assert not [str(path) for path in sorted(marked) if not any(path.is_relative_to(folder) for folder in PATHS)]


# ---- what runs side by side ----


def test_files_that_start_real_nodes_are_never_side_by_side() -> None:
    """Kubelets set what the whole machine has once."""
    words = ("RealNodes(", "real_nodes:", "real_nodes)")
    files = (ROOT / "tests" / "e2e").glob("test_*.py")
    assert {one.name for one in files if any(word in one.read_text() for word in words)} == set(TOGETHER[REAL_NODES])


def test_files_of_one_group_are_there_and_the_others_are_groups_of_their_own() -> None:
    names = {path.name for path in (ROOT / "tests").rglob("test_*.py")}
    for what, files in TOGETHER.items():
        assert set(files) <= names and {group(one) for one in files} == {what}
    assert group("test_filters.py") == "test_filters.py"


@pytest.mark.parametrize(
    ("arguments", "long", "in_turn", "reason", "side_by_side"),
    [
        ([], False, "", "", True),
        ([], False, "1", "", False),
        (["tests/e2e/test_host.py"], False, "", "", False),
        ([], True, "", "", False),
        ([], False, "", "not root", False),
    ],
    ids=["all", "all in turn", "one file", "all numbers", "where nothing can run"],
)
def test_two_files_run_at_once_where_all_run(
    monkeypatch: pytest.MonkeyPatch, arguments: list[str], long: bool, in_turn: str, reason: str, side_by_side: bool
) -> None:
    asked: list[list[str]] = []

    def run(words: list[str], **_: object) -> SimpleNamespace:
        asked.append([str(word) for word in words])
        return SimpleNamespace(returncode=0)

    monkeypatch.setattr(command, "_build", lambda: 0)
    monkeypatch.setattr(command.prerequisites, "to_run", lambda: reason)
    monkeypatch.setattr(command.prerequisites, "to_build", lambda: "")
    monkeypatch.setattr(command.subprocess, "run", run)
    monkeypatch.setenv(command.IN_TURN, in_turn)
    assert command.main(["long" if long else "test", *arguments]) == 0
    ((first, *words),) = asked
    private = str(ROOT / "e2e" / "private.sh")
    assert any(word.startswith(f"--tx=2*popen//python={private} ") for word in words) == side_by_side
    assert ("no:xdist" in words) != side_by_side
    assert (first == private) == (not side_by_side and not reason)
