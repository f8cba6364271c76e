"""What kubectl itself prints of sets that never run, and after the change that mends them, behind `tonnage up`."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

import kube_programs
from health.broken_sets import broken
from hollow.up_in_step import UpInStep
from tonnage.apiserver import kubeconfig
from tonnage.apiserver.http import Server
from tonnage.simulation import run, scenario

SETS = {
    "service account missing": ("replicaset", "FailedCreate", 'serviceaccount "model-sa" not found', "No resources"),
    "config map of a volume missing": ("pod", "FailedMount", "not found", "ContainerCreating"),
    "no such model": ("pod", "Exit Code:", "is not a valid model identifier", "CrashLoopBackOff"),
    "node selector for a GPU that no node has": ("pod", "FailedScheduling", "node affinity/selector", "Pending"),
}
"""By name of the set: of what kubectl describes it, the word that stands there, what is said, and the line of the pods."""


@pytest.mark.parametrize("name", SETS)
def test_kubectl_prints_the_cause(name: str, tmp_path: Path) -> None:
    kind, reason, said, listed = SETS[name]
    program = kube_programs.kubectl()
    one = next(one for one in broken() if one.name == name)
    loaded = scenario.load(one.write(tmp_path / "set"))
    with UpInStep(run.set_up(loaded, loaded.default_policy)) as up:
        up.run_for(400)
        list(up.events("", ""))  # those that are on their way are written
        server = Server(up.api, port=0).start()
        try:
            config = kubeconfig.write(tmp_path / "config", server.url)

            def kubectl(*words: str) -> str:
                environment = os.environ | kube_programs.QUICK_START | {"KUBECONFIG": str(config)}
                done = subprocess.run(
                    [program, *words, "-A"], env=environment, capture_output=True, text=True, timeout=60, check=False
                )
                assert done.returncode == 0, done.stderr
                return done.stdout + done.stderr

            assert listed in kubectl("get", "pods")
            described = kubectl("describe", kind)
            assert reason in described and said in described
        finally:
            server.stop()
