"""A Service that selects several Deployments, flags that simulated engines do not follow, and what a result counts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from sim_builders import EXAMPLE, MODEL, READINESS, node, run_until, start, workload, world

from tonnage.decisions import Applied, Launch, Reason, Ref, Refused
from tonnage.errors import InputError
from tonnage.simulation.recorder import Recorder
from tonnage.simulation.result import Result
from tonnage.simulation.run import run
from tonnage.simulation.scenario import load

Json = dict[str, Any]


def deployment(name: str, *flags: str, replicas: int = 1, gpus: int = 1) -> Json:
    args = ["--model", MODEL, "--max-model-len", "8192", *flags]
    resources = {"requests": {"cpu": "4", "memory": "24Gi"}, "limits": {"nvidia.com/gpu": str(gpus)}}
    container = {"name": "vllm", "image": "vllm/vllm-openai:v0.11.0", "args": args, "resources": resources}
    container["ports"] = [{"name": "http", "containerPort": 8000}]
    container["readinessProbe"] = {"httpGet": {"path": "/health", "port": "http"}}
    labels = {"app": "chat", "of": name}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [container]}}
    meta = {"name": name, "namespace": "inference"}
    spec = {"replicas": replicas, "selector": {"matchLabels": labels}, "template": template}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": meta, "spec": spec}


SERVICE: Json = {
    "apiVersion": "v1",
    "kind": "Service",
    "metadata": {"name": "chat", "namespace": "inference"},
    "spec": {"selector": {"app": "chat"}, "ports": [{"port": 80, "targetPort": "http"}]},
}


def played(
    folder: Path, *objects: Json, traffic: Json | None = None, policy: Json | None = None, **more: Any
) -> Result:
    (folder / "manifests").mkdir()
    (folder / "manifests/all.yaml").write_text(yaml.safe_dump_all([more.pop("service", SERVICE), *objects]))
    document: Json = {
        "kind": "Scenario",
        "name": "x",
        "duration": "12m",
        "region": "us-east-1",
        "slo": {"ttft": "2s", "tpot": "50ms", "grace": "8m"},
        "fleet": {"nodes": [{"instanceType": "g6e.12xlarge", "count": 1, "zone": "us-east-1a"}]},
        "traffic": [
            {
                "service": "inference/chat",
                "profile": str(EXAMPLE / "traffic/azure-2023-conv.yaml"),
                "rate": 0.2,
                "balancing": "round-robin",
            }
            | (traffic or {})
        ],
        "policies": {"p": {"manifests": "manifests"} | (policy or {})},
    } | more
    (folder / "scenario.yaml").write_text(yaml.safe_dump(document))
    return run(load(folder / "scenario.yaml"), "p")


@pytest.mark.parametrize("balancing", ["random", "round-robin", "least-requests"])
def test_every_deployment_that_a_service_selects_gets_its_requests(tmp_path: Path, balancing: str) -> None:
    alone, both = tmp_path / "alone", tmp_path / "both"
    alone.mkdir()
    both.mkdir()
    one = played(alone, deployment("a"), traffic={"balancing": balancing}).services[0]
    (two,) = played(both, deployment("a"), deployment("b"), traffic={"balancing": balancing}).services
    assert (two.workload, two.model) == ("inference/a, inference/b", MODEL)
    assert (one.max_ready_replicas, two.max_ready_replicas) == (1, 2)
    mean_one, mean_two = one.tpot_ms.mean, two.tpot_ms.mean
    assert mean_one is not None and mean_two is not None
    assert mean_two < 0.95 * mean_one, "each of two engines has half of the requests in its steps"


def test_a_service_feeds_deployments_of_different_sizes_and_leaves_out_what_has_no_engine(tmp_path: Path) -> None:
    other = deployment("web")
    other["spec"]["template"]["spec"]["containers"][0] |= {"image": "nginx:1.29", "args": []}
    found = played(tmp_path, other, deployment("a", replicas=2), deployment("b"))
    assert found.services[0].workload == "inference/a, inference/b"
    assert found.services[0].max_ready_replicas == 3


def test_the_slo_policy_says_that_it_sizes_one_workload(tmp_path: Path) -> None:
    scaled = {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": "a", "namespace": "inference"},
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "a"},
            "minReplicas": 1,
            "maxReplicas": 2,
            "metrics": [
                {
                    "type": "Resource",
                    "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}},
                }
            ],
        },
    }
    with pytest.raises(InputError, match=r"inference/chat selects inference/a, inference/b"):
        played(tmp_path, deployment("a"), deployment("b"), scaled, policy={"scaling": "slo"})


@pytest.mark.parametrize(
    ("flags", "gpus", "said"),
    [
        (["--pipeline-parallel-size", "2"], 2, {"--pipeline-parallel-size"}),
        (["--data-parallel-size=2"], 2, {"--data-parallel-size"}),
        (["-pp", "2", "--enable-expert-parallel"], 2, {"--pipeline-parallel-size", "--enable-expert-parallel"}),
        (["--speculative-config", '{"method": "ngram"}'], 1, {"--speculative-config"}),
        (["--pipeline-parallel-size", "1", "--scheduling-policy", "fcfs", "--port", "8000"], 1, set()),
    ],
)
def test_flags_that_simulated_engines_do_not_follow_are_findings(
    tmp_path: Path, flags: list[str], gpus: int, said: set[str]
) -> None:
    found = played(tmp_path, deployment("a", *flags, gpus=gpus), duration="1m")
    told = [one for one in found.findings if one.rule == "engine-flag-not-simulated"]
    assert {one.message.partition(":")[0] for one in told} == said
    assert all(one.where.line and "containers[0].args" in one.where.field for one in told)


def test_the_fewest_ready_replicas_count_from_the_start(tmp_path: Path) -> None:
    """Pods that have a place when the run begins serve from the start; those for which there is none make the least."""
    (service,) = played(tmp_path, deployment("a", replicas=2)).services
    assert (service.min_ready_replicas, service.max_ready_replicas) == (2, 2)
    cluster = world()
    made = workload(cluster, replicas=2, container=READINESS)
    start(cluster, made, node(cluster))
    run_until(cluster, 1000)
    assert (made.min_ready, made.max_ready) == (0, 2)


def test_refused_launches_are_recorded_and_not_counted() -> None:
    recorder = Recorder(10)
    launch = Launch(Ref("NodeClaim", "n"), "pool", "g6e.xlarge", "us-east-1a", "spot", 1, Reason("for pods"))
    for outcome in (Refused("sold out"), Applied(), Refused("sold out")):
        recorder.decided(0, "provisioner", launch, outcome)
    assert recorder.counts == {"Launch": 1}
    assert [one.outcome for one in recorder.decisions] == ["Refused: sold out", "Applied", "Refused: sold out"]


# ---- zones ----

ZONES = {"clientZones": {"us-east-1a": 1.0, "us-east-1b": 1.0}}


@pytest.mark.parametrize(
    ("annotations", "spec", "traffic", "severity", "begins"),
    [
        (
            {"service.kubernetes.io/topology-mode": "Auto"},
            {},
            ZONES,
            "warning",
            "service.kubernetes.io/topology-mode: Auto",
        ),
        (
            {"service.kubernetes.io/topology-aware-hints": "auto"},
            {},
            {},
            "warning",
            "service.kubernetes.io/topology-aware-hints",
        ),
        (
            {"service.kubernetes.io/topology-mode": "Auto"},
            {"trafficDistribution": "PreferClose"},
            ZONES,
            "warning",
            "service.kubernetes.io/topology-mode: Auto is not followed",
        ),
        (
            {},
            {"trafficDistribution": "PreferClose"},
            ZONES,
            "info",
            "PreferClose: what goes to another zone is counted",
        ),
        ({}, {"trafficDistribution": "PreferSameZone"}, {}, "warning", "PreferSameZone has no effect"),
        ({}, {"trafficDistribution": "PreferSameNode"}, ZONES, "warning", "PreferSameNode is not followed"),
    ],
)
def test_what_a_service_asks_of_zones_and_does_not_get_is_a_finding(
    tmp_path: Path, annotations: Json, spec: Json, traffic: Json, severity: str, begins: str
) -> None:
    service = {**SERVICE, "metadata": {**SERVICE["metadata"], "annotations": annotations}}
    service["spec"] = {**SERVICE["spec"], **spec}
    found = played(tmp_path, deployment("a"), traffic=traffic, duration="1m", service=service)
    (told,) = [one for one in found.findings if one.rule == "zones-not-simulated"]
    assert (told.severity, told.object.name) == (severity, "chat")
    assert told.message.startswith(begins)
    assert "cost neither money nor time" in told.message
    assert told.where.line
    routing = found.services[0].routing
    if "PreferClose" in spec.values() and not annotations:
        assert routing and routing.cross_zone is not None


def test_a_service_that_says_nothing_of_zones_has_no_finding(tmp_path: Path) -> None:
    found = played(tmp_path, deployment("a"), traffic=ZONES, duration="1m")
    assert all(one.rule != "zones-not-simulated" for one in found.findings)
