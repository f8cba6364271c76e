"""Pods that use a node's driver, also without a request for a GPU: while one runs, its kernel module stays loaded.

Sources: NVIDIA container toolkit (NVIDIA_VISIBLE_DEVICES, runtime classes); reports of upgrades that wait for users
whom nobody finds (NVIDIA/gpu-operator issues 416, 901, 2166, 2509, 2570).
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct

from tonnage.cuda_fit import pods as gpu_pods
from tonnage.objects import core

_NO_DEVICES = ("", "void", "none")
"""Values of NVIDIA_VISIBLE_DEVICES that stand for no GPU."""
_FOLDERS = ("/dev", "/proc/driver/nvidia", "/run/nvidia/driver")
_DEVICES = "/dev/nvidia"
_RUNTIME_CLASS = "nvidia"
_OPERANDS = frozenset(
    {
        "nvidia-driver-daemonset",
        "nvidia-container-toolkit-daemonset",
        "nvidia-device-plugin-daemonset",
        "nvidia-dcgm",
        "nvidia-dcgm-exporter",
        "nvidia-mig-manager",
        "nvidia-operator-validator",
        "gpu-feature-discovery",
        "nvidia-node-status-exporter",
    }
)
"""Label ``app`` of the operator's own DaemonSets: it stops them itself (assets/state-*/ of NVIDIA/gpu-operator)."""


class DriverUser(Struct, frozen=True):
    """A pod that uses the driver of its node. ``why``: how that is known. ``fixed``: an eviction does not help, as it
    would be made again on its node. ``leaving``: it is being deleted."""

    namespace: str
    name: str
    uid: str
    node: str
    why: str
    fixed: bool
    leaving: bool

    @property
    def key(self) -> str:
        """namespace/name."""
        return f"{self.namespace}/{self.name}"


def users(pods: Iterable[core.Pod]) -> list[DriverUser]:
    """Those that are on nodes and have not ended, by name; the operator's own are left out."""
    found = []
    for pod in pods:
        why = why_it_uses(pod.spec)
        own = pod.metadata.labels.get("app", "") in _OPERANDS
        if not why or own or not pod.spec.node_name or pod.status.phase in core.FINISHED:
            continue
        meta = pod.metadata
        fixed = any(owner.kind in ("DaemonSet", "Node") for owner in meta.owner_references)
        leaving = meta.deletion_timestamp is not None
        namespace = meta.namespace or "default"
        found.append(DriverUser(namespace, meta.name, meta.uid, pod.spec.node_name, why, fixed, leaving))
    return sorted(found, key=lambda one: one.key)


def why_it_uses(spec: core.PodSpec) -> str:
    """How a pod uses the driver of its node; empty: nothing says that it does."""
    if asking := next(gpu_pods.gpu_containers(spec), None):
        return f"container {asking.name} asks for a GPU"
    if spec.resource_claims:
        return "it has a ResourceClaim"
    for container in (*spec.init_containers, *spec.containers):
        for variable in container.env:
            if variable.name == "NVIDIA_VISIBLE_DEVICES" and variable.value not in _NO_DEVICES:
                return f"container {container.name} has NVIDIA_VISIBLE_DEVICES={variable.value}"
    for volume in spec.volumes:
        path = str((volume.get("hostPath") or {}).get("path", "")).rstrip("/")
        if path in _FOLDERS or path.startswith(_DEVICES):
            return f"it mounts {path} of the host"
    if spec.runtime_class_name == _RUNTIME_CLASS:
        return "its runtime class is nvidia, which gives an image that asks for it every GPU"
    return ""
