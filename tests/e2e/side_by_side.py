"""Which files of end-to-end tests are never run at once."""

from __future__ import annotations

TOGETHER = {
    "real nodes": (
        "test_agent.py",
        "test_cluster.py",
        "test_controllers.py",
        "test_host.py",
        "test_image_on_a_node.py",
    ),
}
"""Kubelets set what the whole machine has once, and put it back."""


def group(file: str) -> str:
    """Tests of one group run one after another: those of a file, and those of :data:`TOGETHER`."""
    return next((what for what, files in TOGETHER.items() if file in files), file)
