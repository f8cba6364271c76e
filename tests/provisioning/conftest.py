"""Fixtures of provisioning."""

from __future__ import annotations

from pathlib import Path

import pytest

from e2e.build import built
from e2e.recipe import RECIPE


@pytest.fixture(scope="session")
def program() -> Path:
    """karpenter-plan: scheduler and disruption controller of the karpenter module, cases in, answers out."""
    (module,) = (one for one in RECIPE if one.name == "karpenter_plan")
    found = built((module,))
    if found is None:
        pytest.skip("no karpenter-plan: `make e2e-build` builds it")
    return found.program("karpenter-plan")
