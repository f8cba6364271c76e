"""The kubelet's device plugin API v1beta1, with the numbers of k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1/api.proto."""

from __future__ import annotations

from dataclasses import dataclass

from tonnage.node.wire import number

VERSION = "v1beta1"
FOLDER = "/var/lib/kubelet/device-plugins"
KUBELET_SOCKET = "kubelet.sock"
REGISTRATION = "v1beta1.Registration"
PLUGIN = "v1beta1.DevicePlugin"
HEALTHY, UNHEALTHY = "Healthy", "Unhealthy"
MOST_ID_CHARACTERS = 63


@dataclass
class Empty:
    """Nothing."""


@dataclass
class PluginOptions:
    """DevicePluginOptions."""

    pre_start_required: bool = number(1, default=False)
    preferred_allocation: bool = number(2, default=False)


@dataclass
class RegisterRequest:
    """``endpoint``: the name of the plugin's socket file in the kubelet's folder."""

    version: str = number(1, default=VERSION)
    endpoint: str = number(2, default="")
    resource_name: str = number(3, default="")
    options: PluginOptions | None = number(4, default=None)


@dataclass
class NumaNode:
    """NUMANode."""

    id: int = number(1, default=0)


@dataclass
class TopologyInfo:
    """NUMA nodes that a device is at."""

    nodes: list[NumaNode] = number(1, default_factory=list)


@dataclass
class PluginDevice:
    """Device: what the kubelet counts and hands out."""

    id: str = number(1, default="")
    health: str = number(2, default=HEALTHY)
    topology: TopologyInfo | None = number(3, default=None)


@dataclass
class ListAndWatchResponse:
    """All devices of a resource; each answer replaces the one before."""

    devices: list[PluginDevice] = number(1, default_factory=list)


@dataclass
class ContainerPreferredRequest:
    """ContainerPreferredAllocationRequest."""

    available: list[str] = number(1, default_factory=list)
    must_include: list[str] = number(2, default_factory=list)
    size: int = number(3, default=0)


@dataclass
class PreferredRequest:
    """PreferredAllocationRequest."""

    containers: list[ContainerPreferredRequest] = number(1, default_factory=list)


@dataclass
class ContainerPreferredResponse:
    """ContainerPreferredAllocationResponse."""

    ids: list[str] = number(1, default_factory=list)


@dataclass
class PreferredResponse:
    """PreferredAllocationResponse."""

    containers: list[ContainerPreferredResponse] = number(1, default_factory=list)


@dataclass
class ContainerAllocateRequest:
    """The devices that a container is to get."""

    ids: list[str] = number(1, default_factory=list)


@dataclass
class AllocateRequest:
    """One for each container of a pod; the kubelet asks for one at a time."""

    containers: list[ContainerAllocateRequest] = number(1, default_factory=list)


@dataclass
class Mount:
    """A folder or a file of the node in the container."""

    container_path: str = number(1, default="")
    host_path: str = number(2, default="")
    read_only: bool = number(3, default=False)


@dataclass
class DeviceSpec:
    """A device node of the node in the container. ``permissions``: of r, w, m."""

    container_path: str = number(1, default="")
    host_path: str = number(2, default="")
    permissions: str = number(3, default="rw")


@dataclass
class CdiName:
    """CDIDevice: a name as in ``nvidia.com/gpu=0``."""

    name: str = number(1, default="")


@dataclass
class ContainerAllocateResponse:
    """What the runtime gives the container."""

    envs: dict[str, str] = number(1, default_factory=dict)
    mounts: list[Mount] = number(2, default_factory=list)
    devices: list[DeviceSpec] = number(3, default_factory=list)
    annotations: dict[str, str] = number(4, default_factory=dict)
    cdi: list[CdiName] = number(5, default_factory=list)


@dataclass
class AllocateResponse:
    """One for each container asked for, in the same order."""

    containers: list[ContainerAllocateResponse] = number(1, default_factory=list)


@dataclass
class PreStartRequest:
    """PreStartContainerRequest."""

    ids: list[str] = number(1, default_factory=list)
