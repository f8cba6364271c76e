"""A real Prometheus server that holds given samples."""

from __future__ import annotations

import re
import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tonnage.metrics.functions import Dialect

PROMETHEUS, PROMTOOL = shutil.which("prometheus"), shutil.which("promtool")
MARKS = [
    pytest.mark.peer,
    pytest.mark.skipif(
        not PROMETHEUS or not PROMTOOL, reason="prometheus and promtool are not installed (apt-get install prometheus)"
    ),
]


@contextmanager
def holding(openmetrics: str, folder: Path) -> Iterator[str]:
    """The address of a Prometheus that holds the samples of a text in OpenMetrics form."""
    assert PROMETHEUS and PROMTOOL
    (folder / "samples").write_text(openmetrics)
    (folder / "prometheus.yml").write_text("global: {}\n")
    blocks = [PROMTOOL, "tsdb", "create-blocks-from", "openmetrics", str(folder / "samples"), str(folder / "data")]
    subprocess.run(blocks, check=True, capture_output=True)
    address = f"127.0.0.1:{_free_port()}"
    command = [
        PROMETHEUS,
        f"--config.file={folder / 'prometheus.yml'}",
        f"--storage.tsdb.path={folder / 'data'}",
        "--storage.tsdb.retention.time=100y",
        f"--web.listen-address={address}",
    ]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        _wait_ready(f"http://{address}/-/ready", folder / "log", process)
        yield f"http://{address}"
    finally:
        process.terminate()
        process.wait(10)


def dialect() -> Dialect:
    """The PromQL of the release that is installed."""
    assert PROMETHEUS
    done = subprocess.run([PROMETHEUS, "--version"], capture_output=True, text=True, check=True)
    return Dialect.of(*(int(part) for part in re.findall(r"version (\d+)\.(\d+)", done.stdout + done.stderr)[0]))


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _wait_ready(url: str, log: Path, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and process.poll() is None:
        try:
            with urllib.request.urlopen(url, timeout=1):
                return
        except (urllib.error.URLError, ConnectionError, TimeoutError):
            time.sleep(0.05)
    raise AssertionError(log.read_text()[-2000:])
