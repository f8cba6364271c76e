"""What has been measured."""

from __future__ import annotations

import measured_runs
import pytest

from tonnage.simulation.run import SetUp


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> SetUp:
    """A run of ten minutes of two vLLM engines behind a gateway, and all that was scraped."""
    return measured_runs.played(measured_runs.write(tmp_path_factory.mktemp("vllm") / "run"))
