"""The Prometheus-compatible read API: what KEDA, Grafana and a scrape ask of it, in Prometheus' own form."""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from read_api import EPOCH_NS, EPOCH_S, NOW_S, ask, fetch, make_store, serving

from tonnage.errors import InputError
from tonnage.hollow.prometheus import app
from tonnage.live.prometheus import Prometheus, PrometheusError, QueryFailure
from tonnage.metrics.exposition import current, number, render
from tonnage.metrics.promql import Sample, Scalar, Vector, evaluate, parse
from tonnage.units import NS_PER_S

WAITING = "vllm:num_requests_waiting"


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with serving() as address:
        yield address


# ---- instant queries ----


def test_what_keda_asks_gets_one_element(url: str) -> None:
    # KEDA's Prometheus scaler: GET with query and an RFC 3339 time
    form = {"query": f'sum({WAITING}{{pod="a"}})', "time": "2027-01-15T08:10:00Z"}
    status, answer = ask(url, "/api/v1/query", form)
    element = {"metric": {}, "value": [EPOCH_S + NOW_S, "40"]}
    assert (status, answer) == (200, {"status": "success", "data": {"resultType": "vector", "result": [element]}})


def test_the_save_and_test_of_grafana_gets_a_scalar(url: str) -> None:
    status, answer = ask(url, "/api/v1/query", {"query": "1+1", "time": "4"}, post=True)
    assert (status, answer["data"]) == (200, {"resultType": "scalar", "result": [4, "2"]})


def test_without_a_time_it_is_now(url: str) -> None:
    _, answer = ask(url, "/api/v1/query", {"query": "vector(1)"})
    assert answer["data"]["result"][0]["value"] == [EPOCH_S + NOW_S, "1"]


def test_times_have_milliseconds(url: str) -> None:
    _, answer = ask(url, "/api/v1/query", {"query": "vector(1)", "time": f"{EPOCH_S}.2504"})
    assert answer["data"]["result"][0]["value"][0] == EPOCH_S + 0.25


def test_an_empty_answer_is_an_empty_vector(url: str) -> None:
    for query in ("missing_metric", f'{WAITING}{{pod="b"}}'):
        _, answer = ask(url, "/api/v1/query", {"query": query})
        assert answer["data"] == {"resultType": "vector", "result": []}


def test_before_the_run_there_is_no_data(url: str) -> None:
    _, answer = ask(url, "/api/v1/query", {"query": WAITING, "time": EPOCH_S - 3600})
    assert answer["data"]["result"] == []


def test_values_are_written_as_prometheus_writes_them(url: str) -> None:
    _, answer = ask(url, "/api/v1/query", {"query": "odd"})
    found = {element["metric"]["kind"]: element["value"][1] for element in answer["data"]["result"]}
    assert found == {"nan": "NaN", "inf": "+Inf", "low": "-Inf", "zero": "-0", "huge": "15000000000000000000000000"}


# ---- ranges ----


def test_a_range_vector_is_answered_with_its_samples_but_for_one_at_its_start(url: str) -> None:
    _, answer = ask(url, "/api/v1/query", {"query": f'{WAITING}{{pod="b"}}[60s]', "time": EPOCH_S + 300})
    (row,) = answer["data"]["result"]
    assert answer["data"]["resultType"] == "matrix"
    assert row["metric"]["pod"] == "b" and row["metric"]["__name__"] == WAITING
    assert row["values"] == [[EPOCH_S + at, "2"] for at in (255, 270, 285)]  # and no marker of staleness at 300
    _, answer = ask(url, "/api/v1/query", {"query": f"sum({WAITING})[30s:15s]", "time": EPOCH_S + 60})
    assert answer["data"]["result"] == [{"metric": {}, "values": [[EPOCH_S + 45, "5"], [EPOCH_S + 60, "6"]]}]
    _, answer = ask(url, "/api/v1/query", {"query": f"{WAITING}[60s]", "time": EPOCH_S + 90})
    assert [one["metric"]["pod"] for one in answer["data"]["result"]] == ["a", "b"]


@pytest.mark.parametrize("span_s", [30, 61])
def test_the_client_reads_the_samples_that_are_in_the_store(url: str, span_s: int) -> None:
    start_ns, end_ns = (NOW_S - span_s) * NS_PER_S, NOW_S * NS_PER_S
    with Prometheus(url) as prometheus:
        found = prometheus.window(WAITING, EPOCH_NS + start_ns, EPOCH_NS + end_ns)
    (held,) = [one for one in make_store() if one.labels["__name__"] == WAITING and one.labels["pod"] == "a"]
    (one,) = found
    times, values = held.window(start_ns, end_ns)
    assert [t - EPOCH_NS for t in one.times] == list(times) and list(one.values) == list(values)


def test_a_range_has_a_point_for_each_step(url: str) -> None:
    form = {"query": WAITING, "start": EPOCH_S + 270, "end": EPOCH_S + 310, "step": "15s"}
    status, answer = ask(url, "/api/v1/query_range", form, post=True)
    assert status == 200
    assert answer["data"]["resultType"] == "matrix"
    found = {row["metric"]["pod"]: row["values"] for row in answer["data"]["result"]}
    assert found == {
        "a": [[EPOCH_S + 270, "18"], [EPOCH_S + 285, "19"], [EPOCH_S + 300, "20"]],
        "b": [[EPOCH_S + 270, "2"], [EPOCH_S + 285, "2"]],
    }


def test_a_range_of_a_scalar_is_one_series(url: str) -> None:
    form = {"query": "3", "start": 10, "end": 11, "step": "0.5"}
    _, answer = ask(url, "/api/v1/query_range", form)
    assert answer["data"]["result"] == [{"metric": {}, "values": [[10, "3"], [10.5, "3"], [11, "3"]]}]


def test_a_panel_of_many_points_is_served_in_one_request(url: str) -> None:
    form = {"query": WAITING, "start": EPOCH_S, "end": EPOCH_S + NOW_S, "step": "1"}
    _, answer = ask(url, "/api/v1/query_range", form)
    assert {len(row["values"]) for row in answer["data"]["result"]} == {601, 300}


# ---- series and labels ----


def test_series_are_listed_by_selector_and_time(url: str) -> None:
    status, answer = ask(url, "/api/v1/series", {"match[]": [WAITING + '{pod="b"}', "envoy_cluster_upstream_rq_total"]})
    assert status == 200
    assert answer["data"] == [
        {"__name__": WAITING, "model_name": "m", "namespace": "llm", "pod": "b"},
        {"__name__": "envoy_cluster_upstream_rq_total", "envoy_cluster_name": "chat"},
    ]
    _, answer = ask(url, "/api/v1/series", {"match[]": WAITING, "start": EPOCH_S + 301}, post=True)
    assert [series["pod"] for series in answer["data"]] == ["a"]


def test_labels_and_their_values_are_listed_in_order(url: str) -> None:
    _, answer = ask(url, "/api/v1/labels", {"match[]": '{__name__=~"vllm:num.*"}'})
    assert answer["data"] == ["__name__", "model_name", "namespace", "pod"]
    _, answer = ask(url, "/api/v1/labels", post=True)
    assert "envoy_cluster_name" in answer["data"] and "le" in answer["data"]
    _, answer = ask(url, "/api/v1/label/pod/values")
    assert answer["data"] == ["a", "b"]
    _, answer = ask(url, "/api/v1/label/__name__/values", {"match[]": '{pod="a"}'})
    assert answer["data"] == [WAITING, "vllm:time_to_first_token_seconds_bucket"]
    _, answer = ask(url, "/api/v1/label/nothing/values")
    assert answer["data"] == []


def test_a_limit_cuts_and_warns(url: str) -> None:
    _, answer = ask(url, "/api/v1/label/pod/values", {"limit": 1})
    assert answer["data"] == ["a"]
    assert answer["warnings"] == ["results truncated due to limit"]


def test_it_says_what_it_is_and_that_it_is_ready(url: str) -> None:
    _, answer = ask(url, "/api/v1/status/buildinfo")
    assert answer["data"]["version"].startswith("3.")
    assert fetch(url, "/-/ready")[0] == 200


# ---- errors ----


@pytest.mark.parametrize(
    ("path", "form", "says"),
    [
        ("query", {}, "parameter query is missing"),
        ("query", {"query": "sum("}, "not a PromQL query"),
        ("query_range", {"query": "up[5m]", "start": 0, "end": 1, "step": 1}, "range vector"),
        ("query", {"query": "limitk(1, up)"}, "the aggregation limitk() is not evaluated"),
        ("query", {"query": "up", "time": "soon"}, "parameter time 'soon' is not a time"),
        ("query", {"query": "up", "time": "2027-01-15T08:10:00"}, "is not a time"),
        ("query", {"query": "up", "time": "NaN"}, "is not a time"),
        ("query", {"query": "up", "time": "1e30"}, "is not a time"),
        ("query_range", {"query": "up", "start": 1, "end": 2}, "parameter step is missing"),
        ("query_range", {"query": "up", "end": 2, "step": 1}, "parameter start is missing"),
        ("query_range", {"query": "up", "start": 2, "end": 1, "step": 1}, "parameter end is before start"),
        ("query_range", {"query": "up", "start": 1, "end": 2, "step": 0}, "parameter step is not above zero"),
        ("query_range", {"query": "up", "start": 1, "end": 2, "step": -1}, "parameter step is not above zero"),
        ("query_range", {"query": "up", "start": 1, "end": 2, "step": "often"}, "parameter step cannot be read"),
        ("query_range", {"query": "up", "start": 0, "end": 11001, "step": 1}, "more than 11000 points"),
        ("query_range", {"query": "sum(", "start": 0, "end": 1, "step": 1}, "not a PromQL query"),
        ("series", {}, "parameter match[] is missing"),
        ("series", {"match[]": "sum(up)"}, "is not a plain selector"),
        ("series", {"match[]": "up offset 1m"}, "is not a plain selector"),
        ("series", {"match[]": '{a=~"("}'}, ""),
        ("labels", {"limit": "-1"}, "parameter limit '-1'"),
        ("label/a-b/values", {}, "not a label name"),
    ],
)
def test_a_bad_request_is_400_bad_data(url: str, path: str, form: dict[str, Any], says: str) -> None:
    status, answer = ask(url, f"/api/v1/{path}", form)
    assert (status, answer["status"], answer["errorType"]) == (400, "error", "bad_data")
    assert says in answer["error"]
    assert "data" not in answer


def test_a_query_that_fails_while_evaluated_is_422_execution(url: str) -> None:
    status, answer = ask(
        url, "/api/v1/query", {"query": f"{WAITING} + on (model_name) {WAITING}", "time": EPOCH_S + 60}
    )
    assert (status, answer["errorType"]) == (422, "execution")
    assert "duplicate series" in answer["error"]


@pytest.mark.parametrize(
    ("path", "method", "status"), [("/api/v1/rules", "GET", 404), ("/api/v1/query", "DELETE", 405), ("/", "GET", 404)]
)
def test_what_is_not_served_is_said_in_the_same_form(url: str, path: str, method: str, status: int) -> None:
    found, body, kind = fetch(url, path, method=method)
    assert found == status
    assert kind.startswith("application/json")
    assert '"status":"error"' in body


# ---- scraping ----


def test_metrics_are_the_newest_samples_that_are_alive(url: str) -> None:
    status, text, kind = fetch(url, "/metrics")
    assert (status, kind) == (200, "text/plain; version=0.0.4; charset=utf-8")
    assert f'{WAITING}{{model_name="m",namespace="llm",pod="a"}} 40\n' in text
    assert 'pod="b"' not in text
    assert f"# TYPE {WAITING} gauge\n" in text
    assert "# TYPE envoy_cluster_upstream_rq_total untyped\n" in text


def test_an_exposition_has_families_in_order_and_escaped_labels() -> None:
    store = make_store()
    lines = render(current(store, NOW_S * NS_PER_S)).splitlines()
    at = lines.index("# TYPE vllm:time_to_first_token_seconds histogram")
    assert [line.partition("le=")[2] for line in lines[at + 1 :]] == [
        '"0.1",pod="a"} 600',
        '"0.5",pod="a"} 1800',
        '"+Inf",pod="a"} 2400',
    ]
    assert 'odd{kind="nan",text="a \\"b\\"\\\\\\n"} NaN' in lines
    declared = [line.split()[2] for line in lines if line.startswith("#")]
    assert declared == sorted(declared)


def test_nothing_is_exposed_when_there_is_nothing() -> None:
    assert render([]) == ""


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.1, "0.1"), (1e-7, "0.0000001"), (2.0**53, "9007199254740992"), (-3.0, "-3"), (1e16, "10000000000000000")],
)
def test_numbers_have_no_exponent(value: float, text: str) -> None:
    assert number(value) == text
    assert float(text) == value


def test_the_exposition_of_the_caller_is_served_under_the_lock() -> None:
    lock, seen = threading.Lock(), []

    def text() -> str:
        seen.append(lock.locked())
        return "up 1\n"

    with serving(lock=lock, exposition=text) as url:
        assert fetch(url, "/metrics")[1] == "up 1\n"
    assert seen == [True]


# ---- how it is put together ----


def test_queries_go_to_the_evaluation_of_the_caller_in_virtual_time_under_the_lock() -> None:
    lock, asked = threading.Lock(), []

    def answer(query: str, at_ns: int) -> Vector | Scalar:
        asked.append((query, at_ns, lock.locked()))
        if query == "bad":
            raise InputError.at("no such thing")
        return Vector((Sample({"a": "b"}, 1.5),))

    with serving(lock=lock, evaluate=answer) as url:
        _, found = ask(url, "/api/v1/query", {"query": "mine", "time": EPOCH_S + 1.5})
        assert found["data"]["result"] == [{"metric": {"a": "b"}, "value": [EPOCH_S + 1.5, "1.5"]}]
        ask(url, "/api/v1/query_range", {"query": "mine", "start": EPOCH_S, "end": EPOCH_S + 1, "step": 1})
        assert ask(url, "/api/v1/query", {"query": "bad"})[1]["error"] == "no such thing"
    assert asked[:3] == [("mine", 1_500_000_000, True), ("mine", 0, True), ("mine", NS_PER_S, True)]


def test_an_epoch_within_a_millisecond_is_refused() -> None:
    with pytest.raises(ValueError, match="whole number of milliseconds"):
        app(make_store(), epoch_ns=1, now_ns=lambda: 0, lock=threading.Lock())


@pytest.mark.parametrize(
    "text",
    [
        WAITING,
        f"sum({WAITING})",
        "rate(envoy_cluster_upstream_rq_total[1m])",
        "histogram_quantile(0.9, sum by (le) (rate(vllm:time_to_first_token_seconds_bucket[5m])))",
        "missing_metric",
        "odd",
        "42",
    ],
)
@pytest.mark.parametrize("second", [45, 299, 300, 600])
def test_the_client_reads_exactly_what_the_evaluator_gives(url: str, text: str, second: int) -> None:
    expected = evaluate(parse(text), make_store(), second * NS_PER_S)
    with Prometheus(url) as prometheus:
        found = prometheus.measure(text, EPOCH_NS + second * NS_PER_S)
    if isinstance(expected, Scalar):
        assert found == expected
        return
    assert isinstance(found, Vector)
    assert [s.labels for s in found] == [s.labels for s in expected]
    for mine, theirs in zip(expected, found, strict=True):
        assert theirs.value == mine.value or (math.isnan(theirs.value) and math.isnan(mine.value))


def test_the_client_is_told_what_is_not_evaluated(url: str) -> None:
    with Prometheus(url) as prometheus, pytest.raises(PrometheusError, match="is not evaluated by Tonnage") as caught:
        prometheus.query("limitk(1, up)")
    assert caught.value.fault is QueryFailure.QUERY
