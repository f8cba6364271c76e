"""A proxy on loopback whose connections can be frozen: they stay open, and nothing comes through any more."""

from __future__ import annotations

import contextlib
import socket
import threading


class FreezingProxy:
    """Passes bytes to a port of this machine and back. What is connected when :meth:`freeze` is called is frozen for
    good; what connects later works."""

    def __init__(self, port: int) -> None:
        self._to = port
        self._frozen: set[threading.Event] = set()
        self._sockets: list[socket.socket] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self.connections = 0
        threading.Thread(target=self._accept, daemon=True).start()

    def freeze(self) -> None:
        for frozen in self._frozen:
            frozen.set()

    def close(self) -> None:
        for one in (self._listener, *self._sockets):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):  # closed
            while True:
                inside, _ = self._listener.accept()
                outside = socket.create_connection(("127.0.0.1", self._to))
                self.connections += 1
                frozen = threading.Event()
                self._frozen.add(frozen)
                self._sockets += [inside, outside]
                for a, b in ((inside, outside), (outside, inside)):
                    threading.Thread(target=self._pass, args=(a, b, frozen), daemon=True).start()

    def _pass(self, a: socket.socket, b: socket.socket, frozen: threading.Event) -> None:
        with contextlib.suppress(OSError):  # closed
            while data := a.recv(65536):
                if frozen.is_set():
                    continue
                b.sendall(data)
            if not frozen.is_set():
                b.shutdown(socket.SHUT_WR)
