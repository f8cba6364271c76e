"""On which ports the containers of a pod listen, as far as their command lines say.

Sources: vllm-project/vllm vllm/entrypoints/openai/cli_args.py (port 8000 unless told otherwise), api_server.py and
vllm/entrypoints/serve (paths), and docker/Dockerfile (the image's entrypoint is the server).
"""

from __future__ import annotations

import re

from msgspec import Struct

from tonnage.health.setting import Pods
from tonnage.inference import servers
from tonnage.inference.servers import EngineServer
from tonnage.objects import core

VLLM_PORT = 8000
VLLM_PATHS = frozenset(
    [
        "/health",
        "/load",
        "/ping",
        "/version",
        "/v1/models",
        "/metrics",
        "/docs",
        "/docs/oauth2-redirect",
        "/redoc",
        "/openapi.json",
        "/is_sleeping",
        "/is_paused",
        "/server_info",
    ]
)
"""Paths that answer to GET."""

LOOPBACK = frozenset(["127.0.0.1", "localhost", "::1"])
"""Addresses at which nobody outside the pod reaches a server: the kubelet asks at the pod's own."""
_ELSEWHERE = ("--config", "--uds", "--headless")


class Listener(Struct, frozen=True):
    """The vLLM servers of a container, and the ports on which they listen."""

    servers: tuple[EngineServer, ...]
    ports: frozenset[int]

    @property
    def loopback(self) -> str:
        """The address with which they only listen to their own pod; empty where they listen to others."""
        hosts = [one.value("--host") for one in self.servers if "--host" not in one.open]
        return next((host for host in hosts if host in LOOPBACK), "") or ""

    def has(self, *flags: str) -> bool:
        """Whether one of the flags is given."""
        return any(one.value(flag) is not None for one in self.servers for flag in flags)


def listener(container: core.Container) -> Listener | None:
    """What listens in a container; None where there is no server of vLLM, or it is not known where it listens."""
    running = tuple(servers.all_in(0, container))
    ports = [_port(one) for one in running]
    if not running or None in ports or not all(one.certain for one in running):
        return None
    return Listener(running, frozenset(port for port in ports if port is not None))


def _port(server: EngineServer) -> int | None:
    written = server.value("--port")
    if "--port" in server.open or any(server.value(flag) is not None for flag in _ELSEWHERE):
        return None
    if written is None:
        return VLLM_PORT
    return int(written) if written.isascii() and written.isdigit() and len(written) < 6 else None


def may_listen(pods: Pods, port: int) -> bool:
    """Whether some container of the pod may listen on the port: a server that does, another container that declares
    the port or says its number, or one that declares none, which it need not; any in a pod without a server."""
    running = (*pods.spec.containers, *(one for one in pods.spec.init_containers if one.restart_policy == "Always"))
    found = [(container, listener(container)) for container in running]
    if not any(own for _, own in found):
        return True
    for container, own in found:
        listed = own.ports if own is not None else [one.container_port for one in container.ports]
        if (
            port in listed
            or _says(container, port)
            or not (listed or _NAMES_A_PORT.search(" ".join(_words(container))))
        ):
            return True
    return False


def where_else(pods: Pods) -> str:
    """The ports of the servers in the pod, in words."""
    ports = sorted({port for one in pods.spec.containers if (found := listener(one)) for port in found.ports})
    return " and ".join(str(port) for port in ports)


_NAMES_A_PORT = re.compile(r"(?i)(listen|port|bind|addr)\S*[=: ]\S*?\d{2,5}\b")


def _says(container: core.Container, port: int) -> bool:
    return any(re.search(rf"(?<!\d){port}(?!\d)", word) for word in _words(container))


def _words(container: core.Container) -> tuple[str, ...]:
    return (*container.command, *container.args, *(one.value for one in container.env))
