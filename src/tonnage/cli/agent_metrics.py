"""`tonnage agent metrics`: dcgm-exporter's metrics of this node's GPUs, served or printed once."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tonnage.cli import terminal
from tonnage.cli.agent_machine import machine, machine_options
from tonnage.errors import InputError

if TYPE_CHECKING:
    from tonnage.node.devices import Devices
    from tonnage.node.exporter import NodeExporter
    from tonnage.node.health_watch import HealthWatch

_PATH = click.Path(path_type=Path)
_LOOK_S = 1.0
_PATIENCE_S = 10.0
"""Beyond three intervals, for how long a reading is served that could not be renewed."""


@click.command()
@machine_options
@click.option("-f", "--counters", type=_PATH, metavar="FILE", help="Counters as dcgm-exporter reads them.")
@click.option("--listen", default=":9400", show_default=True, metavar="[ADDRESS]:PORT", help="Where to serve /metrics.")
@click.option(
    "--interval",
    type=click.FloatRange(0.1, 300),
    default=5.0,
    show_default=True,
    metavar="SECONDS",
    help="How often the cards are read; a scrape gets the last reading.",
)
@click.option("--pod-resources", type=_PATH, metavar="SOCKET", help="The kubelet's socket that lists pods' devices.")
@click.option("--print", "shown", is_flag=True, help="Print one scrape, and on standard error what is missing and why.")
def metrics(
    simulated: str,
    state: Path | None,
    node: str,
    counters: Path | None,
    listen: str,
    interval: float,
    pod_resources: Path | None,
    shown: bool,
) -> None:
    """Serve the metrics of this node's GPUs and MIG instances under dcgm-exporter's names, with the pods on them.

    With --pod-resources the kubelet is asked at every reading which pods have which devices. A reading takes 3 to 7 ms
    of a card's driver, and is made at once when a card's health changes; a scrape gets 503 when the last one is too
    old.

    \b
    tonnage agent metrics --listen 127.0.0.1:9400
    """
    from tonnage.cli import files
    from tonnage.node.counters import default_counters, read_counters
    from tonnage.node.device_health import DeviceHealth
    from tonnage.node.exporter import NodeExporter
    from tonnage.node.health_watch import HealthWatch

    if counters is not None:
        chosen = read_counters(files.text(counters, "a file of counters"), str(counters))
    else:
        chosen = default_counters()
    host, port = _address(listen)
    with machine(simulated, state, node) as devices:
        health = DeviceHealth()
        exporter, watch = NodeExporter(devices, health, node, chosen), HealthWatch(devices, health)
        if shown:
            watch.take(devices.events(0), time.time_ns())
            terminal.echo(_read(devices, exporter, pod_resources), nl=False)
            for one in exporter.missing:
                terminal.echo(f"{one.device + ': ' if one.device else ''}{one.field}: {one.reason}", err=True)
            return
        _serve(devices, watch, _Reading(lambda: _read(devices, exporter, pod_resources), interval), host, port)


def _read(devices: Devices, exporter: NodeExporter, socket: Path | None) -> str:
    """What a scrape gets now. A kubelet that does not answer costs the labels of pods, not the metrics."""
    from tonnage.node.attribution import holders, names_of, unattributed
    from tonnage.node.pod_resources import listed

    now = time.time_ns()
    if socket is None:
        return exporter.text(now, {})
    try:
        found, names = listed(socket), names_of(devices)
    except InputError as error:
        terminal.echo(f"warning: {error}", err=True)
        return exporter.text(now, {})
    for problem in unattributed(found, names):
        terminal.echo(f"warning: {problem}", err=True)
    return exporter.text(now, holders(found, names))


class _Reading:
    """What a scrape gets: the last of the readings that ``read`` makes, or why there is none. :meth:`body` may be asked
    in any thread, also while the driver does not answer."""

    def __init__(self, read: Callable[[], str], interval_s: float) -> None:
        self._read, self.interval_s = read, interval_s
        self._last: tuple[bytes, str] = b"", "the cards have not been read yet"
        self._at = -math.inf

    def renew(self, *, at_once: bool = False) -> None:
        """Read the cards where it is time to."""
        if not at_once and time.monotonic() - self._at < self.interval_s:
            return
        try:
            found = self._read().encode(), ""
        except InputError as error:
            found = b"", str(error)
            if found != self._last:
                terminal.echo(f"warning: {error}", err=True)
        self._last, self._at = found, time.monotonic()

    def body(self) -> tuple[bytes, str]:
        """(the text, why there is none)."""
        age = time.monotonic() - self._at
        if age > 3 * self.interval_s + _PATIENCE_S and not self._last[1]:
            return b"", f"the cards were read {age:.0f} s ago: the driver does not answer"
        return self._last


def _serve(devices: Devices, watch: HealthWatch, reading: _Reading, host: str, port: int) -> None:
    """Answer scrapes until interrupted. One thread asks the cards, and takes what the driver reports."""
    import threading
    from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

    from tonnage.metrics.exposition import CONTENT_TYPE

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            path = self.path.partition("?")[0]
            if path not in ("/metrics", "/health"):
                self.send_error(404)
                return
            body, why = reading.body() if path == "/metrics" else (b"ok\n", "")
            if why:
                self.send_error(503, explain=why)
                return
            self.send_response(200)
            self.send_header("Content-Type", CONTENT_TYPE)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if self.command == "GET":
                with suppress(ConnectionError):  # who asked has gone
                    self.wfile.write(body)

        do_HEAD = do_GET

        def log_message(self, format: str, *args: object) -> None:
            """Scrapes are not worth a line each."""

    try:
        server = ThreadingHTTPServer((host, port), Handler)
    except OSError as error:
        hint = "give another --listen"
        raise InputError.at(f"cannot listen on {host}:{port}: {error}", field="--listen", hint=hint) from error
    reading.renew()
    threading.Thread(target=server.serve_forever, daemon=True).start()
    terminal.echo(f"metrics on http://{host or '0.0.0.0'}:{server.server_port}/metrics", err=True)
    try:
        while True:
            events = devices.events(min(_LOOK_S, reading.interval_s))
            changes = watch.take(events, time.time_ns())
            for one in changes:
                terminal.echo(f"GPU {one.gpu} is {'healthy' if one.healthy else 'unhealthy'}: {one.message}", err=True)
            reading.renew(at_once=bool(changes))
    finally:
        server.shutdown()
        server.server_close()


def _address(text: str) -> tuple[str, int]:
    host, colon, port = text.rpartition(":")
    if not colon or not port.isdecimal() or int(port) > 65535:
        raise InputError.at(f"{text!r} is not an address", field="--listen", hint="write :9400 or 127.0.0.1:9400")
    return host.strip("[]"), int(port)
