"""One resource's device plugin: a gRPC server on a unix socket, registered with the kubelet."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import grpc

from tonnage.node.allocate import AllocationError
from tonnage.node.kubelet_api import (
    KUBELET_SOCKET,
    PLUGIN,
    REGISTRATION,
    AllocateRequest,
    AllocateResponse,
    ContainerAllocateResponse,
    ContainerPreferredRequest,
    ContainerPreferredResponse,
    Empty,
    ListAndWatchResponse,
    PluginDevice,
    PluginOptions,
    PreferredRequest,
    PreferredResponse,
    PreStartRequest,
    RegisterRequest,
)
from tonnage.node.sockets import reader, started, streaming, unary
from tonnage.node.wire import encode

_THREADS = 8
_REGISTER_S = 3.0
_LOOK_S = 1.0

Allocator = Callable[[str, Sequence[str]], ContainerAllocateResponse]
Chooser = Callable[[str, ContainerPreferredRequest], list[str]]


class PluginServer:
    """The plugin of ``resource`` with its socket in ``folder``. ``allocate`` and ``prefer`` are asked by the kubelet,
    in threads of the server."""

    def __init__(self, resource: str, folder: Path, allocate: Allocator, prefer: Chooser) -> None:
        self.resource = resource
        self._folder = folder
        self._allocate, self._prefer = allocate, prefer
        self.socket = folder / f"tonnage-{resource.partition('/')[2]}.sock"
        self._devices: tuple[tuple[str, str, int | None], ...] = ()
        self._changed = threading.Condition()
        self._server: Any = None

    @property
    def serving(self) -> bool:
        """Whether the server runs and its socket is still there: a kubelet that starts removes it."""
        return self._server is not None and self.socket.exists()

    def start(self) -> None:
        """Serve on a socket of its own, in place of whatever was there."""
        self.stop()
        self._server = started(self.socket, {PLUGIN: self._methods()}, self.resource, _THREADS)

    def register(self) -> None:
        """Tell the kubelet. Raises grpc.RpcError where it does not answer or refuses."""
        options = PluginOptions(preferred_allocation=True)
        request = RegisterRequest(endpoint=self.socket.name, resource_name=self.resource, options=options)
        with grpc.insecure_channel(f"unix:{self._folder / KUBELET_SOCKET}") as channel:
            call = channel.unary_unary(
                f"/{REGISTRATION}/Register", request_serializer=encode, response_deserializer=reader(Empty)
            )
            call(request, timeout=_REGISTER_S, wait_for_ready=True)

    def publish(self, devices: Sequence[tuple[str, str, int | None]]) -> bool:
        """These are the devices now: (id, health, NUMA node); whether that is another list than before."""
        with self._changed:
            if tuple(devices) == self._devices:
                return False
            self._devices = tuple(devices)
            self._changed.notify_all()
            return True

    def stop(self) -> None:
        """End the server; the kubelet keeps the resource with what it knew until another registers."""
        if self._server is not None:
            self._server.stop(grace=None)
            self._server = None
            with self._changed:
                self._changed.notify_all()

    def _methods(self) -> Mapping[str, Any]:
        return {
            "GetDevicePluginOptions": unary(lambda _, __: PluginOptions(preferred_allocation=True), Empty),
            "ListAndWatch": streaming(self._watch, Empty),
            "GetPreferredAllocation": unary(self._choose, PreferredRequest),
            "Allocate": unary(self._give, AllocateRequest),
            "PreStartContainer": unary(lambda _, __: Empty(), PreStartRequest),
        }

    def _watch(self, _: Empty, context: Any) -> Iterator[ListAndWatchResponse]:
        server, sent = self._server, None
        while context.is_active() and self._server is server:
            with self._changed:
                if self._devices == sent:
                    self._changed.wait(_LOOK_S)
                    continue
                sent = self._devices
            yield ListAndWatchResponse([_device(*one) for one in sent])

    def _choose(self, request: PreferredRequest, _: Any) -> PreferredResponse:
        return PreferredResponse(
            [ContainerPreferredResponse(self._prefer(self.resource, one)) for one in request.containers]
        )

    def _give(self, request: AllocateRequest, context: Any) -> AllocateResponse:
        try:
            return AllocateResponse([self._allocate(self.resource, one.ids) for one in request.containers])
        except AllocationError as error:
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
            raise


def _device(id_: str, health: str, numa: int | None) -> PluginDevice:
    from tonnage.node.kubelet_api import NumaNode, TopologyInfo

    return PluginDevice(id_, health, None if numa is None else TopologyInfo([NumaNode(numa)]))
