"""The client against a real Prometheus server, and its answers against the evaluator's on the same samples."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator

import pytest
import real_prometheus

from tonnage.live.prometheus import Prometheus, PrometheusError, QueryFailure
from tonnage.metrics.promql import Result, Scalar, evaluate, parse
from tonnage.metrics.store import SeriesStore
from tonnage.units import NS_PER_S

pytestmark = real_prometheus.MARKS

START_S, LENGTH_S = 1_700_000_000, 1_200
EVAL_TIMES_S = (START_S + 615, START_S + 900, START_S + 1_195)

QUERIES = (
    "gauge",
    'gauge{pod="a"}',
    'gauge{pod=~"a|b",gpu!="0"}',
    'gauge{pod="nobody"}',
    "missing_metric",
    "sum(gauge)",
    "sum by (pod) (gauge)",
    "avg without (gpu) (gauge)",
    "count(gauge > 20)",
    "max by (gpu) (gauge) - min by (gpu) (gauge)",
    "gauge > bool 50",
    "-gauge",
    "gauge / 0",
    "0 * gauge / 0",
    "sum(odd)",
    "odd",
    "rate(counter[1m])",
    "sum by (pod) (rate(counter[5m]))",
    "increase(counter[2m])",
    "irate(counter[1m])",
    "delta(gauge[5m])",
    "avg_over_time(gauge[90s])",
    "max_over_time(gauge[5m] offset 1m)",
    "count_over_time(gauge[5m])",
    "histogram_quantile(0.9, sum by (le) (rate(lat_bucket[5m])))",
    "histogram_quantile(0.5, rate(lat_bucket[1m]))",
    "gauge and on (pod) (counter > 100)",
    "sum(gauge) or vector(0)",
    "sum(missing_metric) or vector(0)",
    "sum(missing_metric)",
    "clamp_max(gauge, 10)",
    "scalar(sum(gauge))",
    "scalar(missing_metric)",
    "1 + 2 * 3",
    "vector(1) / vector(0)",
    'sum(rate(counter{pod="a"}[1m])) / sum(rate(counter[1m]))',
    "ended",
    "last_over_time(ended[20m])",
)

Samples = dict[tuple[str, tuple[tuple[str, str], ...]], list[tuple[int, float]]]


def made_samples() -> Samples:
    """Gauges, counters with resets, a histogram, values that are not finite, and a series that ends early."""
    rng = random.Random(7)
    times = range(START_S, START_S + LENGTH_S, 15)
    found: Samples = {}
    for pod in "abc":
        for gpu in "01":
            labels = (("gpu", gpu), ("pod", pod))
            found["gauge", labels] = [(t, round(rng.uniform(0, 100), 3)) for t in times]
            found["counter", labels] = counted(times, rng, resets=True)
        buckets = [counted(times, rng, resets=False) for _ in range(3)]
        for index, le in enumerate(("0.1", "1.0", "+Inf")):
            rows = zip(*buckets[: index + 1], strict=True)
            key = ("lat_bucket", (("le", le), ("pod", pod)))
            found[key] = [(row[0][0], sum(value for _, value in row)) for row in rows]
    for name, value in (("nan", math.nan), ("inf", math.inf), ("low", -math.inf), ("tiny", 5e-324), ("huge", 1.5e300)):
        found["odd", (("kind", name),)] = [(t, value) for t in times]
    found["ended", ()] = [(t, 1.0) for t in times if t < START_S + 400]
    return found


def counted(times: range, rng: random.Random, *, resets: bool) -> list[tuple[int, float]]:
    value, points = float(rng.choice([0, 50])), []
    for t in times:
        value = 0.0 if resets and rng.random() < 0.05 else value + rng.choice([0, 1, 2.5, 40])
        points.append((t, value))
    return points


def openmetrics(samples: Samples) -> str:
    lines: list[str] = []
    for family in ("gauge", "counter", "lat_bucket", "odd", "ended"):  # lat_bucket: as plain series
        lines.append(f"# TYPE {family} unknown")
        for (name, labels), points in samples.items():
            if name == family:
                shown = "{" + ",".join(f'{key}="{value}"' for key, value in labels) + "}" if labels else ""
                lines += [f"{name}{shown} {spelt(value)} {t}" for t, value in points]
    return "\n".join([*lines, "# EOF", ""])


def spelt(value: float) -> str:
    return "NaN" if math.isnan(value) else f"{value:+g}".replace("inf", "Inf") if math.isinf(value) else repr(value)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a Prometheus that holds the samples."""
    with real_prometheus.holding(openmetrics(made_samples()), tmp_path_factory.mktemp("prometheus")) as url:
        yield url


@pytest.fixture(scope="module")
def store() -> SeriesStore:
    kept = SeriesStore()
    for (name, labels), points in made_samples().items():
        for t, value in points:
            kept.append(name, dict(labels), t * NS_PER_S, value)
    return kept


def values(result: Result) -> dict[object, float]:
    if isinstance(result, Scalar):
        return {"scalar": result.value}
    return {tuple(sorted(sample.labels.items())): sample.value for sample in result}


def test_answers_are_those_of_the_evaluator(server: str, store: SeriesStore) -> None:
    version, answered = real_prometheus.dialect(), 0
    with Prometheus(server) as prometheus:
        for text in QUERIES:
            for second in EVAL_TIMES_S:
                theirs = values(prometheus.measure(text, second * NS_PER_S))
                ours = values(evaluate(parse(text), store, second * NS_PER_S, dialect=version))
                assert theirs == pytest.approx(ours, rel=1e-9, abs=1e-12, nan_ok=True), f"{text} at {second}"
                answered += bool(theirs)
    assert answered > 90


def test_a_series_that_ended_is_no_data(server: str) -> None:
    with Prometheus(server) as prometheus:
        assert values(prometheus.measure("ended", (START_S + 1_000) * NS_PER_S)) == {}
        assert values(prometheus.measure("sum(ended) or vector(0)", (START_S + 1_000) * NS_PER_S)) == {(): 0.0}


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("sum(", r"refuses the query \(bad_data\)"),
        ("gauge[5m]", "a range of samples for each series"),
        ('"text"', "a string"),
        ("gauge + on (pod) gauge", r"refuses the query \(execution\)"),
    ],
)
def test_a_query_that_prometheus_refuses_is_said_with_its_words(server: str, text: str, says: str) -> None:
    with Prometheus(server) as prometheus, pytest.raises(PrometheusError, match=says) as caught:
        prometheus.query(text, EVAL_TIMES_S[0] * NS_PER_S)
    assert caught.value.fault is QueryFailure.QUERY


def test_a_wrong_path_prefix_is_said(server: str) -> None:
    with Prometheus(server + "/elsewhere") as prometheus, pytest.raises(PrometheusError, match="check the path"):
        prometheus.query("up", 0)
