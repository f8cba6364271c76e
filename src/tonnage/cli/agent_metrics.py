"""`tonnage agent metrics`: dcgm-exporter's metrics of this node's GPUs, served or printed once."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import click

from tonnage.cli import terminal
from tonnage.cli.agent_machine import machine, machine_options
from tonnage.cli.cluster import live
from tonnage.errors import InputError

if TYPE_CHECKING:
    from tonnage.node.devices import Devices
    from tonnage.node.exporter import NodeExporter
    from tonnage.node.health_watch import HealthWatch
    from tonnage.node.pod_labels import PodLabels

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
@click.option(
    "--pod-label",
    "pod_labels",
    multiple=True,
    metavar="REGEX",
    help="Labels of pods with such keys become labels of their metrics; repeatable. Needs --pod-resources.",
)
@click.option("--hpc-jobs", type=_PATH, metavar="DIR", help="A batch system's files of jobs, one for each GPU.")
@live
@click.option("--print", "shown", is_flag=True, help="Print one scrape, and on standard error what is missing and why.")
def metrics(
    simulated: str,
    state: Path | None,
    node: str,
    counters: Path | None,
    listen: str,
    interval: float,
    pod_resources: Path | None,
    pod_labels: tuple[str, ...],
    hpc_jobs: Path | None,
    context: str,
    kubeconfig: str,
    shown: bool,
) -> None:
    """Serve the metrics of this node's GPUs and MIG instances under dcgm-exporter's names, with the pods on them.

    With --pod-resources the kubelet is asked at every reading which pods have which devices. With --hpc-jobs each job
    in the file of a GPU (0, or 0.7 for a GPU instance) has a series, as dcgm-exporter's job mapping. A reading takes 3
    to 7 ms of a card's driver, and is made at once when a card's health changes; a scrape gets 503 when the last one
    is too old.

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
    if pod_labels and pod_resources is None:
        hint = "without it nobody knows whose devices are whose"
        raise InputError.at("labels of pods need the kubelet's list", field="--pod-resources", hint=hint)
    with machine(simulated, state, node) as devices, _labels_of_pods(pod_labels, context, kubeconfig) as labels:
        users = _Users(pod_resources, labels, hpc_jobs)
        health = DeviceHealth()
        exporter, watch = NodeExporter(devices, health, node, chosen), HealthWatch(devices, health)
        if shown:
            watch.take(devices.events(0), time.time_ns())
            terminal.echo(_read(devices, exporter, users), nl=False)
            for one in exporter.missing:
                terminal.echo(f"{one.device + ': ' if one.device else ''}{one.field}: {one.reason}", err=True)
            return
        _serve(devices, watch, _Reading(lambda: _read(devices, exporter, users), interval), host, port)


class _Users(NamedTuple):
    """Who says whose the devices are: the kubelet's socket, the pods' labels, a folder of jobs."""

    socket: Path | None
    labels: PodLabels | None
    jobs: Path | None


@contextmanager
def _labels_of_pods(expressions: tuple[str, ...], context: str, kubeconfig: str) -> Iterator[PodLabels | None]:
    """Labels of pods by the API; None where none are wanted."""
    if not expressions:
        yield None
        return
    from tonnage.kube.http import open_cluster
    from tonnage.live.pod_labels import asking
    from tonnage.node.pod_labels import PodLabels, allowed

    allow = allowed(expressions)
    client = open_cluster(kubeconfig, context)
    try:
        yield PodLabels(asking(client), allow)
    finally:
        client.transport.close()


def _read(devices: Devices, exporter: NodeExporter, users: _Users) -> str:
    """What a scrape gets now. A kubelet that does not answer costs the labels of pods, not the metrics."""
    from tonnage.node.attribution import holders, names_of, unattributed
    from tonnage.node.exporter import MoreLabels
    from tonnage.node.job_mapping import jobs
    from tonnage.node.pod_resources import listed

    now, found, labels, on_gpus, problems = time.time_ns(), {}, {}, {}, list[str]()
    if users.jobs is not None:
        try:
            on_gpus = jobs(users.jobs)
        except InputError as error:
            problems.append(str(error))
    if users.socket is not None:
        try:
            there, names = listed(users.socket), names_of(devices)
        except InputError as error:
            problems.append(str(error))
        else:
            found = holders(there, names)
            problems += unattributed(there, names)
    if users.labels is not None:
        labels = users.labels.of(((one.namespace, one.pod) for each in found.values() for one in each), now)
        problems += [users.labels.problem] if users.labels.problem else []
    for problem in problems:
        terminal.echo(f"warning: {problem}", err=True)
    return exporter.text(now, found, more=MoreLabels(labels, on_gpus))


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

    def series(self) -> int:
        """How many the last reading has."""
        return sum(not line.startswith(b"#") for line in self._last[0].splitlines())

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
    where = f"http://{host or '0.0.0.0'}:{server.server_port}/metrics"
    terminal.echo(f"metrics on {where}: {reading.series()} series, read every {reading.interval_s:g} s", err=True)
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
