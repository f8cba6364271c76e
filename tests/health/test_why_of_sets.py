"""What `tonnage why` says first of sets with one cause each: that cause, with the change that helps."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cli.cli_builders import tonnage
from health.broken_sets import BrokenSet, broken


@pytest.mark.parametrize("one", broken(), ids=lambda one: one.name.replace(" ", "-"))
def test_the_first_line_says_the_cause(one: BrokenSet, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert one.expect is not None
    if one.expect["stage"] == "no-effect":
        pytest.skip("the cause is of an object without pods")
    folder = one.write(tmp_path / "set")
    found = json.loads(tonnage(capfd, "check", folder, "-o", "json").out)["findings"]
    finding = next(f for f in found if f["rule"] == one.expect["rule"])
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
