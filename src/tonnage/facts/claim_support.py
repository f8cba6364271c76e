"""What serves ResourceClaims, and since when: gates of Kubernetes and of NVIDIA's driver, autoscalers of nodes.

Tables: ``data/claim_gates.csv``, ``data/claim_driver_gates.csv``, ``data/claim_autoscalers.csv``."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TypeAlias

from msgspec import Struct

from tonnage.facts import tables

Release: TypeAlias = tuple[int, int]
"""A version of Kubernetes: (1, 36)."""
CLAIMS = "DynamicResourceAllocation"
EXTENDED, PARTITIONS, CONSUMED = "DRAExtendedResource", "DRAPartitionableDevices", "DRAConsumableCapacity"
_RELEASE = re.compile(r"v?([0-9]{1,3})\.([0-9]{1,3})(?:\.[0-9]+(?:[-+].*)?)?")
WHOLE, PARTITION = "whole", "partition"
"""Devices that claims ask for: whole ones, or partitions that share counters."""


class ClaimGate(Struct, frozen=True):
    """A feature gate. Since which version it is there (``alpha``), ``on`` by default, and always on (``stable``); None:
    in none so far. ``serves``: what it is needed for."""

    name: str
    alpha: Release
    on: Release | None
    stable: Release | None
    serves: str
    source: str

    def is_on(self, release: Release) -> bool:
        """Whether a cluster of that version has it if nobody has set it."""
        return self.on is not None and release >= self.on


class DriverGate(Struct, frozen=True):
    """A gate of NVIDIA's DRA driver. ``on``: by default."""

    name: str
    stage: str
    on: bool
    serves: str
    source: str


class ClaimAutoscaler(Struct, frozen=True):
    """Whether an autoscaler of nodes launches some for claims that ask for such devices, ``since`` which version of its
    own (empty: not known), and what there is to say of it."""

    name: str
    since: str
    devices: str
    launches: bool
    why: str
    source: str


def release(text: str) -> Release:
    """``1.36``, ``v1.36``, ``1.36.3`` or what a server says of itself (``v1.36.3-eks-3025e55``) as a version. Raises
    ValueError for what is none."""
    found = _RELEASE.fullmatch(text)
    if found is None:
        raise ValueError(f"{text} is not a version of Kubernetes")
    return int(found[1]), int(found[2])


def _release(cell: str) -> Release | None:
    return release(cell) if cell else None


@lru_cache(maxsize=1)
def gates() -> dict[str, ClaimGate]:
    """Kubernetes' gates, by name."""
    return {
        row["gate"]: ClaimGate(
            row["gate"],
            release(row["alpha"]),
            _release(row["on"]),
            _release(row["stable"]),
            row["serves"],
            row["source"],
        )
        for row in tables.rows("claim_gates.csv")
    }


@lru_cache(maxsize=1)
def driver_gates() -> dict[str, DriverGate]:
    """Those of NVIDIA's DRA driver, by name."""
    return {
        row["gate"]: DriverGate(row["gate"], row["stage"], row["on"] == "yes", row["serves"], row["source"])
        for row in tables.rows("claim_driver_gates.csv")
    }


@lru_cache(maxsize=1)
def autoscalers() -> dict[tuple[str, str], ClaimAutoscaler]:
    """By name and kind of devices."""
    return {
        (row["autoscaler"], row["devices"]): ClaimAutoscaler(
            row["autoscaler"], row["from"], row["devices"], row["launches"] == "yes", row["why"], row["source"]
        )
        for row in tables.rows("claim_autoscalers.csv")
    }
