"""The client against a real Prometheus server, and its answers against the evaluator's on the same samples."""

from __future__ import annotations

import math
from collections.abc import Iterator

import pytest
import real_prometheus
from server_samples import EVAL_TIMES_S, START_S, Samples, hold_answers, made_samples, values

from tonnage.live.prometheus import Prometheus, PrometheusError, QueryFailure
from tonnage.units import NS_PER_S

pytestmark = real_prometheus.MARKS


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


def test_answers_are_those_of_the_evaluator(server: str) -> None:
    hold_answers(server, real_prometheus.dialect())


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
