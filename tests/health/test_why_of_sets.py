"""What `tonnage why` says first of sets with one cause each: that cause, with the change that helps."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from cli.cli_builders import tonnage
from health.broken_sets import BrokenSet, broken, good


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


@pytest.mark.parametrize("one", [one for one in good() if one.file == "admitted"], ids=lambda one: one.name)
def test_pods_of_a_good_set_run_or_are_about_to(
    one: BrokenSet, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    _all_are_well(one.write(tmp_path / "set"), one.parts()[0], capfd)


@pytest.mark.parametrize("one", [one for one in broken() if one.file == "admitted"], ids=lambda one: one.name)
def test_pods_of_a_mended_set_run_or_are_about_to(
    one: BrokenSet, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    _all_are_well(one.write(tmp_path / "set", fixed=True), one.parts()[0], capfd)


def _all_are_well(folder: Path, objects: list[Any], capfd: pytest.CaptureFixture[str]) -> None:
    about = [one for one in objects if one["kind"] in ("Pod", "Deployment", "DaemonSet")]
    assert about
    for one in about:
        name = f"{one['kind'].lower()}/{one['metadata']['name']}"
        done = tonnage(capfd, "why", name, "-n", one["metadata"]["namespace"], folder)
        assert done.code == 0, (name, done.out)


BOUGHT = [
    one
    for one in broken()
    if one.listed.get("base") == "provisioned" and one.listed["expect"]["stage"] == "unschedulable"
]
MISSING = BrokenSet(
    "", {"base": "provisioned", "name": "class of the node pool is missing", "remove": ["EC2NodeClass/gpu"]}
)


@pytest.mark.parametrize("one", [*BOUGHT, MISSING], ids=lambda one: one.name)
def test_files_alone_have_the_same_cause_as_their_scenario(
    one: BrokenSet, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    folder = one.write(tmp_path / "set")
    asked = [("why", "deploy/model", folder / "manifests"), ("why", "deploy/model", folder, "--at", "0s")]
    files, scenario = (json.loads(tonnage(capfd, *one, "-o", "json").out)["told"] for one in asked)
    assert files["state"] == scenario["state"]
    assert (files["line"], files["help"], files["rule"]) == (scenario["line"], scenario["help"], scenario["rule"])
