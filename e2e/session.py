"""A control plane for one command, by hand: ``python -m e2e run``."""

from __future__ import annotations

import argparse
import contextlib
import os
import subprocess
import tempfile
from pathlib import Path

from e2e import real_nodes, simulators
from e2e.build import Built
from e2e.control_plane import ControlPlane, Options


def run(built: Built, arguments: list[str]) -> int:
    """Start what the arguments ask for, run the command with KUBECONFIG and PATH set; its exit code."""
    parser = argparse.ArgumentParser(prog="python -m e2e run")
    parser.add_argument("--real", type=int, default=0, metavar="N", help="real nodes, with containers")
    parser.add_argument("--gpus", type=int, default=8, metavar="N", help="GPUs of each real node")
    parser.add_argument("--kwok", action="store_true", help="kwok beside it")
    parser.add_argument("--karpenter", action="store_true", help="kwok and Karpenter beside it")
    parser.add_argument("command", nargs=argparse.REMAINDER, help="default: a shell")
    given = parser.parse_args(arguments)
    names = [f"real-{i}" for i in range(given.real)]
    with contextlib.ExitStack() as stack:
        folder = Path(
            stack.enter_context(tempfile.TemporaryDirectory(prefix="tonnage-e2e-", ignore_cleanup_errors=True))
        )
        plane = stack.enter_context(ControlPlane(built, folder / "plane", Options(nodes=names)))
        if names:
            stack.enter_context(real_nodes.RealNodes(plane, names, given.gpus))
        programs = [simulators.kwok(plane)] if given.kwok or given.karpenter else []
        if given.karpenter:
            programs.append(simulators.karpenter(plane))
        for program in programs:
            stack.callback(program.stop)
            program.start()
        tools = plane.built.folders["kube"] / "bin"
        environment = os.environ | {
            "KUBECONFIG": str(plane.kubeconfig()),
            "PATH": f"{tools}{os.pathsep}{os.environ['PATH']}",
        }
        command = given.command or [os.environ.get("SHELL", "/bin/bash")]
        return subprocess.run(command, env=environment, check=False).returncode
