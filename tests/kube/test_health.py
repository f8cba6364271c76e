"""What a controller says about itself over HTTP."""

from __future__ import annotations

import random
import time
import urllib.error
import urllib.request
from collections.abc import Iterator

import pytest
from prometheus_client.parser import text_string_to_metric_families
from scripted_api import ScriptedApi

from tonnage.errors import InputError
from tonnage.kube.informer import Informers
from tonnage.kube.reflector import Delays
from tonnage.kube.resources import NODE_POOLS, PODS
from tonnage.kube.verbs import Client
from tonnage.live.healthz import Health, HealthServer, Metrics
from tonnage.objects.core import Pod
from tonnage.objects.karpenter import NodePool


@pytest.fixture
def health() -> Health:
    return Health()


@pytest.fixture
def metrics() -> Metrics:
    return Metrics()


@pytest.fixture
def server(health: Health, metrics: Metrics) -> Iterator[HealthServer]:
    made = HealthServer("127.0.0.1:0", health, metrics)
    yield made
    made.close()


def ask(server: HealthServer, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{server.port}{path}", timeout=5) as reply:
            return reply.status, reply.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def samples(metrics: Metrics) -> dict[str, float]:
    found = {}
    for family in text_string_to_metric_families(metrics.render().decode()):
        for sample in family.samples:
            labels = ",".join(f"{k}={v}" for k, v in sorted(sample.labels.items()))
            found[f"{sample.name}{{{labels}}}"] = sample.value
    return found


def test_with_nothing_wrong_all_is_ok(server: HealthServer) -> None:
    assert ask(server, "/healthz") == (200, "ok\n")
    assert ask(server, "/readyz?verbose") == (200, "ok\n")
    assert ask(server, "/else") == (404, "there is /healthz, /readyz and /metrics\n")


def test_readyz_names_what_is_degraded_and_healthz_stays(server: HealthServer, health: Health) -> None:
    wrong = {"pods": "not allowed: list pods", "nodeclaims.karpenter.sh": "no CRD"}
    health.add_ready(lambda: wrong)
    assert ask(server, "/readyz") == (503, "nodeclaims.karpenter.sh: no CRD\npods: not allowed: list pods\n")
    assert ask(server, "/healthz") == (200, "ok\n")
    wrong.clear()
    assert ask(server, "/readyz") == (200, "ok\n")


def test_what_has_stopped_fails_both(server: HealthServer, health: Health) -> None:
    health.add_alive(lambda: {"loop": "ended"})
    assert ask(server, "/healthz") == (503, "loop: ended\n")
    assert ask(server, "/readyz") == (503, "loop: ended\n")


def test_metrics_count_decisions_errors_and_leadership(server: HealthServer, metrics: Metrics) -> None:
    metrics.decided("scheduler", "Bind", "applied")
    metrics.decided("scheduler", "Bind", "applied")
    metrics.ticked("scheduler", 0.003)
    metrics.api_error("409")
    leading = [False]
    metrics.watch_leader("tonnage-scheduler", lambda: leading[0])
    metrics.watch_events(lambda: 7)
    found = samples(metrics)
    assert found["tonnage_decisions_total{kind=Bind,loop=scheduler,outcome=applied}"] == 2
    assert found["tonnage_tick_seconds_bucket{le=0.005,loop=scheduler}"] == 1
    assert found["tonnage_tick_seconds_bucket{le=0.0025,loop=scheduler}"] == 0
    assert found["tonnage_api_errors_total{code=409}"] == 1
    assert found["tonnage_leader{lease=tonnage-scheduler}"] == 0
    assert found["tonnage_events_dropped{}"] == 7
    leading[0] = True
    assert samples(metrics)["tonnage_leader{lease=tonnage-scheduler}"] == 1
    status, text = ask(server, "/metrics")
    assert status == 200
    assert "tonnage_decisions_total" in text


def test_metrics_show_informers(metrics: Metrics) -> None:
    api = ScriptedApi()
    api.put("/api/v1/pods", "a", "default", spec={"containers": []})
    api.absent.add(NODE_POOLS.path())
    informers = Informers(Client(api), time.time, random.Random(1), delays=Delays(watch=(5, 6)))
    metrics.watch_informers(informers)
    pods = informers.add(PODS, Pod)
    informers.add(NODE_POOLS, NodePool)
    deadline = time.monotonic() + 5
    while not (pods.synced and informers.problems()) and time.monotonic() < deadline:
        informers.pump(0.02)
    found = samples(metrics)
    assert found["tonnage_informer_objects{resource=pods}"] == 1
    assert found["tonnage_informer_degraded{resource=pods}"] == 0
    assert found["tonnage_informer_degraded{resource=nodepools.karpenter.sh}"] == 1
    assert found["tonnage_informer_backlog{}"] == 0
    assert 0 <= found["tonnage_informer_silence_seconds{resource=pods}"] < 5
    assert 0 <= found["tonnage_informer_lag_seconds{resource=pods}"] < 5
    assert "tonnage_informer_silence_seconds{resource=nodepools.karpenter.sh}" not in found
    assert found["tonnage_informer_watch_restarts_total{resource=pods}"] == 0
    assert found["tonnage_informer_relists_total{resource=pods}"] == 0
    assert informers.stop()
    api.close()


def test_an_address_that_cannot_be_had_is_bad_input(server: HealthServer, health: Health, metrics: Metrics) -> None:
    with pytest.raises(InputError, match=f"cannot listen on 127.0.0.1:{server.port}"):
        HealthServer(f"127.0.0.1:{server.port}", health, metrics)
    with pytest.raises(InputError, match="'8080x': not an address"):
        HealthServer("8080x", health, metrics)
