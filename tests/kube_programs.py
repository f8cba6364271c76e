"""Kubernetes' programs for tests: of one known version each, never what happens to be on PATH.

They are those that `make e2e-build` builds, or those in ``bin`` of the folder that TONNAGE_KUBE_PROGRAMS names. Without
them kubectl alone can be had from npm too (``scripts/helm.sh``)."""

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


def kubectl() -> Path:
    """kubectl; skips with the reason where there is none."""
    programs = found()
    if programs is not None:
        return programs.program("kubectl")
    try:
        return chart_builders.tools() / "kubectl"
    except pytest.skip.Exception as skipped:
        pytest.skip(f"no kubectl: {MISSING}; from npm: {skipped.msg}")
