"""What `tonnage why` says of files: that pods which are well are, and the cause that a scenario of them has."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from cli.cli_builders import tonnage
from health.broken_sets import BrokenSet, broken, good


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
