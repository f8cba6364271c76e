"""gRPC servers on unix sockets, with the messages of :mod:`tonnage.node.wire`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc

from tonnage.node.wire import decode, encode


def started(path: Path, services: Mapping[str, Mapping[str, Any]], name: str, threads: int) -> Any:
    """A server of these methods by service on the socket, in place of whatever was there; its threads are called
    ``name``. Raises OSError and RuntimeError where it cannot be made."""
    path.unlink(missing_ok=True)
    server = grpc.server(ThreadPoolExecutor(threads, thread_name_prefix=name))
    server.add_generic_rpc_handlers(
        tuple(grpc.method_handlers_generic_handler(service, methods) for service, methods in services.items())
    )
    server.add_insecure_port(f"unix:{path}")
    server.start()
    return server


def unary(function: Callable[[Any, Any], Any], request: type[Any]) -> Any:
    """A method with one answer. ``function`` is given the request and the call's context."""
    return grpc.unary_unary_rpc_method_handler(
        function, request_deserializer=reader(request), response_serializer=encode
    )


def streaming(function: Callable[[Any, Any], Any], request: type[Any]) -> Any:
    """A method with any number of answers, which ``function`` yields."""
    return grpc.unary_stream_rpc_method_handler(
        function, request_deserializer=reader(request), response_serializer=encode
    )


def reader(type_: type[Any]) -> Callable[[bytes], Any]:
    """Reads messages of that type."""
    return lambda content: decode(type_, content)
