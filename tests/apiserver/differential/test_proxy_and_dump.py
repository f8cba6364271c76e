"""kubectl proxy and kubectl cluster-info dump on the embedded API."""

from __future__ import annotations

import json
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from differential_checks import Side

from e2e.processes import LOCAL, Program, free_ports

pytestmark = pytest.mark.peer


@pytest.fixture(scope="module")
def running(embedded: Side) -> Iterator[Side]:
    """The embedded API with a pod that runs."""
    embedded.run("kubectl apply -f nodes.yaml -f pod.yaml")
    embedded.play("run-pods")
    yield embedded
    embedded.run("kubectl delete pod alone --now --wait=false")
    embedded.play("stop-pods")


def ask(port: int, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://{LOCAL}:{port}{path}", timeout=10) as reply:
            return reply.status, reply.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


@contextmanager
def proxy(side: Side, folder: Path, *more: str) -> Iterator[int]:
    (port,) = free_ports(1)
    words = [*side.words("kubectl proxy"), f"--port={port}", *more]
    program = Program("proxy", words, folder / "proxy.log", lambda: ask(port, "/version")[0], side.environment())
    program.start()
    try:
        yield port
    finally:
        program.stop()


def test_kubectl_proxy_passes_the_token_of_the_address_on(running: Side, tmp_path: Path) -> None:
    with proxy(running, tmp_path, "--append-server-path") as port:
        code, body = ask(port, "/api/v1/namespaces/default/pods/alone")
        assert (code, json.loads(body)["metadata"]["name"]) == (200, "alone")
        assert ask(port, "/metrics")[0] == 200


def test_kubectl_proxy_without_it_is_told_what_to_do(running: Side, tmp_path: Path) -> None:
    with proxy(running, tmp_path) as port:
        code, body = ask(port, "/api/v1/namespaces/default/pods/alone")
        assert code == 401
        assert "kubectl proxy passes it on with --append-server-path" in json.loads(body)["message"]


def test_a_dump_is_whole_but_for_logs(running: Side, tmp_path: Path) -> None:
    words = [*running.words("kubectl cluster-info dump"), "--all-namespaces", f"--output-directory={tmp_path}"]
    done = subprocess.run(words, env=running.environment(), capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    parts = {"events", "replication-controllers", "services", "daemonsets", "deployments", "replicasets", "pods"}
    for namespace in ("default", "kube-system"):
        assert {one.stem for one in (tmp_path / namespace).glob("*.json")} == parts
    pods = json.loads((tmp_path / "default" / "pods.json").read_text())["items"]
    assert [one["metadata"]["name"] for one in pods] == ["alone"]
    assert pods[0]["metadata"]["labels"]["topology.kubernetes.io/zone"] == "eu-north-1a"
    assert "Request log error" in (tmp_path / "default" / "alone" / "logs.txt").read_text()
