"""The kubelet's device plugin API v1beta1. The number of each field is that of
k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1/api.proto."""

from __future__ import annotations

from typing import Annotated

from msgspec import Struct

VERSION = "v1beta1"
FOLDER = "/var/lib/kubelet/device-plugins"
KUBELET_SOCKET = "kubelet.sock"
REGISTRATION = "v1beta1.Registration"
PLUGIN = "v1beta1.DevicePlugin"
HEALTHY, UNHEALTHY = "Healthy", "Unhealthy"


class Empty(Struct):
    """Nothing."""


class PluginOptions(Struct):
    """DevicePluginOptions."""

    pre_start_required: Annotated[bool, 1] = False
    preferred_allocation: Annotated[bool, 2] = False


class RegisterRequest(Struct):
    """``endpoint``: the name of the plugin's socket file in the kubelet's folder."""

    version: Annotated[str, 1] = VERSION
    endpoint: Annotated[str, 2] = ""
    resource_name: Annotated[str, 3] = ""
    options: Annotated[PluginOptions | None, 4] = None


class NumaNode(Struct):
    """NUMANode."""

    id: Annotated[int, 1] = 0


class TopologyInfo(Struct):
    """NUMA nodes that a device is at."""

    nodes: Annotated[list[NumaNode], 1] = []


class PluginDevice(Struct):
    """Device: what the kubelet counts and hands out."""

    id: Annotated[str, 1] = ""
    health: Annotated[str, 2] = HEALTHY
    topology: Annotated[TopologyInfo | None, 3] = None


class ListAndWatchResponse(Struct):
    """All devices of a resource; each answer replaces the one before."""

    devices: Annotated[list[PluginDevice], 1] = []


class ContainerPreferredRequest(Struct):
    """ContainerPreferredAllocationRequest."""

    available: Annotated[list[str], 1] = []
    must_include: Annotated[list[str], 2] = []
    size: Annotated[int, 3] = 0


class PreferredRequest(Struct):
    """PreferredAllocationRequest."""

    containers: Annotated[list[ContainerPreferredRequest], 1] = []


class ContainerPreferredResponse(Struct):
    """ContainerPreferredAllocationResponse."""

    ids: Annotated[list[str], 1] = []


class PreferredResponse(Struct):
    """PreferredAllocationResponse."""

    containers: Annotated[list[ContainerPreferredResponse], 1] = []


class ContainerAllocateRequest(Struct):
    """The devices that a container is to get."""

    ids: Annotated[list[str], 1] = []


class AllocateRequest(Struct):
    """One for each container of a pod; the kubelet asks for one at a time."""

    containers: Annotated[list[ContainerAllocateRequest], 1] = []


class Mount(Struct):
    """A folder or a file of the node in the container."""

    container_path: Annotated[str, 1] = ""
    host_path: Annotated[str, 2] = ""
    read_only: Annotated[bool, 3] = False


class DeviceSpec(Struct):
    """A device node of the node in the container. ``permissions``: of r, w, m."""

    container_path: Annotated[str, 1] = ""
    host_path: Annotated[str, 2] = ""
    permissions: Annotated[str, 3] = "rw"


class CdiName(Struct):
    """CDIDevice: a name as in ``nvidia.com/gpu=0``."""

    name: Annotated[str, 1] = ""


class ContainerAllocateResponse(Struct):
    """What the runtime gives the container."""

    envs: Annotated[dict[str, str], 1] = {}
    mounts: Annotated[list[Mount], 2] = []
    devices: Annotated[list[DeviceSpec], 3] = []
    annotations: Annotated[dict[str, str], 4] = {}
    cdi: Annotated[list[CdiName], 5] = []


class AllocateResponse(Struct):
    """One for each container asked for, in the same order."""

    containers: Annotated[list[ContainerAllocateResponse], 1] = []


class PreStartRequest(Struct):
    """PreStartContainerRequest."""

    ids: Annotated[list[str], 1] = []
