"""Queries to a Prometheus server, or to anything with its HTTP API (Thanos, Mimir, VictoriaMetrics).

The API: prometheus.io/docs/prometheus/latest/querying/api. The connection is kept open between queries. Proxies from
the environment are not used: give the address of the server itself.
"""

from __future__ import annotations

import base64
import http.client
import socket
import ssl
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Final, TypeVar
from urllib.parse import unquote, urlencode, urlsplit

import msgspec

from tonnage.errors import InputError, NotAnswered, Problem, Where
from tonnage.live.prometheus_answers import Body, BuildInfo, Data, Unreadable, decode_body, read_result, read_window
from tonnage.metrics.promql import Result
from tonnage.metrics.store import Series
from tonnage.units import NS_PER_MS, NS_PER_S

T = TypeVar("T")

MAX_ANSWER_BYTES: Final = 64 << 20
"""An instant query that gives more than this was not meant for a decision."""


class QueryFailure(Enum):
    """What kept a query from being answered."""

    UNREACHABLE = "unreachable"
    """No connection, or no answer in time."""
    UNAVAILABLE = "unavailable"
    """The server, or a proxy before it, cannot answer now (429, 5xx)."""
    DENIED = "denied"
    """401 or 403."""
    QUERY = "query"
    """Prometheus refuses the query, or the answer is not one that a decision can read."""
    FOREIGN = "foreign"
    """Something answers that is not Prometheus' API."""


class PrometheusError(InputError):
    """A query without an answer: one line that says what happened and what to do. It never stands for "no data"."""

    def __init__(self, fault: QueryFailure, problem: Problem) -> None:
        self.fault = fault
        super().__init__(problem)


class PrometheusSilent(PrometheusError, NotAnswered):
    """The same query may be answered later, with nothing changed: the server cannot be reached, or is not able to."""


@dataclass(frozen=True, slots=True)
class QueryResult:
    """The answer to an instant query; an empty vector is "no data". ``warnings``: Prometheus' own words, infos too.

    NaN is a value like any other: PromQL's answer to 0/0, or what a target exposed.
    """

    result: Result
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Address:
    """Where the server is. ``shown`` is safe to print: it holds no password."""

    tls: bool
    host: str
    port: int
    path: str
    basic: str
    shown: str


class Prometheus:
    """A connection to one server. Calls from several threads take turns.

    ``url``: http or https, with a path prefix if the server has one; ``user:password@`` is sent as basic
    authentication. ``token_file``: a bearer token, read again for every query because projected tokens rotate.
    ``ca_file``: certificates to trust instead of the system's. ``clock``: Unix time in seconds.

    ``warnings``: for each query the warnings of its last answer, if it had any. ``answered_s``: when the last answer
    came; None before the first.

    Raises InputError for an address or a file that cannot be used.
    """

    def __init__(
        self,
        url: str,
        *,
        token_file: str = "",
        ca_file: str = "",
        timeout_s: float = 5.0,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._address = _parse(url)
        self._token_file = token_file
        self._timeout_s = timeout_s
        self._clock = clock
        self._tls = _tls(ca_file) if self._address.tls else None
        self._lock = threading.Lock()
        self._connection: http.client.HTTPConnection | None = None
        self._headers()  # a token file that cannot be read is said at once
        self.warnings: dict[str, tuple[str, ...]] = {}
        self.answered_s: float | None = None

    def measure(self, query: str, at_ns: int) -> Result:
        """The answer at ``at_ns`` (ns since the Unix epoch); see :meth:`query`. What ``World.measure`` gives."""
        return self.query(query, at_ns).result

    def query(self, text: str, at_ns: int | None = None) -> QueryResult:
        """Evaluate a PromQL instant query at ``at_ns`` (ns since the Unix epoch, cut to milliseconds; None: now).

        Raises PrometheusError when there is no answer, InputError when the token file has become unreadable."""
        at_ns = round(self._clock() * NS_PER_S) if at_ns is None else at_ns
        body = self._ask(text, at_ns)
        answer = QueryResult(
            self._understood(read_result, body.data, text), (*(body.warnings or ()), *(body.infos or ()))
        )
        if answer.warnings:
            self.warnings[text] = answer.warnings
        else:
            self.warnings.pop(text, None)
        return answer

    def window(self, selector: str, start_ns: int, end_ns: int) -> list[Series]:
        """The raw samples of the series that ``selector`` matches, from ``start_ns`` to ``end_ns`` (Unix ns, cut to
        milliseconds; whether a sample at the start counts depends on the server's version).

        Raises as :meth:`query` does, also where there are more samples than the server gives at once."""
        text = f"{selector}[{(end_ns - start_ns) // NS_PER_MS}ms]"
        return self._understood(read_window, self._ask(text, end_ns).data, text)

    def version(self) -> str:
        """The server's release, such as 3.5.0; empty where it does not say.

        Raises PrometheusError where nothing answers."""
        status, _, body = self._send("/api/v1/status/buildinfo", None)
        try:
            return msgspec.json.decode(body, type=BuildInfo).data.version if status == 200 else ""
        except msgspec.DecodeError:
            return ""

    def _ask(self, text: str, at_ns: int) -> Body:
        form = {"query": text, "time": _time(at_ns), "timeout": f"{max(1, round(self._timeout_s * 1000))}ms"}
        status, headers, body = self._send("/api/v1/query", urlencode(form).encode())
        return self._read(status, headers, body, text)

    def close(self) -> None:
        """Close the connection; the next query opens another."""
        with self._lock:
            self._drop()

    def __enter__(self) -> Prometheus:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # ---- the connection ----

    def _send(self, path: str, form: bytes | None) -> tuple[int, Mapping[str, str], bytes]:
        """POST a form, or GET without one. A query changes nothing, so it is sent once more when a kept connection
        turns out closed."""
        headers = self._headers()
        with self._lock:
            reused = self._connection is not None
            try:
                return self._exchange(path, form, headers)
            except (http.client.RemoteDisconnected, ConnectionResetError, BrokenPipeError) as error:
                self._drop()
                if not reused:
                    raise self._unreachable(error) from error
            except (OSError, http.client.HTTPException) as error:
                self._drop()
                raise self._unreachable(error) from error
            try:
                return self._exchange(path, form, headers)
            except (OSError, http.client.HTTPException) as error:
                self._drop()
                raise self._unreachable(error) from error

    def _exchange(self, path: str, form: bytes | None, headers: dict[str, str]) -> tuple[int, Mapping[str, str], bytes]:
        if self._connection is None:
            self._connection = self._connect()
        connection = self._connection
        connection.request("GET" if form is None else "POST", self._address.path + path, form, headers)
        response = connection.getresponse()
        body = response.read(MAX_ANSWER_BYTES + 1)
        if len(body) > MAX_ANSWER_BYTES:
            self._drop()
            size = MAX_ANSWER_BYTES >> 20
            raise self._error(QueryFailure.QUERY, f"answers with more than {size} MiB", "aggregate in the query")
        if response.will_close:
            self._drop()
        return response.status, {name.lower(): value for name, value in response.getheaders()}, body

    def _connect(self) -> http.client.HTTPConnection:
        where = self._address
        if self._tls is not None:
            return http.client.HTTPSConnection(where.host, where.port, timeout=self._timeout_s, context=self._tls)
        return http.client.HTTPConnection(where.host, where.port, timeout=self._timeout_s)

    def _drop(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _headers(self) -> dict[str, str]:
        headers = {"Content-Type": "application/x-www-form-urlencoded", "Accept": "application/json"}
        if self._token_file:
            headers["Authorization"] = f"Bearer {_token(self._token_file)}"
        elif self._address.basic:
            headers["Authorization"] = f"Basic {self._address.basic}"
        return headers

    # ---- the answer ----

    def _read(self, status: int, headers: Mapping[str, str], body: bytes, text: str) -> Body:
        try:
            decoded = decode_body(body)
        except (msgspec.DecodeError, UnicodeDecodeError):
            raise self._foreign(status, headers, body) from None
        if decoded.status not in ("success", "error"):  # JSON of something else, such as an API server's Status
            raise self._foreign(status, headers, body)
        if status in (401, 403):
            raise self._denied(status, decoded.error)
        if decoded.status != "success" or status >= 400:
            raise self._refused(status, decoded, text)
        return decoded

    def _understood(self, read: Callable[[Data], T], data: Data, text: str) -> T:
        try:
            found = read(data)
        except Unreadable as error:
            raise self._error(
                QueryFailure.QUERY, f"answers with {error.what}", f"{error.hint}; the query is {text!r}"
            ) from None
        self.answered_s = self._clock()
        return found

    def _refused(self, status: int, body: Body, text: str) -> PrometheusError:
        said = body.error or f"status {status}"
        if status == 429 or (status >= 500 and body.error_type != "execution"):
            hint = "it is asked again; look at its load and its log if this stays"
            return self._error(QueryFailure.UNAVAILABLE, f"cannot answer ({body.error_type or status}): {said}", hint)
        what = f"refuses the query ({body.error_type or status}): {said}"
        return self._error(QueryFailure.QUERY, what, f"correct the query {text!r}")

    def _denied(self, status: int, said: str) -> PrometheusError:
        given = f"the token in {self._token_file}" if self._token_file else "credentials"
        hint = (
            f"check that {given} may query it" if self._token_file else "give a token file or user:password in the URL"
        )
        return self._error(QueryFailure.DENIED, f"denies access (status {status}){': ' if said else ''}{said}", hint)

    def _foreign(self, status: int, headers: Mapping[str, str], body: bytes) -> PrometheusError:
        kind = headers.get("content-type", "").partition(";")[0].strip() or "an answer without a content type"
        if status in (401, 403):
            return self._denied(status, "")
        if 300 <= status < 400:
            target = headers.get("location", "")
            to = f" to {target}" if target else ""
            return self._error(
                QueryFailure.FOREIGN, f"redirects{to} (status {status})", "give the address that it leads to"
            )
        if status == 429 or status >= 500:
            what = f"cannot answer: status {status} with {kind}{_glimpse(kind, body)}"
            return self._error(
                QueryFailure.UNAVAILABLE, what, "a proxy answers for it; check that the server behind it runs"
            )
        if status == 404:
            return self._error(
                QueryFailure.FOREIGN,
                "has no /api/v1/query (status 404)",
                "check the path in the URL, such as /prometheus",
            )
        what = f"answers with {kind} and not with Prometheus' JSON (status {status}){_glimpse(kind, body)}"
        return self._error(QueryFailure.FOREIGN, what, "a proxy or a login page? give the address of the server itself")

    def _unreachable(self, error: Exception) -> PrometheusError:
        hint = "check the address; from outside the cluster: kubectl port-forward service/NAME 9090"
        if isinstance(error, socket.gaierror):
            return self._error(
                QueryFailure.UNREACHABLE, f"has a host name that is not known: {self._address.host}", hint
            )
        if isinstance(error, ConnectionRefusedError):
            return self._error(QueryFailure.UNREACHABLE, "refuses connections", hint)
        if isinstance(error, TimeoutError):
            what = f"gives no answer within {self._timeout_s:g} s"
            return self._error(
                QueryFailure.UNREACHABLE, what, "check the address and any network policy, or allow more time"
            )
        if isinstance(error, ssl.SSLCertVerificationError):
            what = f"has a certificate that is not trusted: {error.verify_message}"
            return self._error(QueryFailure.UNREACHABLE, what, "give the file of the authority that signed it")
        if isinstance(error, ssl.SSLError):
            return self._error(QueryFailure.UNREACHABLE, f"does not speak TLS ({error.reason})", "an http:// address?")
        if isinstance(error, http.client.RemoteDisconnected | ConnectionError):
            what = "closes the connection without an answer"
            return self._error(QueryFailure.UNREACHABLE, what, "an https:// address? else look at its log")
        if isinstance(error, http.client.IncompleteRead):
            return self._error(QueryFailure.UNREACHABLE, "breaks off in the middle of an answer", "look at its log")
        if isinstance(error, http.client.HTTPException):
            return self._error(QueryFailure.FOREIGN, "does not speak HTTP", "give the address of its web interface")
        return self._error(QueryFailure.UNREACHABLE, f"cannot be reached: {error}", hint)

    def _error(self, fault: QueryFailure, what: str, hint: str) -> PrometheusError:
        one_line = " ".join(f"Prometheus at {self._address.shown} {what}".split())
        silent = fault in (QueryFailure.UNREACHABLE, QueryFailure.UNAVAILABLE)
        return (PrometheusSilent if silent else PrometheusError)(fault, Problem(Where(), one_line, hint))


def _time(at_ns: int) -> str:
    """Unix seconds with milliseconds, cut and not rounded: never later than asked."""
    ms = at_ns // NS_PER_MS
    sign, ms = ("-", -ms) if ms < 0 else ("", ms)
    return f"{sign}{ms // 1000}.{ms % 1000:03d}"


def _glimpse(kind: str, body: bytes) -> str:
    """The start of a plain text, which is often the reason; of a page nothing, it is never short."""
    if kind != "text/plain":
        return ""
    text = " ".join(body[:200].decode(errors="replace").split())
    return f": {text}" if text else ""


def _parse(url: str) -> _Address:
    hint = "expected http://HOST:PORT or https://HOST:PORT, such as http://prometheus.monitoring:9090"
    try:
        parts = urlsplit(url.strip())
        port = parts.port
    except ValueError as error:
        raise InputError.at(f"the Prometheus URL cannot be read: {error}", hint=hint) from None
    if parts.scheme not in ("http", "https") or not parts.hostname:
        shown = url if "@" not in url else "(with a password)"
        raise InputError.at(f"the Prometheus URL {shown!r} has no http:// or https:// and host", hint=hint)
    if parts.query or parts.fragment:
        raise InputError.at("the Prometheus URL has a query or a fragment", hint="give the address and path alone")
    tls = parts.scheme == "https"
    path = parts.path.rstrip("/").removesuffix("/api/v1/query").removesuffix("/api/v1")
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    shown = f"{parts.scheme}://{host}{f':{port}' if port else ''}{path}"
    basic = ""
    if parts.username is not None:
        pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        basic = base64.b64encode(pair.encode()).decode()
    return _Address(tls, parts.hostname, port or (443 if tls else 80), path, basic, shown)


def _token(file: str) -> str:
    hint = "give the path of a file that holds a bearer token and nothing else"
    try:
        token = Path(file).read_text(encoding="ascii").strip()
    except OSError as error:
        raise InputError.at(f"the token cannot be read: {error.strerror}", file=file, hint=hint) from None
    except UnicodeDecodeError:
        raise InputError.at("the token is not plain ASCII", file=file, hint=hint) from None
    if not token or len(token.split()) > 1:
        raise InputError.at("the file does not hold one token", file=file, hint=hint)
    return token


def _tls(ca_file: str) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=ca_file or None)
    except (OSError, ssl.SSLError) as error:
        hint = "give a file with certificates in PEM form"
        raise InputError.at(f"no certificates can be read: {error}", file=ca_file, hint=hint) from None
