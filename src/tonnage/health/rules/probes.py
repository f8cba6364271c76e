"""Probes that can never succeed, whatever the container does: their port, path or scheme is none that it has.

Sources: kubernetes/kubernetes pkg/probe/util.go (ResolveContainerPort), pkg/probe/http, pkg/kubelet/prober (an error of
the prober leaves the result as it was at first: not ready, not started, alive).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from tonnage.health.blocker import CRASHING, NOT_READY, Blocker
from tonnage.health.listening import LOOPBACK, VLLM_PATHS, Listener, listener, may_listen
from tonnage.health.setting import Pods, Setting
from tonnage.objects import core
from tonnage.objects.needs import HttpGet, ProbeNeeds

_UNHEALTHY = "Unhealthy"
_FETCHES = re.compile(r"\b(curl|wget)\b")
_FETCHED = re.compile(r"(?:(https?)://)?(?:localhost|127\.0\.0\.1|\[::1\])(?::(\d{1,5}))?(?=[/\s?\"']|$)")


def probes(setting: Setting) -> Iterator[Blocker]:
    """Startup, readiness and liveness probes that no container can pass."""
    for pods in setting.pods:
        typed = (*pods.spec.init_containers, *pods.spec.containers)
        for (field, needs), container in zip(pods.containers(), typed, strict=True):
            for name, probe in (
                ("startup", needs.startup_probe),
                ("readiness", needs.readiness_probe),
                ("liveness", needs.liveness_probe),
            ):
                if probe is not None:
                    yield from _Probe(pods, container, f"{field}.{name}Probe", name, probe).blockers()


class _Probe:
    """One probe of a container."""

    def __init__(self, pods: Pods, container: core.Container, field: str, name: str, probe: ProbeNeeds) -> None:
        self.pods = pods
        self.container = container
        self.field = field
        self.name = name
        self.probe = probe

    def blockers(self) -> Iterator[Blocker]:
        http, tcp = self.probe.http_get, self.probe.tcp_socket
        handler = "httpGet" if http is not None else "tcpSocket"
        asked = http if http is not None else tcp
        if self.probe.grpc is not None:
            yield from self._by_grpc(self.probe.grpc)
            return
        if self.probe.exec is not None:
            yield from self._by_exec(self.probe.exec)
            return
        if asked is None:
            return
        if asked.host in LOOPBACK and not self.pods.template.needs.host_network:
            message = f"{asked.host} is the node's own for the kubelet, and not the pod's"
            said = f"dial tcp 127.0.0.1:{asked.port}: connect: connection refused"
            yield self._blocker("probe-not-answered", f"{handler}.host", message, "leave host out", said)
            return
        if asked.host:
            return
        port = self._number(asked.port)
        if port is None:
            yield self._unnamed(str(asked.port), f"{handler}.port")
        elif not may_listen(self.pods, port):
            yield self._not_served(port, f"{handler}.port")
        else:
            engine = listener(self.container)
            if engine is not None and port in engine.ports and engine.loopback:
                host = engine.loopback
                said = f'Get "http://10.0.0.1:{port}/": dial tcp 10.0.0.1:{port}: connect: connection refused'
                message = f"vLLM listens at {host} only, and the kubelet asks at the pod's address"
                yield self._blocker("server-listens-on-loopback", handler, message, "set --host=0.0.0.0", said)
            elif http is not None and engine is not None and port in engine.ports:
                yield from self._asked_of_vllm(http, engine)

    def _by_grpc(self, asked: dict[str, Any]) -> Iterator[Blocker]:
        engine, port = listener(self.container), asked.get("port")
        if engine is not None and port in engine.ports:
            message, help_ = "vLLM speaks HTTP on this port, not gRPC", "use httpGet: {path: /health}"
            said = 'service unhealthy (responded with "UNAVAILABLE")'
            yield self._blocker("probe-not-answered", "grpc.port", message, help_, said)

    def _by_exec(self, asked: dict[str, Any]) -> Iterator[Blocker]:
        """A command that fetches a page of the container itself."""
        listed = asked.get("command")
        words = " ".join(map(str, listed)) if isinstance(listed, list) else ""
        match = _FETCHED.search(words)
        if match is None or not _FETCHES.search(words):
            return
        port = int(match[2] or (443 if match[1] == "https" else 80))
        if listener(self.container) is not None and not may_listen(self.pods, port):
            yield self._not_served(port, "exec.command")

    def _number(self, port: int | str) -> int | None:
        """The port's number; None for a name that the container does not have."""
        if isinstance(port, int):
            return port
        named = next((one.container_port for one in self.container.ports if one.name == port), None)
        return int(port) if named is None and port.isascii() and port.isdigit() else named

    def _unnamed(self, name: str, field: str) -> Blocker:
        names = [one.name for one in self.container.ports if one.name]
        effect = {
            "startup": "the container never counts as started, and the pods never become Ready",
            "readiness": "the pods never become Ready",
            "liveness": "the probe does nothing",
        }[self.name]
        shown = f"it has {', '.join(names)}" if names else "it names none"
        return Blocker(
            "probe-port-not-found",
            NOT_READY,
            self.pods.ref,
            self.pods.where(f"{self.field}.{field}"),
            f"container {self.container.name} has no port named {name} ({shown}): {effect}",
            f"did you mean {names[0]}?" if len(names) == 1 else "name a port of the container, or give its number",
            _UNHEALTHY,
            f"{self._title()} probe errored and resulted in unknown state: strconv.Atoi: "
            f'parsing "{name}": invalid syntax',
            some=self.name == "liveness",
        )

    def _not_served(self, port: int, field: str) -> Blocker:
        engine = listener(self.container)
        ports = " and ".join(str(one) for one in sorted(engine.ports)) if engine else "another port"
        refused = f"dial tcp 10.0.0.1:{port}: connect: connection refused"
        http = self.probe.http_get
        return self._blocker(
            "probe-port-not-served",
            field,
            f"nothing in the pod listens on port {port}, vLLM listens on {ports}",
            f"probe port {ports}, or set --port={port}",
            f'Get "http://10.0.0.1:{port}{http.path}": {refused}' if http else refused,
        )

    def _asked_of_vllm(self, http: HttpGet, engine: Listener) -> Iterator[Blocker]:
        path = "/" + http.path.partition("?")[0].strip("/")
        encrypted = engine.has("--ssl-keyfile", "--ssl-certfile")
        if (http.scheme.upper() == "HTTPS") != encrypted:
            speaks = "HTTPS" if encrypted else "HTTP"
            said = "server gave HTTP response to HTTPS client" if speaks == "HTTP" else "EOF"
            message, help_ = f"vLLM speaks {speaks} on this port, not {http.scheme}", f"set scheme: {speaks}"
            yield self._blocker("probe-not-answered", "httpGet.scheme", message, help_, said)
        elif path not in VLLM_PATHS and not engine.has("--root-path", "--middleware"):
            message = f"vLLM answers GET {http.path} with 404 or 405"
            said = "HTTP probe failed with statuscode: 404"
            yield self._blocker("probe-not-answered", "httpGet.path", message, "set path: /health", said)
        elif path.startswith("/v1") and self._needs_key(engine) and not _authorized(http):
            message = f"vLLM answers GET {path} without its API key with 401"
            said = "HTTP probe failed with statuscode: 401"
            yield self._blocker(
                "probe-not-answered", "httpGet.path", message, "set path: /health, which needs no key", said
            )

    def _needs_key(self, engine: Listener) -> bool:
        named = any(one.name == "VLLM_API_KEY" for one in self.container.env)
        return named or engine.has("--api-key")

    def _blocker(self, rule_: str, field: str, message: str, help_: str, said: str) -> Blocker:
        effect = (
            "the pods never become Ready" if self.name == "readiness" else "the container is killed again and again"
        )
        return Blocker(
            rule_,
            NOT_READY if self.name == "readiness" else CRASHING,
            self.pods.ref,
            self.pods.where(f"{self.field}.{field}"),
            f"the {self.name} probe always fails: {message}; {effect}",
            help_,
            _UNHEALTHY if self.name == "readiness" else "CrashLoopBackOff",
            f"{self._title()} probe failed: {said}",
        )

    def _title(self) -> str:
        return self.name.capitalize()


def _authorized(http: HttpGet) -> bool:
    return any(str(one.get("name", "")).lower() == "authorization" for one in http.http_headers)
