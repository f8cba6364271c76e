"""A real Prometheus server that holds given samples: Debian's, or the 3.x that `make e2e-build` builds."""

from __future__ import annotations

import re
import shutil
import struct
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from urllib.request import Request, urlopen

import pytest

from e2e.build import built
from e2e.processes import Program, free_ports
from e2e.recipe import RECIPE
from protobuf_wire import field as wire
from protobuf_wire import varint
from tonnage.metrics.functions import Dialect
from tonnage.metrics.store import Series, SeriesStore
from tonnage.units import NS_PER_MS

PROMETHEUS, PROMTOOL = shutil.which("prometheus"), shutil.which("promtool")
MARKS = [
    pytest.mark.peer,
    pytest.mark.skipif(
        not PROMETHEUS or not PROMTOOL, reason="prometheus and promtool are not installed (apt-get install prometheus)"
    ),
]
CONFIG = "global: {evaluation_interval: 5s}\n"
"""How far apart the steps of a subquery are that names none."""
_STALE = 0x7FF0000000000002
"""Prometheus' marker of staleness, the bits of a NaN (prometheus/prometheus, model/value/value.go)."""
_AT_ONCE = 10_000
"""Samples of a request."""


@contextmanager
def holding(openmetrics: str, folder: Path) -> Iterator[str]:
    """The address of Debian's Prometheus, which holds the samples of a text in OpenMetrics form."""
    assert PROMETHEUS and PROMTOOL
    (folder / "samples").write_text(openmetrics)
    blocks = [PROMTOOL, "tsdb", "create-blocks-from", "openmetrics", str(folder / "samples"), str(folder / "data")]
    subprocess.run(blocks, check=True, capture_output=True)
    with _serving(PROMETHEUS, folder) as url:
        yield url


@contextmanager
def written(store: SeriesStore, start_ns: int, folder: Path, program: str) -> Iterator[str]:
    """The address of a Prometheus that was sent a store by remote write, its time 0 at the Unix time ``start_ns``."""
    with _serving(program, folder, "--web.enable-remote-write-receiver") as url:
        request = _Request(f"{url}/api/v1/write", start_ns)
        for one in store:
            request.add(one)
        request.send()
        yield url


def dialect(program: str | None = PROMETHEUS) -> Dialect:
    """The PromQL of a Prometheus; by default of the one that is installed."""
    assert program
    done = subprocess.run([program, "--version"], capture_output=True, text=True, check=True)
    return Dialect.of(*(int(part) for part in re.findall(r"version (\d+)\.(\d+)", done.stdout + done.stderr)[0]))


def third() -> str:
    """The program of Prometheus 3. Skips the test where it is not built."""
    found = built([module for module in RECIPE if module.name == "prometheus"])
    if found is None:
        pytest.skip("Prometheus 3 is not built: run `make e2e-build`")
    return str(found.program("prometheus"))


@contextmanager
def _serving(program: str, folder: Path, *more: str) -> Iterator[str]:
    (folder / "prometheus.yml").write_text(CONFIG)
    address = f"127.0.0.1:{free_ports(1)[0]}"
    words = [
        program,
        f"--config.file={folder / 'prometheus.yml'}",
        f"--storage.tsdb.path={folder / 'data'}",
        "--storage.tsdb.retention.time=100y",
        f"--web.listen-address={address}",
        *more,
    ]

    def ready() -> bool:
        with urlopen(f"http://{address}/-/ready", timeout=1) as answer:
            return bool(answer.status == 200)

    server = Program("prometheus", words, folder / "log", ready)
    try:
        server.start()
        yield f"http://{address}"
    finally:
        server.stop()


@dataclass
class _Request:
    """Remote write 1.0 (prometheus.io/docs/specs/prw/remote_write_spec): series in protobuf, in Snappy's block format."""

    url: str
    start_ns: int
    body: bytearray = field(default_factory=bytearray)
    samples: int = 0

    def add(self, series: Series) -> None:
        """One series, with its markers of staleness."""
        points = [(t, struct.pack("<d", value)) for t, value in zip(series.times, series.values, strict=True)]
        points += [(t, struct.pack("<Q", _STALE)) for t in series.stale_at]
        labels = [wire(1, wire(1, k.encode()) + wire(2, v.encode())) for k, v in sorted(series.labels.items())]
        sent = [
            wire(2, b"\x09" + value + b"\x10" + varint((self.start_ns + t) // NS_PER_MS)) for t, value in sorted(points)
        ]
        self.body += wire(1, b"".join(labels + sent))
        self.samples += len(points)
        if self.samples > _AT_ONCE:
            self.send()

    def send(self) -> None:
        """What has been added since the last time."""
        data, packed = bytes(self.body), bytearray(varint(len(self.body)))
        for at in range(0, len(data), 1 << 16):  # literals alone: it is not for the size
            part = data[at : at + (1 << 16)]
            packed += b"\xf4" + struct.pack("<H", len(part) - 1) + part
        headers = {
            "Content-Encoding": "snappy",
            "Content-Type": "application/x-protobuf",
            "X-Prometheus-Remote-Write-Version": "0.1.0",
        }
        with urlopen(Request(self.url, bytes(packed), headers), timeout=60):
            self.body, self.samples = bytearray(), 0
