"""The embedded API over HTTP on loopback, for kubectl and other clients.

The address is a capability: ``http://127.0.0.1:PORT/TOKEN``. kubectl sends no credentials over plain HTTP, but keeps
the path of a kubeconfig's ``server``; so whoever can read the kubeconfig may enter, and a page in a browser, which
cannot, may not. ``Authorization: Bearer TOKEN`` opens the same door.
"""

from __future__ import annotations

import asyncio
import hmac
import secrets
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import Any, TypeAlias
from urllib.parse import parse_qsl

from tonnage.apiserver.api import Api
from tonnage.apiserver.background import BackgroundServer
from tonnage.apiserver.request import ApiRequest
from tonnage.apiserver.status import StatusError
from tonnage.apiserver.watch import Watch
from tonnage.kube.transport import JSON, Reply

LARGEST_BODY = 3 * 2**20
"""Bytes; kube-apiserver's limit too."""
_NO_TOKEN = (
    "Unauthorized: the address in the kubeconfig ends with a token; "
    "kubectl proxy passes it on with --append-server-path"
)
_HOSTS = ("127.0.0.1", "localhost", "[::1]")

Scope: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send: TypeAlias = Callable[[MutableMapping[str, Any]], Awaitable[None]]


class Server:
    """Serves an :class:`Api` from a thread of its own, between :meth:`start` and :meth:`stop` or in a ``with`` block.

    ``port`` 0: any free one. ``token``: what opens the door; random unless given.
    """

    def __init__(self, api: Api, *, port: int = 0, token: str = "") -> None:
        self.api = api
        self.token = token or secrets.token_urlsafe(24)
        self._server = BackgroundServer(Application(api, self.token), port, "embedded-api")

    @property
    def port(self) -> int:
        """The port it listens on."""
        return self._server.port

    @property
    def url(self) -> str:
        """The address with the right to enter: a kubeconfig's ``server``."""
        return f"{self._server.url}/{self.token}"

    def __enter__(self) -> Server:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> Server:
        """Listen. Raises InputError when the port is taken."""
        self._server.start()
        return self

    def stop(self) -> None:
        """End all watches and stop listening."""
        self.api.close()
        self._server.stop()


class Application:
    """The ASGI application: who may enter, the request's body, and the stream of a watch."""

    def __init__(self, api: Api, token: str) -> None:
        self._api, self._token = api, token
        self._wakers: dict[asyncio.AbstractEventLoop, _Waker] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        if scope["type"] != "http":
            raise RuntimeError(f"{scope['type']} is not served")
        headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}
        try:
            path = self._admitted(scope["path"], headers)
            body = await _body(receive)
        except StatusError as refusal:
            await _answer(send, refusal.reply())
            return
        request = ApiRequest(
            scope["method"],
            path,
            dict(parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)),
            body,
            headers.get("content-type", JSON),
            headers.get("accept", JSON),
            headers.get("user-agent", ""),
        )
        found = await asyncio.to_thread(self._api.handle, request)
        if isinstance(found, Watch):
            await self._stream(found, receive, send)
        else:
            await _answer(send, found)

    def _admitted(self, path: str, headers: Mapping[str, str]) -> str:
        """The path within the API. Raises Refusal (401, 403)."""
        host = headers.get("host", "")
        name = host if host.endswith("]") else host.rpartition(":")[0] or host
        if name.lower() not in _HOSTS:
            raise StatusError(
                403, "Forbidden", f"the Host header must name loopback ({', '.join(_HOSTS)}), not {host!r}"
            )
        first, _, rest = path.lstrip("/").partition("/")
        if self._is_token(first):
            return f"/{rest}"
        scheme, _, given = headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer" and self._is_token(given.strip()):
            return path
        raise StatusError(401, "Unauthorized", _NO_TOKEN)

    def _is_token(self, text: str) -> bool:
        return hmac.compare_digest(text.encode(), self._token.encode())

    async def _stream(self, watch: Watch, receive: Receive, send: Send) -> None:
        loop = asyncio.get_running_loop()
        waker = self._wakers.setdefault(loop, _Waker(loop))
        changed = asyncio.Event()
        watch.on_change(lambda: waker.wake(changed))
        await send(_head(200, {"content-type": JSON, "cache-control": "no-cache, private"}))
        await send({"type": "http.response.body", "body": b"", "more_body": True})
        gone = asyncio.ensure_future(_until_gone(receive))
        try:
            while not gone.done():
                changed.clear()
                lines = watch.take()
                if lines is None:
                    break
                if lines:
                    body = b"\n".join(lines) + b"\n"
                    await send({"type": "http.response.body", "body": body, "more_body": True})
                    continue
                waiting = asyncio.ensure_future(changed.wait())
                await asyncio.wait({waiting, gone}, timeout=watch.patience(), return_when=asyncio.FIRST_COMPLETED)
                waiting.cancel()
            if not gone.done():
                await send({"type": "http.response.body", "body": b"", "more_body": False})
        finally:
            gone.cancel()
            watch.close()


class _Waker:
    """Wakes waiting watches from other threads: however many wait, a writer makes one call into the loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._due: list[asyncio.Event] = []
        self._scheduled = False

    def wake(self, event: asyncio.Event) -> None:
        """Set the event soon; from any thread."""
        self._due.append(event)
        if not self._scheduled and not self._loop.is_closed():
            self._scheduled = True
            self._loop.call_soon_threadsafe(self._set_all)

    def _set_all(self) -> None:
        self._scheduled = False
        due, self._due = self._due, []
        for event in due:
            event.set()


def _head(status: int, headers: Mapping[str, str]) -> dict[str, Any]:
    encoded = [(name.encode("latin-1"), value.encode("latin-1", "replace")) for name, value in headers.items()]
    return {"type": "http.response.start", "status": status, "headers": encoded}


async def _answer(send: Send, reply: Reply) -> None:
    await send(_head(reply.status, {**reply.headers, "content-length": str(len(reply.body))}))
    await send({"type": "http.response.body", "body": reply.body})


async def _body(receive: Receive) -> bytes:
    """The whole body. Raises Refusal (413)."""
    parts: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        part = message.get("body", b"")
        size += len(part)
        if size > LARGEST_BODY:
            raise StatusError(413, "RequestEntityTooLarge", f"limit is {LARGEST_BODY}: the request's body is larger")
        parts.append(part)
        if not message.get("more_body"):
            return b"".join(parts)


async def _until_gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
