"""Writing a kubeconfig for the embedded API."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import yaml


def write(path: Path, server: str, *, namespace: str = "default", name: str = "tonnage") -> Path:
    """Write a kubeconfig with one context, readable by its owner only; an older file is replaced as a whole.

    ``server`` is the URL that :class:`tonnage.cluster.server.http.Server` gives: it contains the right to enter.
    """
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": name, "cluster": {"server": server}}],
        "users": [{"name": name, "user": {}}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": name, "namespace": namespace}}],
        "current-context": name,
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")  # mkstemp's mode is 0600
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            yaml.safe_dump(config, file, sort_keys=False)
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
    return path
