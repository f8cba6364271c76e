"""What `tonnage check` says of sets with one cause each: that cause, at its line, and nothing of a set that is well; and
what `tonnage why` says first of their pods: the same cause, with the change that helps."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from cli.cli_builders import tonnage
from deep_seeds import part
from health.broken_sets import BrokenSet, broken, good


@dataclass(frozen=True)
class Checked:
    """A set in its folder, what `tonnage check` finds there, and its exit code."""

    folder: Path
    findings: list[Any]
    code: int

    @property
    def errors(self) -> list[Any]:
        return [one for one in self.findings if one["severity"] == "error"]


Check = Callable[..., Checked]


@pytest.fixture(scope="module")
def known() -> dict[tuple[str, bool], Checked]:
    """What was found before, by name of the set and whether it was mended: each is checked once."""
    return {}


@pytest.fixture
def check(
    known: dict[tuple[str, bool], Checked], tmp_path_factory: pytest.TempPathFactory, capfd: pytest.CaptureFixture[str]
) -> Check:
    """The findings on a set."""

    def checked(one: BrokenSet, *, fixed: bool = False) -> Checked:
        if (one.name, fixed) not in known:
            folder = one.write(tmp_path_factory.mktemp("sets") / "set", fixed=fixed)
            done = tonnage(capfd, "check", folder, "-o", "json")
            assert done.code in (0, 1, 2), done.err
            known[one.name, fixed] = Checked(folder, json.loads(done.out)["findings"], done.code)
        return known[one.name, fixed]

    return checked


@pytest.mark.parametrize("one", broken(), ids=lambda one: one.name.replace(" ", "-"))
def test_the_cause_is_named_at_its_line(one: BrokenSet, check: Check) -> None:
    assert one.expect is not None
    checked = check(one)
    found = checked.errors
    assert checked.code in (1, 2)
    rules = {error["rule"] for error in found}
    assert one.expect["rule"] in rules and rules <= {one.expect["rule"], *one.expect.get("also", ())}
    first = next(error for error in found if error["rule"] == one.expect["rule"])
    place = first["where"]
    line = Path(place["file"]).read_text().splitlines()[place["line"] - 1]
    assert str(one.expect["at"]) in line, (line, first)
    assert first["help"]


@pytest.mark.parametrize("one", part(broken()), ids=lambda one: one.name.replace(" ", "-"))
def test_the_change_that_mends_it_leaves_no_error(one: BrokenSet, check: Check) -> None:
    checked = check(one, fixed=True)
    assert (checked.errors, checked.code) == ([], 0)


@pytest.mark.parametrize("one", good(), ids=lambda one: one.name.replace(" ", "-"))
def test_a_good_set_has_no_error(one: BrokenSet, check: Check) -> None:
    checked = check(one)
    assert (checked.errors, checked.code) == ([], 0)


@pytest.mark.parametrize("one", part(broken()), ids=lambda one: one.name.replace(" ", "-"))
def test_the_first_line_of_why_says_the_cause(one: BrokenSet, check: Check, capfd: pytest.CaptureFixture[str]) -> None:
    assert one.expect is not None
    if one.expect["stage"] == "no-effect":
        pytest.skip("the cause is of an object without pods")
    checked = check(one)
    folder = checked.folder
    finding = next(f for f in checked.findings if f["rule"] == one.expect["rule"])
    if finding["rule"] == "input-refused":  # of which there are no pods to ask about
        done = tonnage(capfd, "why", "any", folder)
        assert done.code == 2 and finding["message"] in done.err.splitlines()[0]
        return
    about = finding["object"]
    asked = ("why", f"{about['kind'].lower()}/{about['name']}", "-n", about["namespace"], folder)
    at = ("--at", "0s") if (folder / "scenario.yaml").exists() else ()
    done = tonnage(capfd, *asked, *at)
    assert done.code == 1, done.err
    first = done.out.splitlines()[0]
    assert first.startswith(
        (f"{about['kind']} {about['namespace']}/{about['name']} ", f"{about['namespace']}/{about['name']} ")
    )
    assert finding["message"] in first
    told = json.loads(tonnage(capfd, *asked, *at, "-o", "json").out)["told"]
    assert (told["state"], told["rule"], told["help"]) == ("never", one.expect["rule"], finding["help"])
