"""Faults of what autoscalers see: samples that come late or are NaN, exporters that are silent, readiness that flaps."""

from __future__ import annotations

import math
from typing import Any

import pytest
from sim_builders import READINESS, arrivals, events, node, run_until, service, start, workload, world
from test_sim_scraping import PORT, VLLM, _exporter, _monitor, _scraper, _serving, _value

from tonnage.machines.cluster import SimulatedCluster
from tonnage.machines.pods import reconcile, stop_pod
from tonnage.simulation.faults import schedule_faults
from tonnage.simulation.scenario import FaultSpec

RECEIVED = 'envoy_cluster_upstream_rq_total{envoy_cluster_name="inference/model-a"}'
GPU_UTIL = "sum(DCGM_FI_DEV_GPU_UTIL)"


def _strike(cluster: SimulatedCluster, kind: str, at: int, **more: Any) -> None:
    schedule_faults([FaultSpec(kind=kind, at=f"{at}s", **more)], cluster, ())


def _watched(kind: str, *, at: int = 1040, **more: Any) -> SimulatedCluster:
    """One replica that gets a request every 15 s from 1001 s on, scraped at 1000, 1015, …, with one fault."""
    cluster = world()
    _exporter(cluster)
    _serving(cluster, *(1001.0 + 15 * i for i in range(30)), output=2)
    _strike(cluster, kind, at, **more)
    cluster.queue.push(cluster.now_ns, _scraper(VLLM, _monitor("monitoring", "exporter")))
    return cluster


def _counted(cluster: SimulatedCluster, *seconds: int) -> list[float | None]:
    found = []
    for second in seconds:
        run_until(cluster, second)
        found.append(_value(cluster, RECEIVED))
    return found


# ---- late samples ----


def test_a_late_sample_is_queried_when_it_has_come_and_has_the_time_at_which_it_was_taken() -> None:
    cluster = _watched("late-scrapes", delay="40s", duration="200s")
    assert _counted(cluster, 1031, 1046, 1084, 1086, 1101) == [2, 2, 2, 3, 4], "that of 1045 s comes at 1085 s"
    assert _value(cluster, f"timestamp({RECEIVED})") == 1060


def test_a_rate_over_late_samples_has_no_data_or_is_too_low() -> None:
    """Of the last two minutes those of 1090, 1105 and 1120 s have come: two requests in 30 s, which Prometheus takes to
    have gone on for the 10 s before and for half an interval after."""
    cluster = _watched("late-scrapes", delay="70s", duration="300s")
    run_until(cluster, 1200)
    assert _value(cluster, f"rate({RECEIVED}[1m])") is None
    assert _value(cluster, f"rate({RECEIVED}[2m])") == pytest.approx(2 / 30 * (10 + 30 + 7.5) / 120)


def test_samples_later_than_the_look_back_are_no_data() -> None:
    cluster = _watched("late-scrapes", delay="6m", duration="20m")
    assert _counted(cluster, 1329, 1331) == [2, None], "the last before the fault is of 1030 s"


def test_samples_on_their_way_when_later_ones_come_in_time_are_out_of_order() -> None:
    cluster = _watched("late-scrapes", delay="40s", duration="30s")
    assert _counted(cluster, 1074, 1076) == [2, 5], "those of 1045 and 1060 s would come at 1085 and 1100 s"
    run_until(cluster, 1110)
    assert _value(cluster, f"count_over_time({RECEIVED}[1m])") == 3, "of 1075, 1090 and 1105 s"


def test_the_end_of_a_series_comes_late_too() -> None:
    cluster = world()
    made = _serving(cluster, 1000.5, output=3)
    _strike(cluster, "late-scrapes", 1005, delay="50s", duration="300s")
    cluster.queue.push(cluster.now_ns, _scraper(VLLM))
    run_until(cluster, 1020)
    made.replicas = 0
    reconcile(cluster, made)
    running = "count(vllm:num_requests_running)"
    run_until(cluster, 1079)
    assert _value(cluster, running) == 1, "the scrape that found it gone was at 1030 s"
    run_until(cluster, 1081)
    assert _value(cluster, running) is None


# ---- NaN ----


def test_while_exporters_give_nan_queries_answer_nan_and_then_numbers_again() -> None:
    cluster = _watched("nan-samples", duration="60s")
    before, during, after = _counted(cluster, 1031, 1046, 1106)
    assert before == 2 and during is not None and math.isnan(during) and after == 7
    assert events(cluster, "FaultHitNothing") == []


def test_a_fault_of_gpus_is_one_of_dcgm_exporter_alone() -> None:
    cluster = _watched("scrape-failure", duration="60s", exporter="gpus")
    run_until(cluster, 1031)
    assert _value(cluster, GPU_UTIL) is not None
    run_until(cluster, 1046)
    assert _value(cluster, GPU_UTIL) is None
    assert _value(cluster, RECEIVED) == 3
    run_until(cluster, 1106)
    assert _value(cluster, GPU_UTIL) is not None


def test_a_fault_of_a_service_leaves_dcgm_exporter_alone() -> None:
    cluster = _watched("nan-samples", duration="60s", service="inference/model-a")
    run_until(cluster, 1046)
    found = _value(cluster, GPU_UTIL)
    assert found is not None and not math.isnan(found)


# ---- readiness ----


def _two(*at: float, output: int = 1) -> tuple[SimulatedCluster, Any]:
    cluster = world()
    made = workload(cluster, replicas=2, container=READINESS | PORT)
    found = service(cluster, made, arrivals(*at, output=output), "round-robin")
    start(cluster, made, node(cluster))
    run_until(cluster, 1000)
    assert len(found.endpoints) == 2
    return cluster, found


def test_a_pod_whose_readiness_flaps_is_an_endpoint_half_of_the_time_until_the_fault_is_over() -> None:
    cluster, found = _two()
    _strike(cluster, "readiness-flapping", 1010, workload="inference/model-a", period="20s", duration="50s")
    seen = []
    for second in range(1005, 1085, 10):
        run_until(cluster, second)
        seen.append(len(found.endpoints))
    assert seen == [2, 1, 2, 1, 2, 1, 2, 2]
    assert found.draining == []
    assert [one.count for one in cluster.events.rows.values() if one.reason == "Unhealthy"] == [3]


def test_what_a_pod_has_in_flight_goes_on_while_it_is_not_ready() -> None:
    cluster, found = _two(1009.0, 1009.1, output=500)
    _strike(cluster, "readiness-flapping", 1010, workload="inference/model-a", count=2, period="4s", duration="3s")
    run_until(cluster, 1011)
    assert found.endpoints == [] and found.in_flight == 2
    run_until(cluster, 1016)
    assert found.failed == 0 and found.in_flight == 0 and len(found.endpoints) == 2


def test_requests_that_no_ready_pod_can_take_fail() -> None:
    cluster, found = _two(1011.0)
    _strike(cluster, "readiness-flapping", 1010, workload="inference/model-a", count=2, period="4s", duration="3s")
    run_until(cluster, 1020)
    assert found.failed == 1


def test_a_pod_that_is_deleted_while_it_is_not_ready_does_not_come_back() -> None:
    cluster, found = _two()
    [first, _] = sorted(cluster.pods.values(), key=lambda pod: pod.name)
    _strike(cluster, "readiness-flapping", 1010, workload="inference/model-a", pod=first.name, duration="2m")
    run_until(cluster, 1015)
    stop_pod(cluster, first)
    run_until(cluster, 1060)
    assert len(found.endpoints) == 1 and found.draining == []


def test_without_a_ready_pod_the_fault_hits_nothing_and_it_is_said() -> None:
    cluster = world()
    workload(cluster)
    _strike(cluster, "readiness-flapping", 10, workload="inference/model-a")
    run_until(cluster, 20)
    assert events(cluster, "FaultHitNothing") == ["readiness-flapping: no such pod is Ready"]
