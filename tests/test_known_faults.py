"""Every public fault report in the reference is held by a test or says why none is owed."""

from __future__ import annotations

import ast
import re
from collections import Counter
from pathlib import Path

TESTS = Path(__file__).parent
TABLE = TESTS.parent / "docs" / "reference" / "known-faults.md"


def rows() -> dict[int, str]:
    """What the reference says of each report, by its number."""
    cells = [
        re.split(r" \| ", line.strip("| \n")) for line in TABLE.read_text().splitlines() if re.match(r"\| \d", line)
    ]
    return {int(number): here.strip() for number, _, _, here in cells}


def marked() -> Counter[int]:
    """How many tests carry each number."""
    found: Counter[int] = Counter()
    for file in TESTS.rglob("test_*.py"):
        text = file.read_text()
        for node in ast.walk(ast.parse(text)) if "pytest.mark.report" in text else ():
            if not isinstance(node, ast.FunctionDef | ast.ClassDef | ast.AsyncFunctionDef):
                continue
            for mark in node.decorator_list:
                if isinstance(mark, ast.Call) and ast.unparse(mark.func) == "pytest.mark.report":
                    found.update(int(ast.literal_eval(one)) for one in mark.args)
    return found


def test_every_report_has_a_test_or_a_reason() -> None:
    table, tests = rows(), marked()
    assert sorted(table) == [
        *range(1, 37),
        *range(101, 137),
        *range(201, 211),
        *range(301, 307),
        *range(401, 408),
        *range(501, 523),
    ]
    assert {number for number, here in table.items() if here == "tests"} == set(tests)
    assert all(len(here) > 20 for here in table.values() if here != "tests")


CLAIMS = {102, 105, 127, 128, 129, 130, 135, 515, 516, 517, 521}
"""Reports about dynamic resource allocation; those about its driver are among the reports on GPU nodes."""


def test_every_report_about_claims_is_held_by_tests_that_are_there() -> None:
    table, tests = rows(), marked()
    by_mark = {number for number in CLAIMS if table[number] == "tests"}
    assert by_mark <= set(tests)
    for number in CLAIMS - by_mark:
        named = re.findall(r"`(tests/[^`]+\.py)::(\w+)`", table[number])
        assert named, number
        for file, name in named:
            assert f"def {name}(" in (TESTS.parent / file).read_text(), (number, name)
    assert (len(by_mark), len(CLAIMS)) == (5, 11)
