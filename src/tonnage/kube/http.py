"""HTTP to a real API server: connections, credentials, patience, and errors that a person can act on."""

from __future__ import annotations

import random
import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from types import TracebackType
from typing import Final
from urllib.parse import quote, urlencode, urlsplit

from tonnage import __version__
from tonnage.errors import InputError
from tonnage.kube import fence, http1
from tonnage.kube.connections import ConnectionPool, dial
from tonnage.kube.explain import explain
from tonnage.kube.kubeconfig import Access, load
from tonnage.kube.multiplex import Multiplexer, QueuedRequest
from tonnage.kube.proxy import proxy_for
from tonnage.kube.transport import JSON, Again, ApiError, ClientError, Done, LostReply, Reply, Unreachable
from tonnage.kube.verbs import Client

OLDEST_SERVER: Final = (1, 31)
"""Consistent lists from the watch cache, and what else is relied on, are on by default from here."""

CONNECTIONS: Final = 64
_CONNECT_S: Final = 10.0
_PLAIN: Final = re.compile(r"[A-Za-z0-9/._-]*")
"""A path that is its own quotation."""

# As client-go's with_retry.go: ten tries where the server says when to come back.
_THROTTLED_TRIES: Final = 10
_READ_TRIES: Final = 5
_READ_PAUSE_S: Final = 0.1
_READ_PAUSE_MAX_S: Final = 2.0


class Rate:
    """A token bucket: ``qps`` requests per second in the long run, ``burst`` at once."""

    def __init__(self, qps: float, burst: int, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._qps, self._burst, self._now = qps, float(burst), monotonic
        self._tokens, self._at = float(burst), monotonic()
        self._lock = threading.Lock()

    def reserve(self) -> float:
        """Take a token; seconds to wait before it may be used."""
        with self._lock:
            now = self._now()
            self._tokens = min(self._burst, self._tokens + (now - self._at) * self._qps) - 1.0
            self._at = now
            return max(0.0, -self._tokens / self._qps)


class HttpTransport:
    """:class:`~tonnage.kube.transport.Transport` over HTTP/1.1.

    ``rate`` limits requests on this side; without it the server's priority and fairness is relied on. ``on_error`` is
    told the status of every answer of 400 or more, and ``unreachable`` or ``lost``; it is called in any thread.
    ``rng`` spreads pauses; ``sleep`` is told seconds and returns early, with True, when the transport is closed.
    """

    def __init__(
        self,
        access: Access,
        *,
        rng: random.Random | None = None,
        rate: Rate | None = None,
        connections: int = CONNECTIONS,
        on_error: Callable[[str], None] | None = None,
        sleep: Callable[[float], bool] | None = None,
    ) -> None:
        parts = urlsplit(access.server)
        self.access = access
        self._host = parts.hostname or ""
        self._port = parts.port or (443 if parts.scheme == "https" else 80)
        self._prefix = parts.path.rstrip("/")
        self._fixed = f" HTTP/1.1\r\nHost: {parts.netloc.rpartition('@')[2]}\r\nUser-Agent: tonnage/{__version__}\r\n"
        self._proxy = proxy_for(access.proxy, parts.scheme, self._host)
        self._rng, self._rate = rng or random.Random(), rate
        self._on_error = on_error or (lambda _code: None)
        self._pool = ConnectionPool(self._dial, connections)
        self._multiplexer = Multiplexer(self._dial, self._where)
        self._closed = threading.Event()
        self._sleep = sleep or self._closed.wait
        self._streams: set[Stream] = set()
        self._streams_lock = threading.Lock()

    def request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: bytes = b"",
        content_type: str = JSON,
        accept: str = JSON,
        timeout_s: float = 30.0,
    ) -> Reply:
        """One request and its answer.

        Where the server says 429 or 503 with Retry-After, it is asked again after that time, as client-go does, up to
        ten times and never beyond ``timeout_s``. An eviction is not: 429 is how a PodDisruptionBudget answers. A GET
        that does not get through is tried again with growing pauses; what may have changed something never is. Within
        :func:`tonnage.kube.fence.only_while` each try that may change something is asked for before it goes out.
        """
        start = self._start(method, path, query, accept, body, content_type)
        deadline = time.monotonic() + timeout_s
        patient = not path.endswith("/eviction")
        tries = 0
        while True:
            tries += 1
            try:
                reply = self._authorised(start, body, method, max(deadline - time.monotonic(), 0.001))
            except (Unreachable, LostReply) as error:
                self._on_error("lost" if isinstance(error, LostReply) else "unreachable")
                pause = self._pause(tries) if method == "GET" and tries < _READ_TRIES else None
                if pause is None or time.monotonic() + pause > deadline or self._sleep(pause):
                    raise
                continue
            if reply.status < 400:
                return reply
            self._on_error(str(reply.status))
            wait = _retry_after(reply, method) if patient and tries <= _THROTTLED_TRIES else None
            if wait is None or time.monotonic() + wait > deadline or self._sleep(wait):
                return reply

    def submit(
        self,
        method: str,
        path: str,
        done: Done,
        *,
        lane: str,
        may: Callable[[], bool] = lambda: True,
        query: Mapping[str, str] | None = None,
        body: bytes = b"",
        content_type: str = JSON,
        accept: str = JSON,
        timeout_s: float = 30.0,
    ) -> bool:
        """See :class:`tonnage.kube.transport.Overlapping`. False where requests are limited on this side."""
        if self._rate is not None:
            return False

        def build() -> bytes | None:
            if not may():
                return None
            return _finish(self._start(method, path, query, accept, body, content_type), self._header()) + body

        def end(found: Reply | ClientError) -> None:
            if type(found) is Reply and found.status < 400:
                return done(found)
            if isinstance(found, Reply) and (found.status == 401 or _retry_after(found, method) is not None):
                return done(Again(f"status {found.status}"))
            if isinstance(found, LostReply | Unreachable):
                self._on_error("lost" if isinstance(found, LostReply) else "unreachable")
            elif isinstance(found, Reply) and found.status >= 400:
                self._on_error(str(found.status))
            return done(found)

        self._multiplexer.submit(QueuedRequest(build, end, fence.of(method), timeout_s), lane)
        return True

    def stream(self, path: str, *, query: Mapping[str, str], timeout_s: float) -> Stream:
        """A watch on a connection of its own."""
        return Stream(self, self._start("GET", path, query, JSON, b"", ""), timeout_s)

    def log_in(self) -> None:
        """Get the credentials now. Raises InputError: an exec plugin that fails, a token file that is not there."""
        self.access.credentials.header()

    def close(self) -> None:
        """Close connections and end running streams."""
        self._closed.set()
        self._pool.close()
        self._multiplexer.close()
        with self._streams_lock:
            running = list(self._streams)
        for stream in running:
            stream.close()

    def open_stream(self, stream: Stream, start: str, timeout_s: float) -> tuple[http1.Wire, http1.Head]:
        """Connect a stream and ask for it; ApiError for a status of 400 or more."""
        for last in (False, True):
            try:
                wire = self._dial(min(_CONNECT_S, timeout_s))
            except http1.Broken as error:
                self._on_error("unreachable")
                raise Unreachable(self._where(error)) from error
            with self._streams_lock:
                stream.wire = wire
                self._streams.add(stream)
            try:
                if self._closed.is_set() or stream.closed:
                    raise Unreachable("closed")
                header = self._header()
                wire.send(_finish(start, header), _CONNECT_S)
                head = http1.answer(wire)
                if head.status < 400:
                    return wire, head
                reply = Reply(head.status, wire.body(head), head.headers)
            except http1.Broken as error:
                self.drop(stream)
                self._on_error("unreachable")
                raise Unreachable(self._where(error)) from error
            except BaseException:
                self.drop(stream)
                raise
            self.drop(stream)
            if last or reply.status != 401 or not self._renew(header):
                break
        self._on_error(str(reply.status))
        raise ApiError.of(reply)

    def drop(self, stream: Stream) -> None:
        """Forget a stream and close its connection."""
        with self._streams_lock:
            self._streams.discard(stream)
        if stream.wire is not None:
            stream.wire.close()

    def _authorised(self, start: str, body: bytes, method: str, timeout_s: float) -> Reply:
        header = self._header()
        reply = self._once(_finish(start, header) + body, method, timeout_s)
        if reply.status == 401 and self._renew(header):
            reply = self._once(_finish(start, self._header()) + body, method, timeout_s)
        return reply

    def _once(self, request: bytes, method: str, timeout_s: float) -> Reply:
        if self._closed.is_set():
            raise Unreachable("the client is closed")
        if self._rate is not None and (wait := self._rate.reserve()):
            self._sleep(wait)
        while True:
            try:
                wire = self._pool.take(timeout_s)
            except http1.Broken as error:
                raise Unreachable(self._where(error)) from error
            keep = False
            try:
                wire.send(request, timeout_s, fence.of(method))
                head = http1.answer(wire)
                data = b"" if method == "HEAD" else wire.body(head)
                keep = head.keep
                return Reply(head.status, data, head.headers)
            except http1.Broken as error:
                if error.sent:
                    raise LostReply(self._where(error)) from error
                if wire.used == 1 or error.timed_out:
                    raise Unreachable(self._where(error)) from error
                # A connection that had been kept was closed meanwhile: the next is fresher.
            finally:
                self._pool.give(wire, keep)

    def _dial(self, timeout_s: float) -> http1.Wire:
        return dial(
            self._host,
            self._port,
            self.access.tls,
            timeout_s=min(timeout_s, _CONNECT_S),
            server_name=self.access.server_name,
            proxy=self._proxy,
        )

    def _start(
        self, method: str, path: str, query: Mapping[str, str] | None, accept: str, body: bytes, content_type: str
    ) -> str:
        target = self._prefix + (path if _PLAIN.fullmatch(path) else quote(path, safe="/:@!$&'()*+,;=~"))
        if query:
            target += "?" + _encoded(tuple(query.items()))
        start = f"{method} {target}{self._fixed}Accept: {accept}\r\n"
        if body or method in ("POST", "PUT", "PATCH"):
            start += f"Content-Type: {content_type}\r\nContent-Length: {len(body)}\r\n"
        return start

    def _header(self) -> str:
        try:
            return self.access.credentials.header()
        except InputError as error:
            raise Unreachable(f"no credentials: {error}") from error

    def _renew(self, refused: str) -> bool:
        try:
            return self.access.credentials.renew(refused)
        except InputError as error:
            raise Unreachable(f"no credentials: {error}") from error

    def _pause(self, tries: int) -> float:
        base = min(_READ_PAUSE_MAX_S, _READ_PAUSE_S * 2.0 ** (tries - 1))
        return base * (0.5 + self._rng.random())

    def _where(self, error: object) -> str:
        return f"{self.access.server.removesuffix(self._prefix)}: {error}"  # the prefix may be a secret


class Stream:
    """A running watch: a context manager over its lines, which :meth:`close` ends from any thread."""

    def __init__(self, transport: HttpTransport, start: str, timeout_s: float) -> None:
        self._transport, self._start, self._timeout_s = transport, start, timeout_s
        self.wire: http1.Wire | None = None
        self.closed = False

    def __enter__(self) -> Iterator[bytes]:
        deadline = time.monotonic() + self._timeout_s
        wire, head = self._transport.open_stream(self, self._start, self._timeout_s)
        return self._lines(wire, head, deadline)

    def _lines(self, wire: http1.Wire, head: http1.Head, deadline: float) -> Iterator[bytes]:
        try:
            yield from http1.lines(wire.pieces(head, deadline))
        except http1.Broken as error:
            if not self.closed:
                raise Unreachable(self._transport._where(error)) from error

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.closed = True
        self._transport.drop(self)

    def close(self) -> None:
        """End the iteration, also one that is blocked in another thread."""
        self.closed = True
        if self.wire is not None:
            self.wire.abort()


def open_cluster(
    kubeconfig: str = "",
    context: str = "",
    *,
    rng: random.Random | None = None,
    rate: Rate | None = None,
    on_error: Callable[[str], None] | None = None,
    field_manager: str = "tonnage",
    ask: bool = True,
) -> Client:
    """A client for the cluster of a kubeconfig, after one question to it. ``ask``: False where the API server may be
    away now and answers later.

    Raises InputError: no kubeconfig, unknown context, unusable certificate, exec plugin that fails, no connection,
    credentials refused, or a server older than :data:`OLDEST_SERVER`.
    """
    access = load(kubeconfig, context)
    transport = HttpTransport(access, rng=rng, rate=rate, on_error=on_error)
    client = Client(transport, field_manager)
    try:
        transport.log_in()
        if ask:
            check_version(client, access.context)
    except BaseException:
        transport.close()
        raise
    return client


def check_version(client: Client, context: str = "") -> tuple[int, int]:
    """(major, minor) of the server's Kubernetes version. Raises InputError when it is too old or does not say."""
    import msgspec

    try:
        reply = client.call("GET", "/version", timeout_s=15)
        found = msgspec.json.decode(reply.body, type=dict[str, str | None])
    except ClientError as error:
        raise explain(error, context=context) from error
    except msgspec.DecodeError as error:
        raise InputError.at("this is not a Kubernetes API server: /version is not what it should be") from error
    numbers = re.match(r"v?(\d+)\.(\d+)", found.get("gitVersion") or "")
    if numbers is None:
        raise InputError.at("the API server does not say its version", hint="expected gitVersion in /version")
    version = int(numbers[1]), int(numbers[2])
    if version < OLDEST_SERVER:
        raise InputError.at(
            f"the API server is too old: {found['gitVersion']}",
            hint=f"expected v{OLDEST_SERVER[0]}.{OLDEST_SERVER[1]} or newer",
        )
    return version


@lru_cache(256)
def _encoded(query: tuple[tuple[str, str], ...]) -> str:
    return urlencode(query, quote_via=quote)


def _finish(start: str, header: str) -> bytes:
    return (f"{start}Authorization: {header}\r\n\r\n" if header else start + "\r\n").encode("latin-1")


def _retry_after(reply: Reply, method: str) -> float | None:
    """Seconds to wait before asking again; None when the answer stands.

    429 and 503 come before anything is done. Other 5xx with Retry-After may come after: only reads are repeated."""
    after = reply.headers.get("retry-after", "")
    if not after.isdigit():
        return None
    if reply.status in (429, 503) or (reply.status >= 500 and method == "GET"):
        return float(after)
    return None
