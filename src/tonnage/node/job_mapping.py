"""Jobs of a batch system on a node's GPUs, from the files that its prolog writes: dcgm-exporter's job mapping.

A folder has a file for each GPU, named by its index (``0``), or by index and GPU instance (``0.7``); each of its lines
is a job. Other files are none of it. Source: NVIDIA/dcgm-exporter internal/pkg/transformation/hpc.go; the folder of
the GPU operator: ClusterPolicy ``dcgmExporter.hpcJobMapping.directory``."""

from __future__ import annotations

import re
from pathlib import Path

from tonnage.errors import InputError

_NAME = re.compile(r"[0-9]+(?:\.[0-9]+)?")
MOST_JOBS = 64
"""On one GPU: each has a series of every metric, and a folder that grows without end must not fill Prometheus."""


def jobs(folder: Path) -> dict[str, tuple[str, ...]]:
    """``INDEX`` or ``INDEX.INSTANCE`` → the jobs there, as they stand in the file, doubles left out; at most
    :data:`MOST_JOBS`. Files that end while they are read have no jobs. Raises InputError where the folder cannot be
    read."""
    try:
        files = sorted(one for one in folder.iterdir() if _NAME.fullmatch(one.name))
    except OSError as error:
        hint = "the batch system's prolog writes it: mount the folder of the host"
        raise InputError.at(f"no folder of jobs: {error.strerror}", file=str(folder), hint=hint) from error
    found = {}
    for one in files:
        try:
            lines = one.read_text(encoding="utf-8", errors="replace").splitlines()
        except OSError:
            continue  # the job has ended meanwhile, and the epilog has removed it
        named = tuple(dict.fromkeys(line.strip() for line in lines if line.strip()))
        if named:
            found[one.name] = named[:MOST_JOBS]
    return found
