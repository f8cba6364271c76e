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
import re
import select
import socket
import ssl
import time
from collections.abc import Iterator
from typing import Final

from tonnage.kube.fence import Fence

_READ: Final = 1 << 18
_HEAD_LIMIT: Final = 1 << 16
_BUSY_S, _GATHER_S = 0.003, 0.005
"""Of a stream that brings one piece after another some are let come: a wake costs more than a piece."""
_LENGTH: Final = re.compile(rb"\r\nContent-Length: (\d+)(?:\r|$)")


class Broken(Exception):
    """The connection failed. ``sent`` tells whether the server may have got the whole request."""

    def __init__(self, why: str, *, sent: bool, timed_out: bool = False) -> None:
        self.sent, self.timed_out = sent, timed_out
        super().__init__(why)


class Head:
    """Status line and header fields of a response, names in lower case. Fields are read when they are asked for."""

    __slots__ = ("_fields", "_raw", "keep", "status")

    def __init__(self, raw: bytes) -> None:
        if not raw.startswith(b"HTTP/1.") or not raw[9:12].isdigit():
            first = raw.partition(b"\r\n")[0].decode("latin-1")
            raise Broken(f"not an HTTP/1.1 server: it answers {first[:60]!r}", sent=True)
        self.status = int(raw[9:12])
        self._raw = raw
        self._fields: dict[str, str] | None = None
        self.keep = True
        if raw.startswith(b"HTTP/1.0") or b"\nconnection:" in raw.lower():
            connection = self.headers.get("connection", "").lower()
            self.keep = connection != "close" and (not raw.startswith(b"HTTP/1.0") or connection == "keep-alive")

    @property
    def headers(self) -> dict[str, str]:
        """The fields."""
        if self._fields is None:
            lines = (line.partition(":") for line in self._raw.decode("latin-1").split("\r\n")[1:])
            self._fields = {name.lower(): value.strip() for name, _, value in lines}
        return self._fields

    @property
    def length(self) -> int | None:
        """The length of the body, where it is said; None where it comes in chunks, or ends with the connection."""
        plain = _LENGTH.search(self._raw)  # as servers write it that write nothing else
        if plain is not None and b"ncoding:" not in self._raw:
            return int(plain[1])
        said = self.headers.get("content-length", "")
        return int(said) if said.isdigit() and "transfer-encoding" not in self.headers else None


class Wire:
    """One connection, used by one thread at a time; only :meth:`abort` may be called from another."""

    __slots__ = ("_at", "_data", "_filled_at", "_poll", "_sock", "_timeout", "idle_since", "used")

    def __init__(self, sock: socket.socket, timeout_s: float) -> None:
        self._sock = sock
        self._data = bytearray()
        self._at = 0  # what lies before it has been taken
        self._timeout = timeout_s
        self._poll = select.poll()
        self._poll.register(sock.fileno(), select.POLLIN)
        self._filled_at = 0.0  # when a stream last brought something
        self.used = 0
        self.idle_since = 0.0

    def send(self, request: bytes, timeout_s: float, fence: Fence | None = None) -> None:
        """Send a whole request. Raises Broken(sent=False): the last byte did not go out, so nothing was done; and
        Withheld, where the fence does not hold any more when the last byte is to go out."""
        self.used += 1
        try:
            if fence is not None:
                self._send_at_once(request, timeout_s, fence)
            self._limit(timeout_s)
            if fence is None:
                self._sock.sendall(request)
        except OSError as error:
            raise Broken(words(error), sent=False, timed_out=isinstance(error, TimeoutError)) from error

    def put(self, request: bytes, timeout_s: float, fence: Fence | None = None) -> None:
        """As :meth:`send`, for an answer that :meth:`received` takes: waits only where there is no room."""
        self.used += 1
        try:
            self._send_at_once(request, timeout_s, fence)
        except OSError as error:
            raise Broken(words(error), sent=False, timed_out=isinstance(error, TimeoutError)) from error

    def _send_at_once(self, request: bytes, timeout_s: float, fence: Fence | None) -> None:
        """Ask, and hand the bytes over in the next instruction, by one system call that does not wait. A socket with a
        time-out would wait for room first (poll), and then for the interpreter: long enough to be stopped within.

        What is left: a thread that is stopped between its question and that call sends its one request when it goes
        on, and nothing after it."""
        deadline = time.monotonic() + timeout_s
        self._limit(0.0)
        while True:
            try:
                if fence is not None:
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
        if (length := head.length) is not None:
            return self._take(length)
        return b"".join(self.pieces(head))

    def received(self) -> tuple[Head, bytes] | None:
        """The answer, head and body, where all of it has come; never waits. For :meth:`number` and a poll of it.

        Raises Broken(sent=True), where the connection has ended before."""
        self._limit(0.0)
        while True:
            try:
                data = self._sock.recv(_READ)
            except (BlockingIOError, ssl.SSLWantReadError):
                return None
            except (OSError, ValueError) as error:
                raise Broken(words(error), sent=True) from error
            self._data += data
            found = self._whole(ended=not data)
            if found is not None:
                return found
            if not data:
                why = "the connection ended " + ("within the answer" if self._data else "before an answer came")
                raise Broken(why, sent=True)

    def number(self) -> int:
        """The socket's file descriptor."""
        return self._sock.fileno()

    def _whole(self, *, ended: bool) -> tuple[Head, bytes] | None:
        """The answer that lies in what has come, once it is complete; taken from there."""
        while (end := self._data.find(b"\r\n\r\n", self._at)) >= 0:
            head, at = Head(bytes(self._data[self._at : end])), end + 4
            if head.status < 200:  # interim answers are passed over
                self._at = at
                continue
            body = self._body_at(head, at, ended=ended)
            if body is None:
                return None
            self._data.clear()  # nobody has asked for more
            self._at = 0
            return head, body
        if len(self._data) - self._at > _HEAD_LIMIT:
            raise Broken("the head of the answer is too long", sent=True)
        return None

    def _body_at(self, head: Head, at: int, *, ended: bool) -> bytes | None:
        """The body that begins there, where all of it is."""
        if head.status in (204, 304):
            return b""
        if (length := head.length) is not None:
            return bytes(self._data[at : at + length]) if len(self._data) >= at + length else None
        if head.headers.get("transfer-encoding", "").lower() == "chunked":
            return _joined(self._data, at)
        head.keep = False
        return bytes(self._data[at:]) if ended else None

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
            size = _size(self._line(deadline))
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
            now = time.monotonic()
            if now - self._filled_at < _BUSY_S and not self._poll.poll(0):
                time.sleep(_GATHER_S)
            self._limit(max(deadline - now, 0.001))
        try:
            data = self._sock.recv(_READ)
        except (OSError, ValueError) as error:  # ValueError: the socket was closed under us
            timed_out = isinstance(error, TimeoutError)
            why = "no answer in time" if timed_out else words(error)
            raise Broken(why, sent=True, timed_out=timed_out) from error
        if not data:
            if eof:
                raise Broken(eof, sent=True)
            raise EOFError
        if self._at:
            del self._data[: self._at]
            self._at = 0
        self._data += data
        if deadline is not None:
            self._filled_at = time.monotonic()

    def _limit(self, timeout_s: float) -> None:
        if timeout_s != self._timeout:
            self._timeout = timeout_s
            self._sock.settimeout(timeout_s)


def _joined(data: bytearray, at: int) -> bytes | None:
    """The chunks of a body that begins there; None where the last is not there yet."""
    parts: list[bytes] = []
    while (end := data.find(b"\r\n", at)) >= 0:
        size, at = _size(bytes(data[at:end])), end + 2
        if size == 0:  # trailer fields, and an empty line
            there = data.startswith(b"\r\n", at) or data.find(b"\r\n\r\n", at) >= 0
            return b"".join(parts) if there else None
        if len(data) < at + size + 2:
            return None
        parts.append(bytes(data[at : at + size]))
        if data[at + size : at + size + 2] != b"\r\n":
            raise Broken("a chunk is longer than it says", sent=True)
        at += size + 2
    return None


def _size(line: bytes) -> int:
    try:
        return int(line.partition(b";")[0], 16)
    except ValueError:
        raise Broken(f"not a chunk of HTTP/1.1: {line[:40]!r}", sent=True) from None


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


def words(error: Exception) -> str:
    """What a person is told of it."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not accepted: {error.verify_message}"
    if isinstance(error, ssl.SSLError):
        return f"TLS: {error.reason or error}"
    return (error.strerror or str(error) or type(error).__name__) if isinstance(error, OSError) else str(error)
