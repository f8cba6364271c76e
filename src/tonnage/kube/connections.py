"""Connections to one server: made, through a proxy if there is one, and kept for their next request."""

from __future__ import annotations

import socket
import ssl
import threading
import time
from collections.abc import Callable

from tonnage.kube.http1 import Broken, Wire, answer, words
from tonnage.kube.proxy import Proxy


def dial(
    host: str,
    port: int,
    context: ssl.SSLContext | None,
    *,
    timeout_s: float,
    server_name: str = "",
    proxy: Proxy | None = None,
) -> Wire:
    """A new connection, through the CONNECT method of a proxy if there is one.

    Raises Broken(sent=False). A silent peer is found dead after a minute by TCP keep-alive, also within a watch.
    """
    try:
        sock = socket.create_connection((proxy.host, proxy.port) if proxy else (host, port), timeout_s)
    except OSError as error:
        raise Broken(words(error), sent=False) from error
    try:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for option, value in (("TCP_KEEPIDLE", 30), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 3)):
            if hasattr(socket, option):
                sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)
        if proxy:
            _tunnel(sock, f"{host}:{port}", proxy.authorization, timeout_s)
        if context is not None:
            sock = context.wrap_socket(sock, server_hostname=server_name or host)
    except (OSError, ValueError, EOFError) as error:
        sock.close()
        raise Broken(words(error), sent=False) from error
    return Wire(sock, timeout_s)


def _tunnel(sock: socket.socket, target: str, authorization: str, timeout_s: float) -> None:
    wire = Wire(sock, timeout_s)
    extra = f"Proxy-Authorization: {authorization}\r\n" if authorization else ""
    try:
        wire.send(f"CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n{extra}\r\n".encode(), timeout_s)
        status = answer(wire).status
    except Broken as error:
        raise ConnectionError(f"the proxy does not answer: {error}") from error
    if status != 200:
        raise ConnectionError(f"the proxy refuses to connect to {target}: status {status}")


class ConnectionPool:
    """Connections to one server that wait for their next request, the last one used first."""

    def __init__(self, connect: Callable[[float], Wire], size: int, idle_s: float = 60.0) -> None:
        self._connect = connect
        self._slots = threading.BoundedSemaphore(size)
        self._idle: list[Wire] = []  # append and pop are atomic, as are the set's add, discard and copy
        self._busy: set[Wire] = set()
        self._idle_s = idle_s
        self._closed = False

    def take(self, timeout_s: float) -> Wire:
        """A connection; to be given back. Raises Broken(sent=False)."""
        if not self._slots.acquire(timeout=timeout_s):
            raise Broken("all connections are busy", sent=False, timed_out=True)
        try:
            wire = self._kept() or self._connect(timeout_s)
        except BaseException:
            self._slots.release()
            raise
        self._busy.add(wire)
        return wire

    def _kept(self) -> Wire | None:
        while self._idle:
            try:
                wire = self._idle.pop()
            except IndexError:  # another thread took the last one
                return None
            if time.monotonic() - wire.idle_since < self._idle_s and not wire.dead():
                return wire
            wire.close()
        return None

    def give(self, wire: Wire, keep: bool) -> None:
        """Give a connection back; it is closed unless ``keep``."""
        self._busy.discard(wire)
        if keep and not self._closed:
            wire.idle_since = time.monotonic()
            self._idle.append(wire)
        else:
            wire.close()
        self._slots.release()

    def close(self) -> None:
        """Close what is idle, end what is going on, and close whatever comes back."""
        self._closed = True
        for wire in self._busy.copy():
            wire.abort()
        while self._idle:
            self._idle.pop().close()
