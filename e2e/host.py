"""What end-to-end tests must leave as it was: the places of a machine's own container runtime and kubelet."""

from __future__ import annotations

import os
from pathlib import Path

from e2e.real_nodes import SYSCTLS

PLACES = (
    "/run/containerd",
    "/run/nri",
    "/run/netns",
    "/run/runc",
    "/var/lib/cni",
    "/var/lib/containerd",
    "/var/lib/kubelet",
    "/var/log/containers",
    "/var/log/pods",
    "/etc/cni",
    "/etc/containerd",
    "/etc/kubernetes",
    "/opt/cni",
    "/opt/containerd",
    "/usr/libexec/kubernetes",
)


def seen() -> dict[str, str]:
    """Everything there, by path, with its kind, size and time of change; kernel settings; mounts by their place."""
    found = {f"/proc/sys/{name}": Path("/proc/sys", name).read_text().strip() for name in SYSCTLS}
    for place in map(Path, PLACES):
        if not place.exists():
            found[str(place)] = "absent"
            continue
        for path in (place, *place.rglob("*")):
            about = os.lstat(path)
            found[str(path)] = f"{about.st_mode:o} {about.st_size} {about.st_mtime_ns}"
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        found[f"mount {line.split()[4]}"] = line.split(" - ")[1].split()[0]
    return found


def differences(before: dict[str, str], after: dict[str, str]) -> list[str]:
    """What is not as it was, a line each."""
    names = sorted(before.keys() | after.keys())
    return [
        f"{name}: {before.get(name, 'not there')} → {after.get(name, 'not there')}"
        for name in names
        if before.get(name) != after.get(name)
    ]
