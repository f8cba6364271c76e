"""A loopback HTTP server that gives prepared answers and remembers what it was asked."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs


@dataclass
class Reply:
    body: bytes = b""
    status: int = 200
    headers: dict[str, str] = field(default_factory=lambda: {"Content-Type": "application/json"})
    close: bool = False  # hang up without an answer
    close_after: bool = False  # answer, then hang up without having said so
    wait: threading.Event | None = None


def data(result_type: str, result: Any, **more: Any) -> Reply:
    return Reply(
        json.dumps({"status": "success", "data": {"resultType": result_type, "result": result}, **more}).encode()
    )


def vector(*elements: tuple[dict[str, str], str], **more: Any) -> Reply:
    return data("vector", [{"metric": labels, "value": [1700000000.5, value]} for labels, value in elements], **more)


def error(status: int, kind: str, message: str) -> Reply:
    return Reply(json.dumps({"status": "error", "errorType": kind, "error": message}).encode(), status)


def page(
    status: int = 200, body: bytes = b"<html><body>Sign in</body></html>", kind: str = "text/html", **headers: str
):
    return Reply(body, status, {"Content-Type": kind, **headers})


@dataclass
class Asked:
    path: str
    form: dict[str, list[str]]
    headers: dict[str, str]
    connection: int  # which connection it came on, by the client's port


@dataclass
class Scripted:
    url: str
    replies: list[Reply]
    asked: list[Asked] = field(default_factory=list)


@contextmanager
def serving(*replies: Reply) -> Iterator[Scripted]:
    """A server that answers with ``replies`` in order, the last one for ever."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"])).decode()
            headers = {name.lower(): value for name, value in self.headers.items()}
            script.asked.append(Asked(self.path, parse_qs(body), headers, self.client_address[1]))
            reply = script.replies.pop(0) if len(script.replies) > 1 else script.replies[0]
            if reply.wait is not None:
                reply.wait.wait(5)
            self.close_connection = reply.close or reply.close_after
            if reply.close:
                return
            self.send_response(reply.status)
            for name, value in {"Content-Length": str(len(reply.body)), **reply.headers}.items():
                self.send_header(name.replace("_", "-"), value)
            self.end_headers()
            self.wfile.write(reply.body)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    script = Scripted(f"http://127.0.0.1:{server.server_address[1]}", list(replies))
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
    try:
        yield script
    finally:
        server.shutdown()
        server.server_close()
