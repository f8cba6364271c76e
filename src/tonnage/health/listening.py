"""On which ports the containers of a pod listen, as far as their command lines say.

Sources: vllm-project/vllm vllm/entrypoints/openai/cli_args.py (port 8000 unless told otherwise), api_server.py and
vllm/entrypoints/serve (paths), and docker/Dockerfile (the image's entrypoint is the server).
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from tonnage.health.setting import Pods
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

_SERVER = re.compile(r"\bvllm[\"',\s]+serve\b|\bvllm\.entrypoints\.(?:openai\.)?api_server\b")
_PORT = re.compile(r"(?<!\S)--port(?:=|\s+)[\"']?([^\s\"';&|]+)")
_ELSEWHERE = re.compile(r"(?<!\S)--(?:config|uds|headless)(?=[=\s]|$)")
_VARIABLE = re.compile(r"\$(?:\((\w+)\)|\{(\w+)(?::-(\d+))?\}|(\w+))")
_FLAG = r"(?<!\S)--{}(?=[=\s]|$)"


@dataclass(frozen=True, slots=True)
class Server:
    """An OpenAI server of vLLM. ``line``: its command line; ``ports``: on which it listens."""

    line: str
    ports: frozenset[int]

    def has(self, *flags: str) -> bool:
        """Whether one of the flags, written without dashes, is set."""
        return any(re.search(_FLAG.format(flag.replace("-", "[-_]")), self.line) for flag in flags)


def server(container: core.Container) -> Server | None:
    """The server in a container; None where there is none, or it is not known where it listens."""
    line = " ".join((*container.command, *container.args))
    starts = [found.end() for found in _SERVER.finditer(line)]
    if not starts:
        if container.command or not container.image.rpartition("/")[2].startswith("vllm-openai"):
            return None
        starts = [0]
    ports = set[int]()
    for start, end in zip(starts, [*starts[1:], len(line)], strict=True):
        part = line[start:end]
        written = _PORT.findall(part)
        port = _number(written[-1], container) if written else VLLM_PORT
        if port is None or _ELSEWHERE.search(part):
            return None
        ports.add(port)
    return Server(line, frozenset(ports))


def may_listen(pods: Pods, port: int) -> bool:
    """Whether some container of the pod may listen on the port: a server that does, another container that declares
    the port or says its number, any container of a pod without a server."""
    running = (*pods.spec.containers, *(one for one in pods.spec.init_containers if one.restart_policy == "Always"))
    servers = [server(one) for one in running]
    if not any(servers):
        return True
    for container, found in zip(running, servers, strict=True):
        if found is not None:
            if port in found.ports or _says(container, port):
                return True
        elif any(one.container_port == port for one in container.ports) or _says(container, port):
            return True
    return False


def where_else(pods: Pods) -> str:
    """The ports of the servers in the pod, in words."""
    ports = sorted({port for one in pods.spec.containers if (found := server(one)) for port in found.ports})
    return " and ".join(str(port) for port in ports)


def _says(container: core.Container, port: int) -> bool:
    words = (*container.command, *container.args, *(one.value for one in container.env))
    return any(re.search(rf"(?<!\d){port}(?!\d)", word) for word in words)


def _number(written: str, container: core.Container) -> int | None:
    """The port, by way of a variable whose value stands beside it."""
    variable = _VARIABLE.fullmatch(written)
    if variable is not None:
        name = variable[1] or variable[2] or variable[4]
        value = next((one.value for one in container.env if one.name == name), variable[3] or "")
        written = value
    return int(written) if written.isascii() and written.isdigit() and len(written) < 6 else None
