"""A Prometheus-compatible read API over a series store, for KEDA, Grafana, promtool and Tonnage's own controllers.

Paths, parameters and answers: prometheus.io/docs/prometheus/latest/querying/api. The store's times are virtual
nanoseconds, the API speaks Unix seconds. It has no authentication: bind it to loopback. Errors have Prometheus' form;
what is not served is answered with 404 in that form.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from decimal import Decimal, InvalidOperation
from typing import Any, TypeAlias
from urllib.parse import parse_qs

import msgspec
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

import tonnage
from tonnage.errors import InputError
from tonnage.metrics import promql
from tonnage.metrics.exposition import CONTENT_TYPE, current, number, render
from tonnage.metrics.promql import LABEL_NAME, Query, QueryError, Result, Scalar
from tonnage.metrics.store import Matcher, Series, SeriesStore
from tonnage.metrics.syntax import Selector
from tonnage.objects import duration
from tonnage.units import NS_PER_MS

MAX_POINTS = 11_000
"""Points of one series that a range query may ask for (prometheus/prometheus web/api/v1/api.go)."""

Evaluate: TypeAlias = Callable[[str, int], Result]
Parameters: TypeAlias = Mapping[str, Sequence[str]]

_UNIX_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_FAR_S = 1 << 33  # the year 2242: beyond any run, within 64 bits of nanoseconds
_NUMBER = re.compile(r"[+-]?[0-9.]+(?:[eE][+-]?[0-9]+)?")
_encode = msgspec.json.Encoder().encode


@dataclass(frozen=True, slots=True)
class QueryResponse:
    """What a request gets under ``data``, and warnings beside it."""

    data: Any
    warnings: tuple[str, ...] = ()


@dataclass(slots=True)
class ReadApi:
    """The answers, without HTTP around them. Times in the store are virtual ns; ``epoch_ns`` is the Unix time of 0.

    ``now_ns``: the virtual time now. ``evaluate``: a PromQL query at a virtual time; None evaluates over the store.
    """

    store: SeriesStore
    epoch_ns: int
    now_ns: Callable[[], int]
    evaluate: Evaluate | None = None
    _parsed: dict[str, Query] = field(default_factory=dict)

    def query(self, given: Parameters) -> QueryResponse:
        """One instant; the time defaults to now. A range vector is answered with its samples."""
        at_ns = self._time(given, "time", self.epoch_ns + self.now_ns())
        text = _one(given, "query")
        if promql.is_range(self._read(text)):
            return QueryResponse({"resultType": "matrix", "result": self._matrix(text, at_ns)})
        result = self._evaluate(text, at_ns - self.epoch_ns)
        stamp = _stamp(at_ns)
        if isinstance(result, Scalar):
            return QueryResponse({"resultType": "scalar", "result": [stamp, number(result.value)]})
        elements = [{"metric": _metric(s.labels), "value": [stamp, number(s.value)]} for s in result]
        return QueryResponse({"resultType": "vector", "result": elements})

    def query_range(self, given: Parameters, locked: Callable[[], AbstractContextManager[Any]]) -> QueryResponse:
        """Every step from start to end. ``locked`` is entered for each step, so that the world can go on in between."""
        text = _one(given, "query")
        start_ns, end_ns = self._time(given, "start"), self._time(given, "end")
        step_ns = _duration_ns(given, "step")
        if end_ns < start_ns:
            raise _bad("end", "is before start")
        if step_ns <= 0:
            raise _bad("step", "is not above zero")
        if (end_ns - start_ns) // step_ns > MAX_POINTS:
            raise _bad("step", f"gives more than {MAX_POINTS} points for each series", "take a longer step")
        found: dict[tuple[tuple[str, str], ...], tuple[dict[str, str], list[list[Any]]]] = {}
        for at_ns in range(start_ns, end_ns + 1, step_ns):
            with locked():
                result = self._evaluate(text, at_ns - self.epoch_ns)
            samples = [({}, result.value)] if isinstance(result, Scalar) else [(s.labels, s.value) for s in result]
            for labels, value in samples:
                key = tuple(sorted(labels.items()))
                _, points = found.setdefault(key, (_metric(labels), []))
                points.append([_stamp(at_ns), number(value)])
        rows = [{"metric": metric, "values": points} for _, (metric, points) in sorted(found.items())]
        return QueryResponse({"resultType": "matrix", "result": rows})

    def series(self, given: Parameters) -> QueryResponse:
        """Label sets of the series that match, with a sample between start and end."""
        if not given.get("match[]"):
            raise _bad("match[]", "is missing", "give at least one selector")
        return _limited([_metric(series.labels) for series in self._matching(given)], given)

    def labels(self, given: Parameters) -> QueryResponse:
        """Names of labels."""
        return _limited(sorted({name for series in self._matching(given) for name in series.labels}), given)

    def values(self, name: str, given: Parameters) -> QueryResponse:
        """Values of one label."""
        if not LABEL_NAME.fullmatch(name):
            raise _bad("name", f"{name!r} is not a label name")
        return _limited(sorted({s.labels[name] for s in self._matching(given) if name in s.labels}), given)

    def build_info(self, _: Parameters) -> QueryResponse:
        """Clients read the version to know what may be asked: the evaluator speaks Prometheus 3's PromQL."""
        info = {"version": "3.9.0", "revision": f"tonnage-{tonnage.__version__}", "branch": "", "goVersion": ""}
        return QueryResponse({**info, "buildUser": "", "buildDate": ""})

    # ---- reading parameters ----

    def _evaluate(self, text: str, at_ns: int) -> Result:
        if self.evaluate is not None:
            return self.evaluate(text, at_ns)
        query = self._read(text)
        if promql.is_range(query):
            promql.parse(text)  # says why not
        return promql.evaluate(query, self.store, at_ns, epoch_ns=self.epoch_ns)

    def _read(self, text: str) -> Query:
        query = self._parsed.get(text)
        if query is None:
            if len(self._parsed) >= 1024:
                self._parsed.clear()
            query = self._parsed[text] = promql.parse_any(text)
        return query

    def _matrix(self, text: str, at_ns: int) -> list[dict[str, Any]]:
        """The samples of each series, in the order of its labels."""
        found = promql.matrix(self._read(text), self.store, at_ns - self.epoch_ns, epoch_ns=self.epoch_ns)
        rows = [
            {
                "metric": _metric(labels),
                "values": [
                    [_stamp(t + self.epoch_ns), number(value)]
                    for t, value in zip(samples.times, samples.values, strict=True)
                ],
            }
            for labels, samples in found
        ]
        return sorted(rows, key=lambda row: sorted(row["metric"].items()))

    def _matching(self, given: Parameters) -> list[Series]:
        start_ns = self._time(given, "start", self.epoch_ns) - self.epoch_ns
        end_ns = self._time(given, "end", self.epoch_ns + self.now_ns()) - self.epoch_ns
        wanted = [_selector(text) for text in given.get("match[]", ())] or [()]
        found = {id(series): series for matchers in wanted for series in self.store.select(matchers)}
        return [s for s in found.values() if s.window(start_ns, end_ns, left_open=False)[0]]

    def _time(self, given: Parameters, name: str, default_ns: int | None = None) -> int:
        """A parameter that is Unix seconds or RFC 3339, as Unix ns in whole milliseconds."""
        text = _one(given, name, "" if default_ns is not None else None)
        if not text:
            assert default_ns is not None
            return default_ns // NS_PER_MS * NS_PER_MS
        ms = _unix_ms(text)
        if ms is None:
            raise _bad(name, f"{text!r} is not a time", "expected Unix seconds or RFC 3339")
        return ms * NS_PER_MS


def app(
    store: SeriesStore,
    *,
    epoch_ns: int,
    now_ns: Callable[[], int],
    lock: AbstractContextManager[Any],
    exposition: Callable[[], str] | None = None,
    evaluate: Evaluate | None = None,
) -> Starlette:
    """The API as an ASGI application. Every access to the store happens under ``lock``, in a worker thread.

    ``epoch_ns``: Unix time of the store's 0, in whole milliseconds. ``now_ns``: the store's time now. ``exposition``:
    the text of /metrics; None gives the newest samples of the store. ``evaluate`` answers a PromQL query at a time of
    the store, and raises InputError; None evaluates over the store.

    Raises ValueError for an ``epoch_ns`` that Unix milliseconds cannot express: samples would be missed at its edges.
    """
    if epoch_ns % NS_PER_MS:
        raise ValueError(f"epoch_ns {epoch_ns} is not a whole number of milliseconds")
    api = ReadApi(store, epoch_ns, now_ns, evaluate)

    def page(handler: Callable[[Parameters], QueryResponse]) -> Endpoint:
        def under_lock(given: Parameters, _: Request) -> QueryResponse:
            with lock:
                return handler(given)

        return _endpoint(under_lock)

    def values(given: Parameters, request: Request) -> QueryResponse:
        with lock:
            return api.values(request.path_params["name"], given)

    def metrics() -> str:
        with lock:
            return render(current(store, now_ns())) if exposition is None else exposition()

    async def scraped(_: Request) -> Response:
        return Response(await run_in_threadpool(metrics), headers={"content-type": CONTENT_TYPE})

    async def well(_: Request) -> Response:
        return Response("Tonnage is ready.\n", media_type="text/plain")

    both = ["GET", "POST"]
    return Starlette(
        routes=[
            Route("/api/v1/query", page(api.query), methods=both),
            Route(
                "/api/v1/query_range", _endpoint(lambda given, _: api.query_range(given, lambda: lock)), methods=both
            ),
            Route("/api/v1/series", page(api.series), methods=both),
            Route("/api/v1/labels", page(api.labels), methods=both),
            Route("/api/v1/label/{name}/values", _endpoint(values), methods=["GET"]),
            Route("/api/v1/status/buildinfo", page(api.build_info), methods=["GET"]),
            Route("/-/ready", well, methods=["GET"]),
            Route("/-/healthy", well, methods=["GET"]),
            Route("/metrics", scraped, methods=["GET"]),
        ],
        exception_handlers={HTTPException: _not_served},
    )


Endpoint: TypeAlias = Callable[[Request], Awaitable[Response]]


def _endpoint(handler: Callable[[Parameters, Request], QueryResponse]) -> Endpoint:
    def respond(given: Parameters, request: Request) -> Response:
        try:
            page = handler(given, request)
        except QueryError as error:
            return _error(422, "execution", str(error))
        except InputError as error:
            return _error(400, "bad_data", str(error))
        body = {"status": "success", "data": page.data}
        return _json(200, {**body, "warnings": page.warnings} if page.warnings else body)

    async def endpoint(request: Request) -> Response:
        return await run_in_threadpool(respond, await _parameters(request), request)

    return endpoint


async def _parameters(request: Request) -> Parameters:
    """The parameters of the URL and, first, those of a form in the body."""
    given = parse_qs(request.url.query, keep_blank_values=True)
    if request.method == "POST":
        form = parse_qs((await request.body()).decode(errors="replace"), keep_blank_values=True)
        for name, values in form.items():
            given[name] = values + given.get(name, [])
    return given


async def _not_served(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    if error.status_code == 405:
        return _error(405, "bad_data", f"{request.method} is not served at {request.url.path}", error.headers)
    return _error(error.status_code, "not_found", f"{request.url.path} is not supported here")


def _error(status: int, kind: str, message: str, headers: Mapping[str, str] | None = None) -> Response:
    return _json(status, {"status": "error", "errorType": kind, "error": message}, headers)


def _json(status: int, body: dict[str, Any], headers: Mapping[str, str] | None = None) -> Response:
    return Response(_encode(body), status, headers, media_type="application/json")


def _bad(name: str, what: str, hint: str = "") -> InputError:
    return InputError.at(f"parameter {name} {what}", hint=hint)


def _one(given: Parameters, name: str, default: str | None = None) -> str:
    """The first value of a parameter; without a default it has to be there."""
    values = given.get(name, ())
    text = values[0].strip() if values else ""
    if text:
        return text
    if default is None:
        raise _bad(name, "is missing")
    return default


def _unix_ms(text: str) -> int | None:
    """Unix seconds or RFC 3339 in milliseconds; None for anything else."""
    try:
        seconds = Decimal(text)
    except InvalidOperation:
        try:
            moment = datetime.fromisoformat(text)
        except ValueError:
            return None
        return None if moment.tzinfo is None else (moment - _UNIX_EPOCH) // timedelta(milliseconds=1)
    return round(seconds * 1000) if seconds.is_finite() and abs(seconds) < _FAR_S else None


def _duration_ns(given: Parameters, name: str) -> int:
    """A parameter that is seconds or a Prometheus duration, in ns of whole milliseconds."""
    text = _one(given, name)
    ms = _unix_ms(text) if _NUMBER.fullmatch(text) else None
    if ms is not None:
        return ms * NS_PER_MS
    try:
        return duration.parse_prometheus(text)
    except ValueError as error:
        raise _bad(name, f"cannot be read: {error}") from None


def _selector(text: str) -> tuple[Matcher, ...]:
    root = promql.parse(text).root
    if not isinstance(root, Selector) or root.offset_ns:
        raise _bad("match[]", f"{text!r} is not a plain selector", 'such as {__name__=~"vllm:.*"}')
    return root.matchers


def _limited(items: list[Any], given: Parameters) -> QueryResponse:
    """At most ``limit`` items; 0 means all."""
    text = _one(given, "limit", "0")
    if not text.isascii() or not text.isdigit():
        raise _bad("limit", f"{text!r} is not a whole number from 0")
    limit = int(text)
    if limit and len(items) > limit:
        return QueryResponse(items[:limit], ("results truncated due to limit",))
    return QueryResponse(items)


def _stamp(at_ns: int) -> int | float:
    """Unix seconds as Prometheus writes them: without decimals where there are none."""
    ms = at_ns // NS_PER_MS
    return ms // 1000 if ms % 1000 == 0 else ms / 1000


def _metric(labels: Mapping[str, str]) -> dict[str, str]:
    return dict(sorted(labels.items()))
