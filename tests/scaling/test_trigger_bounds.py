from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scaling_builders import Loop, external, rules, spec

from deep_seeds import examples
from tonnage.errors import InputError
from tonnage.metrics.promql import Scalar, evaluate, parse
from tonnage.metrics.store import SeriesStore
from tonnage.scaling.behavior import Behavior
from tonnage.scaling.bounds import Interval, additive, bounds, resolve, several_series
from tonnage.scaling.reach import ReplicaRange, reach
from tonnage.scaling.replicas import TargetKind
from tonnage.units import NS_PER_S

INF = math.inf
UTIL, KV, WAITING = "DCGM_FI_DEV_GPU_UTIL", "vllm:kv_cache_usage_perc", "vllm:num_requests_waiting"
USED, FREE = "DCGM_FI_DEV_FB_USED", "DCGM_FI_DEV_FB_FREE"


@pytest.mark.parametrize(
    ("query", "low", "high"),
    [
        (f"avg({UTIL})", 0, 100),
        (f"max by (pod) ({UTIL})", 0, 100),
        (f"sum({UTIL})", 0, INF),
        (f"sum({UTIL}) / count({UTIL})", 0, 100),
        (f"avg({UTIL}) / 100", 0, 1),
        (f"100 * avg({KV})", 0, 100),
        (f"100 - avg({UTIL})", 0, 100),
        (f"-max({UTIL})", -100, 0),
        (f"avg_over_time({UTIL}[5m])", 0, 100),
        (f"sum_over_time({UTIL}[5m])", 0, INF),
        (f"{USED} / {FREE}", 0, INF),
        (f"{USED} / ({USED} + {FREE})", 0, 1),
        (f"sum({USED}) / (sum({FREE}) + sum({USED}))", 0, 1),
        (f"clamp_max(sum({WAITING}), 50)", 0, 50),
        (f"clamp_min(avg({UTIL}), 40)", 40, 100),
        (f"avg({UTIL}) > 60", 60, 100),
        (f"avg({UTIL}) < bool 60", 0, 1),
        (f"avg({UTIL}) or vector(0)", 0, 100),
        ("rate(vllm:prompt_tokens_total[1m])", 0, INF),
        ("count(up)", 1, INF),
        ("vector(7)", 7, 7),
        (f"topk(2, {UTIL})", 0, 100),
        (f"quantile(0.9, {UTIL})", 0, 100),
        (f"quantile(2, {UTIL})", -INF, INF),
        (f"stddev({UTIL})", 0, INF),
        (f"group({UTIL})", 1, 1),
        (f"max_over_time(avg({UTIL})[10m:1m])", 0, 100),
        (f"quantile_over_time(0.5, {UTIL}[5m])", 0, 100),
        (f"deriv({UTIL}[5m])", -INF, INF),
        (f"clamp(avg({UTIL}), 10, 90)", 10, 90),
        (f'label_replace({UTIL}, "a", "b", "c", "d")', 0, 100),
        ("hour()", 0, 23),
        ("absent(up)", 1, 1),
        ("time()", 0, INF),
        ("some_recorded:value", -INF, INF),
    ],
)
def test_the_values_that_a_query_can_have(query: str, low: float, high: float) -> None:
    assert bounds(parse(query).root) == Interval(low, high)


@pytest.mark.parametrize(
    ("query", "several"),
    [
        (UTIL, True),
        (f"sum({UTIL})", False),
        (f"sum by (pod) ({UTIL})", True),
        (f"sum by (model_name) ({WAITING})", False),
        (f"avg without (gpu) ({UTIL})", True),
        (f"{UTIL} / 100", True),
        (f"sum({UTIL}) / sum({USED})", False),
        (f"{USED} / on () sum({FREE})", False),
        ("histogram_quantile(0.9, rate(x_bucket[5m]))", True),
        ("histogram_quantile(0.9, sum by (le) (rate(x_bucket[5m])))", False),
        ("histogram_quantile(0.9, sum by (le, pod) (rate(x_bucket[5m])))", True),
        (f"sum({WAITING}) or vector(0)", False),
        ("recorded:value", False),
        (f"topk(1, {UTIL})", False),
        (f"topk(2, {UTIL})", True),
        (f"topk by (pod) (1, {UTIL})", True),
        (f"quantile(0.9, {UTIL})", False),
        (f"max_over_time(avg({UTIL})[10m:1m])", False),
        (f"deriv({UTIL}[5m])", True),
        (f"quantile_over_time(0.5, {UTIL}[5m])", True),
        (f"{UTIL} / on () group_left () sum({FREE})", True),
        (f"sum({UTIL}) / on () group_right () {FREE}", True),
        (f"absent({UTIL})", False),
        ("hour()", False),
    ],
)
def test_whether_two_pods_give_two_series(query: str, several: bool) -> None:
    assert several_series(parse(query).root) is several


def test_a_sum_grows_with_the_pods_and_an_average_does_not() -> None:
    assert additive(parse(f"sum({WAITING}) + sum(vllm:num_requests_running)").root)
    assert not additive(parse(f"avg({UTIL})").root)
    assert not additive(parse(f"sum({UTIL}) / count({UTIL})").root)


def test_names_are_understood_as_they_were_meant() -> None:
    for name in ("vllm_gpu_cache_usage_perc", "vllm:gpu_cache_usage_perc", "vllm:kv_cache_usage_perc"):
        metric = resolve(name)
        assert metric is not None and metric.name == "vllm:kv_cache_usage_perc"
    assert resolve("up") is None


def larger(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    number = st.integers(-3, 120)
    return st.one_of(
        st.builds("{}({})".format, st.sampled_from(["avg", "sum", "min", "max", "count", "sum by (pod)"]), inner),
        st.builds("-({})".format, inner),
        st.builds("({}) {} ({})".format, inner, st.sampled_from("+-*/"), inner),
        st.builds("({}) {} {}".format, inner, st.sampled_from(["+", "-", "*", "/", ">", "<=", "> bool"]), number),
        st.builds("{} {} ({})".format, number, st.sampled_from(["-", "/", "<"]), inner),
        st.builds("{}({}, {})".format, st.sampled_from(["clamp_min", "clamp_max"]), inner, number),
        st.builds("({}) or ({})".format, inner, inner),
        st.builds("({0}) / (({1}) + ({0}))".format, inner, inner),
        st.builds("sum({0}) / count({0})".format, inner),
    )


vectors = st.recursive(st.sampled_from([UTIL, KV, WAITING, USED, FREE]), larger, max_leaves=6)


@settings(max_examples=examples(300), deadline=None)
@given(
    vectors,
    st.lists(st.tuples(st.floats(0, 100), st.floats(0, 1), st.integers(0, 40)), min_size=1, max_size=3),
)
def test_no_value_ever_lies_outside_the_bounds_and_one_series_stays_one(query: str, pods) -> None:
    store = SeriesStore()
    for index, (util, share, waiting) in enumerate(pods):
        values = {UTIL: util, KV: share, WAITING: float(waiting), USED: share * 80_000, FREE: 80_000 - share * 80_000}
        for name, value in values.items():
            store.append(name, {"pod": f"p{index}"}, NS_PER_S, value)
    parsed = parse(query)
    try:
        answer = evaluate(parsed, store, 2 * NS_PER_S)
    except InputError:
        return  # an error of the trigger, not a value
    within = bounds(parsed.root)
    values = [answer.value] if isinstance(answer, Scalar) else [sample.value for sample in answer]
    for value in values:
        slack = 1e-9 * max(1.0, abs(value))
        assert math.isnan(value) or math.isinf(value) or within.low - slack <= value <= within.high + slack
    if not several_series(parsed.root):
        assert len(values) <= 1


@pytest.mark.parametrize(
    ("kind", "low", "high", "target", "expected"),
    [
        ("AverageValue", 0, 100, 70, ReplicaRange(1, 2)),
        ("AverageValue", 0, 1, 80, ReplicaRange(1, 1)),
        ("AverageValue", 0, 105, 100, ReplicaRange(1, 1)),  # within tolerance of one replica
        ("AverageValue", 0, INF, 10, ReplicaRange(1, 10)),
        ("AverageValue", 100, 100, 10, ReplicaRange(10, 10)),
        ("Value", 0, 100, 70, ReplicaRange(1, 10)),
        ("Value", 0, 100, 95, ReplicaRange(1, 1)),
        ("Value", 100, 100, 10, ReplicaRange(10, 10)),
        ("Value", 0, 1, 80, ReplicaRange(1, 1)),
    ],
)
def test_the_counts_that_bounded_values_can_lead_to(kind, low, high, target, expected) -> None:
    assert reach(Interval(low, high), TargetKind(kind), target, min_replicas=1, max_replicas=10) == expected


@settings(max_examples=examples(150), deadline=None)
@given(
    st.sampled_from([TargetKind.AVERAGE_VALUE, TargetKind.VALUE]),
    st.integers(1, 200),
    st.integers(1, 300),
    st.integers(1, 4),
    st.lists(st.floats(0, 1), min_size=1, max_size=30),
)
def test_an_hpa_never_leaves_the_reach_of_its_metric(kind, high, target, low_replicas, shares) -> None:
    limit = reach(Interval(0, high), kind, target, min_replicas=low_replicas, max_replicas=12)
    hpa = spec(
        external(target, kind), low=low_replicas, high=12, behavior=Behavior(up=rules(("Pods", 100, 15)), explicit=True)
    )
    wandering, pressed = Loop(hpa, low_replicas), Loop(hpa, low_replicas)
    for share in shares:
        assert wandering.tick(round(share * high, 3)) <= limit.highest
    for _ in range(12):  # one more pod per tick at least
        pressed.tick(float(high))
    assert pressed.replicas == limit.highest
