"""A small server of metrics.k8s.io, custom.metrics.k8s.io and external.metrics.k8s.io behind a real API server.

It answers what a test has set, and remembers who was told what and when: the HPA controller asks for every metric in
each of its passes, so its requests are its passes."""

from __future__ import annotations

import json
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

from e2e.api import Json
from e2e.control_plane import ControlPlane
from e2e.processes import LOCAL, until

NAMESPACE = "metrics-test"
RESOURCE, CUSTOM, EXTERNAL = "metrics.k8s.io", "custom.metrics.k8s.io", "external.metrics.k8s.io"
VERSIONS = {RESOURCE: "v1beta1", CUSTOM: "v1beta2", EXTERNAL: "v1beta1"}
WINDOW = "30s"


@dataclass(frozen=True)
class Asked:
    """One request: when (time.monotonic), whose, which of its metrics, and the answer: values of series or of one
    object, or by pod, in thousandths; None: an error."""

    at_s: float
    owner: str
    metric: int
    values: tuple[int, ...] | None = None
    pods: tuple[tuple[str, int], ...] | None = None


@dataclass
class MetricsApi:
    """``series``, ``by_pod``: what to answer, by owner and number of the metric. ``pods``: those of an owner by name.

    ``by_pod`` gives the value of a pod, None for a pod without a sample; no entry at all is an error."""

    pods: Callable[[str], tuple[str, ...]]
    series: dict[tuple[str, int], tuple[int, ...] | None] = field(default_factory=dict)
    by_pod: dict[tuple[str, int], Callable[[str], int | None]] = field(default_factory=dict)
    resources: dict[tuple[str, str], int] = field(default_factory=dict)
    """(owner, resource) → which metric that is."""
    asked: list[Asked] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def answer(self, path: str, query: dict[str, list[str]]) -> Json | None:
        """The answer to a GET, None for "not found"."""
        words = path.strip("/").split("/")
        if words[0] != "apis" or len(words) < 3:
            return None
        group, rest = words[1], words[3:]
        version = f"{group}/{words[2]}"
        if not rest:
            return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": version, "resources": _kinds(group)}
        if group == EXTERNAL:
            return self._external(version, rest[2])
        if group == RESOURCE:
            return self._resource(version, query["labelSelector"][0].partition("=")[2])
        return self._custom(version, rest[2], rest[4])

    def _external(self, version: str, name: str) -> Json | None:
        owner, metric = named(name)
        values = self.series.get((owner, metric))
        self._remember(Asked(time.monotonic(), owner, metric, values=values))
        if values is None:
            return None
        items = [{"metricName": name, "metricLabels": {}, "timestamp": _now(), "value": f"{one}m"} for one in values]
        return {"kind": "ExternalMetricValueList", "apiVersion": version, "metadata": {}, "items": items}

    def _custom(self, version: str, kind: str, name: str) -> Json | None:
        owner, metric = named(name)
        if kind == "pods":
            found = self._of_pods(owner, metric)
            self._remember(Asked(time.monotonic(), owner, metric, pods=found))
            rows = None if found is None else [("Pod", pod, milli) for pod, milli in found]
        else:
            values = self.series.get((owner, metric))
            self._remember(Asked(time.monotonic(), owner, metric, values=values))
            rows = None if values is None else [("Service", owner, milli) for milli in values]
        if rows is None:
            return None
        items = [
            {
                "describedObject": {"kind": kind, "namespace": NAMESPACE, "name": whose, "apiVersion": "v1"},
                "metric": {"name": name},
                "timestamp": _now(),
                "value": f"{milli}m",
            }
            for kind, whose, milli in rows
        ]
        return {"kind": "MetricValueList", "apiVersion": version, "metadata": {}, "items": items}

    def _resource(self, version: str, owner: str) -> Json | None:
        (resource, metric), *_ = [(name, number) for (whose, name), number in self.resources.items() if whose == owner]
        found = self._of_pods(owner, metric)
        self._remember(Asked(time.monotonic(), owner, metric, pods=found))
        if found is None:
            return None
        items = [
            {
                "metadata": {"name": pod, "namespace": NAMESPACE},
                "timestamp": _now(),
                "window": WINDOW,
                "containers": [{"name": "main", "usage": {"cpu": "0", "memory": "0", resource: f"{milli}m"}}],
            }
            for pod, milli in found
        ]
        return {"kind": "PodMetricsList", "apiVersion": version, "metadata": {}, "items": items}

    def _of_pods(self, owner: str, metric: int) -> tuple[tuple[str, int], ...] | None:
        value = self.by_pod.get((owner, metric))
        if value is None:
            return None
        return tuple((pod, milli) for pod in self.pods(owner) if (milli := value(pod)) is not None)

    def _remember(self, one: Asked) -> None:
        with self.lock:
            self.asked.append(one)

    def passes(self, owner: str) -> list[list[Asked]]:
        """The requests of one owner, pass by pass."""
        with self.lock:
            requests = [one for one in self.asked if one.owner == owner]
        found: list[list[Asked]] = []
        for one in requests:
            if found and one.metric > found[-1][-1].metric:
                found[-1].append(one)
            else:
                found.append([one])
        return found


def metric_name(owner: str, metric: int) -> str:
    """By which name the server knows whose metric it is."""
    return f"{owner}-m{metric}"


def named(name: str) -> tuple[str, int]:
    """(owner, number) of a metric's name."""
    owner, _, metric = name.rpartition("-m")
    return owner, int(metric)


@contextmanager
def serving(plane: ControlPlane, api: MetricsApi) -> Iterator[None]:
    """The server behind the control plane's API server while the block runs."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            url = urlsplit(self.path)
            found = api.answer(url.path, parse_qs(url.query))
            missing = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound", "code": 404}
            body = json.dumps(missing if found is None else found).encode()
            self.send_response(404 if found is None else 200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """What was asked is remembered by the server itself."""

    class Server(ThreadingHTTPServer):
        def handle_error(self, *_: object) -> None:
            """The API server tries connections and leaves them."""

    server = Server((LOCAL, 0), Handler)
    server.daemon_threads = True
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(plane.folder / "pki" / "apiserver.crt", plane.folder / "pki" / "apiserver.key")
    server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        _register(plane, server.server_address[1])
        yield
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _register(plane: ControlPlane, port: int) -> None:
    """The three APIs, behind a Service that names this machine: there is no network of Services here."""
    client = plane.api()
    spec = {"type": "ExternalName", "externalName": "localhost", "ports": [{"port": port}]}
    service = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "metrics"}, "spec": spec}
    client.create(f"/api/v1/namespaces/{NAMESPACE}/services", service)
    for group, version in VERSIONS.items():
        name = f"{version}.{group}"
        said = {
            "service": {"name": "metrics", "namespace": NAMESPACE, "port": port},
            "group": group,
            "version": version,
            "insecureSkipTLSVerify": True,
            "groupPriorityMinimum": 100,
            "versionPriority": 100,
        }
        body = {
            "apiVersion": "apiregistration.k8s.io/v1",
            "kind": "APIService",
            "metadata": {"name": name},
            "spec": said,
        }
        client.create("/apis/apiregistration.k8s.io/v1/apiservices", body)
    for group, version in VERSIONS.items():
        until(f"{group} is served", lambda path=f"/apis/{group}/{version}": client.raw("GET", path)[0] == 200, 60)


def _kinds(group: str) -> list[Json]:
    if group == RESOURCE:
        return [
            {"name": "pods", "singularName": "", "namespaced": True, "kind": "PodMetrics", "verbs": ["get", "list"]}
        ]
    kind = "MetricValueList" if group == CUSTOM else "ExternalMetricValueList"
    return [{"name": "any", "singularName": "", "namespaced": True, "kind": kind, "verbs": ["get"]}]


def _now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
