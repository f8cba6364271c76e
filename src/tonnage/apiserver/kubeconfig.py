"""Writing a kubeconfig for the embedded API."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import yaml


def is_ours(path: Path, name: str = "tonnage") -> bool:
    """Whether a file is one that :func:`write` made: it may be replaced. A file that is not there may be made."""
    try:
        found = yaml.safe_load(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return True
    except (OSError, UnicodeDecodeError, yaml.YAMLError):
        return False
    clusters = found.get("clusters") if isinstance(found, dict) else None
    if not isinstance(clusters, list) or [c.get("name") for c in clusters if isinstance(c, dict)] != [name]:
        return False
    return str(clusters[0].get("cluster", {}).get("server", "")).startswith("http://127.0.0.1:")


def remove(path: Path, server: str) -> None:
    """Delete a file that :func:`write` made for this server, unless another has taken its place."""
    try:
        if server in path.read_text(encoding="utf-8"):
            path.unlink()
    except (FileNotFoundError, UnicodeDecodeError):
        return  # gone, or another's


def write(path: Path, server: str, *, namespace: str = "default", name: str = "tonnage") -> Path:
    """Write a kubeconfig with one context, readable by its owner only; an older file is replaced as a whole.

    ``server`` is the URL that :class:`tonnage.apiserver.http.Server` gives: it contains the right to enter.
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
