"""One core for every command: a process for each policy costs more than what it runs. ``test_cli_process`` has two."""

from __future__ import annotations

import pytest

from tonnage.cli import runs


@pytest.fixture(autouse=True)
def one_core(monkeypatch: pytest.MonkeyPatch) -> None:
    """Policies are run one after the other, in this process."""
    monkeypatch.setattr(runs, "cores", lambda: 1)
