"""The evaluator beside running servers of both generations, which were sent the same series by remote write."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
import sampling
from random_queries import ERROR, Answer, Inquiry, MoreQueries, Queries, answer_of

from live.prometheus import real_prometheus
from tonnage.live.prometheus import Prometheus, PrometheusError, QueryFailure
from tonnage.metrics.functions import PROMETHEUS_3
from tonnage.units import NS_PER_S

pytestmark = pytest.mark.e2e

SEEDS = sampling.some("seeds of queries on Prometheus", range(300, 360), 3)


def ask(inquiry: Inquiry, program: str, folder: Path) -> list[Answer]:
    """What a Prometheus answers to each case."""
    folder.mkdir()
    with real_prometheus.written(inquiry.store, 0, folder, program) as url, Prometheus(url) as server:
        return [_answer(server, text, second * NS_PER_S) for text, second in inquiry.cases]


def _answer(server: Prometheus, text: str, at_ns: int) -> Answer:
    try:
        return answer_of(server.measure(text, at_ns))
    except PrometheusError as error:
        assert error.fault is QueryFailure.QUERY, error
        return ERROR


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(("kind", "least"), [(Queries, 80), (MoreQueries, 60)])
def test_random_queries_give_what_prometheus_3_gives(
    kind: type[Queries], least: int, seed: int, tmp_path: Path
) -> None:
    third = real_prometheus.third()
    assert real_prometheus.dialect(third) == PROMETHEUS_3
    inquiry = Inquiry(random.Random(seed), kind)
    theirs = ask(inquiry, third, tmp_path / "third")
    assert inquiry.hold(theirs, PROMETHEUS_3) > least


ALIGNED = (("count_over_time(on_time[1m])", 300), ("increase(on_time[15s])", 300), ("on_time", 600))
"""Of samples every 15 s up to 300 s: windows whose left end is one of them."""


def test_the_switch_tells_the_generations_apart(tmp_path: Path) -> None:
    """Debian's is a 2.x: the same samples and queries, each server's answers by its own dialect, and they differ."""
    if not real_prometheus.PROMETHEUS or real_prometheus.dialect() == PROMETHEUS_3:
        pytest.skip("Prometheus 2 is not installed (apt-get install prometheus)")
    inquiry = Inquiry(random.Random(7), Queries, 60)
    for at in range(0, 301, 15):
        inquiry.store.append("on_time", {}, at * NS_PER_S, 2.0 * at)
    inquiry.cases += ALIGNED
    both = []
    for name, program in (("second", real_prometheus.PROMETHEUS), ("third", real_prometheus.third())):
        both.append(ask(inquiry, program, tmp_path / name))
        inquiry.hold(both[-1], real_prometheus.dialect(program))
    differ = [case for case, *pair in zip(inquiry.cases, *both, strict=True) if not inquiry.same(*pair)]
    assert set(ALIGNED) <= set(differ)
