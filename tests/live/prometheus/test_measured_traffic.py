"""Profiles and backtests from a Prometheus that has scraped a simulated run: what went in comes out again."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

import measured_runs
import numpy as np
import pytest
import real_prometheus
from measured_checks import END_NS, MINUTES, START_S, BesideMeasurements
from measured_runs import SERVICE, SGLANG, TENSORRT_LLM, VLLM

from tonnage.errors import InputError
from tonnage.metrics.functions import Dialect
from tonnage.metrics.store import Series, SeriesStore
from tonnage.simulation import run, scenario
from tonnage.simulation.backtest import Backtest, MeasuredSide, backtest
from tonnage.simulation.backtest_plot import svg
from tonnage.simulation.run import SetUp
from tonnage.traffic import counted, measured, readings
from tonnage.traffic.buckets import Buckets, of_cumulative
from tonnage.traffic.profile import ProfileSource, TrafficProfile
from tonnage.traffic.readings import ScrapedService, StoredReadings
from tonnage.units import NS_PER_S

SOURCE = ProfileSource("measured")
ENGINES = {"vllm": VLLM, "sglang": SGLANG, "tensorrt-llm": TENSORRT_LLM}


def fitted(made: SetUp, **wanted: float) -> tuple[ScrapedService, TrafficProfile]:
    stored = StoredReadings(made.cluster.records.store)
    served = readings.find_served(stored, SERVICE, 0, END_NS)
    asked = measured.MeasuredPeriod(0, END_NS, **wanted)  # type: ignore[arg-type]
    return served, measured.fit_measured(stored, served, SOURCE, asked)


# ---- a real Prometheus ----


@pytest.fixture(scope="module")
def server(made: SetUp, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    text = measured_runs.openmetrics(made.cluster.records.store, START_S)
    with real_prometheus.holding(text, tmp_path_factory.mktemp("prometheus")) as url:
        yield url


class TestRealPrometheus(BesideMeasurements):
    pytestmark = real_prometheus.MARKS

    def dialect(self) -> Dialect:
        return real_prometheus.dialect()


# ---- what the scrapes of every kind of engine give ----


@pytest.mark.parametrize(
    ("engine", "balancing"), [("vllm", "random"), ("sglang", "random"), ("tensorrt-llm", "least-requests")]
)
def test_arrivals_are_counted_at_the_gateway_or_by_the_engines(engine: str, balancing: str, tmp_path: Path) -> None:
    run_of = measured_runs.played(measured_runs.write(tmp_path / "run", ENGINES[engine], balancing=balancing))
    served, profile = fitted(run_of)
    asked = run_of.cluster.services[0].requests.arrivals
    assert served.engine.engine == engine
    assert bool(served.gateway) == (balancing == "least-requests")
    assert profile.mean_rate == pytest.approx(len(asked) / (60 * MINUTES), rel=0.03)
    drawn = np.interp(np.linspace(0, 1, 1001), profile.lengths.prompt_levels, profile.lengths.prompt_tokens)
    assert drawn.mean() == pytest.approx(asked.prompt.mean(), rel=0.08)
    told = any("exponentially" in text for text in profile.source.assumed)
    assert told == (engine == "tensorrt-llm")


def test_what_prefix_caches_found_is_a_prefix_of_all_prompts(tmp_path: Path) -> None:
    prefixes = ", prefixes: {systemPrompts: 1, systemTokens: 512}"
    run_of = measured_runs.played(measured_runs.write(tmp_path / "run", prefixes=prefixes))
    _, profile = fitted(run_of)
    assert profile.measured is not None and profile.measured.found_in_cache is not None
    assert profile.shared_prefix == pytest.approx(512, abs=48)
    again = run.set_up(
        scenario.load(measured_runs.write(tmp_path / "again")), "fixed", run.RunOptions(profiles={SERVICE: profile})
    )
    run.play(again, engines=True)
    _, second = fitted(again)
    assert second.measured is not None
    assert second.measured.found_in_cache == pytest.approx(profile.measured.found_in_cache, abs=0.02)


@pytest.mark.parametrize("share", [(0.9, 1.0), (0.4, 0.7)])
def test_the_share_that_met_the_slo_is_within_what_the_buckets_say(made: SetUp, share: tuple[float, float]) -> None:
    requests = made.cluster.services[0].requests
    ttft = sorted(
        (first - at) / NS_PER_S
        for first, at in zip(requests.first_ns, requests.arrivals.arrival_ns.tolist(), strict=True)
        if first
    )
    target = ttft[int(len(ttft) * sum(share) / 2)]
    _, profile = fitted(made, ttft_s=target, tpot_s=0.05)
    assert profile.measured is not None and profile.measured.ttft_met is not None
    least, most = profile.measured.ttft_met
    assert least <= sum(one <= target for one in ttft) / len(ttft) <= most
    assert profile.measured.both_met is not None and profile.measured.both_met[1] <= most


# ---- counters and buckets ----


def series(*points: tuple[int, float]) -> Series:
    made_of = Series({})
    for t, value in points:
        made_of.append(t, value)
    return made_of


@pytest.mark.parametrize(
    ("counters", "grown"),
    [
        ([series((0, 5.0), (10, 15.0), (20, 25.0))], [0, 10, 20]),
        ([series((0, 5.0), (10, 15.0), (20, 3.0))], [0, 10, 13]),  # the process has restarted
        ([series((0, 0.0), (10, 4.0), (20, 8.0)), series((10, 6.0), (20, 7.0))], [0, 10, 15]),  # a pod that came later
        ([series((0, 2.0), (10, 4.0)), series((0, 0.0), (10, 1.0), (20, 2.0))], [0, 3, 4]),  # one that went
    ],
)
def test_counters_grow(counters: list[Series], grown: list[float]) -> None:
    assert counted.growth(counters, [0, 10, 20], 0).tolist() == grown


def test_what_was_in_flight_at_a_pod_that_is_gone_had_come() -> None:
    gauges = [series((0, 3.0), (10, 8.0)), series((0, 1.0), (10, 0.0), (20, 4.0))]
    assert counted.change(gauges, [0, 10, 20], 0).tolist() == [0, 4, 8]


def test_quantiles_have_the_mean_that_was_counted() -> None:
    buckets = Buckets((1, 2, 5, 10, 20), (10, 20, 40, 30), 100 * 8.0)
    levels = np.linspace(0, 1, 20_001)
    values = buckets.quantiles(levels.tolist())
    assert values.mean() == pytest.approx(8.0, rel=1e-3) and (np.diff(values) >= 0).all()
    assert buckets.quantiles([0.0, 0.1, 0.3, 0.7, 1.0]).tolist() == pytest.approx([1, 2, 5, 10, 20])


@pytest.mark.parametrize(("limit", "share"), [(2, (0.1, 0.1)), (3, (0.1, 0.3)), (0.5, (0.0, 0.0)), (99, (1.0, 1.0))])
def test_shares_differ_within_the_bucket_of_the_limit(limit: float, share: tuple[float, float]) -> None:
    assert Buckets((1, 2, 5, 10, 20), (10, 20, 40, 30)).share_within(limit) == pytest.approx(share)


def test_what_lies_beyond_the_last_edge_ends_where_nothing_is_longer() -> None:
    found = of_cumulative({1.0: 0, 2.0: 4, 5.0: 3, math.inf: 10}, None, lowest=0, beyond=8)
    assert found == Buckets((0, 1.0, 2.0, 5.0, 8), (0, 4, 0, 6), None)
    assert of_cumulative({1.0: 0, math.inf: 0}, None, lowest=0, beyond=8) is None


def test_nothing_counted_is_refused(made: SetUp) -> None:
    stored = StoredReadings(made.cluster.records.store)
    with pytest.raises(InputError, match="there are serving/chat"):
        readings.find_served(stored, "serving/other", 0, END_NS)
    served = readings.find_served(stored, SERVICE, 0, END_NS)
    with pytest.raises(InputError, match="expected at least 60 s"):
        measured.fit_measured(stored, served, SOURCE, measured.MeasuredPeriod(0, 30 * NS_PER_S))


def test_an_endpoint_picker_counts_what_arrives_where_it_is_named(made: SetUp) -> None:
    """Its series, taken from Envoy's: the same requests under its name and labels, in 2 objectives."""
    store = SeriesStore()
    for one in made.cluster.records.store:
        name, labels = one.labels["__name__"], {k: v for k, v in one.labels.items() if k != "__name__"}
        for t_ns, number in zip(one.times, one.values, strict=True):
            if name == readings.GATEWAY:
                for priority, part in (("0", number // 2), ("1", number - number // 2)):
                    objective = {"model_name": "chat", "target_model_name": "chat", "priority": priority}
                    store.append(readings.PICKER, objective, t_ns, part)
            else:
                store.append(name, labels, t_ns, number)
    stored, asked = StoredReadings(store), measured.MeasuredPeriod(0, END_NS)
    served = readings.find_served(stored, SERVICE, 0, END_NS, gateway='model_name="chat"')
    assert (served.counter, served.gateway) == (readings.PICKER, 'model_name="chat"')
    profile = measured.fit_measured(stored, served, SOURCE, asked)
    by_envoy = fitted(made)[1]
    assert profile.arrivals == by_envoy.arrivals
    assert any("Endpoint Picker" in one for one in profile.source.assumed)
    unnamed = readings.find_served(stored, SERVICE, 0, END_NS)
    assert unnamed.gateway == "", "two pools may serve one model"
    with pytest.raises(InputError, match="neither"):
        readings.find_served(stored, SERVICE, 0, END_NS, gateway='model_name="other"')


def test_a_backtest_plays_the_measured_traffic_after_a_lead(made: SetUp, tmp_path: Path) -> None:
    served, profile = fitted(made)
    stored = StoredReadings(made.cluster.records.store)
    held = MeasuredSide(stored, [served], 0, END_NS, profiles={SERVICE: profile}, lead_ns=90 * NS_PER_S)
    found: Backtest = backtest(scenario.load(measured_runs.write(tmp_path / "run", rate=7)), "fixed", held)
    finished = next(one for one in found.services[0].curves if one.name == "requests finished")
    measured_mean, simulated_mean = finished.means
    assert measured_mean == pytest.approx(simulated_mean, rel=0.1)  # and not seven times as many
    assert finished.simulated[0] == pytest.approx(profile.arrivals[0] / 60, rel=0.5)  # it ran before
    assert svg(found) == svg(found)
