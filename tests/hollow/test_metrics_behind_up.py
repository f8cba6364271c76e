"""Behind `tonnage up` GPUs and engines have the series that they have in a run, and PromQL answers over HTTP."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from live.prometheus import measured_runs
from tonnage.hollow.up import Up, UpSettings
from tonnage.live.prometheus import Prometheus
from tonnage.metrics.promql import Vector
from tonnage.metrics.store import NAME, SeriesStore
from tonnage.simulation import run, scenario
from tonnage.simulation.driver import LoopDriver
from tonnage.traffic import readings
from tonnage.units import NS_PER_S

SPEED, WAIT_S = 50.0, 30.0


REPOSITORY = Path(__file__).resolve().parents[2]
MONITORING = REPOSITORY / "examples" / "traffic-surge" / "manifests" / "corrected" / "monitoring.yaml"
"""dcgm-exporter on every node, and who scrapes it."""


class Silent:
    """Implements Observer."""

    def decided(self, *_: object) -> None: ...
    def ticked(self, *_: object) -> None: ...
    def failed(self, loop: str, error: Exception) -> None:
        raise error


def names(store: SeriesStore) -> dict[str, frozenset[str]]:
    """The labels that the series of each name have."""
    found: dict[str, set[str]] = {}
    for series in store:
        found.setdefault(series.labels[NAME], set()).update(series.labels)
    return {name: frozenset(labels) for name, labels in found.items()}


def written(folder: Path, minutes: int) -> Path:
    measured_runs.write(folder, minutes=minutes)
    shutil.copy(MONITORING, folder / "fixed")
    return folder


@pytest.fixture(scope="module")
def simulated(tmp_path_factory: pytest.TempPathFactory) -> dict[str, frozenset[str]]:
    folder = written(tmp_path_factory.mktemp("run") / "run", 6)
    made = run.set_up(scenario.load(folder), "fixed")
    machine = LoopDriver(made.cluster, made.recorder(), check=False)
    machine.start(made.loops(), made.scraper(everything=True))
    machine.play(made.scenario.duration_ns, None)
    return names(made.cluster.records.store)


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    folder = written(tmp_path_factory.mktemp("up") / "run", 60)
    made = run.set_up(scenario.load(folder), "fixed")
    with Up(made, UpSettings(speed=SPEED, prometheus_port=0), Silent()) as running:
        yield running


def asked(up: Up, query: str) -> Vector:
    """The answer once there is one."""
    deadline = time.monotonic() + WAIT_S
    with Prometheus(up.prometheus_url) as server:
        while time.monotonic() < deadline:
            found = server.measure(query, up.clock.now_ns())
            assert isinstance(found, Vector)
            if len(found):
                return found
            time.sleep(0.2)
    raise AssertionError(f"{query} had no answer")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("query", "labels"),
    [
        ("DCGM_FI_DEV_GPU_UTIL > 0", {"gpu", "Hostname", "pod", "namespace"}),
        ("DCGM_FI_PROF_PIPE_TENSOR_ACTIVE > 0", {"gpu", "Hostname"}),
        ("sum by (service) (rate(vllm:request_success_total[2m])) > 0", {"service"}),
        ("histogram_quantile(0.5, sum by (le) (rate(vllm:time_to_first_token_seconds_bucket[2m]))) > 0", set()),
        ("envoy_cluster_upstream_rq_total > 0", {"envoy_cluster_name"}),
    ],
)
def test_a_query_is_answered(up: Up, query: str, labels: set[str]) -> None:
    for sample in asked(up, query):
        assert labels <= set(sample.labels)


@pytest.mark.slow
def test_the_series_are_those_of_a_run(up: Up, simulated: dict[str, frozenset[str]]) -> None:
    asked(up, "vllm:time_to_first_token_seconds_bucket > 0")
    with up.lock:
        found = names(up.made.cluster.records.store)
    assert found == simulated
    assert any(name.startswith("DCGM_FI_") for name in found)


@pytest.mark.slow
def test_what_is_asked_for_a_traffic_profile_is_there(up: Up) -> None:
    asked(up, "increase(vllm:request_success_total[2m]) > 0")
    end_ns = up.clock.now_ns()
    with Prometheus(up.prometheus_url) as server:
        served = readings.find_served(server, measured_runs.SERVICE, end_ns - 120 * NS_PER_S, end_ns)
        assert served.engine.engine == "vllm" and served.gateway
        assert server.window(served.of(served.engine.finished), end_ns - 120 * NS_PER_S, end_ns)
