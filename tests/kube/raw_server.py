"""An HTTP server on loopback that answers with the very bytes that a test gives it."""

from __future__ import annotations

import json
import socket
import ssl
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

Answer = bytes | Callable[["Got", socket.socket], bool]
"""Bytes to send; or a function that does what it wants and says whether the connection goes on."""


@dataclass
class Got:
    method: str
    target: str
    headers: dict[str, str]
    body: bytes
    connection: int


@dataclass
class RawServer:
    """Answers each request with the next of ``answers``, the last one again and again."""

    answers: deque[Answer] = field(default_factory=deque)
    tls: ssl.SSLContext | None = None
    got: list[Got] = field(default_factory=list)
    connections: int = 0

    def __enter__(self) -> RawServer:
        self._socket = socket.create_server(("127.0.0.1", 0))
        self._open: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()
        self.drop()

    @property
    def port(self) -> int:
        return int(self._socket.getsockname()[1])

    @property
    def url(self) -> str:
        return f"{'https' if self.tls else 'http'}://127.0.0.1:{self.port}"

    def drop(self) -> None:
        """Close all connections."""
        while self._open:
            connection = self._open.pop()
            try:
                connection.shutdown(socket.SHUT_RDWR)
            except OSError:
                continue

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            self.connections += 1
            self._open.append(connection)
            threading.Thread(target=self._serve, args=(connection, self.connections), daemon=True).start()

    def _serve(self, connection: socket.socket, number: int) -> None:
        try:
            if self.tls is not None:
                connection = self.tls.wrap_socket(connection, server_side=True)
            with connection, connection.makefile("rb") as read:
                while (request := _request(read, number)) is not None:
                    self.got.append(request)
                    answer = self.answers.popleft() if len(self.answers) > 1 else self.answers[0]
                    if callable(answer):
                        if not answer(request, connection):
                            return
                    else:
                        connection.sendall(answer)
        except OSError:
            return


def _request(read: object, number: int) -> Got | None:
    line = read.readline()  # type: ignore[attr-defined]
    if not line:
        return None
    method, target, _ = line.decode().split(" ")
    headers: dict[str, str] = {}
    while (line := read.readline().strip()) != b"":  # type: ignore[attr-defined]
        name, _, value = line.decode().partition(": ")
        headers[name.lower()] = value
    body = read.read(int(headers.get("content-length", "0")))  # type: ignore[attr-defined]
    return Got(method, target, headers, body, number)


def answer(status: int = 200, body: object = None, **headers: str) -> bytes:
    data = body if isinstance(body, bytes) else json.dumps(body if body is not None else {}).encode()
    extra = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in headers.items())
    return f"HTTP/1.1 {status} X\r\nContent-Length: {len(data)}\r\n{extra}\r\n".encode() + data


def chunked(*pieces: bytes, end: bool = True) -> bytes:
    text = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    text += b"".join(b"%x;ext=1\r\n%s\r\n" % (len(piece), piece) for piece in pieces)
    return text + (b"0\r\nTrailer: x\r\n\r\n" if end else b"")


def hang_up(_got: Got, _connection: socket.socket) -> bool:
    return False
