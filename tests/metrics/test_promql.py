from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tonnage.errors import InputError, Where
from tonnage.metrics.functions import Dialect, Samples, extrapolated, histogram_quantile, instant_rate
from tonnage.metrics.promql import (
    PROMETHEUS_2,
    PROMETHEUS_3,
    QueryError,
    Scalar,
    UnsupportedQuery,
    Vector,
    evaluate,
    parse,
)
from tonnage.metrics.store import SeriesStore
from tonnage.units import NS_PER_HOUR, NS_PER_S

S = NS_PER_S


def gpus() -> SeriesStore:
    store = SeriesStore()
    for second in range(0, 301, 15):
        for pod, util, used in (("model-a-0", 90.0, 60_000.0), ("model-a-1", 30.0, 20_000.0), ("model-b-0", 6.0, 1.0)):
            labels = {"pod": pod, "gpu": "0"}
            store.append("DCGM_FI_DEV_GPU_UTIL", labels, second * S, util)
            store.append("DCGM_FI_DEV_FB_USED", labels, second * S, used)
            store.append("DCGM_FI_DEV_FB_FREE", labels, second * S, 80_000.0 - used)
            store.append("vllm:prompt_tokens_total", {"pod": pod}, second * S, second * 10.0)
    return store


def ask(query: str, store: SeriesStore | None = None, at_s: float = 300.0, **kwargs) -> dict[str, float] | float:
    answer = evaluate(parse(query), gpus() if store is None else store, round(at_s * S), **kwargs)
    if isinstance(answer, Scalar):
        return answer.value
    return {sample.labels.get("pod", ""): sample.value for sample in answer}


@pytest.mark.parametrize(
    ("query", "answer"),
    [
        ('avg(DCGM_FI_DEV_GPU_UTIL{pod=~"model-a-.*"})', {"": 60.0}),
        ("sum by (pod) (DCGM_FI_DEV_GPU_UTIL)", {"model-a-0": 90.0, "model-a-1": 30.0, "model-b-0": 6.0}),
        ("max(DCGM_FI_DEV_GPU_UTIL) - min(DCGM_FI_DEV_GPU_UTIL)", {"": 84.0}),
        ("count(DCGM_FI_DEV_GPU_UTIL > 20)", {"": 2.0}),
        ("DCGM_FI_DEV_FB_USED / DCGM_FI_DEV_FB_FREE > 0.9", {"model-a-0": 3.0}),
        (
            "DCGM_FI_DEV_FB_USED / (DCGM_FI_DEV_FB_USED + DCGM_FI_DEV_FB_FREE)",
            {"model-a-0": 0.75, "model-a-1": 0.25, "model-b-0": 1 / 80_000},
        ),
        ("sum(rate(vllm:prompt_tokens_total[1m]))", {"": 30.0}),
        ("DCGM_FI_DEV_GPU_UTIL > bool 50", {"model-a-0": 1.0, "model-a-1": 0.0, "model-b-0": 0.0}),
        ("absent_metric", {}),
        ("sum(absent_metric)", {}),  # no data, not zero
        ("absent_metric or vector(0)", {"": 0.0}),
        ("scalar(absent_metric)", math.nan),
        ("clamp_max(DCGM_FI_DEV_GPU_UTIL, 50)", {"model-a-0": 50.0, "model-a-1": 30.0, "model-b-0": 6.0}),
        ("1 + 2 * 3 ^ 2", 19.0),
        ("-(2 - 5)", 3.0),
        ("1 / 0", math.inf),
        ("avg_over_time(vllm:prompt_tokens_total{pod='model-a-0'}[1m])", {"model-a-0": 2_775.0}),
        ("DCGM_FI_DEV_GPU_UTIL offset 10m", {}),
        ("DCGM_FI_DEV_GPU_UTIL unless on (pod) (DCGM_FI_DEV_GPU_UTIL < 50)", {"model-a-0": 90.0}),
    ],
)
def test_queries_of_gpu_operators(query: str, answer: dict[str, float] | float) -> None:
    assert ask(query) == pytest.approx(answer, nan_ok=True)


@pytest.mark.parametrize(
    ("query", "answer"),
    [
        ("topk(2, DCGM_FI_DEV_GPU_UTIL)", {"model-a-0": 90.0, "model-a-1": 30.0}),
        ("bottomk(1, DCGM_FI_DEV_GPU_UTIL)", {"model-b-0": 6.0}),
        ("topk(0, DCGM_FI_DEV_GPU_UTIL)", {}),
        ("quantile(0.5, DCGM_FI_DEV_GPU_UTIL)", {"": 30.0}),
        ("quantile(-1, DCGM_FI_DEV_GPU_UTIL)", {"": -math.inf}),
        ("stddev(DCGM_FI_DEV_GPU_UTIL - 6)", {"": math.sqrt(1248.0)}),
        ("group(DCGM_FI_DEV_GPU_UTIL)", {"": 1.0}),
        ("count(count_values('v', DCGM_FI_DEV_GPU_UTIL))", {"": 3.0}),
        ("deriv(vllm:prompt_tokens_total{pod='model-a-0'}[2m])", {"model-a-0": 10.0}),
        ("predict_linear(vllm:prompt_tokens_total{pod='model-a-0'}[2m], 60)", {"model-a-0": 3_600.0}),
        ("changes(vllm:prompt_tokens_total{pod='model-a-0'}[1m])", {"model-a-0": 3.0}),
        ("resets(vllm:prompt_tokens_total{pod='model-a-0'}[1m])", {"model-a-0": 0.0}),
        ("quantile_over_time(0.5, vllm:prompt_tokens_total{pod='model-a-0'}[1m])", {"model-a-0": 2_775.0}),
        ("max_over_time(sum(DCGM_FI_DEV_GPU_UTIL)[2m:30s])", {"": 126.0}),
        ("count_over_time(vector(1)[2m:30s])", {"": 4.0}),
        ("vllm:prompt_tokens_total{pod='model-a-0'} @ 60", {"model-a-0": 600.0}),
        ("vllm:prompt_tokens_total{pod='model-a-0'} @ end() offset 1m", {"model-a-0": 2_400.0}),
        ("absent(missing{pod='x', gpu=~'0'})", {"x": 1.0}),
        ("absent(DCGM_FI_DEV_GPU_UTIL)", {}),
        ("absent_over_time(missing{pod='x'}[5m])", {"x": 1.0}),
        ("label_replace(up_missing or vector(2), 'pod', 'a-$1', '', '(.*)')", {"a-": 2.0}),
        ("label_replace(DCGM_FI_DEV_GPU_UTIL{pod='model-b-0'}, 'pod', '$1', 'pod', '(.*)-0')", {"model-b": 6.0}),
        ("label_join(DCGM_FI_DEV_GPU_UTIL{pod='model-b-0'}, 'pod', '/', 'pod', 'gpu')", {"model-b-0/0": 6.0}),
        ("DCGM_FI_DEV_GPU_UTIL / on () group_left () sum(DCGM_FI_DEV_GPU_UTIL) > 0.5", {"model-a-0": 90 / 126}),
        ("time()", 300.0),
        ("timestamp(DCGM_FI_DEV_GPU_UTIL{pod='model-b-0'} offset 10s)", {"model-b-0": 285.0}),
        ("minute()", {"": 5.0}),
        ("day_of_week(vector(0))", {"": 4.0}),  # 1970-01-01 was a Thursday
        ("round(vector(7.26), 0.1)", {"": 7.3}),
        ("clamp(vector(7), 9, 8)", {}),
        ("1 atan2 1", math.pi / 4),
    ],
)
def test_functions_of_dashboards(query: str, answer: dict[str, float] | float) -> None:
    assert ask(query) == pytest.approx(answer, nan_ok=True)


def test_sort_orders_by_value_and_puts_no_number_last() -> None:
    def values(query: str) -> list[float]:
        answer = evaluate(parse(query), gpus(), 300 * S)
        assert isinstance(answer, Vector)
        return [sample.value for sample in answer]

    assert values("sort(DCGM_FI_DEV_GPU_UTIL)") == [6.0, 30.0, 90.0]
    assert values("sort_desc(DCGM_FI_DEV_GPU_UTIL)") == [90.0, 30.0, 6.0]
    assert math.isnan(values("sort_desc(DCGM_FI_DEV_GPU_UTIL > 6 or 0 * DCGM_FI_DEV_FB_USED / 0)")[-1])


def test_the_time_of_day_counts_from_the_epoch_that_is_given() -> None:
    monday_9 = 1_772_442_000  # 2026-03-02
    assert ask("day_of_week() * 100 + hour()", epoch_ns=monday_9 * S) == {"": 109.0}
    assert ask(f"vllm:prompt_tokens_total{{pod='model-a-0'}} @ {monday_9 + 60}", epoch_ns=monday_9 * S) == {
        "model-a-0": 600.0
    }


@pytest.mark.parametrize(
    "query",
    [
        "DCGM_FI_DEV_GPU_UTIL * on () group_left () DCGM_FI_DEV_GPU_UTIL",  # the one side has several
        "label_replace(DCGM_FI_DEV_GPU_UTIL, 'pod', 'x', '', '')",
        "label_replace(DCGM_FI_DEV_GPU_UTIL, 'no label', 'x', '', '')",
        "count_values('a-b', DCGM_FI_DEV_GPU_UTIL)",
        "topk(0 / 0, DCGM_FI_DEV_GPU_UTIL)",
        "max_over_time(DCGM_FI_DEV_GPU_UTIL[5m] offset 6h)",
        "max_over_time(sum(rate(DCGM_FI_DEV_GPU_UTIL[5m]))[6h:1m])",  # the inner range reaches further
    ],
)
def test_what_cannot_be_answered_is_an_error(query: str) -> None:
    with pytest.raises(QueryError):
        ask(query)


def test_a_range_holds_one_sample_fewer_in_prometheus_3() -> None:
    counted = "count_over_time(DCGM_FI_DEV_GPU_UTIL{pod='model-b-0'}[1m])"
    assert ask(counted, dialect=PROMETHEUS_3) == {"model-b-0": 4.0}
    assert ask(counted, dialect=PROMETHEUS_2) == {"model-b-0": 5.0}


def test_the_sample_that_is_exactly_five_minutes_old_is_gone_in_prometheus_3() -> None:
    up = SeriesStore()
    up.append("up", {}, 0, 1.0)
    assert ask("up", up, dialect=PROMETHEUS_3) == {}
    assert ask("up", up, dialect=PROMETHEUS_2) == {"": 1.0}


def test_comparisons_keep_the_vectors_value_and_arithmetic_drops_the_name() -> None:
    [sample] = evaluate(parse("50 < DCGM_FI_DEV_GPU_UTIL"), gpus(), 300 * S)
    assert (sample.value, sample.labels["__name__"]) == (90.0, "DCGM_FI_DEV_GPU_UTIL")
    assert all("__name__" not in s.labels for s in evaluate(parse("DCGM_FI_DEV_GPU_UTIL * 1"), gpus(), 300 * S))


@pytest.mark.parametrize(
    ("query", "construct"),
    [
        ("limitk(3, up)", "the aggregation limitk()"),
        ("double_exponential_smoothing(up[5m], 0.5, 0.5)", "the function double_exponential_smoothing()"),
        ("acosh(up)", "the function acosh()"),
        ("sum(topk(1, rate(info(up)[5m:])))", "the function info()"),
        ('up{a="1" or b="2"}', '"or" between label matchers'),
    ],
)
def test_what_is_not_evaluated_is_refused_by_name_and_place(query: str, construct: str) -> None:
    with pytest.raises(UnsupportedQuery) as caught:
        parse(query, Where("scaler.yaml", 12, "spec.triggers[0].metadata.query"))
    assert str(caught.value).startswith(f"scaler.yaml:12:spec.triggers[0].metadata.query: {construct}")


@pytest.mark.parametrize("query", ["sum(", "rate(up)", "up[5m]", "1 > 2"])
def test_what_is_no_instant_query_is_an_input_error(query: str) -> None:
    with pytest.raises(InputError):
        parse(query)


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("DCGM_FI_DEV_GPU_UTIL / on (gpu) DCGM_FI_DEV_FB_USED", "found duplicate series for the match group"),
        ("DCGM_FI_DEV_GPU_UTIL / on (gpu) sum by (gpu) (DCGM_FI_DEV_FB_USED)", "needs group_left"),
        ('-{__name__=~"DCGM.*"}', "two series with the same labels"),
        ("rate(vllm:prompt_tokens_total[1d])", "only 21600 s are kept"),
    ],
)
def test_what_prometheus_answers_with_an_error_is_an_error(query: str, message: str) -> None:
    with pytest.raises(QueryError, match=message):
        evaluate(parse(query), gpus(), 300 * S)


def test_a_longer_past_can_be_kept() -> None:
    store = SeriesStore(retention_ns=48 * NS_PER_HOUR)
    assert evaluate(parse("rate(x[1d])"), store, 0) == Vector()


BUCKETS = [(0.1, 10.0), (0.5, 30.0), (2.0, 40.0), (math.inf, 50.0)]


@pytest.mark.parametrize(
    ("quantile", "value"),
    [
        (0.1, 0.05),
        (0.2, 0.1),
        (0.4, 0.3),
        (0.8, 2.0),
        (0.95, 2.0),
        (-1, -math.inf),
        (2, math.inf),
        (math.nan, math.nan),
    ],
)
def test_a_quantile_is_interpolated_in_its_bucket_and_never_beyond_the_last_finite_bound(quantile, value) -> None:
    assert histogram_quantile(quantile, BUCKETS) == pytest.approx(value, nan_ok=True)


@pytest.mark.parametrize("buckets", [[], BUCKETS[:3], [(math.inf, 5.0)], [(1.0, 0.0), (math.inf, 0.0)]])
def test_a_histogram_without_an_answer_gives_nan(buckets) -> None:
    assert math.isnan(histogram_quantile(0.5, buckets))


def test_a_quantile_without_sum_by_le_gives_one_series_per_pod() -> None:
    store = SeriesStore()
    for pod in ("a", "b"):
        for second in (0, 60):
            for bound, count in (("0.1", 1.0), ("+Inf", 2.0)):
                store.append("ttft_bucket", {"pod": pod, "le": bound}, second * S, count * second)
    assert len(evaluate(parse("histogram_quantile(0.9, rate(ttft_bucket[5m]))"), store, 60 * S)) == 2
    assert len(evaluate(parse("histogram_quantile(0.9, sum by (le) (rate(ttft_bucket[5m])))"), store, 60 * S)) == 1


def window(*points: tuple[int, float], start: int = 0, end: int = 60) -> Samples:
    return Samples([t * S for t, _ in points], [v for _, v in points], start * S, end * S)


@pytest.mark.parametrize(
    ("points", "increase"),
    [
        ([(15, 100.0), (30, 110.0), (45, 120.0), (60, 130.0)], 40.0),  # stretched to the start of the window
        ([(30, 100.0), (45, 110.0)], 10.0 + 10.0 * 0.5 + 10.0),  # the start is too far: half a spacing; the end is near
        ([(15, 0.0), (30, 10.0), (45, 20.0), (60, 30.0)], 30.0),  # a counter does not come from below zero
        ([(15, 5.0), (30, 15.0), (45, 25.0), (60, 35.0)], 35.0),
        ([(15, 100.0), (30, 110.0), (45, 4.0), (60, 14.0)], (14 - 100 + 110) / 45 * 60),  # a reset adds what was lost
        ([(15, 100.0)], None),
        ([], None),
    ],
)
def test_increase_extrapolates_as_prometheus_does(points, increase) -> None:
    got = extrapolated(window(*points), PROMETHEUS_3, counter=True, per_second=False)
    assert got == (None if increase is None else pytest.approx(increase))


def test_the_zero_limit_and_the_threshold_changed_places_in_2_51() -> None:
    samples = window((30, 8.0), (45, 18.0), (60, 28.0))  # zero would be 12 s before the first sample
    old = extrapolated(samples, Dialect.of(2, 50), counter=True, per_second=False)
    new = extrapolated(samples, Dialect.of(2, 51), counter=True, per_second=False)
    assert old == pytest.approx(20 / 30 * 42)
    assert new == pytest.approx(20 / 30 * 37.5)


def test_delta_may_fall_and_irate_looks_at_the_last_two_samples() -> None:
    samples = window((15, 30.0), (30, 20.0), (45, 10.0), (60, 4.0))
    assert extrapolated(samples, PROMETHEUS_3, counter=False, per_second=False) == pytest.approx(-26 / 45 * 60)
    assert instant_rate(samples) == pytest.approx(4 / 15)  # a reset: from zero
    assert instant_rate(window((15, 30.0), (30, 60.0))) == pytest.approx(2.0)


@given(
    st.lists(st.integers(0, 50), min_size=2, max_size=20),
    st.integers(1, 30),
    st.sampled_from([PROMETHEUS_2, PROMETHEUS_3]),
)
def test_a_counter_never_has_a_negative_increase(steps: list[int], spacing: int, dialect: Dialect) -> None:
    values, total = [], 0.0
    for step in steps:
        total = 0.0 if step == 50 else total + step
        values.append(total)
    times = [(index + 1) * spacing * S for index in range(len(values))]
    got = extrapolated(Samples(times, values, 0, times[-1]), dialect, counter=True, per_second=False)
    assert got is not None and got >= 0


@pytest.mark.parametrize(
    ("query", "age"),
    [
        ("sum(x)", 'time() - avg(timestamp({__name__="x"}))'),
        ('x{a="b\\"c",d=~"e.*"} * 2', 'time() - avg(timestamp({__name__="x",a="b\\"c",d=~"e.*"}))'),
        ("sum(rate(x[1m]))", ""),
        ("sum(x offset 5m)", ""),
        ("x + y", ""),
        ("time()", ""),
        ("max_over_time(x[5m:1m])", ""),
    ],
)
def test_how_old_the_samples_of_a_query_are_is_asked_by_another(query: str, age: str) -> None:
    """Of one selector whose newest samples count."""
    assert parse(query).age() == age


def test_the_age_of_several_series_is_their_average() -> None:
    store = SeriesStore()
    for name, at_s in (("a", 100), ("b", 110)):
        store.append("x", {"pod": name}, at_s * NS_PER_S, 1.0)
    found = evaluate(parse(parse("sum(x)").age()), store, 120 * NS_PER_S)
    assert [one.value for one in found] == [15.0]
