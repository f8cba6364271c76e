"""What a pod says to the Cluster Autoscaler about being evicted.

Source: kubernetes/autoscaler cluster-autoscaler simulator/drainability, 1.36.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

SAFE_TO_EVICT = "cluster-autoscaler.kubernetes.io/safe-to-evict"
SAFE_VOLUMES = "cluster-autoscaler.kubernetes.io/safe-to-evict-local-volumes"


def keeps_local_data(volumes: Iterable[Mapping[str, Any]], annotations: Mapping[str, str]) -> bool:
    """Whether a pod with these volumes loses data when it leaves its node: any emptyDir on disk or hostPath that it
    does not name as safe to lose."""
    safe = {name.strip() for name in annotations.get(SAFE_VOLUMES, "").split(",")}
    for volume in volumes:
        empty = volume.get("emptyDir")
        on_disk = isinstance(empty, dict) and empty.get("medium") != "Memory"
        if (on_disk or volume.get("hostPath") is not None) and volume.get("name") not in safe:
            return True
    return False
