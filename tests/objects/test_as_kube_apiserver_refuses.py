"""Manifests beside what kube-apiserver v1.36.3 said of the same objects: the same verdict at the same fields."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "apiserver" / "look"))
from generated_objects import NOT_READ, Case, checked, differs, excepted, recorded_cases

READ = [case for case in recorded_cases() if case.of not in NOT_READ and not excepted("check", case)]


@pytest.mark.parametrize("case", READ, ids=str)
def test_a_manifest_is_judged_as_by_kube_apiserver(case: Case, tmp_path: Path) -> None:
    assert differs(checked(case.obj, tmp_path), case.answer) == ""


def test_there_are_many() -> None:
    assert len(READ) >= 400
