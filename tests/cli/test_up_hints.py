"""What `tonnage up` says to type is for the cluster that runs: its namespaces and workloads, and none of an example's."""

from __future__ import annotations

import re
import shlex
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import kube_programs
from tonnage.cli import up


def hints(capsys: pytest.CaptureFixture[str], example: Any) -> list[str]:
    """The commands of the welcome."""
    state = SimpleNamespace(nodes_ready=2, pods_running=3)
    running: Any = SimpleNamespace(state=lambda: state, prometheus_url="")
    up._welcome(running, Path("/home/me/.kube/tonnage-chat.yaml"), example, False, ())
    said = capsys.readouterr().out
    assert "2 nodes, 3 pods running." in said and "export KUBECONFIG=/home/me/.kube/tonnage-chat.yaml" in said
    return [re.split(r"\s{2,}", line.strip())[0] for line in said.splitlines() if line.startswith("  kubectl ")]


def test_hints_name_the_namespace_and_a_workload_of_the_scenario(capsys: pytest.CaptureFixture[str]) -> None:
    found = hints(capsys, SimpleNamespace(namespace="my-llms", name="chat-7b"))
    assert "kubectl describe pod -n my-llms NAME" in found
    assert "kubectl scale deployment -n my-llms chat-7b --replicas 9" in found
    assert not any("inference" in one for one in found)


def test_without_workloads_hints_are_of_the_default_namespace(capsys: pytest.CaptureFixture[str]) -> None:
    found = hints(capsys, None)
    assert "kubectl scale deployment -n default NAME --replicas 9" in found


def test_the_flags_of_the_hints_are_kubectls(capsys: pytest.CaptureFixture[str]) -> None:
    program = kube_programs.kubectl()
    for one in hints(capsys, SimpleNamespace(namespace="a", name="b")):
        verb, *rest = shlex.split(one)[1:]
        known = subprocess.run([program, verb, "--help"], capture_output=True, text=True, timeout=60, check=True).stdout
        for flag in (word.partition("=")[0] for word in rest if word.startswith("-") and word not in ("-n",)):
            assert re.search(rf"(?<![\w-]){re.escape(flag)}\b", known), (one, flag)
