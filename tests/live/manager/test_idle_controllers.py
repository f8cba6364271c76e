"""A controller that does nothing says why: with --once, in the log, as an event and in ``/readyz?verbose``."""

from __future__ import annotations

import signal
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cli.cli_builders import Ran, tonnage
from tonnage.apiserver import kubeconfig
from tonnage.apiserver.api import Api
from tonnage.apiserver.http import Server
from tonnage.apiserver.inprocess import InProcess
from tonnage.control import idle
from tonnage.control.idle import Idle
from tonnage.decisions import Ref
from tonnage.kube.resources import DEPLOYMENTS, HPAS, NODE_POOLS, PODS
from tonnage.kube.verbs import Client
from tonnage.live.healthz import Health, HealthServer, Metrics
from tonnage.live.idling import IdleReasons

ASKS = {
    "tonnage.dev/autoscale": "slo",
    "tonnage.dev/max-replicas": "4",
    "tonnage.dev/requests-per-second-per-replica": "2",
    "tonnage.dev/requests-in-flight-per-replica": "8",
    "tonnage.dev/received-query": "received_total",
    "tonnage.dev/in-flight-query": "in_flight",
}
POD = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "x"}]}}


@pytest.fixture
def api() -> Api:
    return Api()


@pytest.fixture
def config(api: Api, tmp_path: Path) -> Iterator[str]:
    kept = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    with Server(api) as server:
        yield str(kubeconfig.write(tmp_path / "config", server.url))
    for number, handler in kept.items():
        signal.signal(number, handler)


def deployment(annotations: dict[str, str]) -> dict[str, Any]:
    spec = {"selector": {"matchLabels": {"a": "b"}}, "template": POD, "replicas": 1}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "m", "annotations": annotations},
        "spec": spec,
    }


def node_pool(buys: str) -> dict[str, Any]:
    template = {
        "spec": {
            "nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "gpu"},
            "requirements": [],
        }
    }
    return {
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodePool",
        "metadata": {"name": "gpu", "annotations": {idle.BUYS: buys}},
        "spec": {"template": template},
    }


HPA = {
    "apiVersion": "autoscaling/v2",
    "kind": "HorizontalPodAutoscaler",
    "metadata": {"name": "h"},
    "spec": {"maxReplicas": 3, "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "m"}},
}


def once(config: str, capfd: pytest.CaptureFixture[str], *options: str) -> Ran:
    return tonnage(capfd, "controller", "--once", "--kubeconfig", config, *options)


def test_where_nobody_asked_it_says_so_and_all_is_well(config: str, capfd: pytest.CaptureFixture[str]) -> None:
    done = once(config, capfd)
    assert done.code == 0
    assert "scheduler: no pod has schedulerName: tonnage\n" in done.err
    assert "replicas: no Deployment has the annotation tonnage.dev/autoscale: slo\n" in done.err
    assert 'nodes: no NodePool has the annotation tonnage.dev/buys: "true"\n' in done.err
    assert "error" not in done.err


@pytest.mark.parametrize(
    ("annotations", "hpa", "says"),
    [
        (ASKS, False, "the replicas stay as they are: no Prometheus to ask 'received_total'"),
        (ASKS, True, "HorizontalPodAutoscaler"),
        ({**ASKS, "tonnage.dev/autoscale": "hpa"}, False, 'tonnage.dev/autoscale: "hpa", expected slo'),
        ({"tonnage.dev/autoscale": "slo"}, False, "tonnage.dev/max-replicas is missing"),
    ],
)
def test_what_a_deployment_asked_for_in_vain_is_an_error(
    api: Api, config: str, capfd: pytest.CaptureFixture[str], annotations: dict[str, str], hpa: bool, says: str
) -> None:
    client = Client(InProcess(api))
    client.create(DEPLOYMENTS, deployment(annotations), "default")
    if hpa:
        client.create(HPAS, HPA, "default")
    done = once(config, capfd, "--only", "replicas")
    assert done.code == 1
    (line,) = [line for line in done.err.splitlines() if line.startswith("error: ")]
    assert line.startswith("error: replicas: Deployment default/m: ") and says in line


@pytest.mark.parametrize(
    ("buys", "says"),
    [("true", "there is no EC2NodeClass gpu"), ("yes", 'tonnage.dev/buys: "yes", expected true')],
)
def test_what_a_node_pool_asked_for_in_vain_is_an_error(
    api: Api, config: str, capfd: pytest.CaptureFixture[str], buys: str, says: str
) -> None:
    Client(InProcess(api)).create(NODE_POOLS, node_pool(buys))
    done = once(config, capfd, "--only", "nodes")
    assert done.code == 1
    assert "error: nodes: NodePool gpu: " in done.err and says in done.err


def test_a_pod_for_this_scheduler_is_enough(api: Api, config: str, capfd: pytest.CaptureFixture[str]) -> None:
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p"},
        "spec": {**POD["spec"], "schedulerName": "tonnage"},
    }
    Client(InProcess(api)).create(PODS, pod, "default")
    done = once(config, capfd, "--only", "scheduler")
    assert done.code == 0 and "no pod has" not in done.err


class Noted:
    def __init__(self) -> None:
        self.events: list[tuple[Ref, str, str]] = []

    def note(self, about: Ref, reason: str, message: str) -> None:
        self.events.append((about, reason, message))


def test_a_reason_is_told_and_noted_once_for_each_time_that_it_comes() -> None:
    told: list[str] = []
    world: Any = Noted()
    standing = IdleReasons(lambda controller, why: told.append(f"{controller}: {why}"))
    about = Ref("Deployment", "m", "default", "u")
    none, empty = Idle("NoDeployments", "nobody asked"), Idle("NoMetrics", "q answers nothing", about)
    for found in ([none], [none], [empty], [empty], [], [empty]):
        standing.say("replicas", found, world)
    assert told == ["replicas: nobody asked"] + ["replicas: Deployment default/m: q answers nothing"] * 2
    assert world.events == [(about, "NoMetrics", "q answers nothing")] * 2
    assert standing.asked()
    assert standing.listed() == ["replicas: Deployment default/m: q answers nothing"]
    standing.say("replicas", [none], world)
    assert not standing.asked()


def test_readyz_lists_them_where_asked_and_stays_ready() -> None:
    health = Health()
    health.idle = lambda: ["replicas: nobody asked"]
    server = HealthServer("127.0.0.1:0", health, Metrics())
    try:
        for query, body in (("", "ok\n"), ("?verbose", "ok\nidle: replicas: nobody asked\n")):
            with urllib.request.urlopen(f"http://127.0.0.1:{server.port}/readyz{query}", timeout=5) as answer:
                assert (answer.status, answer.read().decode()) == (200, body)
    finally:
        server.close()
