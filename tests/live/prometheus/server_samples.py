"""Series and queries that commands and autoscalers could ask a server, and its answers beside the evaluator's."""

from __future__ import annotations

import math
import random

import pytest

from tonnage.live.prometheus import Prometheus
from tonnage.metrics.functions import Dialect
from tonnage.metrics.promql import Result, Scalar, evaluate, parse
from tonnage.metrics.store import SeriesStore
from tonnage.units import NS_PER_S

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


def values(result: Result) -> dict[object, float]:
    if isinstance(result, Scalar):
        return {"scalar": result.value}
    return {tuple(sorted(sample.labels.items())): sample.value for sample in result}


def made_store() -> SeriesStore:
    """The same samples in a store of ours."""
    kept = SeriesStore()
    for (name, labels), points in made_samples().items():
        for t, value in points:
            kept.append(name, dict(labels), t * NS_PER_S, value)
    return kept


def hold_answers(server: str, dialect: Dialect) -> None:
    """Assert that the server at this address, which has the samples, answers each query as the evaluator does."""
    store, answered = made_store(), 0
    with Prometheus(server) as prometheus:
        for text in QUERIES:
            for second in EVAL_TIMES_S:
                theirs = values(prometheus.measure(text, second * NS_PER_S))
                ours = values(evaluate(parse(text), store, second * NS_PER_S, dialect=dialect))
                assert theirs == pytest.approx(ours, rel=1e-9, abs=1e-12, nan_ok=True), f"{text} at {second}"
                answered += bool(theirs)
    assert answered > 90
