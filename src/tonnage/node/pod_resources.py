"""Which devices the kubelet has given to which containers: pod-resources v1, over its socket.

Field numbers: kubernetes/kubernetes staging/src/k8s.io/kubelet/pkg/apis/podresources/v1/api.proto."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

from msgspec import Struct

from tonnage.errors import InputError
from tonnage.node import wire
from tonnage.node.attribution import ClaimDevice, ContainerDevices, PluginDevices

SOCKET = Path("/var/lib/kubelet/pod-resources/kubelet.sock")
LIST = "/v1.PodResourcesLister/List"
FIRST_PAUSE_S = 0.05
"""Before a kubelet that is asked too often is asked again; twice as long each time."""


class ListedClaimResource(Struct):
    """ClaimResource."""

    cdi: Annotated[list[ListedCdi], 1] = []
    driver: Annotated[str, 2] = ""
    pool: Annotated[str, 3] = ""
    device: Annotated[str, 4] = ""


class ListedCdi(Struct):
    """CDIDevice."""

    name: Annotated[str, 1] = ""


class ListedClaim(Struct):
    """DynamicResource."""

    name: Annotated[str, 2] = ""
    namespace: Annotated[str, 3] = ""
    resources: Annotated[list[ListedClaimResource], 4] = []


class ListedDevices(Struct):
    """ContainerDevices."""

    resource: Annotated[str, 1] = ""
    ids: Annotated[list[str], 2] = []


class ListedContainer(Struct):
    """ContainerResources."""

    name: Annotated[str, 1] = ""
    devices: Annotated[list[ListedDevices], 2] = []
    claims: Annotated[list[ListedClaim], 5] = []


class ListedPod(Struct):
    """PodResources."""

    name: Annotated[str, 1] = ""
    namespace: Annotated[str, 2] = ""
    containers: Annotated[list[ListedContainer], 3] = []


class PodList(Struct):
    """ListPodResourcesResponse."""

    pods: Annotated[list[ListedPod], 1] = []


def listed(socket: Path = SOCKET, timeout_s: float = 5) -> list[ContainerDevices]:
    """Every container that has devices. Asks again within ``timeout_s`` where the kubelet says that it is asked too
    often (100 a second, 10 at once: pkg/kubelet/apis/podresources/constants.go). Raises InputError where the kubelet
    does not answer, or grpcio is missing."""
    try:
        import grpc
    except ImportError as error:
        hint = "pip install 'tonnage[node]'"
        raise InputError.at("the kubelet is asked through grpcio, which is not installed", hint=hint) from error
    with grpc.insecure_channel(f"unix:{socket}") as channel:
        call = channel.unary_unary(LIST, request_serializer=bytes, response_deserializer=bytes)
        end_s, pause_s = time.monotonic() + timeout_s, FIRST_PAUSE_S
        while True:
            try:
                return containers(call(b"", timeout=timeout_s))
            except grpc.RpcError as error:
                too_often = error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
                if not too_often or time.monotonic() + pause_s > end_s:
                    hint = "mount the folder /var/lib/kubelet/pod-resources of the host (the folder, not the socket)"
                    raise InputError.at(
                        f"the kubelet does not list pods at {socket}: {error.code().name}", hint=hint
                    ) from error
            time.sleep(pause_s)
            pause_s *= 2


def containers(answer: bytes) -> list[ContainerDevices]:
    """What a ListPodResourcesResponse says. Raises wire.WireError for bytes that are none."""
    found = []
    for pod in wire.decode(PodList, answer).pods:
        for one in pod.containers:
            plugin = tuple(PluginDevices(given.resource, tuple(given.ids)) for given in one.devices if given.ids)
            claims = tuple(
                ClaimDevice(
                    f"{claim.namespace}/{claim.name}",
                    device.driver,
                    device.pool,
                    device.device,
                    tuple(cdi.name for cdi in device.cdi),
                )
                for claim in one.claims
                for device in claim.resources
            )
            if plugin or claims:
                found.append(ContainerDevices(pod.namespace, pod.name, one.name, plugin, claims))
    return found
