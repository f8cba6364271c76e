"""What a machine must have, and the reason to give where it lacks it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

GO = (1, 26)
CNI_PLUGINS = Path("/usr/lib/cni")
TOOLS = {"unshare": "util-linux", "ip": "iproute2", "openssl": "openssl"}
"""Programs that a control plane in namespaces of its own needs, and Debian's package of each."""


def to_build() -> str:
    """Why this machine cannot build the cluster; empty when it can."""
    program = shutil.which("go")
    if program is None:
        return f"no go on PATH; Go {_dotted(GO)} or newer builds the cluster"
    said = subprocess.run([program, "env", "GOVERSION"], capture_output=True, text=True, check=False).stdout.strip()
    found = re.match(r"go(\d+)\.(\d+)", said)
    if found is None or (int(found[1]), int(found[2])) < GO:
        return f"{program} is {said or 'of an unknown version'}; Go {_dotted(GO)} or newer builds the cluster"
    return ""


def to_run() -> str:
    """Why this machine cannot start a control plane in namespaces of its own; empty when it can."""
    if sys.platform != "linux":
        return f"a cluster runs on Linux, this is {sys.platform}"
    if os.geteuid() != 0:
        return "not root; namespaces, cgroups and mounts of a cluster need root"
    for tool, package in TOOLS.items():
        if shutil.which(tool) is None:
            return f"no {tool} on PATH (Debian: apt-get install {package})"
    words = ["unshare", "--net", "--mount", "--pid", "--fork", "--mount-proc", "true"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    return f"no Linux namespaces: {done.stderr.strip()}" if done.returncode else ""


def for_real_nodes() -> str:
    """Why no containers can run here, though a control plane can; empty when they can."""
    if shutil.which("runc") is None:
        return "no runc on PATH (Debian: apt-get install runc)"
    if not (CNI_PLUGINS / "bridge").exists():
        return f"no {CNI_PLUGINS}/bridge (Debian: apt-get install containernetworking-plugins)"
    return ""


def _dotted(version: tuple[int, ...]) -> str:
    return ".".join(map(str, version))
