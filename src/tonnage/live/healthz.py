"""What a controller says about itself over HTTP: ``/healthz``, ``/readyz`` and ``/metrics``."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from http.server import BaseHTTPRequestHandler
from socketserver import ThreadingTCPServer
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from prometheus_client.registry import Collector

from tonnage.errors import InputError
from tonnage.kube.informer import Informers

_TICK_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)

Check = Callable[[], Mapping[str, str]]
"""What is degraded, by name, with the reason; empty when nothing is."""


class Metrics:
    """The metrics of one controller process, in a registry of their own. Safe to call from several threads."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._decisions = Counter(
            "tonnage_decisions",
            "Decisions by what became of them.",
            ("loop", "kind", "outcome"),
            registry=self.registry,
        )
        self._ticks = Histogram(
            "tonnage_tick_seconds",
            "Time of a tick with decisions: to decide, and to let all of them take effect.",
            ("loop",),
            buckets=_TICK_SECONDS,
            registry=self.registry,
        )
        self._errors = Counter(
            "tonnage_api_errors",
            "Answers of the API server of 400 or more by status, and requests unreachable or lost.",
            ("code",),
            registry=self.registry,
        )
        self._leader = Gauge("tonnage_leader", "1 while this process leads.", ("lease",), registry=self.registry)
        self._events = Gauge("tonnage_events_dropped", "Events that could not be written.", registry=self.registry)

    def decided(self, loop: str, kind: str, outcome: str) -> None:
        """Count a decision, with what became of it (``applied``, ``stale``, ``refused``)."""
        self._decisions.labels(loop, kind, outcome).inc()

    def ticked(self, loop: str, seconds: float) -> None:
        """Note how long a tick took that had decisions."""
        self._ticks.labels(loop).observe(seconds)

    def api_error(self, code: str) -> None:
        """Count an error of the API; fits ``on_error`` of the transport."""
        self._errors.labels(code).inc()

    def watch_leader(self, lease: str, leading: Callable[[], bool]) -> None:
        """Show whether this process leads, asked at each scrape."""
        self._leader.labels(lease).set_function(lambda: float(leading()))

    def watch_events(self, dropped: Callable[[], int]) -> None:
        """Show how many events were dropped, asked at each scrape."""
        self._events.set_function(lambda: float(dropped()))

    def watch_informers(self, informers: Informers, clock: Callable[[], float] = time.time) -> None:
        """Show the state of informers, asked at each scrape."""
        self.registry.register(_InformerCollector(informers, clock))

    def render(self) -> bytes:
        """The text that Prometheus scrapes."""
        return generate_latest(self.registry)


class _InformerCollector(Collector):
    def __init__(self, informers: Informers, clock: Callable[[], float]) -> None:
        self._informers, self._clock = informers, clock

    def collect(self) -> Iterable[Metric]:
        informers, now, label = self._informers, self._clock(), ["resource"]
        objects = GaugeMetricFamily("tonnage_informer_objects", "Objects held.", labels=label)
        lag = GaugeMetricFamily(
            "tonnage_informer_lag_seconds", "How long the change applied last had waited here.", labels=label
        )
        silence = GaugeMetricFamily(
            "tonnage_informer_silence_seconds", "Since the API server was last heard of.", labels=label
        )
        restarts = CounterMetricFamily("tonnage_informer_watch_restarts", "Watches begun again.", labels=label)
        relists = CounterMetricFamily("tonnage_informer_relists", "Lists read again.", labels=label)
        histories = CounterMetricFamily(
            "tonnage_informer_histories", "Lists of an API server that was restored from a backup.", labels=label
        )
        degraded = GaugeMetricFamily("tonnage_informer_degraded", "1 while not up to date.", labels=label)
        contact, begun, problems = informers.contact(), informers.restarts(), informers.problems()
        for name, informer in informers.named().items():
            objects.add_metric([name], len(informer))
            lag.add_metric([name], informer.lag_s)
            if contact[name]:
                silence.add_metric([name], max(0.0, now - contact[name]))
            restarts.add_metric([name], begun[name])
            relists.add_metric([name], informer.relists)
            histories.add_metric([name], informer.histories)
            degraded.add_metric([name], float(name in problems))
        backlog = GaugeMetricFamily("tonnage_informer_backlog", "Changes that wait to be applied.")
        backlog.add_metric([], informers.backlog)
        return [objects, lag, silence, restarts, relists, histories, degraded, backlog]


class Health:
    """What is alive and what is degraded. ``alive`` names what has stopped for good; it fails ``/healthz``."""

    def __init__(self) -> None:
        self._alive: list[Check] = []
        self._ready: list[Check] = []
        self.idle: Callable[[], Sequence[str]] = tuple
        """Why controllers do nothing, a line each: no fault, for ``/readyz?verbose``."""

    def add_alive(self, check: Check) -> None:
        """A check whose failure means that the process should be restarted."""
        self._alive.append(check)

    def add_ready(self, check: Check) -> None:
        """A check whose failure means that something is degraded for now."""
        self._ready.append(check)

    def dead(self) -> dict[str, str]:
        """What has stopped, by name."""
        return _together(self._alive)

    def degraded(self) -> dict[str, str]:
        """What is not as it should be, by name; what has stopped included."""
        return _together([*self._alive, *self._ready])


def _together(checks: Iterable[Check]) -> dict[str, str]:
    found: dict[str, str] = {}
    for check in checks:
        found.update(check())
    return found


class HealthServer:
    """Serves :class:`Health` and :class:`Metrics` over HTTP in a thread of its own.

    ``address`` is HOST:PORT; without a host it listens on all addresses, as a probe of the kubelet needs it; port 0
    takes a free one. Raises InputError when the address cannot be had.
    """

    def __init__(self, address: str, health: Health, metrics: Metrics) -> None:
        host, _, port = address.rpartition(":")
        if not port.isdigit():
            raise InputError.at(f"{address!r}: not an address", hint="expected HOST:PORT or :PORT")
        handler = type("_Bound", (_Handler,), {"health": health, "metrics": metrics})
        try:
            self._server = (_Server6 if ":" in host else _Server)((host.strip("[]"), int(port)), handler)
        except (OSError, OverflowError) as error:
            raise InputError.at(f"cannot listen on {address}: {error}", hint="name another HOST:PORT") from error
        self._thread = threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.1}, name="health", daemon=True
        )
        self._thread.start()

    @property
    def port(self) -> int:
        """The port that it listens on."""
        return int(self._server.server_address[1])

    def close(self) -> None:
        """Stop listening."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(2.0)


class _Server(ThreadingTCPServer):
    """Not http.server's own server: that looks up the name of the host, which takes seconds without DNS."""

    allow_reuse_address = True
    daemon_threads = True


class _Server6(_Server):
    address_family = socket.AF_INET6


class _Handler(BaseHTTPRequestHandler):
    health: Health
    metrics: Metrics
    timeout = 10.0  # of a client that says nothing
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        path, _, query = self.path.partition("?")
        if path in ("/healthz", "/livez"):
            self._state(self.health.dead())
        elif path == "/readyz":
            self._state(self.health.degraded(), self.health.idle() if "verbose" in query.split("&") else ())
        elif path == "/metrics":
            self._answer(200, self.metrics.render(), CONTENT_TYPE_LATEST)
        else:
            self._answer(404, b"there is /healthz, /readyz and /metrics\n")

    def _state(self, wrong: Mapping[str, str], more: Sequence[str] = ()) -> None:
        text = "".join(f"{name}: {why}\n" for name, why in sorted(wrong.items())) or "ok\n"
        text += "".join(f"idle: {line}\n" for line in more)
        self._answer(503 if wrong else 200, text.encode())

    def _answer(self, status: int, body: bytes, content_type: str = "text/plain; charset=utf-8") -> None:
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Probes every few seconds are not worth a line."""
