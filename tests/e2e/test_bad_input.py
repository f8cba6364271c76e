"""What a person sees when something is missing or wrong: one clear line and exit code 2, or a degraded controller that
says so in ``/readyz``. Never a traceback."""

from __future__ import annotations

import http.server
import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from e2e_builders import GPU, deployment, node, pod_spec
from e2e_controllers import LEASES, TRACEBACK, Process, controller, grant, rules, tonnage

from e2e.api import Json
from e2e.control_plane import ADMIN, UNTOUCHED, ControlPlane
from e2e.processes import LOCAL, free_ports, until
from tonnage.control import opt_in

PODS = "/api/v1/namespaces/default/pods"
USERS = ("nobody", "blind", "tonnage-scheduler")


@pytest.fixture(scope="module")
def plane(start_plane: Any) -> ControlPlane:
    """Without the kinds of Karpenter and KEDA; a node and a pod for it."""
    found: ControlPlane = start_plane(
        controllers=(), scheduler=False, admission_off=UNTOUCHED, users={name: [] for name in USERS}
    )
    api = found.api()
    found.namespace(LEASES)
    api.create("/api/v1/nodes", node("n", {"cpu": "8", "memory": "64Gi", "pods": "50", GPU: "8"}))
    return found


def run(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """`tonnage controller` until it ends by itself."""
    kept = {name: value for name, value in os.environ.items() if name not in ("KUBECONFIG", "HOME")}
    return subprocess.run(
        [sys.executable, "-m", "tonnage", "controller", "-q", *words],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env=kept | {"HOME": "/nonexistent"} | environment,
    )


def refused(done: subprocess.CompletedProcess[str]) -> str:
    """The one line of a run that exited with code 2 for bad input."""
    assert done.returncode == 2, done.stderr
    assert done.stdout == ""
    (line,) = done.stderr.splitlines()
    assert line.startswith("error: ")
    return line


# ---- nothing to talk to ----


def test_without_a_kubeconfig_it_says_where_it_looked() -> None:
    line = refused(run("--once"))
    assert "kubeconfig" in line
    assert "~/.kube/config" in line


def test_a_kubeconfig_that_is_not_there_is_named(tmp_path: Path) -> None:
    assert str(tmp_path / "none") in refused(run("--once", "--kubeconfig", str(tmp_path / "none")))


def test_a_wrong_context_is_named_with_those_that_there_are(plane: ControlPlane) -> None:
    line = refused(run("--once", "--context", "prod", KUBECONFIG=str(plane.kubeconfig())))
    assert "prod" in line
    assert "e2e" in line


def test_a_token_that_the_server_does_not_take_is_said(plane: ControlPlane) -> None:
    line = refused(run("--once", KUBECONFIG=str(plane.write_kubeconfig("stranger", "expired"))))
    assert "does not accept the credentials" in line
    assert "expired" in line


def test_a_server_that_is_not_there_is_said(plane: ControlPlane, tmp_path: Path) -> None:
    (port,) = free_ports(1)
    config = kubeconfig(tmp_path, f"https://{LOCAL}:{port}")
    line = refused(run("--once", "--kubeconfig", str(config)))
    assert "no connection to the API server" in line
    assert str(port) in line


@contextmanager
def server(version: Json) -> Iterator[str]:
    """Something that answers every request with this JSON."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = json.dumps(version).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    found = http.server.ThreadingHTTPServer((LOCAL, 0), Handler)
    thread = threading.Thread(target=found.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://{LOCAL}:{found.server_address[1]}"
    finally:
        found.shutdown()
        found.server_close()


def kubeconfig(folder: Path, url: str) -> Path:
    path = folder / "kubeconfig"
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "there",
        "clusters": [{"name": "there", "cluster": {"server": url}}],
        "users": [{"name": "me", "user": {"token": "any"}}],
        "contexts": [{"name": "there", "context": {"cluster": "there", "user": "me"}}],
    }
    path.write_text(json.dumps(config))
    return path


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ({"major": "1", "minor": "24", "gitVersion": "v1.24.17"}, "the API server is too old: v1.24.17"),
        ({"hello": "world"}, "the API server does not say its version"),
        (["hello"], "this is not a Kubernetes API server"),
    ],
    ids=["too old", "no version", "something else"],
)
def test_an_api_server_that_will_not_do_is_refused_at_once(tmp_path: Path, answer: Any, said: str) -> None:
    with server(answer) as url:
        line = refused(run("--once", "--kubeconfig", str(kubeconfig(tmp_path, url))))
    assert said in line


@pytest.mark.parametrize(
    "words",
    [
        ("--once", "--mode", "apply"),
        ("--nodes-backend", "aws"),
        ("--listen", "nowhere"),
        ("--only", "router"),
        ("--prometheus", "prometheus:9090"),
    ],
    ids=" ".join,
)
def test_options_that_do_not_go_together_are_refused_in_one_line(plane: ControlPlane, words: tuple[str, ...]) -> None:
    refused(run(*words, KUBECONFIG=str(plane.kubeconfig())))


# ---- degraded, and alive ----


@pytest.fixture
def begin(plane: ControlPlane) -> Iterator[Callable[..., Process]]:
    """Starts a controller that need not become ready."""
    running: list[Process] = []

    def begin(*names: str, user: str = ADMIN, more: tuple[str, ...] = (), mode: str = "apply") -> Process:
        process = controller(plane, *names, user=user, more=more, mode=mode, ready=False)
        running.append(process)
        process.start()
        return process

    yield begin
    for process in running:
        if process.running:
            assert process.end() == 0
        assert TRACEBACK not in process.tail(100_000)


def degraded(process: Process, *said: str) -> str:
    """The text of /readyz once it says all of that; alive it is all the same."""
    until(f"503 with {said}", lambda: process.readyz()[0] == 503 and all(s in process.readyz()[1] for s in said), 30)
    assert process.healthz() == (200, "ok\n")
    return process.readyz()[1]


def test_without_any_rights_every_controller_says_what_it_may_not(plane: ControlPlane, begin: Any) -> None:
    text = degraded(
        begin(user="nobody", mode="observe"), "not allowed: list pods", "not allowed: list deployments.apps"
    )
    assert "scheduler, replicas, nodes (pods)" in text
    assert "grant the verb by RBAC" in text


def test_a_look_without_rights_ends_with_a_line_for_each_kind(plane: ControlPlane) -> None:
    done = run("--once", KUBECONFIG=str(plane.kubeconfig("nobody")))
    assert done.returncode == 1
    lines = done.stderr.splitlines()
    assert all(line.startswith("error: ") and "not allowed: list" in line for line in lines)
    assert len(lines) == len(set(lines)) >= 5


def test_one_kind_that_may_not_be_read_stops_its_controller_alone(plane: ControlPlane, begin: Any) -> None:
    allowed = [one for one in (_without(rule, "deployments") for rule in rules("scheduler", "apply")) if one]
    plane.grant("blind", allowed)
    until("rights", lambda: plane.api("blind").raw("GET", "/api/v1/pods")[0] == 200, 30)
    process = begin("scheduler", "replicas", user="blind", more=("--no-leader-elect",))
    degraded(process, "replicas (deployments.apps): not allowed: list deployments.apps")
    until("no other kind is a problem", lambda: len(process.readyz()[1].splitlines()) == 1, 30)
    assert process.readyz()[1].startswith("replicas (deployments.apps): not allowed: list deployments.apps")
    plane.api().create(PODS, {"metadata": {"name": "placed"}, "spec": pod_spec(gpus=1, schedulerName="tonnage")})
    until("the scheduler works", lambda: plane.api().get(f"{PODS}/placed")["spec"].get("nodeName") == "n", 30)


def _without(rule: Json, plural: str) -> Json:
    left = [one for one in rule["resources"] if one != plural]
    return rule | {"resources": left} if left else {}


def test_without_karpenters_kinds_the_nodes_controller_is_degraded_and_the_others_are_well(
    plane: ControlPlane, begin: Any
) -> None:
    text = degraded(begin("nodes"), "nodepools.karpenter.sh", "nodeclaims.karpenter.sh")
    assert "nodes (nodepools.karpenter.sh): the cluster does not serve nodepools.karpenter.sh" in text
    assert "install the CRDs of Karpenter" in text
    others = begin("scheduler", "replicas")
    until("ready", lambda: others.readyz() == (200, "ok\n"), 30)


def test_a_write_that_is_not_allowed_is_said_with_the_decision(plane: ControlPlane, begin: Any) -> None:
    grant(plane, "scheduler", "observe")
    process = begin("scheduler", user="tonnage-scheduler", more=("--no-leader-elect",))
    plane.api().create(PODS, {"metadata": {"name": "barred"}, "spec": pod_spec(gpus=1, schedulerName="tonnage")})
    until("the refusal", lambda: process.decided("Bind", "Refused"), 30)
    assert "pods/binding" in process.decided("Bind", "Refused")[0]["outcome"]["why"]
    assert len(process.decided("Bind", "Refused")) == 1, "said once, not at every try"
    plane.api().delete(f"{PODS}/barred")


def test_a_lease_that_may_not_be_taken_is_said(plane: ControlPlane, begin: Any) -> None:
    text = degraded(begin("scheduler", user="tonnage-scheduler"), "scheduler lease")
    assert "leases" in text


def test_a_prometheus_that_is_down_degrades_the_replicas_controller(plane: ControlPlane, begin: Any) -> None:
    (port,) = free_ports(1)
    body = deployment("served", 1, pod_spec(gpus=1, schedulerName="tonnage"))
    asks = {opt_in.AUTOSCALE: "slo", opt_in.MAX_REPLICAS: "4", opt_in.CAPACITY: "2", opt_in.CONCURRENCY: "4"}
    body["metadata"]["annotations"] = asks | {opt_in.RECEIVED: "sum(received)", opt_in.IN_FLIGHT: "sum(active)"}
    plane.api().create("/apis/apps/v1/namespaces/default/deployments", body)
    down = begin("replicas", more=("--no-leader-elect", "--prometheus", f"http://{LOCAL}:{port}"))
    none = begin("replicas", more=("--no-leader-elect",))
    assert str(port) in degraded(down, "replicas (metrics)")
    assert "give its address with --prometheus URL" in degraded(none, "replicas (metrics)")


def test_up_on_a_context_that_is_not_there_ends_in_one_line(plane: ControlPlane) -> None:
    process = tonnage(plane.folder, ["up", "--on", "nowhere", "-q"], plane.kubeconfig())
    process.start()
    assert process.process is not None
    assert process.process.wait(30) == 2
    (line,) = process.tail().splitlines()
    assert line.startswith("error: ")
    assert "nowhere" in line
