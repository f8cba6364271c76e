"""Feature gates of allocation, by which clusters differ.

Source: kubernetes/kubernetes v1.36 pkg/features/kube_features.go.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Features:
    """The gates that are on. The defaults are those of Kubernetes 1.36; a claim or a device that needs a gate that is
    off is refused or passed over as kube-scheduler does."""

    admin_access: bool = True
    prioritized_list: bool = True
    partitionable_devices: bool = True
    consumable_capacity: bool = True
    device_taints: bool = True
    device_binding_conditions: bool = True
    list_type_attributes: bool = False
