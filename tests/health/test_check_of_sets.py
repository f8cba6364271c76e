"""What `tonnage check` says of sets with one cause each: that cause, at its line, and nothing of a set that is well."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from cli.cli_builders import tonnage
from health.broken_sets import BrokenSet, broken, good


@pytest.fixture
def errors(capfd: pytest.CaptureFixture[str]) -> Any:
    """The findings of severity error on a folder, and the exit code."""

    def checked(folder: Path) -> tuple[list[Any], int]:
        done = tonnage(capfd, "check", folder, "-o", "json")
        assert done.code in (0, 1, 2), done.err
        return [one for one in json.loads(done.out)["findings"] if one["severity"] == "error"], done.code

    return checked


@pytest.mark.parametrize("one", broken(), ids=lambda one: one.name.replace(" ", "-"))
def test_the_cause_is_named_at_its_line(one: BrokenSet, tmp_path: Path, errors: Any) -> None:
    assert one.expect is not None
    found, exit_code = errors(one.write(tmp_path / "set"))
    assert exit_code in (1, 2)
    rules = {error["rule"] for error in found}
    assert one.expect["rule"] in rules and rules <= {one.expect["rule"], *one.expect.get("also", ())}
    first = next(error for error in found if error["rule"] == one.expect["rule"])
    place = first["where"]
    line = Path(place["file"]).read_text().splitlines()[place["line"] - 1]
    assert str(one.expect["at"]) in line, (line, first)
    assert first["help"]


@pytest.mark.parametrize("one", broken(), ids=lambda one: one.name.replace(" ", "-"))
def test_the_change_that_mends_it_leaves_no_error(one: BrokenSet, tmp_path: Path, errors: Any) -> None:
    assert errors(one.write(tmp_path / "set", fixed=True)) == ([], 0)


@pytest.mark.parametrize("one", good(), ids=lambda one: one.name.replace(" ", "-"))
def test_a_good_set_has_no_error(one: BrokenSet, tmp_path: Path, errors: Any) -> None:
    assert errors(one.write(tmp_path / "set")) == ([], 0)
