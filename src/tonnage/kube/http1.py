"""HTTP/1.1 on a socket, as much of it as an API server speaks: keep-alive, lengths, chunks, streams of lines.

Why not httpx2, httpcore2 or http.client: client CPU per request in milliseconds, for a binding with a bearer token of
900 bytes over loopback (Python 3.11, least of three runs beside each other):

    ===========  ========  ==========  =============  ===============
    path         1 thread  32 threads  1 thread, TLS  32 threads, TLS
    ===========  ========  ==========  =============  ===============
    httpx2       0.58      0.72        0.53           0.67
    httpcore2    0.25      0.47        0.27           0.49
    http.client  0.11      0.16        0.14           0.17
    this module  0.03      0.03        0.04           0.07
    ===========  ========  ==========  =============  ===============

A scheduler that shares two cores with the API server pays this for every binding, and the pool of httpcore2 looks at
every connection for every request. Source of the format: RFC 9112.
"""

from __future__ import annotations

import contextlib
import select
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from typing import Final

from tonnage.kube.fence import Fence
from tonnage.kube.proxy import Proxy

_READ: Final = 1 << 18
_HEAD_LIMIT: Final = 1 << 16


class Broken(Exception):
    """The connection failed. ``sent`` tells whether the server may have got the whole request."""

    def __init__(self, why: str, *, sent: bool, timed_out: bool = False) -> None:
        self.sent, self.timed_out = sent, timed_out
        super().__init__(why)


class Head:
    """Status line and header fields of a response, names in lower case."""

    __slots__ = ("headers", "keep", "status")

    def __init__(self, raw: bytes) -> None:
        lines = raw.decode("latin-1").split("\r\n")
        version, _, rest = lines[0].partition(" ")
        if not version.startswith("HTTP/1.") or not rest[:3].isdigit():
            raise Broken(f"not an HTTP/1.1 server: it answers {lines[0][:60]!r}", sent=True)
        self.status = int(rest[:3])
        self.headers: dict[str, str] = {}
        for line in lines[1:]:
            name, _, value = line.partition(":")
            self.headers[name.lower()] = value.strip()
        connection = self.headers.get("connection", "").lower()
        self.keep = connection != "close" and (version != "HTTP/1.0" or connection == "keep-alive")


class Wire:
    """One connection, used by one thread at a time; only :meth:`abort` may be called from another."""

    __slots__ = ("_at", "_data", "_poll", "_sock", "_timeout", "idle_since", "used")

    def __init__(self, sock: socket.socket, timeout_s: float) -> None:
        self._sock = sock
        self._data = bytearray()
        self._at = 0  # what lies before it has been taken
        self._timeout = timeout_s
        self._poll = select.poll()
        self._poll.register(sock.fileno(), select.POLLIN)
        self.used = 0
        self.idle_since = 0.0

    def send(self, request: bytes, timeout_s: float, fence: Fence | None = None) -> None:
        """Send a whole request. Raises Broken(sent=False): the last byte did not go out, so nothing was done; and
        Withheld, where the fence does not hold any more when the last byte is to go out."""
        self.used += 1
        try:
            if fence is not None:
                self._send_fenced(request, timeout_s, fence)
            self._limit(timeout_s)
            if fence is None:
                self._sock.sendall(request)
        except OSError as error:
            raise Broken(_words(error), sent=False, timed_out=isinstance(error, TimeoutError)) from error

    def _send_fenced(self, request: bytes, timeout_s: float, fence: Fence) -> None:
        """Ask, and hand the bytes over in the next instruction, by one system call that does not wait. A socket with a
        time-out would wait for room first (poll), and then for the interpreter: long enough to be stopped within.

        What is left: a thread that is stopped between its question and that call sends its one request when it goes
        on, and nothing after it."""
        deadline = time.monotonic() + timeout_s
        self._limit(0.0)
        while True:
            try:
                fence.check()
                sent = self._sock.send(request)
                if sent == len(request):
                    return
                request = request[sent:]
            except (BlockingIOError, ssl.SSLWantWriteError, ssl.SSLWantReadError) as full:
                wait = select.POLLIN if isinstance(full, ssl.SSLWantReadError) else select.POLLOUT
                room = select.poll()
                room.register(self._sock.fileno(), wait)
                if not room.poll(max(0.0, deadline - time.monotonic()) * 1000):
                    raise TimeoutError("timed out") from full

    def head(self) -> Head:
        """The head of the answer; interim answers (1xx) are passed over."""
        while True:
            end = self._data.find(b"\r\n\r\n", self._at)
            while end < 0:
                if len(self._data) - self._at > _HEAD_LIMIT:
                    raise Broken("the head of the answer is too long", sent=True)
                self._fill()
                end = self._data.find(b"\r\n\r\n", self._at)
            head = Head(bytes(self._data[self._at : end]))
            self._at = end + 4
            if head.status >= 200:
                return head

    def body(self, head: Head) -> bytes:
        """The whole body of the answer."""
        length = head.headers.get("content-length")
        if length is not None and length.isdigit() and "transfer-encoding" not in head.headers:
            return self._take(int(length))
        return b"".join(self.pieces(head))

    def pieces(self, head: Head, deadline: float | None = None) -> Iterator[bytes]:
        """The body as it comes. With a ``deadline`` (``time.monotonic``) it ends there without an error."""
        headers = head.headers
        if head.status in (204, 304):
            return
        try:
            if headers.get("transfer-encoding", "").lower() == "chunked":
                yield from self._chunks(deadline)
            elif headers.get("content-length", "").isdigit():
                yield self._take(int(headers["content-length"]), deadline)
            else:
                head.keep = False
                yield from self._rest(deadline)
        except Broken as error:
            if not (error.timed_out and deadline is not None and time.monotonic() >= deadline):
                raise

    def dead(self) -> bool:
        """Whether an idle connection has been closed by the other side (or has sent what nobody asked for)."""
        return bool(self._poll.poll(0)) or self._at < len(self._data)

    def abort(self) -> None:
        """End a read that another thread is blocked in."""
        with contextlib.suppress(OSError):  # closed already: that is what was wanted
            # Not SSLSocket.shutdown: it takes the TLS state away from under the thread that reads.
            socket.socket.shutdown(self._sock, socket.SHUT_RDWR)

    def close(self) -> None:
        """Close the socket."""
        with contextlib.suppress(OSError):
            self._sock.close()

    def _chunks(self, deadline: float | None) -> Iterator[bytes]:
        while True:
            line = self._line(deadline)
            try:
                size = int(line.partition(b";")[0], 16)
            except ValueError:
                raise Broken(f"not a chunk of HTTP/1.1: {line[:40]!r}", sent=True) from None
            if size == 0:
                while self._line(deadline):
                    pass  # trailer fields
                return
            yield self._take(size, deadline)
            if self._take(2, deadline) != b"\r\n":
                raise Broken("a chunk is longer than it says", sent=True)

    def _rest(self, deadline: float | None) -> Iterator[bytes]:
        while True:
            if self._at < len(self._data):
                yield self._take(len(self._data) - self._at)
            try:
                self._fill(deadline)
            except EOFError:
                return

    def _line(self, deadline: float | None) -> bytes:
        end = self._data.find(b"\r\n", self._at)
        while end < 0:
            self._fill(deadline, eof="the connection ended within the answer")
            end = self._data.find(b"\r\n", self._at)
        line = bytes(self._data[self._at : end])
        self._at = end + 2
        return line

    def _take(self, count: int, deadline: float | None = None) -> bytes:
        while len(self._data) - self._at < count:
            self._fill(deadline, eof="the connection ended within the answer")
        taken = bytes(self._data[self._at : self._at + count])
        self._at += count
        if self._at == len(self._data):
            self._data.clear()
            self._at = 0
        return taken

    def _fill(self, deadline: float | None = None, eof: str = "") -> None:
        if deadline is not None:
            self._limit(max(deadline - time.monotonic(), 0.001))
        try:
            data = self._sock.recv(_READ)
        except (OSError, ValueError) as error:  # ValueError: the socket was closed under us
            timed_out = isinstance(error, TimeoutError)
            why = "no answer in time" if timed_out else _words(error)
            raise Broken(why, sent=True, timed_out=timed_out) from error
        if not data:
            if eof:
                raise Broken(eof, sent=True)
            raise EOFError
        if self._at:
            del self._data[: self._at]
            self._at = 0
        self._data += data

    def _limit(self, timeout_s: float) -> None:
        if timeout_s != self._timeout:
            self._timeout = timeout_s
            self._sock.settimeout(timeout_s)


def answer(wire: Wire) -> Head:
    """The head of the answer. Raises Broken(sent=True) when the connection ends before it."""
    try:
        return wire.head()
    except EOFError:
        raise Broken("the connection ended before an answer came", sent=True) from None


def lines(pieces: Iterator[bytes]) -> Iterator[bytes]:
    """The lines of a stream. Raises Broken when it ends within one."""
    rest = b""
    for piece in pieces:
        if piece.endswith(b"\n") and not rest and piece.count(b"\n") == 1:
            yield piece[:-1]
            continue
        *whole, rest = (rest + piece).split(b"\n")
        yield from (line for line in whole if line)
    if rest.strip():
        raise Broken("the stream ended within a line", sent=True)


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
        raise Broken(_words(error), sent=False) from error
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
        raise Broken(_words(error), sent=False) from error
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


def _words(error: Exception) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not accepted: {error.verify_message}"
    if isinstance(error, ssl.SSLError):
        return f"TLS: {error.reason or error}"
    return (error.strerror or str(error) or type(error).__name__) if isinstance(error, OSError) else str(error)


class Pool:
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
