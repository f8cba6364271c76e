"""What is written down of a run while its tests end."""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path

import pytest
import sampling

from e2e import record


class Recorder:
    """Counts how tests end, each once, and writes the record of a long run."""

    def __init__(self, file: Path) -> None:
        self.file, self.begun, self.tested = file, time.monotonic(), record.versions()
        self.ended: dict[str, str] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if (report.when == "call" or report.outcome != "passed") and self.ended.get(report.nodeid) != "failed":
            self.ended[report.nodeid] = "error" if report.when != "call" and report.failed else report.outcome

    def pytest_sessionfinish(self) -> None:
        took_s = time.monotonic() - self.begun
        record.write(self.file, sampling.SEED, sampling.counts, Counter(self.ended.values()), self.tested, took_s)
