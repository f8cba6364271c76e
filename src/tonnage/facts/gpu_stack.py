"""Releases of the GPU operator with the versions that belong to each, and how it says what becomes of a node's driver.

Tables: ``data/gpu_stack_releases.csv``, ``data/gpu_stack_images.csv``. Source of the states: NVIDIA/k8s-operator-libs
pkg/upgrade/consts.go; what they mean: upgrade_state.go and upgrade_inplace.go there.
"""

from __future__ import annotations

from functools import lru_cache

from tonnage.facts import tables

OPERATOR, DRIVER, TOOLKIT, DEVICE_PLUGIN = "operator", "driver", "container-toolkit", "device-plugin"

REQUIRED, DONE, UPGRADE_FAILED = "upgrade-required", "upgrade-done", "upgrade-failed"
IN_PROGRESS = (
    "cordon-required",
    "wait-for-jobs-required",
    "pod-deletion-required",
    "drain-required",
    "pod-restart-required",
    "validation-required",
    "uncordon-required",
)
"""The states between :data:`REQUIRED` and :data:`DONE`, in order; of a node that had been cordoned before, the last is
left out."""
STAYS_CORDONED = "nvidia.com/gpu-driver-upgrade.node-initial-state.unschedulable"
"""An annotation: the node was cordoned before its upgrade, and the operator leaves it so."""


@lru_cache(maxsize=1)
def releases() -> dict[str, dict[str, tuple[str, ...]]]:
    """Release of the operator → component → its versions, the default first. What is not named is not known."""
    found: dict[str, dict[str, tuple[str, ...]]] = {}
    for row in tables.rows("gpu_stack_releases.csv"):
        found.setdefault(row["operator"], {})[row["component"]] = tuple(row["versions"].split())
    return found


@lru_cache(maxsize=1)
def images() -> dict[str, str]:
    """Last part of an image's repository → the component that it is."""
    return {row["image"]: row["component"] for row in tables.rows("gpu_stack_images.csv")}
