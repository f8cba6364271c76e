"""An ASGI application served on loopback from a thread of its own."""

from __future__ import annotations

import socket
import threading
from typing import Any

import uvicorn

from tonnage.errors import InputError

LOOPBACK = "127.0.0.1"
START_S = 10.0
_KEEP_ALIVE_S = 90


class BackgroundServer:
    """Serves between :meth:`start` and :meth:`stop`. ``port`` 0: any free one."""

    def __init__(self, application: Any, port: int = 0, name: str = "http") -> None:
        self._application = application
        self._asked_port = port
        self._name = name
        self._socket: socket.socket | None = None
        self._server: uvicorn.Server | None = None
        self._thread: threading.Thread | None = None

    @property
    def port(self) -> int:
        """The port it listens on."""
        if self._socket is None:
            raise RuntimeError("the server has not been started")
        return int(self._socket.getsockname()[1])

    @property
    def url(self) -> str:
        """Its address."""
        return f"http://{LOOPBACK}:{self.port}"

    def start(self) -> BackgroundServer:
        """Listen. Raises InputError when the port is taken."""
        # With the protocol named, asyncio sets TCP_NODELAY; else each answer waits 40 ms for an acknowledgement.
        listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((LOOPBACK, self._asked_port))
        except OSError as error:
            listener.close()
            what = f"cannot listen on {LOOPBACK}:{self._asked_port}: {error.strerror}"
            raise InputError.at(what, hint="choose another port, or 0 for any") from None
        self._socket = listener
        config = uvicorn.Config(
            self._application,
            log_config=None,
            access_log=False,
            lifespan="off",
            ws="none",
            timeout_keep_alive=_KEEP_ALIVE_S,
            timeout_graceful_shutdown=2,
            server_header=False,
        )
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(
            target=self._server.run, kwargs={"sockets": [listener]}, name=self._name, daemon=True
        )
        self._thread.start()
        waiter = threading.Event()
        for _ in range(int(START_S / 0.01)):
            if self._server.started:
                return self
            waiter.wait(0.01)
        self.stop()
        raise RuntimeError(f"{self._name} did not start")

    def stop(self) -> None:
        """Stop listening."""
        if self._server is None or self._thread is None or self._socket is None:
            return
        self._server.should_exit = True
        self._thread.join(START_S)
        self._socket.close()
        self._server = self._thread = None
