"""Every report about GPU nodes that the page lists has a test that is there, or a reason."""

from __future__ import annotations

import re
from typing import NamedTuple

import pytest

from docs_outputs import REPOSITORY

PAGE = (REPOSITORY / "docs/reference/gpu-node-reports.md").read_text(encoding="utf-8")


class Row(NamedTuple):
    """One row of the table."""

    number: int
    reported: str
    here: str
    held: str


def _rows() -> list[Row]:
    lines = [line for line in PAGE.splitlines() if re.match(r"\| \d+ \|", line)]
    cells = [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines]
    return [Row(int(one[0]), *one[1:4]) for one in cells]


def test_all_reports_are_answered_and_counted() -> None:
    rows = _rows()
    assert [row.number for row in rows] == list(range(1, 38))
    tested = [row for row in rows if row.held]
    reasons = [row for row in rows if row.here.startswith("reason: ")]
    assert {row.number for row in tested} | {row.number for row in reasons} == {row.number for row in rows}
    assert not {row.number for row in tested} & {row.number for row in reasons}
    assert (len(tested), len(reasons)) == (35, 2)
    assert all(re.search(r"[a-zA-Z-]+ \d+", row.reported) for row in rows), "each names where it was reported"


@pytest.mark.parametrize("row", [row for row in _rows() if row.held], ids=lambda row: str(row.number))
def test_the_test_that_holds_an_answer_is_there(row: Row) -> None:
    (name,) = re.findall(r"^`([^`]+)`$", row.held)
    file, _, function = name.partition("::")
    text = (REPOSITORY / file).read_text(encoding="utf-8")
    assert "def test_" in text if function == "*" else f"def {function}(" in text
