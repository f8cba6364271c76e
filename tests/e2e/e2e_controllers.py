"""`tonnage controller` and `tonnage up` as processes, each with exactly the rights that the chart gives it."""

from __future__ import annotations

import itertools
import json
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import yaml_text
from e2e.api import Json
from e2e.control_plane import ADMIN, ControlPlane
from e2e.processes import LOCAL, Program, free_ports, until

ROOT = Path(__file__).resolve().parents[2]
RBAC = ROOT / "charts/tonnage/files/rbac.yaml"
CONTROLLERS = ("scheduler", "replicas", "nodes")
LEASES = "tonnage-system"
"""The namespace of the leases: the chart's release in a real installation."""
USERS = {f"tonnage-{name}": ["controllers"] for name in CONTROLLERS}
"""For the options of a control plane: one user for each controller."""
TRACEBACK = "Traceback (most recent call last)"

_numbers = itertools.count(1)


def rules(controller: str, mode: str, backend: str = "nodeclaims") -> list[Json]:
    """The rules of the chart's ClusterRole."""
    written: dict[str, Any] = yaml_text.load(RBAC.read_text())
    found: list[Json] = [rule | {"verbs": ["get", "list", "watch"]} for rule in written["read"]]
    if mode == "apply":
        effect = f"nodes/{backend}" if controller == "nodes" else controller
        found += written["events"] + written["apply"][effect]
    return found


def lease_rules(controller: str) -> list[Json]:
    """The rules of the chart's Role, for the controller's own lease."""
    verbs: dict[str, list[str]] = yaml_text.load(RBAC.read_text())["lease"]
    lease = {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"]}
    return [
        lease | {"verbs": verbs["create"]},
        lease | {"verbs": verbs["named"], "resourceNames": [f"tonnage-{controller}"]},
    ]


def grant(plane: ControlPlane, controller: str, mode: str = "apply") -> str:
    """Give the controller's user its rights, in force when this returns; its name."""
    user = f"tonnage-{controller}"
    plane.grant(user, rules(controller, mode))
    if mode == "apply":
        if plane.api().raw("GET", f"/api/v1/namespaces/{LEASES}")[0] == 404:
            plane.namespace(LEASES)
        plane.grant(user, lease_rules(controller), LEASES)
        lease = f"/apis/coordination.k8s.io/v1/namespaces/{LEASES}/leases/tonnage-{controller}"
        until("rights to the lease", lambda: plane.api(user).raw("GET", lease)[0] in (200, 404), 30)
    until("rights", lambda: plane.api(user).raw("GET", "/api/v1/pods", limit=1)[0] == 200, 30)
    return user


class Process(Program):
    """A `tonnage` process. What it prints on both streams is in ``log``."""

    port: int = 0

    def readyz(self) -> tuple[int, str]:
        """Status and text of ``/readyz``."""
        return self._ask("readyz")

    def healthz(self) -> tuple[int, str]:
        """Status and text of ``/healthz``."""
        return self._ask("healthz")

    def metrics(self) -> str:
        """The text of ``/metrics``."""
        return self._ask("metrics")[1]

    def _ask(self, path: str) -> tuple[int, str]:
        try:
            with urllib.request.urlopen(f"http://{LOCAL}:{self.port}/{path}", timeout=5) as reply:
                return reply.status, reply.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    def decided(self, kind: str = "", outcome: str = "Applied") -> list[Json]:
        """The decisions that it printed (``-o json``), those of one kind and outcome; empty strings mean any."""
        text = self.log.read_text(errors="replace") if self.log.exists() else ""
        lines = [json.loads(line) for line in text.splitlines() if line.startswith("{") and line.endswith("}")]
        return [
            line
            for line in lines
            if kind in ("", line["decision"]["type"]) and outcome in ("", line["outcome"]["type"])
        ]

    def complaints(self) -> list[str]:
        """The lines that begin with ``error:``."""
        return [line for line in self.log.read_text(errors="replace").splitlines() if line.startswith("error:")]

    def end(self, limit_s: float = 15.0) -> int:
        """Ask it to end in order (SIGTERM); its exit code."""
        assert self.process is not None
        self.process.terminate()
        code: int = self.process.wait(limit_s)
        assert TRACEBACK not in self.log.read_text(errors="replace")
        return code


def tonnage(
    folder: Path, words: Sequence[str], kubeconfig: Path, ready: Callable[[], object] = lambda: True
) -> Process:
    """A process that is not started yet."""
    name = f"tonnage-{next(_numbers)}"
    environment = {"KUBECONFIG": str(kubeconfig), "HOME": str(folder), "PYTHONUNBUFFERED": "1"}
    return Process(name, [sys.executable, "-m", "tonnage", *words], folder / f"{name}.log", ready, environment)


def controller(
    plane: ControlPlane, *names: str, mode: str = "apply", user: str = "", ready: bool = True, more: Sequence[str] = ()
) -> Process:
    """`tonnage controller`, not started yet; ready when ``/readyz`` says so, or without ``ready`` when it answers."""
    (port,) = free_ports(1)
    words = ["controller", "--mode", mode, "--listen", f"{LOCAL}:{port}", "-o", "json", "--namespace-of-lease", LEASES]
    words += [word for name in names for word in ("--only", name)] + list(more)
    found = tonnage(plane.folder, words, plane.kubeconfig(user or (f"tonnage-{names[0]}" if names else ADMIN)))
    found.port = port

    def answers() -> bool:
        return found.readyz()[0] == 200 or not ready

    found.ready = answers
    return found
