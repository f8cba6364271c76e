"""Which files of end-to-end tests are never run at once."""

from __future__ import annotations

REAL_NODES, RUNNING_TIME = "real nodes", "in running time"
TOGETHER = {
    REAL_NODES: (
        "test_agent.py",
        "test_cluster.py",
        "test_controllers.py",
        "test_dra_driver.py",
        "test_host.py",
        "test_image_on_a_node.py",
    ),
    RUNNING_TIME: (
        "test_examples_behind_up.py",
        "test_live_gangs.py",
        "test_live_preemption.py",
        "test_preemption_behind_up.py",
        "test_soak.py",
        "test_surge.py",
        "test_trouble.py",
        "test_weight.py",
    ),
}
"""Kubelets set what the whole machine has once, and put it back. What is held to seconds, or to a simulated clock that
runs many times as fast, needs a processor that no other of the kind wants."""


def group(file: str) -> str:
    """Tests of one group run one after another: those of a file, and those of :data:`TOGETHER`."""
    return next((what for what, files in TOGETHER.items() if file in files), file)
