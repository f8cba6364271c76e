"""Which files of end-to-end tests run beside which: two processes, each with its own files, one after another."""

from __future__ import annotations

RUNNING_TIME = (
    "test_examples_behind_up.py",
    "test_live_gangs.py",
    "test_live_preemption.py",
    "test_preemption_behind_up.py",
    "test_soak.py",
    "test_surge.py",
    "test_trouble.py",
    "test_weight.py",
)
"""What is held to seconds, or to a simulated clock that runs many times as fast, needs a processor that no other of the
kind wants. Real nodes are all among the others: kubelets set what the whole machine has once, and put it back."""


def lane_of(file: str) -> str:
    """The process that runs a file, as e2e.__main__ names it."""
    return "timed" if file in RUNNING_TIME else "others"
