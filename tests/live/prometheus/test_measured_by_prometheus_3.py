"""Profiles, backtests and plain queries on a running Prometheus 3 that was sent what a simulated run scraped."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import real_prometheus
from measured_checks import START_S, BesideMeasurements
from server_samples import hold_answers, made_store

from tonnage.live.prometheus import Prometheus
from tonnage.metrics.functions import Dialect
from tonnage.simulation.run import SetUp
from tonnage.units import NS_PER_S

pytestmark = pytest.mark.e2e


@pytest.fixture(scope="module")
def server(made: SetUp, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Its samples came by remote write, markers of staleness among them."""
    third, folder = real_prometheus.third(), tmp_path_factory.mktemp("prometheus")
    with real_prometheus.written(made.cluster.records.store, START_S * NS_PER_S, folder, third) as url:
        yield url


class TestPrometheus3(BesideMeasurements):
    def dialect(self) -> Dialect:
        return real_prometheus.dialect(real_prometheus.third())

    def test_it_is_a_third_release(self, server: str) -> None:
        with Prometheus(server) as prometheus:
            assert prometheus.version().startswith("3.")


def test_answers_are_those_of_the_evaluator_for_this_release(tmp_path: Path) -> None:
    third = real_prometheus.third()
    with real_prometheus.written(made_store(), 0, tmp_path, third) as url:
        hold_answers(url, real_prometheus.dialect(third))
