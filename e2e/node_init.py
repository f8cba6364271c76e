#!/usr/bin/env python3
"""Process 1 of a real node's own mount and pid namespace: ``node_init.py FOLDER`` (reads FOLDER/commands.json).

A kubelet, containerd, its shims and CNI write below /run, /var/lib and /var/log, some of it at fixed places
(/run/containerd, /run/nri, /run/netns, /var/lib/cni, /var/lib/kubelet/device-plugins, /var/log/containers). Each node
has these three folders empty and to itself, with FOLDER/kubelet at /var/lib/kubelet: so several nodes live on one
machine, and nothing of the machine's own containerd or kubelet is seen or touched. Then it starts containerd and the
kubelet and reaps what is orphaned. Either of them that is named in FOLDER/restart when it ends is started again.
When it is killed, the kernel ends everything in the namespace, containers too, and
drops the mounts.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

PRIVATE = (Path("/run"), Path("/var/lib"), Path("/var/log"))


def main(node: Path) -> None:
    _mount(node)
    commands = json.loads((node / "commands.json").read_text())
    children = {}
    for name, words in commands.items():
        children[_start(node, name, words)] = name
        while name == "containerd" and not (node / "go").exists():  # the images are imported first
            time.sleep(0.05)
    while True:
        pid, status = os.wait()
        if pid not in children:
            continue
        name, again = children.pop(pid), node / "restart"
        print(f"{name} ended with {os.waitstatus_to_exitcode(status)}", flush=True)
        if not again.exists() or again.read_text() != name:
            sys.exit(1)
        again.unlink()
        children[_start(node, name, commands[name])] = name


def _start(node: Path, name: str, words: list[str]) -> int:
    """Start a program; the number of its process."""
    # containerd looks for its shim on PATH.
    environment = os.environ | {"PATH": f"{Path(words[0]).parent}:{os.environ['PATH']}"}
    with (node / f"{name}.log").open("ab") as log:
        started = subprocess.Popen(words, stdout=log, stderr=log, stdin=subprocess.DEVNULL, env=environment)
    return started.pid


def _mount(node: Path) -> None:
    """Folders of the node's own where it would write to the machine's."""
    for place in PRIVATE:
        if node.resolve().is_relative_to(place.resolve()):
            sys.exit(f"{node} lies below {place}, which each node has to itself: choose another folder (TMPDIR)")
        subprocess.check_call(["mount", "-t", "tmpfs", "-o", "mode=755", "node", place])
    kubelet = Path("/var/lib/kubelet")
    for inside in (kubelet, Path("/run/netns")):
        inside.mkdir()
    subprocess.check_call(["mount", "--bind", node / "kubelet", kubelet])
    # The kubelet mounts secrets below it; containerd's shim must see those mounts.
    subprocess.check_call(["mount", "--make-rshared", kubelet])


if __name__ == "__main__":
    main(Path(sys.argv[1]))
