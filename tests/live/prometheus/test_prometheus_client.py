"""Queries over Prometheus' HTTP API: what is sent, what is read, and what is said when there is no answer."""

from __future__ import annotations

import math
import socket
import threading
from pathlib import Path

import pytest
from scripted_server import Reply, data, error, page, serving, vector

from tonnage.errors import InputError, NotAnswered
from tonnage.live.prometheus import Prometheus, PrometheusError, QueryFailure
from tonnage.metrics.promql import Sample, Scalar, Vector

AT = 1_700_000_000_123_999_999  # ns


# ---- what is sent ----


def test_a_query_is_a_form_with_the_time_cut_to_milliseconds() -> None:
    with serving(vector()) as server, Prometheus(server.url) as prometheus:
        prometheus.query('sum(up{job="a b"}) + 1', AT)
    (asked,) = server.asked
    assert asked.path == "/api/v1/query"
    assert asked.form == {"query": ['sum(up{job="a b"}) + 1'], "time": ["1700000000.123"], "timeout": ["5000ms"]}


@pytest.mark.parametrize(
    ("at_ns", "sent"), [(0, "0.000"), (1_000_000, "0.001"), (999_999, "0.000"), (-1_500_000_000, "-1.500")]
)
def test_times_near_the_epoch_are_sent_exactly(at_ns: int, sent: str) -> None:
    with serving(vector()) as server, Prometheus(server.url) as prometheus:
        prometheus.query("up", at_ns)
    assert server.asked[0].form["time"] == [sent]


def test_without_a_time_the_clock_is_asked() -> None:
    with serving(vector()) as server, Prometheus(server.url, clock=lambda: 1234.5) as prometheus:
        assert prometheus.answered_s is None
        prometheus.query("up")
    assert server.asked[0].form["time"] == ["1234.500"]
    assert prometheus.answered_s == 1234.5


def test_the_path_prefix_of_the_url_is_kept() -> None:
    for suffix in ("/prometheus", "/prometheus/", "/prometheus/api/v1"):
        with serving(vector()) as server, Prometheus(server.url + suffix) as prometheus:
            prometheus.query("up", AT)
        assert server.asked[0].path == "/prometheus/api/v1/query"


def test_the_connection_is_kept_between_queries() -> None:
    with serving(vector()) as server, Prometheus(server.url) as prometheus:
        for _ in range(3):
            prometheus.query("up", AT)
    assert len({asked.connection for asked in server.asked}) == 1


def test_a_kept_connection_that_the_server_has_closed_is_opened_again() -> None:
    closed = vector(({}, "1"))
    closed.close_after = True
    with serving(closed, vector(({}, "2"))) as server, Prometheus(server.url) as prometheus:
        prometheus.query("up", AT)
        assert prometheus.query("up", AT).result == Vector((Sample({}, 2.0),))
    assert len({asked.connection for asked in server.asked}) == 2


def test_a_token_is_read_again_for_every_query(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("first\n")
    with serving(vector()) as server, Prometheus(server.url, token_file=str(token)) as prometheus:
        prometheus.query("up", AT)
        token.write_text("second")
        prometheus.query("up", AT)
    assert [asked.headers["authorization"] for asked in server.asked] == ["Bearer first", "Bearer second"]


def test_user_and_password_of_the_url_are_sent_and_never_shown() -> None:
    with serving(page(500)) as server:
        url = server.url.replace("http://", "http://ann:s%40cret@")
        with Prometheus(url) as prometheus, pytest.raises(PrometheusError) as caught:
            prometheus.query("up", AT)
    assert server.asked[0].headers["authorization"] == "Basic YW5uOnNAY3JldA=="
    assert "cret" not in str(caught.value)


# ---- what is read ----


def test_a_vector_has_its_labels_and_values() -> None:
    reply = vector(({"__name__": "up", "pod": "a"}, "1.5"), ({"pod": "b"}, "1e+21"))
    with serving(reply) as server, Prometheus(server.url) as prometheus:
        assert prometheus.measure("up", AT) == Vector(
            (Sample({"__name__": "up", "pod": "a"}, 1.5), Sample({"pod": "b"}, 1e21))
        )


def test_an_empty_vector_is_no_data_and_not_zero() -> None:
    with serving(vector(), vector(({}, "0"))) as server, Prometheus(server.url) as prometheus:
        nothing, zero = prometheus.measure("up", AT), prometheus.measure("up", AT)
    assert isinstance(nothing, Vector) and isinstance(zero, Vector)
    assert nothing.value() is None
    assert zero.value() == 0.0


def test_nan_and_infinities_are_values() -> None:
    reply = vector(({"a": "1"}, "NaN"), ({"a": "2"}, "+Inf"), ({"a": "3"}, "-Inf"))
    with serving(reply) as server, Prometheus(server.url) as prometheus:
        result = prometheus.measure("up", AT)
    assert isinstance(result, Vector)
    nan, high, low = (sample.value for sample in result)
    assert math.isnan(nan) and high == math.inf and low == -math.inf


def test_a_scalar_stays_a_scalar() -> None:
    with serving(data("scalar", [1700000000, "42"])) as server, Prometheus(server.url) as prometheus:
        assert prometheus.measure("42", AT) == Scalar(42.0)


def test_warnings_are_kept_until_an_answer_has_none() -> None:
    warned = vector(({}, "1"), warnings=["one store did not answer"], infos=["not a counter"])
    with serving(warned, vector()) as server, Prometheus(server.url) as prometheus:
        assert prometheus.query("up", AT).warnings == ("one store did not answer", "not a counter")
        assert prometheus.warnings == {"up": ("one store did not answer", "not a counter")}
        prometheus.query("up", AT)
        assert prometheus.warnings == {}


# ---- what is said when there is no answer ----

HISTOGRAM = {"metric": {}, "histogram": [1700000000, {"count": "1", "sum": "2", "buckets": []}]}
STATUS = b'{"kind":"Status","apiVersion":"v1","status":"Failure","message":"no","reason":"NotFound","code":404}'


@pytest.mark.parametrize(
    ("reply", "fault", "says"),
    [
        (
            error(400, "bad_data", "parse error at char 4"),
            QueryFailure.QUERY,
            "refuses the query (bad_data): parse error",
        ),
        (error(422, "execution", "many-to-many"), QueryFailure.QUERY, "refuses the query (execution): many-to-many"),
        (
            error(503, "timeout", "query timed out"),
            QueryFailure.UNAVAILABLE,
            "cannot answer (timeout): query timed out",
        ),
        (error(500, "internal", "disk"), QueryFailure.UNAVAILABLE, "cannot answer (internal): disk"),
        (error(429, "too_many", "slow down"), QueryFailure.UNAVAILABLE, "cannot answer (too_many): slow down"),
        (error(403, "forbidden", "tenant x"), QueryFailure.DENIED, "denies access (status 403): tenant x"),
        (error(200, "bad_data", "odd"), QueryFailure.QUERY, "refuses the query (bad_data): odd"),
        (page(401), QueryFailure.DENIED, "denies access (status 401) (give a token file or user:password"),
        (page(), QueryFailure.FOREIGN, "answers with text/html and not with Prometheus' JSON (status 200)"),
        (page(404), QueryFailure.FOREIGN, "has no /api/v1/query (status 404) (check the path in the URL"),
        (page(502), QueryFailure.UNAVAILABLE, "cannot answer: status 502 with text/html (a proxy answers for it"),
        (page(503, b"no healthy\nupstream", "text/plain"), QueryFailure.UNAVAILABLE, "text/plain: no healthy upstream"),
        (page(302, Location="https://login.example"), QueryFailure.FOREIGN, "redirects to https://login.example"),
        (page(200, b'{"a": 1}', "application/json"), QueryFailure.FOREIGN, "answers with application/json and not"),
        (page(200, b"\xff\xfe", "application/json"), QueryFailure.FOREIGN, "answers with application/json and not"),
        (page(404, STATUS, "application/json"), QueryFailure.FOREIGN, "has no /api/v1/query"),
        (data("matrix", []), QueryFailure.QUERY, "a range of samples for each series (wrap the range in a function"),
        (data("string", [1, "x"]), QueryFailure.QUERY, "a string (ask for a vector"),
        (data("", None), QueryFailure.QUERY, "the result type ''"),
        (data("vector", [HISTOGRAM]), QueryFailure.QUERY, "native histograms"),
        (data("vector", [{"metric": {}, "value": [1, "much"]}]), QueryFailure.QUERY, "the value 'much'"),
        (data("vector", {"a": 1}), QueryFailure.QUERY, "a vector that cannot be read"),
        (data("scalar", "1"), QueryFailure.QUERY, "a scalar that cannot be read"),
        (Reply(close=True), QueryFailure.UNREACHABLE, "closes the connection without an answer"),
    ],
)
def test_an_answer_that_is_none_is_one_line_with_what_to_do(reply: Reply, fault: QueryFailure, says: str) -> None:
    with serving(reply) as server, Prometheus(server.url) as prometheus:
        with pytest.raises(PrometheusError) as caught:
            prometheus.query("up", AT)
        assert prometheus.answered_s is None
    message = str(caught.value)
    assert message.startswith(f"Prometheus at {server.url} ")
    assert says in message
    assert message.endswith(")") and "\n" not in message
    assert caught.value.fault is fault
    assert isinstance(caught.value, NotAnswered) == (fault in (QueryFailure.UNREACHABLE, QueryFailure.UNAVAILABLE))
    assert caught.value.exit_code == 2


def test_the_next_query_after_an_error_is_answered() -> None:
    with serving(page(), vector(({}, "1"))) as server, Prometheus(server.url) as prometheus:
        with pytest.raises(PrometheusError):
            prometheus.query("up", AT)
        assert len(prometheus.query("up", AT).result) == 1  # type: ignore[arg-type]


def test_a_server_that_keeps_silent_is_given_up() -> None:
    silent = vector()
    silent.wait = threading.Event()
    with serving(silent) as server, Prometheus(server.url, timeout_s=0.1) as prometheus:
        with pytest.raises(PrometheusError, match=r"gives no answer within 0\.1 s") as caught:
            prometheus.query("up", AT)
        silent.wait.set()
    assert caught.value.fault is QueryFailure.UNREACHABLE


def test_a_closed_port_is_unreachable() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
        with Prometheus(url) as prometheus, pytest.raises(PrometheusError, match="refuses connections") as caught:
            prometheus.query("up", AT)
    assert "kubectl port-forward" in str(caught.value)


def test_an_unknown_host_is_named() -> None:
    unknown = pytest.raises(PrometheusError, match=r"not known: prometheus\.invalid")
    with Prometheus("http://prometheus.invalid:9090") as prometheus, unknown:
        prometheus.query("up", AT)


def test_tls_to_a_plain_port_says_so() -> None:
    refused = pytest.raises(PrometheusError, match="does not speak TLS")
    with serving(vector()) as server, Prometheus(server.url.replace("http:", "https:")) as prometheus, refused:
        prometheus.query("up", AT)


def test_an_answer_without_end_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tonnage.live.prometheus.MAX_ANSWER_BYTES", 64)
    long = vector(*(({"pod": str(i)}, "1") for i in range(20)))
    refused = pytest.raises(PrometheusError, match="aggregate in the query")
    with serving(long) as server, Prometheus(server.url) as prometheus, refused:
        prometheus.query("up", AT)


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("prometheus:9090", "has no http:// or https://"),
        ("ftp://prometheus", "has no http:// or https://"),
        ("http://", "has no http:// or https:// and host"),
        ("http://host:port", "cannot be read"),
        ("http://host/?a=b", "has a query or a fragment"),
    ],
)
def test_an_address_that_is_none_is_refused(url: str, says: str) -> None:
    with pytest.raises(InputError, match=says) as caught:
        Prometheus(url)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("content", "says"),
    [(None, "cannot be read"), (b"", "one token"), (b"a b", "one token"), ("ä".encode(), "not plain ASCII")],
)
def test_a_token_file_that_holds_no_token_is_refused(tmp_path: Path, content: bytes | None, says: str) -> None:
    file = tmp_path / "token"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(InputError, match=says) as caught:
        Prometheus("http://127.0.0.1:9", token_file=str(file))
    assert str(file) in str(caught.value)


def test_a_certificate_file_that_holds_none_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "ca.pem"
    file.write_text("not a certificate")
    with pytest.raises(InputError, match="no certificates can be read"):
        Prometheus("https://127.0.0.1:9", ca_file=str(file))


def test_queries_from_several_threads_get_their_own_answers() -> None:
    with serving(vector(({}, "1"))) as server, Prometheus(server.url) as prometheus:
        found: list[object] = []
        threads = [threading.Thread(target=lambda: found.append(prometheus.measure("up", AT))) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(5)
    assert found == [Vector((Sample({}, 1.0),))] * 8
