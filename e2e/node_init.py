#!/usr/bin/env python3
"""Process 1 of a real node's own mount and pid namespace: ``node_init.py FOLDER`` (reads FOLDER/commands.json).

It lays FOLDER/kubelet over /var/lib/kubelet, because the kubelet's device plugin folder is fixed there: so each node
has its own and several kubelets live on one machine. Then it starts containerd and the kubelet and reaps what is
orphaned. When it is killed, the kernel ends everything in the namespace, containers too, and drops the mounts.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path


def main(node: Path) -> None:
    _mount(node)
    children = {}
    for name, words in json.loads((node / "commands.json").read_text()).items():
        # containerd looks for its shim on PATH.
        environment = os.environ | {"PATH": f"{Path(words[0]).parent}:{os.environ['PATH']}"}
        with (node / f"{name}.log").open("ab") as log:
            started = subprocess.Popen(words, stdout=log, stderr=log, stdin=subprocess.DEVNULL, env=environment)
        children[started.pid] = name
        while name == "containerd" and not (node / "go").exists():  # the images are imported first
            time.sleep(0.05)
    while True:
        pid, status = os.wait()
        if pid in children:
            print(f"{children[pid]} ended with {os.waitstatus_to_exitcode(status)}", flush=True)
            sys.exit(1)


def _mount(node: Path) -> None:
    """Private copies of the folders that a kubelet and containerd write to."""
    kubelet, namespaces = Path("/var/lib/kubelet"), Path("/run/netns")
    kubelet.mkdir(parents=True, exist_ok=True)
    subprocess.check_call(["mount", "--bind", node / "kubelet", kubelet])
    # The kubelet mounts secrets below it; containerd's shim must see those mounts.
    subprocess.check_call(["mount", "--make-rshared", kubelet])
    namespaces.mkdir(parents=True, exist_ok=True)
    subprocess.check_call(["mount", "-t", "tmpfs", "netns", namespaces])


if __name__ == "__main__":
    main(Path(sys.argv[1]))
